"""Each Python block of README.md runs alone, as written: with a key, and without one."""

import json
import os
import subprocess
import sys

import pytest

from palaver.models.providers import PROVIDERS
from tests.docs.test_examples import ROOT, blocks
from tests.loopback import serve

pytestmark = pytest.mark.finding("F-62")

BLOCKS = [pytest.param(code, id=f"line {line}") for line, code in blocks(ROOT / "README.md")]
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-8",
    "content": [],
    "stop_reason": None,
    "usage": {"input_tokens": 9, "output_tokens": 1},
}
EVENTS = [
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Until six."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
    {"type": "message_stop"},
]
STREAMED = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in EVENTS).encode()
WHOLE = json.dumps(MESSAGE | {"content": [{"type": "text", "text": "Until six."}], "stop_reason": "end_turn"}).encode()


def run(code, folder, **env):
    """Run a block as a program, in a folder of its own, with no keys but those given."""
    keys = {name for row in PROVIDERS.values() for name in (*row.keys, *row.bases)}
    kept = {name: text for name, text in os.environ.items() if name not in keys}
    env = {**kept, "NO_PROXY": "*", **env}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("code", BLOCKS)
def test_a_block_runs_alone(code, tmp_path):
    with serve(WHOLE if ".ask(" in code else STREAMED) as server:
        done = run(code, tmp_path, ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert not server.requests or "Until six." in done.stdout


@pytest.mark.parametrize("code", [each for each in BLOCKS if "claude" in each.values[0]])
def test_a_block_without_a_key_names_the_variable(code, tmp_path):
    done = run(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line == "failed anthropic: no API key: set ANTHROPIC_API_KEY, or pass key="
