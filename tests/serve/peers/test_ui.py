"""The official packages of Node read what the endpoints stream: the AI SDK's own chat, and AG-UI's own agent."""

import json
import socket
import subprocess
import sys
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.transcripts.peers.node import MODULES, needed

NUMBERS = count()
FOLDER = Path(__file__).parent
SERVER = """
import sys
import uvicorn
from starlette.applications import Starlette
from palaver.serve.ui import AgUiEndpoint, AiSdkEndpoint
from palaver.store.memory import MemoryStore
from tests.serve.ui.served import agent

store = MemoryStore()
routes = [
    *AiSdkEndpoint(agent(), store=store).routes("/chat"),
    *AiSdkEndpoint(agent()).routes("/bare"),
    *AgUiEndpoint(agent(), store=store).routes("/agui"),
]
uvicorn.run(Starlette(routes=routes), fd=int(sys.argv[1]), log_level="error")
"""


@pytest.fixture(scope="module")
def url():
    needed("ai7", "@ag-ui/client")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.set_inheritable(True)
        command = [sys.executable, "-c", SERVER, str(listening.fileno())]
        process = subprocess.Popen(command, pass_fds=[listening.fileno()], cwd=FOLDER.parents[2])
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            httpx.get(f"{address}/chat/none/stream", timeout=60)
            yield address
        finally:
            process.terminate()
            process.wait()


