"""Calls whose bare argument a wire reads as malformed reach the repair of their tool."""

from __future__ import annotations

import json

import pytest

from palaver import assistant, wires
from palaver.agent import Agent, function_tool
from palaver.core.messages import AssistantMessage
from palaver.core.parts import MalformedToolCall
from palaver.models.scripted import ScriptedModel

pytestmark = pytest.mark.finding("F-19")

BARE = '{"path": src/a.py}'


def chat(arguments: str) -> tuple[str, dict]:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return "openai_chat", {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]}


def responses(arguments: str) -> tuple[str, dict]:
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "read", "arguments": arguments}
    return "openai_responses", {"id": "r", "object": "response", "status": "completed", "output": [call]}


def answered(wire: str, body: dict) -> AssistantMessage:
    return wires.get(wire).decode_response(json.dumps(body).encode()).message


def run(message: AssistantMessage, *, repairs: tuple[str, ...] = ("path",), invalid_calls: str = "answer") -> list:
    @function_tool(repairs=repairs)
    def read(path: str) -> str:
        """Read a file."""
        return f"text of {path}"

    agent = Agent(ScriptedModel([message, "Done."]), tools=[read], invalid_calls=invalid_calls)
    return list(agent.sync.run("go").messages)


@pytest.mark.parametrize("wire", [chat, responses])
@pytest.mark.parametrize("invalid_calls", ["answer", "note"])
def test_a_bare_argument_from_a_wire_is_repaired_and_run(wire, invalid_calls):
    message = answered(*wire(BARE))
    assert isinstance(message.content[0], MalformedToolCall)
    messages = run(message, invalid_calls=invalid_calls)
    assert [each.role for each in messages] == ["user", "assistant", "tool", "assistant"]
    assert (messages[2].text, messages[2].tool_call_id) == ("text of src/a.py", "c")
    assert messages[1].tool_calls[0].arguments_json == BARE


@pytest.mark.parametrize(("arguments", "repairs"), [(BARE, ()), ('{"other": src/a.py}', ("path",)), ("{", ("path",))])
def test_what_a_tool_does_not_repair_stays_malformed(arguments, repairs):
    messages = run(answered(*chat(arguments)), repairs=repairs)
    assert isinstance(messages[1].content[0], MalformedToolCall)
    assert "tool" not in [each.role for each in messages]


def test_a_malformed_call_with_json_stays_malformed():
    call = MalformedToolCall('{"path": "a"}', "the provider refused it", "read", "c")
    messages = run(assistant().replace(content=(call,), finish_reason="tool_calls"))
    assert messages[1].content == (call,)
