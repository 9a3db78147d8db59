"""Codebuff's own SDK takes what we write: it turns our messages into those it sends, and checks them as it does.

What it does with a history is not among what it exports, so a copy of its bundle that exports it is loaded.
"""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from palaver import transcripts
from tests.transcripts.peers.node import MODULES
from tests.transcripts.samples import FILES, IDS, origin

BUNDLE = MODULES / "@codebuff" / "sdk" / "dist" / "index.mjs"
NODE = shutil.which("node")
SKIPPED = "no node" if NODE is None else f"no @codebuff/sdk in {MODULES} (PALAVER_NODE_PEERS)"
pytestmark = pytest.mark.skipif(NODE is None or not BUNDLE.is_file(), reason=SKIPPED)

CODEBUFF = transcripts.get("codebuff")
PROGRAM = """
import { readFileSync } from 'node:fs'
import { convertCbToModelMessages as convert, withMessageHistory } from './sdk.mjs'
const given = JSON.parse(readFileSync('given.json', 'utf8'))
const state = { sessionState: { mainAgentState: { messageHistory: [] } }, output: {} }
console.log(JSON.stringify(given.map((messages) => {
  const run = withMessageHistory({ runState: state, messages })
  const held = run.sessionState.mainAgentState.messageHistory
  try {
    return { held, sent: convert({ messages: held, includeCacheControl: true }) }
  } catch (error) {
    return { held, error: String(error) }
  }
})))
"""


@pytest.fixture(scope="module")
def sdk(tmp_path_factory):
    """A function that gives conversations to the SDK and returns what it holds, and sends, of each."""
    folder = tmp_path_factory.mktemp("codebuff")
    (folder / "node_modules").symlink_to(MODULES)
    bundle = BUNDLE.read_text(encoding="utf-8")
    (folder / "sdk.mjs").write_text(bundle + "\nexport { convertCbToModelMessages }\n", encoding="utf-8")
    (folder / "run.mjs").write_text(PROGRAM, encoding="utf-8")

    def run(conversations):
        (folder / "given.json").write_text(json.dumps(conversations), encoding="utf-8")
        done = subprocess.run(
            [str(NODE), "run.mjs"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return json.loads(done.stdout)

    return run


def test_the_sdk_takes_every_conversation_that_we_write(sdk):
    given, labels = [], []
    for (name, path), label in zip(FILES, IDS, strict=True):
        file_format = transcripts.get(name)
        if file_format.record_reader is None or label == "codebuff-first.json":
            continue
        for transcript in file_format.read(path.read_bytes(), origin(path)):
            if name == "codebuff":  # without its odd records, which are not ours to mend
                continue
            given.append(json.loads(CODEBUFF.write(transcript).body))
            labels.append(label)
    assert given
    for label, messages, answer in zip(labels, given, sdk(given), strict=True):
        assert "error" not in answer, (label, answer)
        assert answer["held"] == messages, label
        results = [each for each in answer["sent"] if each["role"] == "tool"]
        assert len(results) >= sum(each["role"] == "tool" for each in messages), label


def test_what_the_sdk_holds_is_read_equal(sdk):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "go"}], "tags": ["USER_PROMPT"], "sentAt": 1763000000000},
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": "hm", "providerOptions": {"anthropic": {"signature": "S"}}},
                {"type": "tool-call", "toolCallId": "c", "toolName": "t", "input": {"a": 1}},
            ],
        },
        {"role": "tool", "toolCallId": "c", "toolName": "t", "content": [{"type": "json", "value": {"b": 2}}]},
    ]
    (answer,) = sdk([messages])
    data = json.dumps(answer["held"]).encode()
    (transcript,), drift = CODEBUFF.read_with_unknown(data)
    assert drift == ()
    assert CODEBUFF.write(transcript).body == data
    assert [each["role"] for each in answer["sent"]] == ["user", "assistant", "tool"]


def test_the_sdk_refuses_what_is_none_of_its_messages(sdk):
    (answer,) = sdk([[{"role": "user", "content": [{"type": "file", "data": "JVBERi0="}]}]])
    assert "failed schema validation" in answer["error"]