def run(script, *arguments, **given):
    done = subprocess.run(
        ["node", FOLDER / script, MODULES, *arguments],
        input=json.dumps(given).encode(),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture(params=["ai5", "ai6", "ai7"])
def chat(request, url):
    needed(request.param)
    named = []

    def chat_(*steps, path="/chat"):
        named.append(f"{request.param}-{next(NUMBERS)}")
        return run("ai_sdk.mjs", request.param, f"{url}{path}", id=named[-1], steps=steps)

    chat_.load = lambda: httpx.get(f"{url}/chat/{named[-1]}").json()
    chat_.approves = request.param != "ai5"  # approvals came with version 6
    return chat_


def parts(found, *fields):
    return [tuple(part.get(each) for each in fields) for part in found["messages"][-1]["parts"]]


def test_text_reasoning_and_two_calls_are_read(chat):
    found = chat({"send": "weather"})
    assert (found["status"], found["errors"]) == ("ready", [])
    assert parts(found, "type", "text", "toolCallId", "state") == [
        ("step-start", None, None, None),
        ("reasoning", "hm", None, "done"),
        ("text", "I look.", None, "done"),
        ("dynamic-tool", None, "Husum", "output-available"),
        ("dynamic-tool", None, "Kiel", "output-available"),
        ("step-start", None, None, None),
        ("text", "Done: ", None, "done"),
    ]


@pytest.mark.parametrize(
    ("approved", "state", "text"), [(True, "output-available", "Done: booked 7"), (False, "output-denied", "too dear")]
)
def test_an_approval_goes_there_and_back(chat, approved, state, text):
    if not chat.approves:
        pytest.skip("this version of the AI SDK has no approvals")
    found = chat({"send": "book"}, {"approve": approved, "id": "b1", "reason": "too dear"})
    assert (len(found["messages"]), found["errors"]) == (2, [])
    assert [each for each in parts(found, "toolCallId", "state") if each[0]] == [("b1", state)]
    assert text in found["messages"][-1]["parts"][-1]["text"]


def test_a_message_behind_calls_that_wait_is_read(chat):
    found = chat({"send": "where"}, {"send": "one"})
    assert (found["status"], found["errors"]) == ("ready", [])
    assert parts(found, "type", "text")[-1] == ("text", "Hello one")
    if chat.approves:
        found = chat({"send": "book"}, {"approve": True, "id": "b1", "hold": True}, {"send": "one"})
        assert (found["status"], found["errors"], len(found["messages"])) == ("ready", [], 4)
        assert [each for each in parts(found, "toolCallId", "state") if each[0]] == [("b1", "output-available")]
        assert parts(found, "type", "text")[-1] == ("text", "Hello one")


def test_the_client_adds_the_output_of_its_own_tool(chat):
    found = chat({"send": "where"}, {"tool": "where", "call": "where1", "output": "Husum"})
    assert (found["status"], found["errors"], len(found["messages"])) == ("ready", [], 2)
    assert parts(found, "type", "state")[-1] == ("text", "done")
    assert found["messages"][-1]["parts"][-1]["text"] == "Done: Husum"


def test_errors_of_a_tool_and_of_a_run_are_sent(chat):
    found = chat({"send": "broken"}, {"send": "fail"})
    assert found["errors"] == ["The run failed."]
    assert any(part.get("state") == "output-error" for part in found["messages"][1]["parts"])


@pytest.mark.parametrize("path", ["/chat", "/bare"])
def test_a_conversation_goes_on_and_is_answered_again(chat, path):
    found = chat({"send": "one"}, {"regenerate": True}, {"send": "two"}, path=path)
    assert [each["parts"][-1]["text"] for each in found["messages"]] == ["one", "Hello one", "two", "Hello two"]


@pytest.mark.parametrize("steps", [["weather"], ["book"], ["where"], ["broken", "one"]])
def test_a_page_loads_what_the_chat_had(chat, steps):
    if not chat.approves and "book" in steps:
        pytest.skip("this version of the AI SDK has no approvals")
    found = chat(*({"send": each} for each in steps))
    for was, now in zip(found["messages"], chat.load(), strict=True):
        assert (was["role"], len(was["parts"])) == (now["role"], len(now["parts"]))
        for before, after in zip(was["parts"], now["parts"], strict=True):
            assert after.items() <= {"state": "done", **before}.items()


@pytest.mark.parametrize("path", ["/chat", "/bare"])
def test_an_earlier_message_is_edited_and_answered_again(chat, path):
    found = chat({"send": "one"}, {"send": "two"}, {"send": "edited", "at": 2}, path=path)
    assert [each["parts"][-1]["text"] for each in found["messages"]] == ["one", "Hello one", "edited", "Hello edited"]
    found = chat({"send": "one"}, {"send": "two"}, {"regenerate": True, "at": 1}, {"send": "count"}, path=path)
    assert [each["parts"][-1]["text"] for each in found["messages"]] == ["one", "Hello one", "count", "Done: counted"]


def test_a_stream_is_stopped_and_resumed(chat):
    assert chat({"stop": "slow", "after": 300})["status"] == "ready"
    read, none = chat({"resume": "slow", "after": 300}, {"reconnect": True})["said"]
    assert read["parts"][-1]["text"] == "Hello slow"
    assert none is None


def test_ag_ui_reads_messages_calls_and_results(url):
    needed("@ag-ui/client")
    found = run("ag_ui.mjs", f"{url}/agui", id="a", steps=[{"send": "weather"}, {"send": "one"}])
    assert found["errors"] == []
    assert [each["role"] for each in found["messages"]] == [
        "user", "reasoning", "assistant", "tool", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert [call["id"] for call in found["messages"][2]["toolCalls"]] == ["Husum", "Kiel"]
    assert found["messages"][-1]["content"] == "Hello one"


def test_ag_ui_resumes_an_interrupt(url):
    needed("@ag-ui/client")
    answer = [{"interruptId": "b1", "status": "resolved", "payload": {"approved": True}}]
    found = run("ag_ui.mjs", f"{url}/agui", id="b", steps=[{"send": "book"}, {"resume": answer}])
    finished = [each["outcome"]["type"] for each in found["events"] if each["type"] == "RUN_FINISHED"]
    assert (finished, found["errors"]) == (["interrupt", "success"], [])
    assert found["messages"][-1]["content"] == "Done: booked 7"


def test_ag_ui_gets_the_error_of_a_failed_run(url):
    needed("@ag-ui/client")
    found = run("ag_ui.mjs", f"{url}/agui", id="c", steps=[{"send": "fail"}, {"send": "one"}])
    assert [each["message"] for each in found["events"] if each["type"] == "RUN_ERROR"] == ["The run failed."]
    assert found["messages"][-1]["content"] == "Hello one"


def test_ag_ui_runs_a_tool_of_the_front_end_and_shares_its_state(url):
    needed("@ag-ui/client")
    tools = [{"name": "ferry", "description": "Call the ferry.", "parameters": {"type": "object"}}]
    steps = [
        {"send": "ferry", "tools": tools},
        {"result": "it comes", "call": "ferry1", "tools": tools},
        {"send": "count", "state": {"n": 4}},
    ]
    found = run("ag_ui.mjs", f"{url}/agui", id="d", steps=steps)
    assert (found["errors"], found["state"]) == ([], {"n": 5})
    assert "Done: it comes" in [each.get("content") for each in found["messages"]]
