"""The official clients for Node, through the gateway, to a model of every wire: a call, its result, and an answer.

The cases are those of ``tests/gateway/test_official_clients.py``. ``make test-clients`` installs the clients.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from palaver.core.messages import ToolMessage
from palaver.testing import rules
from tests.gateway.running import PROVIDERS
from tests.gateway.test_official_clients import DONE, RESULT, Script

FOLDER = Path(__file__).parent
PACKAGES = Path(os.environ.get("PALAVER_NODE_SDKS") or FOLDER / "node_modules")
CLIENTS = {
    "openai_chat": "openai",
    "openai_responses": "openai",
    "anthropic_messages": "@anthropic-ai/sdk",
    "google_generate": "@google/genai",
    "bedrock_converse": "@aws-sdk/client-bedrock-runtime",
    "cohere_chat": "cohere-ai",
    "ollama_chat": "ollama",
}
"""Of each wire: its client's package."""

if shutil.which("node") is None or not PACKAGES.is_dir():
    pytest.skip("needs node, and the clients that make test-clients installs", allow_module_level=True)


@pytest.fixture(scope="module")
def ask(gateway):
    """A function that asks the gateway with a client; one process of Node does so for all tests."""
    command = ["node", str(FOLDER / "sdks.mjs"), str(PACKAGES.resolve())]
    variables = {"PATH": os.environ["PATH"], "NO_PROXY": "127.0.0.1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables) as process:

        def ask_(client, model, *, stream):
            if not (PACKAGES / CLIENTS[client]).is_dir():
                pytest.skip(f"needs the package {CLIENTS[client]} of Node in PALAVER_NODE_SDKS")
            question = {"client": client, "url": gateway, "model": model, "stream": stream}
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask_
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.row("GW-01")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model_wire", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_call_its_result_and_an_answer(provider, ask, client, model_wire, stream):
    script = provider.respond = Script(model_wire, stream=stream)
    got = ask(client, model_wire, stream=stream)
    assert got == {"arguments": {"city": "Husum"}, "text": DONE}, got.get("error")
    assert len(script.requests) == 2
    for request, body in script.requests:
        assert rules.check_request(model_wire, body) == []
        assert [each.name for each in request.tools] == ["weather"]
    result = next(each for each in script.requests[1][0].messages if isinstance(each, ToolMessage))
    assert RESULT in result.text or RESULT in json.dumps(json.loads(script.requests[1][1]))
