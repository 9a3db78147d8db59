"""The OpenAI Agents SDK takes what we write, and we read what it writes."""

from __future__ import annotations

import asyncio
import json

import pytest

agents = pytest.importorskip("agents", reason="the producer's package")

from agents import Agent, ModelResponse, RunConfig, Runner, RunState, SQLiteSession, function_tool  # noqa: E402
from agents.extensions.memory import AdvancedSQLiteSession  # noqa: E402
from agents.models.chatcmpl_converter import Converter  # noqa: E402
from agents.models.interface import Model  # noqa: E402
from agents.models.openai_responses import OpenAIResponsesModel  # noqa: E402
from agents.usage import Usage as Spent  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402
from openai.types.responses import (  # noqa: E402
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import palaver as p  # noqa: E402
from palaver import transcripts  # noqa: E402
from palaver.transcripts.conversation import transcript_of  # noqa: E402
from palaver.transcripts.extension_slot import without_records  # noqa: E402
from palaver.transcripts.openai_agents import read_sqlite, write_sqlite  # noqa: E402
from palaver.transcripts.writer import is_record  # noqa: E402
from tests.transcripts.samples import FILES, IDS, origin  # noqa: E402

FORMAT = transcripts.get("openai_agents")
every_file = pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)


@pytest.fixture(autouse=True)
def no_traces():
    agents.set_tracing_disabled(disabled=True)


def stripped(transcript):
    """A conversation without its records, so that all of it is written anew."""
    return transcript_of([without_records(e.message) for e in transcript.thread.path() if not is_record(e)])


def foreign(name, path):
    """The conversations of a file, written as items."""
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        yield stripped(transcript)


class Echo(Model):
    """A model that keeps what it is asked, and answers with what it was told to."""

    def __init__(self, *answers):
        self.asked = []
        self.answers = list(answers) or [[said("ok")]]

    async def get_response(self, system_instructions, input, *args, **kwargs):
        self.asked.append(input)
        usage = Spent(requests=1, input_tokens=10, output_tokens=4, total_tokens=14)
        return ModelResponse(output=self.answers.pop(0), usage=usage, response_id=f"resp_{len(self.asked)}")

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


def said(text):
    content = [ResponseOutputText(type="output_text", text=text, annotations=[])]
    return ResponseOutputMessage(
        id=f"msg_{text}", type="message", role="assistant", status="completed", content=content
    )


def called(name="count", call="c1"):
    return ResponseFunctionToolCall(
        id=f"fc_{call}", type="function_call", call_id=call, name=name, arguments='{"path": "x"}'
    )


@function_tool
def count(path: str) -> str:
    """Count."""
    return f"3 in {path}"


@function_tool(needs_approval=True)
def delete(path: str) -> str:
    """Delete."""
    return f"gone: {path}"


@every_file
def test_a_runner_takes_every_conversation(name, path):
    for transcript in foreign(name, path):
        items = json.loads(FORMAT.write(transcript).body)
        if not items:
            continue
        model = Echo()
        result = asyncio.run(Runner.run(Agent("a", model=model), [*items, {"role": "user", "content": "go on"}]))
        assert result.final_output == "ok"
        asked = [item for item in model.asked[0] if item.get("type") == "message"]
        assert asked == [item for item in items if item["type"] == "message"]


@every_file
def test_the_responses_model_sends_nothing_of_what_is_carried(name, path):
    model = OpenAIResponsesModel("gpt-5", AsyncOpenAI(api_key="none"))
    for transcript in foreign(name, path):
        items = json.loads(FORMAT.write(transcript).body)
        sent = model._remove_openai_responses_api_incompatible_fields(json.loads(json.dumps(items)))
        assert "palaver" not in json.dumps([item.get("provider_data") for item in sent])
        assert "__fake_id__" not in [item.get("id") for item in sent]
        ours = [item for item in items if item.get("type") != "reasoning" or "provider_data" not in item]
        assert len(sent) == len(ours)


HOSTED = (
    "shell_call",
    "web_search_call",
    "mcp_",
    "code_interpreter",
    "image_generation",
    "computer_call",
    "tool_search",
)
UNSAID = (*HOSTED, "custom_tool_call", "apply_patch", "compaction", "item_reference", "local_shell", "some_")


@every_file
def test_the_chat_model_takes_every_item_that_chat_has(name, path):
    for transcript in foreign(name, path):
        items = [item for item in json.loads(FORMAT.write(transcript).body) if not item["type"].startswith(UNSAID)]
        if any(each in json.dumps(items) for each in ("input_file", "input_audio", "file_id", ': "encrypted_content"')):
            continue
        assert isinstance(Converter.items_to_messages(items), list)


