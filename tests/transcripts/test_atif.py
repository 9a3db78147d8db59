"""ATIF trajectories: what each step becomes, sums, sub-agents, edits, and what is written of conversations from
elsewhere (docs/spec/dialects.md#5).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaver import transcripts
from palaver.core import factories, jsontext
from palaver.core.errors import EncodeError, LossError
from palaver.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import (
    Audio,
    Citation,
    File,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
    Video,
)
from palaver.core.usage import Usage
from palaver.threads.thread import Entry, Thread
from palaver.transcripts.conversation import Session, Transcript, hidden_before, session_of, transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record

ATIF = transcripts.get("atif")
FILES = Path(__file__).parent / "files" / "atif"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def read(name="trajectory.json"):
    return ATIF.read((FILES / name).read_bytes())


def messages(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def bare(transcript):
    return [without_records(each).replace(id=None) for each in messages(transcript)]


def edited(transcript, change):
    """The conversation with some messages changed; ``change`` gives a message, or the same."""
    thread = Thread(transcript.thread.id)
    for entry in transcript.thread.entries:
        made = entry.message if is_record(entry) else change(entry.message)
        thread.add([Entry(entry.id, entry.parent, made)], {"main": entry.id})
    return Transcript(thread, transcript.title, transcript.metadata)


def written(*said, metadata=None, **options):
    made = ATIF.write(transcript_of(said, metadata=metadata), **options)
    return json.loads(made.body), made


def step(number, name="trajectory.json"):
    return json.loads((FILES / name).read_bytes().removeprefix(b"\xef\xbb\xbf"))["steps"][number - 1]


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.finding("F-73")
def test_results_that_name_no_call_are_of_the_calls_of_their_step_by_position():
    calls = [{"tool_call_id": name, "function_name": "bash", "arguments": {}} for name in ("c1", "c2", "c3")]
    results = [
        {"content": "one"},
        {"source_call_id": "c1", "content": "named"},
        {"content": "two"},
        {"content": "more"},
    ]
    steps = [
        {"step_id": 1, "source": "agent", "message": "run", "tool_calls": calls, "observation": {"results": results}}
    ]
    agent = {"name": "terminus-2", "version": "1"}
    data = json.dumps({"schema_version": "ATIF-v1.4", "session_id": "s", "agent": agent, "steps": steps}).encode()
    (transcript,) = ATIF.read(data)
    told = [each for each in messages(transcript) if isinstance(each, ToolMessage)]
    assert [(each.text, each.tool_call_id, each.tool_name) for each in told] == [
        ("one", "c2", "bash"),
        ("named", "c1", "bash"),
        ("two", "c3", "bash"),
        ("more", None, None),
    ]
    assert ATIF.write(transcript).body == data


def test_a_step_of_the_agent_is_a_message_and_its_results():
    system, user, answer, one, two, *_ = messages(read()[0])
    assert (system.role, user.role, answer.role, one.role, two.role) == ("system", "user", "assistant", "tool", "tool")
    assert user.content[1] == Image(Url("images/north.png"), "image/png")
    assert [type(part) for part in answer.content] == [Reasoning, Text, ToolCall, ToolCall]
    assert answer.model == "example-small"
    assert one.tool_call_id == "call_a"
    assert one.tool_name == "read_file"
    assert two.metadata["subagent_trajectory_ref"][0]["trajectory_id"] == "helper-1"
    assert system.sent_at == 1762156800000


def test_arguments_keep_their_text():
    answer = messages(read()[0])[2]
    assert '"limit": 5e-06' in answer.tool_calls[0].arguments_json
    assert answer.tool_calls[1].arguments["depth"] == 2**70


def test_usage_is_disjoint_and_keeps_its_object():
    usage = messages(read()[0])[2].usage
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (200, 1000, 50, 30)
    assert usage.raw["cost_usd"] == 0.0021


def test_a_model_is_that_of_the_step_or_of_the_agent():
    models = [each.model for each in messages(read()[0]) if isinstance(each, AssistantMessage)]
    assert models == ["example-small", "example-large", "example-large"]


def test_calls_that_did_not_parse_and_failures():
    answer, failed, free = messages(read()[0])[5:8]
    assert answer.malformed_tool_calls[0].raw == '{"hours": 12'
    assert failed.is_error
    assert free.tool_call_id is None
    assert free.images[0].source.url == "https://example.org/screen.webp"


def test_what_was_copied_is_not_counted_again():
    begin, begun, *_ = messages(read("continued.json")[0])
    assert begin.metadata["is_copied_context"] is True
    assert begun.usage is None


def test_steps_of_the_system_that_only_observe_and_odd_arguments():
    _, _, summary, asked, free, answer, result = messages(read("continued.json")[0])
    assert isinstance(summary, SystemMessage)
    assert asked.metadata["subagent_trajectory_ref"][0]["session_id"] == "run-9-summary"
    assert free.text == "free standing output"
    assert answer.tool_calls[0].arguments == {"cmd": "ls"}
    assert answer.malformed_tool_calls[0].raw == "[1]"
    assert result.tool_call_id == "elsewhere"


def test_what_is_unknown_is_reported():
    _, drift = ATIF.read_with_unknown((FILES / "continued.json").read_bytes())
    kinds = {(each.kind, each.name) for each in drift}
    assert ("key", "step.mood") in kinds
    assert ("unread", "a step of narrator") in kinds
    assert ("link", "source_call_id") in kinds
    _, drift = ATIF.read_with_unknown((FILES / "newer.json").read_bytes())
    assert {("version", "ATIF-v1.9"), ("key", "trajectory.colour"), ("block", "smell")} <= {
        (each.kind, each.name) for each in drift
    }


def test_audio_is_spelled_as_the_format_spells_it():
    (user, _) = messages(read("newer.json")[0])
    assert user.content[1] == Audio(Url("https://example.org/a.mp3"), "audio/mpeg")
    assert isinstance(user.content[2], Opaque)


def test_the_session_and_its_sub_agents():
    whole, helper = read()
    session, inside = session_of(whole.metadata), session_of(helper.metadata)
    assert whole.thread.id == "7d1c6a52-8f0e-4c1b-9b1e-2a55d5f0c001"
    assert (session.id, session.format, session.agent, session.cwd) == (
        "run-2025-0042",
        "1.7",
        "pathfinder",
        "/srv/weather",
    )
    assert (inside.parent, inside.call) == (whole.thread.id, "call_b")
    assert [each.text for each in messages(helper)] == ["Look at the gap", "It is an outage."]


@pytest.mark.parametrize(
    ("data", "version", "confidence"),
    [
        (b'{"schema_version": "ATIF-v1.3", "steps": []}', "1.3", 1.0),
        (b'{"steps": [{"step_id": 1, "source": "user"}]}', None, 0.9),
        (b'{"agent": {}, "steps": [{"step_id": 1, "source": "user", "message": "cut he', None, 0.9),
    ],
)
def test_it_is_recognised(data, version, confidence):
    (found,) = transcripts.detect(data, "x.json")
    assert (found.file_format, found.version, found.confidence) == ("atif", version, confidence)


# -- edits -------------------------------------------------------------------------------------------------------------


def test_an_edited_step_keeps_what_we_do_not_model():
    data = (FILES / "trajectory.json").read_bytes()
    whole, helper = read()

    def change(message):
        parts = [Text("No") if isinstance(part, Text) else part for part in message.content]
        return message.replace(content=parts) if message.text.startswith("I read") else message

    body = ATIF.write_many([edited(whole, change), helper]).body
    assert json.loads(body)["steps"][2] == step(3) | {"message": "No"}
    assert body.startswith(data[: data.index(b'"step_id": 3')].rstrip().removesuffix(b"{"))
    assert body.endswith(data[data.index(b'"step_id": 4') :])


def test_an_edit_takes_away_what_it_took_away():
    def change(message):
        if not isinstance(message, AssistantMessage) or not message.reasoning:
            return message
        calls = [ToolCall("call_b", "delegate", '{"task":"other"}')]
        return message.replace(content=(Text("Short"), *calls), usage=None)

    steps = json.loads(ATIF.write(edited(read()[0], change)).body)["steps"]
    assert "reasoning_content" not in steps[2]
    assert "metrics" not in steps[2]
    assert steps[2]["extra"]["station"] == "north"
    assert steps[2]["reasoning_effort"] == "low"
    assert [call["arguments"] for call in steps[2]["tool_calls"]] == [{"task": "other"}]


def test_steps_that_are_added_count_in_the_sums():
    whole, helper = read()
    whole.thread.append(factories.user("And the south?"))
    whole.thread.append(
        factories.assistant("Fine.").replace(usage=Usage(input=10, cache_read=5, output=2), model="example-large")
    )
    data = (FILES / "trajectory.json").read_bytes()
    body = ATIF.write_many([whole, helper]).body
    document = json.loads(body)
    assert [each["step_id"] for each in document["steps"]] == [1, 2, 3, 4, 5, 6, 7]
    assert document["final_metrics"] == {
        "total_prompt_tokens": 3915,
        "total_completion_tokens": 114,
        "total_cached_tokens": 2205,
        "total_steps": 7,
    }
    assert body.startswith(data[: data.index(b'"notes"')].rstrip().removesuffix(b",").removesuffix(b"]").rstrip())
    assert body.endswith(data[data.index(b'"subagent_trajectories"') :])


def test_sums_before_the_steps_follow_too():
    (whole,) = read("continued.json")
    whole.thread.append(factories.assistant("More").replace(usage=Usage(input=30)))
    document = json.loads(ATIF.write(whole).body)
    assert document["final_metrics"] == {"total_prompt_tokens": 100, "total_steps": 7}
    assert list(document)[2] == "final_metrics"


def test_a_result_that_comes_later_joins_the_step_of_its_call():
    said = [
        factories.user("Look"),
        AssistantMessage(content=(ToolCall("c1", "look", "{}"),)),
    ]
    (first,) = ATIF.read(ATIF.write(transcript_of(said)).body)
    first.thread.append(ToolMessage(content=(Text("seen"),), tool_call_id="c1", tool_name="look"))
    first.thread.append(factories.assistant("Done"))
    steps = json.loads(ATIF.write(first).body)["steps"]
    assert len(steps) == 3
    assert steps[1]["observation"]["results"][0]["content"] == "seen"
    assert [each["step_id"] for each in steps] == [1, 2, 3]


def test_a_newer_version_is_written_as_it_was_and_not_otherwise():
    (newer,) = read("newer.json")
    assert ATIF.write(newer).body == (FILES / "newer.json").read_bytes()
    newer.thread.append(factories.user("and now"))
    with pytest.raises(EncodeError, match=r"1\.9"):
        ATIF.write(newer)


def test_a_document_without_steps_cannot_be_added_to():
    (odd,) = ATIF.read(b'{"schema_version": "ATIF-v1.7", "steps": 3}')
    odd.thread.append(factories.user("hello"))
    with pytest.raises(EncodeError, match="steps"):
        ATIF.write(odd)


def test_an_edited_sub_agent_is_put_back_into_its_document():
    whole, helper = read()
    made = edited(helper, lambda each: each.replace(content=("No outage.",)) if each.role == "assistant" else each)
    made.thread.append(factories.user("Sure?"))
    data = (FILES / "trajectory.json").read_bytes()
    body = ATIF.write_many([whole, made]).body
    inside = json.loads(body)["subagent_trajectories"][0]
    assert [each["message"] for each in inside["steps"]] == ["Look at the gap", "No outage.", "Sure?"]
    assert body.startswith(data[: data.index(b'"It is an outage')])


def test_a_branch_is_a_file_of_its_own():
    whole, _ = read()
    place = next(entry.id for entry in whole.thread.entries if entry.message.text.startswith("What does"))
    whole.thread.fork("other", at=place)
    whole.thread.append(factories.assistant("Nothing."), branch="other")
    made = ATIF.write(whole, branch="other")
    steps = json.loads(made.body)["steps"]
    assert [each["step_id"] for each in steps] == [1, 2, 3]
    assert steps[2]["message"] == "Nothing."
    assert any(loss.what == "branch main" for loss in made.losses)
    assert ATIF.write(whole).body == (FILES / "trajectory.json").read_bytes()


# -- writing -----------------------------------------------------------------------------------------------------------


def everything():
    """A conversation with every part and role there is."""
    raw = jsontext.raw({"type": "smell"})
    return [
        factories.developer("Be kind."),
        factories.system("Rule"),
        UserMessage(
            content=(
                Text("See", citations=(Citation(url="https://example.org"),)),
                Image(Inline(PNG), "image/png"),
                Image(Url("https://example.org/x"), None),
                Audio(Inline("UklGRg=="), "audio/x-wav"),
                Video(Url("https://example.org/v.mp4"), "video/mp4"),
                File(Inline("JVBERi0="), "application/pdf", name="a.pdf"),
                Opaque("openai_chat", raw),
            ),
            sent_at=1_700_000_000_000,
        ),
        AssistantMessage(
            content=(
                Text("First"),
                Reasoning("one", signature="proof", wire="anthropic_messages"),
                Reasoning("two", encrypted="secret", wire="openai_responses"),
                ToolCall("c1", "look", ' {"a": 5e-06} '),
                ToolCall("c2", "write", '"free text"', custom=True),
                MalformedToolCall('{"a": ', "cut", "look", "c3"),
                ToolCall("s1", "web_search", '{"q":"x"}', provider_executed=True),
                ServerToolResult("s1", jsontext.raw([{"url": "u"}]), "anthropic_messages"),
                Refusal("I cannot."),
            ),
            model="m-1",
            usage=Usage(input=10, cache_read=4, cache_write=2, output=5, reasoning=3),
            finish_reason="tool_calls",
            response_id="r1",
            sent_at=1_700_000_001_000,
        ),
        ToolMessage(content=(Json.of({"b": 1.0}),), tool_call_id="c1", tool_name="look", sent_at=1_700_000_002_000),
        factories.user("wait"),
        ToolMessage(content=(Text("bad"),), tool_call_id="c2", tool_name="write", is_error=True),
        ToolMessage(content=(), tool_call_id="gone"),
        ToolMessage(content=(Text("stands alone"),)),
        hidden_before(),
        UserMessage(content=(Text("Summary"),), source="compaction"),
        UserMessage(content=(Text("wait"),), source="compaction"),
        factories.rescue("timeout"),
        AssistantMessage(content=()),
        factories.assistant("End").replace(metadata={"k": [1]}),
    ]


def test_what_cannot_be_said_is_carried_and_comes_back():
    document, made = written(*everything())
    back = bare(ATIF.read(made.body)[0])
    given = everything()
    moved = [*given[:5], given[6], given[5], *given[7:]]
    assert len(back) == len(moved)
    for mine, theirs in zip(moved, back, strict=True):
        assert theirs.role == mine.role
        if not any(isinstance(part, (Image, Audio, File)) for part in mine.content):
            assert theirs == mine.replace(sent_at=theirs.sent_at)
    assert document["schema_version"] == "ATIF-v1.8"  # for there is audio
    assert [each["step_id"] for each in document["steps"]] == list(range(1, len(document["steps"]) + 1))


def test_version_seven_is_enough_without_audio():
    document, made = written(factories.user("hi"), factories.assistant("ho"))
    assert document["schema_version"] == "ATIF-v1.7"
    assert made.losses == ()
    assert document["final_metrics"] == {"total_steps": 2}
    assert set(document["steps"][1]) == {"step_id", "source", "message"}


def test_inline_media_is_written_beside():
    document, made = written(UserMessage(content=(Image(Inline(PNG), "image/png"),)))
    (path,) = made.beside
    assert path.endswith(".png")
    assert made.beside[path].startswith(b"\x89PNG")
    assert document["steps"][0]["message"] == [{"type": "image", "source": {"media_type": "image/png", "path": path}}]
    assert PNG not in made.body.decode()
    assert [loss.kind for loss in made.losses] == ["converted"]


def test_each_loss_is_named_once_for_its_part():
    _, made = written(*everything())
    whats = {loss.what for loss in made.losses}
    assert {
        "developer",
        "citations",
        "image",
        "audio",
        "video",
        "file",
        "opaque",
        "reasoning",
        "order",
        "custom tool call",
        "malformed_tool_call",
        "server_tool_result",
        "refusal",
        "json",
        "tool error",
        "tool result",
        "marker",
    } <= whats
    assert all(loss.kind != "dropped" for loss in made.losses)


def test_nothing_of_ours_is_written_when_nothing_may_be_carried():
    document, made = written(*everything(), carry=False)
    assert "palaver" not in made.body.decode().replace('"name":"palaver"', "")
    assert {loss.kind for loss in made.losses} >= {"dropped"}
    assert all(each["source"] in {"user", "agent", "system"} for each in document["steps"])


def test_metrics_include_what_a_cache_and_reasoning_took():
    document, made = written(*everything())
    (metrics,) = [each["metrics"] for each in document["steps"] if "metrics" in each]
    assert (metrics["prompt_tokens"], metrics["completion_tokens"], metrics["cached_tokens"]) == (16, 8, 4)
    assert document["final_metrics"]["total_prompt_tokens"] == 16
    assert made.losses


def test_what_a_compaction_kept_is_marked_as_copied():
    document, _ = written(*everything())
    copied = [each["message"] for each in document["steps"] if each.get("is_copied_context")]
    assert copied == ["wait"]


def test_a_conversation_of_nothing_has_an_empty_step():
    document, made = written()
    assert len(document["steps"]) == 1
    assert bare(ATIF.read(made.body)[0]) == []
    assert made.losses


def test_sub_agents_from_elsewhere_lie_inside():
    parent = transcript_of([factories.user("go"), factories.assistant("done")])
    session = Session(file_format="x", parent=parent.thread.id, call="c1")
    child = transcript_of([factories.user("help")], metadata=session.metadata())
    body = ATIF.write_many([parent, child]).body
    (inside,) = json.loads(body)["subagent_trajectories"]
    assert inside["trajectory_id"] == child.thread.id
    one, two = ATIF.read(body)
    assert [each.text for each in messages(two)] == ["help"]
    assert session_of(two.metadata).parent == one.thread.id
    assert ATIF.write_many([one, two]).body == body
    third = transcript_of([factories.user("another")], metadata=Session(parent=one.thread.id).metadata())
    assert len(json.loads(ATIF.write_many([one, two, third]).body)["subagent_trajectories"]) == 2


def test_two_conversations_are_two_files():
    with pytest.raises(EncodeError):
        ATIF.write_many([transcript_of([factories.user("a")]), transcript_of([factories.user("b")])])


def test_losses_can_be_errors():
    with pytest.raises(LossError):
        ATIF.write(transcript_of(everything()), losses="raise")


def test_half_a_character_is_replaced_in_what_is_new():
    """Pydantic's parser refuses a file for one lone surrogate."""
    call = ToolCall("c", "f", '{"a": "\\ud83d", "b": "\\ud83d\\ude00"}')
    said = [factories.user("cut \ud83d"), AssistantMessage(content=(call,)), factories.user(r"\ud83d is text")]
    made = ATIF.write(transcript_of(said))
    assert b"\\\\ud83d is text" in made.body
    made.body.decode()
    user, answer, last = bare(ATIF.read(made.body)[0])
    assert user.text == "cut \ufffd"
    assert r'"a": "\ufffd", "b": "\ud83d\ude00"' in made.body.decode()
    assert answer.tool_calls[0].arguments["a"] == "\ud83d"  # carried: its text is whole
    assert last.text == r"\ud83d is text"
    assert [loss.what for loss in made.losses] == ["text", "text"]
