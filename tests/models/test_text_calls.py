"""Models that write their tool calls as text: what streams, what the answer is, and an agent over HTTP."""

from __future__ import annotations

import json

import pytest

from palaver.agent import Agent
from palaver.core.errors import StreamError, UnknownNameError
from palaver.core.events import Finish, TextDelta
from palaver.core.factories import user
from palaver.core.parts import Reasoning, Text, ToolCall
from palaver.core.tools import Tool
from palaver.models import Prompt, model
from palaver.stream import local
from palaver.stream.assembler import Assembler
from tests.models.asking import at, told
from tests.models.faults import DONE, STOP, WHOLE, delta, says, serve, streams

pytestmark = [pytest.mark.anyio, pytest.mark.finding("F-19")]

LFM2 = '<think>hm</think>Look.<|tool_call_start|>[weather(city="Husum")]<|tool_call_end|>'
HERMES = '<think>hm</think>Look.<tool_call>{"name": "weather", "arguments": {"city": "Husum"}}</tool_call>'


def pieces(text: str, size: int = 3) -> list[bytes]:
    return [delta(text[start : start + size]) for start in range(0, len(text), size)]


def whole(text: str) -> dict:
    return {**WHOLE, "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": text}}]}


def weather(city: str) -> str:
    """Weather."""
    return "rain in " + city


@pytest.mark.parametrize(("name", "text"), [("lfm2", LFM2), ("hermes", HERMES)])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_is_read_alike_as_events_and_as_a_whole(anyio_backend, name, text, stream):
    step = streams(*pieces(text), STOP, DONE) if stream else says(whole(text))
    with serve(step) as server:
        events, reply = await told(at(server.url, text_calls=name), stream=stream)
    message = reply.response.message
    thought, said, call = message.content
    assert (thought, said) == (Reasoning("hm"), Text("Look."))
    assert (call.name, call.arguments) == ("weather", {"city": "Husum"})
    assert message.finish_reason == "tool_calls"
    assembler = Assembler("openai_chat")
    assembler.extend(events)
    assert assembler.finish().message.content == message.content
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Look."
    assert [event.reason for event in events if isinstance(event, Finish)] == ["tool_calls"]


async def test_plain_text_stays_the_answer_that_came(anyio_backend):
    with serve(streams(delta("Hello"), STOP, DONE), streams(delta("Hello"), STOP, DONE)) as server:
        _, plain = await told(at(server.url))
        _, read = await told(at(server.url, text_calls="lfm2"))
    assert read.response == plain.response


async def test_a_broken_answer_keeps_its_calls(anyio_backend):
    with serve(streams(*pieces(LFM2), end="reset")) as server, pytest.raises(StreamError) as raised:
        await told(at(server.url, text_calls="lfm2"))
    assert [type(part) for part in raised.value.response.message.content] == [Reasoning, Text, ToolCall]


async def test_reasoning_that_the_server_read_opens_no_second_one(anyio_backend):
    thought = delta("", delta={"reasoning_content": "hm"})
    with serve(streams(thought, delta("Hello"), STOP, DONE)) as server:
        _, reply = await told(at(server.url, text_calls="qwen3_5"))
    assert (reply.response.message.reasoning, reply.response.message.text) == ("hm", "Hello")


async def test_an_agent_runs_calls_that_stand_in_text(anyio_backend):
    answers = [streams(*pieces(each), STOP, DONE) for each in (LFM2, LFM2.replace("Husum", "Kiel"), "It rains.")]
    seen = []
    with serve(*answers) as server:
        agent = Agent(at(server.url, text_calls="lfm2"), tools=[weather])
        result = await agent.run("go", on_event=seen.append)
    assert result.messages[-1].text == "It rains."
    results = [message for message in result.messages if message.role == "tool"]
    assert [message.text for message in results] == ["rain in Husum", "rain in Kiel"]
    ids = [call.id for message in result.messages if message.role == "assistant" for call in message.tool_calls]
    assert len(set(ids)) == 2
    assert [message.tool_call_id for message in results] == ids
    assert "<|" not in "".join(event.text for event in seen if type(event).__name__ == "TextDelta")
    sent = json.loads(server.asked[-1].body)["messages"]
    assert [call["id"] for each in sent for call in each.get("tool_calls", ())] == ids


def test_a_model_by_name_takes_every_format():
    for name in local.names():
        assert model("local/m", url="http://127.0.0.1:1", text_calls=name).text_calls == name


def test_a_format_that_there_is_not_raises():
    with pytest.raises(UnknownNameError, match="no format 'lfm3'"):
        model("local/m", url="http://127.0.0.1:1", text_calls="lfm3")


@pytest.mark.row("DAS-18")
@pytest.mark.parametrize("name", ["gemma3", "gemma4", "lfm2"])
async def test_gemma_is_sent_schemas_that_its_template_reads(anyio_backend, name):
    parameters = {"type": "object", "properties": {"city": {"type": ["null", "string"]}, "days": {"type": "integer"}}}
    tools = (Tool.of("weather", parameters=parameters), Tool.of("ask", parameters={"type": "object", "properties": {}}))
    with serve(says(whole("Hi")), says(whole("Hi"))) as server:
        session = at(server.url, text_calls=name).session()
        for _ in range(2):
            async with session.ask(Prompt(messages=(user("a"),), tools=tools), stream=False) as answer:
                reply = await answer.finish()
            sent = json.loads(server.asked[-1].body)["tools"]
            city = sent[0]["function"]["parameters"]["properties"]["city"]
            assert city == {"type": "string" if name != "lfm2" else ["null", "string"]}
            assert sent[1]["function"]["parameters"] == {"type": "object", "properties": {}}
            lost = [(loss.kind, loss.what) for loss in reply.losses]
            assert lost == ([("converted", "the schema of weather")] if name != "lfm2" else [])