@every_file
def test_a_session_reads_what_we_wrote(name, path, tmp_path):
    for number, transcript in enumerate(foreign(name, path)):
        file = tmp_path / f"{number}.db"
        write_sqlite(file, [transcript])
        session = SQLiteSession(transcript.thread.id, file)
        items = asyncio.run(session.get_items())
        session.close()
        assert items == json.loads(FORMAT.write(transcript).body)


def test_we_read_a_session_that_it_wrote(tmp_path):
    file = tmp_path / "s.db"
    session = SQLiteSession("mine", file)
    model = Echo([called()], [said("three")], [said("bye")])
    agent = Agent("a", model=model, tools=[count])
    asyncio.run(Runner.run(agent, "count", session=session))
    asyncio.run(Runner.run(agent, "thanks", session=session))
    items = asyncio.run(session.get_items())
    session.close()
    (transcript,) = read_sqlite(file)
    told = [entry.message for entry in transcript.thread.path()]
    assert [each.role for each in told] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [each.text for each in told] == ["count", "", "3 in x", "three", "thanks", "bye"]
    assert [json.loads(line) for line in FORMAT.write(transcript).body.splitlines()] == items
    write_sqlite(tmp_path / "t.db", [transcript])
    again = SQLiteSession("mine", tmp_path / "t.db")
    assert asyncio.run(again.get_items()) == items
    asyncio.run(Runner.run(Agent("a", model=Echo([said("more")])), "more", session=again))
    again.close()
    (more,) = read_sqlite(tmp_path / "t.db")
    assert [entry.message.text for entry in more.thread.path()][-2:] == ["more", "more"]


def test_we_read_branches_and_usage_of_an_advanced_session(tmp_path):
    async def talk():
        session = AdvancedSQLiteSession(session_id="mine", db_path=tmp_path / "s.db", create_tables=True)
        agent = Agent("a", model=Echo([called()], [said("one")], [said("two")], [said("three")]), tools=[count])
        for text in ("a", "b"):
            result = await Runner.run(agent, text, session=session)
            await session.store_run_usage(result)
        await session.create_branch_from_turn(2, "other")
        await session.store_run_usage(await Runner.run(agent, "c", session=session))
        items = await session.get_items(branch_id="other")
        session.close()
        return items

    items = asyncio.run(talk())
    (transcript,) = read_sqlite(tmp_path / "s.db")
    assert set(transcript.thread.branches) == {"main", "other"}
    main = [entry.message for entry in transcript.thread.path()]
    other = [entry.message for entry in transcript.thread.path("other")]
    assert [each.text for each in main] == ["a", "", "3 in x", "one", "b", "two"]
    assert [each.text for each in other] == ["a", "", "3 in x", "one", "c", "three"]
    assert len(items) == len(other)
    assert [each.usage.total for each in main if each.role == "assistant" and each.usage] == [28, 14]


def test_we_read_the_state_of_a_run_and_it_takes_it_back():
    async def talk():
        agent = Agent("a", model=Echo([called("delete")], [said("gone")]), tools=[delete])
        result = await Runner.run(agent, "delete x")
        assert result.interruptions
        return agent, result.to_state().to_string()

    agent, text = asyncio.run(talk())
    (found, *_) = transcripts.detect(text.encode())
    assert (found.file_format, found.confidence) == ("openai_agents", 1.0)
    (transcript,), drift = FORMAT.read_with_unknown(text.encode())
    assert drift == ()
    asked, call = [entry.message for entry in transcript.thread.path()]
    assert [asked.text, call.tool_calls[0].name, call.agent] == ["delete x", "delete", "a"]
    assert (call.usage.total, call.response_id) == (14, "resp_1")
    written = FORMAT.write(transcript).body
    assert written == text.encode()
    transcript.thread.add(
        [type(transcript.thread.path()[0])("n", transcript.thread.branches["main"], p.assistant("wait"))], {"main": "n"}
    )

    async def resumed(body):
        state = await RunState.from_string(agent, body.decode())
        for each in state.get_interruptions():
            state.approve(each)
        return await Runner.run(agent, state, run_config=RunConfig(tracing_disabled=True))

    more = FORMAT.write(transcript).body
    assert (
        asyncio.run(RunState.from_string(agent, more.decode()))._generated_items[-1].raw_item.content[0].text == "wait"
    )
    assert asyncio.run(resumed(written)).final_output == "gone"
