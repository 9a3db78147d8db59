"""Codex rollouts: what lines become, what is written, and the traps."""

from __future__ import annotations

import json
import random

import pytest

import palaver as p
from palaver import transcripts
from palaver.core import canonical, jsontext
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.pairs import tied
from palaver.core.parts import Image, Text
from palaver.core.usage import Usage
from palaver.threads import Entry, Thread, for_model, for_people, usage_once
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FILES as EVERY, FOLDER, IDS, origin

CODEX = transcripts.get("codex")
FILES = FOLDER / "codex"
ROLLOUT = next(FILES.glob("rollout-2026*")).read_bytes()
META = {"type": "session_meta", "timestamp": "2026-01-02T03:04:05Z", "payload": {"id": "s", "cwd": "/w"}}


def rollout(*lines):
    stamped = ({"timestamp": "2026-01-02T03:04:05Z", **each} for each in (META, *lines))
    return b"".join(json.dumps(each).encode() + b"\n" for each in stamped)


def item(**fields):
    return {"type": "response_item", "payload": fields}


def event(**fields):
    return {"type": "event_msg", "payload": fields}


def said(role, text):
    kind = "output_text" if role == "assistant" else "input_text"
    return item(type="message", role=role, content=[{"type": kind, "text": text}])


def counted(total, last):
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": dict(zip(names, last, strict=True))}
    return event(type="token_count", info=info)


def messages(data):
    (transcript,) = CODEX.read(data)
    return [each.message for each in transcript.thread.path() if "record" not in each.message.tags]


def test_items_of_one_answer_are_one_message():
    answer = next(each for each in messages(ROLLOUT) if isinstance(each, AssistantMessage))
    assert answer.model == "gpt-5-codex"
    assert [call.name for call in answer.tool_calls] == ["shell", "apply_patch"]
    assert answer.tool_calls[0].arguments_json == '{"command": ["wc", "-l", "notes.txt"], "timeout_ms": 1e3}'
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.cache_read, answer.usage.output, answer.usage.reasoning) == (
        100,
        900,
        30,
        20,
    )


def test_results_know_their_tool_and_keep_their_text():
    results = [each for each in messages(ROLLOUT) if isinstance(each, ToolMessage)]
    assert [each.tool_name for each in results] == ["shell", "apply_patch"]
    assert '"duration_seconds":0.10' in results[0].text


def test_usage_is_that_of_each_call_and_repeats_count_once():
    (transcript,) = CODEX.read(ROLLOUT)
    total = usage_once(each.message for each in transcript.thread.entries)
    assert (total.total, total.output, total.reasoning) == (2155, 35, 20)


def test_cumulative_totals_are_no_usage():
    data = rollout(
        said("assistant", "a"), counted(10, (10, 4, 5, 1)), said("assistant", "b"), counted(10, (10, 4, 5, 1))
    )
    usages = [each.usage for each in messages(data)]
    assert usages[0] is not None
    assert usages[0].total == 15
    assert usages[1] is None


def test_both_histories():
    (transcript,) = CODEX.read(ROLLOUT)
    path = transcript.thread.path()
    seen = [each.text for each in for_model(path)]
    assert seen == ["Then sum up.", "Summary: notes have three lines.", "In sum: three."]
    read = [each.text for each in for_people(path) if isinstance(each, UserMessage)]
    assert read == [
        "Count the lines of notes.txt, and look at this picture while you are there, please.",
        "Then sum up.",
    ]


def test_what_the_program_put_in_is_not_shown_to_people():
    context = next(each for each in messages(ROLLOUT) if each.source == "environment_context")
    assert "<cwd>" in context.text


def test_events_do_not_double_what_was_said():
    texts = [each.text for each in messages(ROLLOUT)]
    assert sum("Count the lines" in text for text in texts) == 1
    assert sum("In sum" in text for text in texts) == 1


def test_a_turn_that_was_rolled_back_is_a_branch():
    (transcript,) = CODEX.read(ROLLOUT)
    assert "Never." not in [each.text for each in messages(ROLLOUT)]
    assert set(transcript.thread.branches) == {"main", "branch-1"}
    branch = [each.message.text for each in transcript.thread.path("branch-1")]
    assert "Delete everything." in branch
    assert "Never." in branch


def test_a_paginated_file_tells_prompts_and_answers_by_events():
    (transcript,) = CODEX.read((FILES / "paginated.jsonl").read_bytes())
    told = [each.message for each in transcript.thread.path() if "record" not in each.message.tags]
    assert [each.text for each in told] == ["Hello", "", "failed", "Good day."]
    assert told[1].malformed_tool_calls[0].raw == "not json"
    assert transcript.metadata["session"]["parent"] == "0192f0c4-7777-7000-8000-00000000000c"


def test_an_older_compaction_has_a_message_only():
    data = rollout(
        said("user", "one"), {"type": "compacted", "payload": {"message": "So far: one."}}, said("user", "two")
    )
    (transcript,) = CODEX.read(data)
    path = transcript.thread.path()
    assert [each.text for each in for_model(path)] == ["So far: one.", "two"]
    assert any(isinstance(each.message, FlushMarker) for each in path)


def test_drift_is_named():
    _, drift = CODEX.read_with_unknown((FILES / "paginated.jsonl").read_bytes())
    assert [str(each) for each in drift] == ["line 10: unknown record novelty", "line 11: torn"]


def test_the_session_and_its_title():
    (transcript,) = CODEX.read(ROLLOUT)
    assert transcript.title == "Counting lines"
    session = transcript.metadata["session"]
    assert (session["cwd"], session["program"], session["branch"]) == ("/home/me/project", "0.58.0", "main")


# -- writing -----------------------------------------------------------------------------------------------------------


def lines_of(written):
    return [json.loads(line) for line in written.body.splitlines()]


def kinds(written):
    return [(each["type"], each["payload"].get("type")) for each in lines_of(written)]


def test_a_prompt_and_an_answer_are_items_and_events():
    talk = [p.user("hi"), p.assistant("ho", model="m", usage=Usage(input=1, output=2))]
    written = CODEX.write(transcript_of(talk))
    assert written.losses == ()
    assert kinds(written) == [
        ("session_meta", None),
        ("turn_context", None),
        ("response_item", "message"),
        ("event_msg", "user_message"),
        ("response_item", "message"),
        ("event_msg", "agent_message"),
        ("event_msg", "token_count"),
    ]
    assert [each["payload"]["content"][0]["type"] for each in lines_of(written) if each["type"] == "response_item"] == [
        "input_text",
        "output_text",
    ]


def test_calls_and_results_are_items_with_the_same_ids():
    call = p.tool_call("f", '{"a": 5e-06}', id="call_x")
    written = CODEX.write(
        transcript_of([p.user("go"), p.assistant(tool_calls=[call]), p.tool("ok", tool_call_id="call_x")])
    )
    items = [each["payload"] for each in lines_of(written) if each["type"] == "response_item"]
    assert items[1]["arguments"] == '{"a": 5e-06}'
    assert (items[1]["call_id"], items[2]["call_id"], items[2]["output"]) == ("call_x", "call_x", "ok")


def test_a_call_without_a_result_stays_without_one():
    written = CODEX.write(transcript_of([p.user("go"), p.assistant(tool_calls=[p.tool_call("f", id="c")])]))
    assert kinds(written)[-1] == ("response_item", "function_call")


def test_markers_are_kept_aside_and_said():
    talk = transcript_of([p.user("go"), p.rescue("odd")])
    written = CODEX.write(talk)
    assert [str(each) for each in written.losses] == [
        "messages[1]: rescue converted (kept in a line that the program ignores)"
    ]
    assert lines_of(written)[-1]["payload"] == {"type": "other"}
    assert messages(written.body)[-1].reason == "odd"
    bare = CODEX.write(talk, carry=False)
    assert [str(each) for each in bare.losses] == ["messages[1]: rescue dropped (a rollout has no such line)"]


@pytest.mark.parametrize("name", ["pi", "claude_code"])
def test_a_compaction_is_a_compaction_again(name):
    path = next(each for each in sorted((FOLDER / name).glob("*.jsonl")) if b"compact" in each.read_bytes())
    (source,) = transcripts.get(name).read(path.read_bytes())
    (there,) = CODEX.read(CODEX.write(source).body)
    shown = "".join(each.text for each in for_model(source.thread.path()))
    again = "".join(each.text for each in for_model(there.thread.path()))
    assert again == shown


def test_what_was_added_stands_behind_the_file():
    (transcript,) = CODEX.read(ROLLOUT)
    transcript.thread.append(p.user("More?"))
    written = CODEX.write(transcript)
    assert written.body.startswith(ROLLOUT)
    assert b"More?" in written.body[len(ROLLOUT) :]


def test_an_edited_answer_keeps_the_rest_of_its_line():
    (transcript,) = CODEX.read(ROLLOUT)
    changed = Thread(transcript.thread.id)
    for each in transcript.thread.entries:
        if each.message.text != "In sum: three.":
            changed.add([each])
            continue
        parts = [Text("In sum: four.") if isinstance(part, Text) else part for part in each.message.content]
        changed.add([Entry(each.id, each.parent, each.message.replace(content=parts))])
    changed.add((), transcript.thread.branches)
    written = CODEX.write(type(transcript)(changed, transcript.title, transcript.metadata))
    assert written.body == ROLLOUT.replace(b"In sum: three.", b"In sum: four.")


# -- what the program's own types ask ----------------------------------------------------------------------------------

TEXT, IMAGE = {"type", "text"}, {"type", "image_url"}
CONTENT = {"input_text": TEXT, "output_text": TEXT, "input_image": IMAGE}
NEEDED = {
    "message": {"role": str, "content": list},
    "reasoning": {"summary": list},
    "function_call": {"name": str, "arguments": str, "call_id": str},
    "function_call_output": {"call_id": str, "output": (str, list)},
    "custom_tool_call": {"name": str, "input": str, "call_id": str},
    "custom_tool_call_output": {"call_id": str, "output": (str, list)},
    "local_shell_call": {"call_id": str, "status": str, "action": dict},
    "web_search_call": {"action": dict},
    "tool_search_call": {"execution": str, "arguments": object},
    "tool_search_output": {"execution": str, "status": str, "tools": list},
    "image_generation_call": {"id": str, "status": str, "result": str},
    "agent_message": {"author": str, "recipient": str, "content": list},
    "compaction": {"encrypted_content": str},
    "compaction_trigger": {},
    "other": {},
}
LINES = {
    "session_meta": {"id": str, "timestamp": str, "cwd": str, "originator": str, "cli_version": str, "source": str},
    "turn_context": {"cwd": str, "approval_policy": str, "sandbox_policy": dict, "model": str, "summary": str},
    "compacted": {"message": str},
    "user_message": {"message": str},
    "agent_message": {"message": str},
    "token_count": {"info": dict},
}
COUNTERS = {"input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens"}


def well_typed(fields, needed):
    return all(key in fields and isinstance(fields[key], kind) for key, kind in needed.items())


def accepted(item):
    """Whether the program's type of response items reads an item."""
    if item["type"] not in NEEDED or not well_typed(item, NEEDED[item["type"]]):
        return False
    parts = item.get("content") or [] if item["type"] == "message" else item.get("output", [])
    parts = parts if isinstance(parts, list) else []
    return all(each["type"] in CONTENT and each.keys() >= CONTENT[each["type"]] for each in parts)


def check_strictly(written):
    """What the program asks of a file that it resumes (docs/spec/dialects.md#3, #17.10)."""
    lines = lines_of(written)
    assert lines[0]["type"] == "session_meta"
    assert "model_provider" not in lines[0]["payload"]  # else no other provider resumes it
    for line in lines:
        assert line.keys() <= {"timestamp", "type", "payload", "palaver"}
        payload, kind = line["payload"], line["type"]
        if kind == "response_item":
            assert accepted(payload), payload
            continue
        assert well_typed(payload, LINES[payload["type"] if kind == "event_msg" else kind]), line
        if kind == "compacted":
            assert all(accepted(each) for each in payload["replacement_history"])
        if kind == "event_msg" and payload["type"] == "token_count":
            assert all(payload["info"][key].keys() >= COUNTERS for key in ("total_token_usage", "last_token_usage"))
    raw = written.body.decode()
    assert not any(0xD800 <= ord(each) < 0xE000 for line in lines for each in str(line.get("payload")))
    assert "\n\n" not in raw


def anew(name, path):
    """The conversations of a file, without the lines they came from."""
    for each in transcripts.get(name).read(path.read_bytes(), origin(path)):
        entries = [entry.message for entry in each.thread.path() if not is_record(entry)]
        yield transcript_of([without_records(message) for message in entries], metadata=each.metadata)


def bare(transcript):
    """What a conversation says; a result that names no call has the id of the one it is of."""
    said_there = [each.message for each in transcript.thread.path() if not is_record(each)]
    ties = tied(said_there)
    named = [each.replace(tool_call_id=ties[at]) if at in ties else each for at, each in enumerate(said_there)]
    plain = (without_records(each).replace(id=None, sent_at=None) for each in named)
    return [jsontext.normal(canonical.encode(each)) for each in plain]


@pytest.mark.parametrize(("name", "path"), EVERY, ids=IDS)
@pytest.mark.parametrize("carry", [True, False])
def test_what_is_written_is_what_the_program_reads(name, path, carry):
    for transcript in anew(name, path):
        check_strictly(CODEX.write(transcript, carry=carry))


@pytest.mark.parametrize(("name", "path"), EVERY, ids=IDS)
def test_there_and_back_gives_the_same_messages(name, path):
    for transcript in anew(name, path):
        (back,) = CODEX.read(CODEX.write(transcript).body)
        assert bare(back) == bare(transcript)


# -- both histories ----------------------------------------------------------------------------------------------------

EVERYTHING = (FILES / "everything.jsonl").read_bytes()
SUBAGENT = (FILES / "subagent.jsonl").read_bytes()


def test_an_event_and_an_item_match_whichever_comes_first_each_once():
    data = rollout(
        event(type="user_message", message="go"),
        said("user", "go"),
        said("assistant", "ok"),
        event(type="agent_message", message="ok "),
        event(type="agent_message", message="ok"),
        event(type="task_complete"),
    )
    told = messages(data)
    assert [(each.role, each.text, each.tags) for each in told] == [
        ("user", "go", ()),
        ("assistant", "ok", ()),
        ("assistant", "ok", ("placeholder",)),
    ]


def test_an_event_that_comes_late_is_matched_all_the_same():
    data = rollout(said("user", "go"), item(type="message", role="developer", content=[]), event(**late("go")))
    assert [each.role for each in messages(data)] == ["user", "developer"]


def late(text):
    return {"type": "user_message", "message": text}


def test_what_was_only_shown_is_seen_by_people_and_by_no_model():
    (transcript,) = CODEX.read(EVERYTHING)
    path = transcript.thread.path()
    text = "Shown on the screen only, because the stream was cut."
    assert text in [each.text for each in for_people(path)]
    assert text not in [each.text for each in for_model(path)]
    assert "stream disconnected before completion" in [each.text for each in for_people(path)]


def test_a_text_that_was_typed_is_no_context_whatever_it_begins_with():
    text = "<skill> is a tag, what does it do?"
    typed = messages(rollout(said("user", text), event(**late(text))))
    put_in = messages(rollout(said("user", text)))
    assert (typed[0].source, put_in[0].source) == (None, "skill")


def test_in_a_paginated_file_a_prompt_that_no_event_tells_is_the_programs():
    (transcript,) = CODEX.read(SUBAGENT)
    path = transcript.thread.path()
    assert [each.text for each in for_people(path)] == ["Parent's prompt.", "Parent's answer.", "Your task.", "Done."]
    assert "Put in by the program." in [each.text for each in for_model(path)]


def test_base_instructions_are_the_system_message():
    first = messages(EVERYTHING)[0]
    assert isinstance(first, SystemMessage)
    assert first.text.startswith("You are a coding agent.")
    written = CODEX.write(transcript_of([p.system("Be kind."), p.user("hi"), p.system("Now be brief.")]))
    assert lines_of(written)[0]["payload"]["base_instructions"] == {"text": "Be kind."}
    assert [str(each) for each in written.losses] == ["messages[2]: system converted (written as the developer's)"]
    back = messages(CODEX.write(transcript_of([p.system("Be kind."), p.user("hi")]), carry=False).body)
    assert [each.role for each in back] == ["system", "user"]


# -- one item that is odd ----------------------------------------------------------------------------------------------


def test_an_item_that_cannot_be_read_takes_no_other_with_it():
    answer = next(each for each in messages(EVERYTHING) if isinstance(each, AssistantMessage))
    assert [call.name for call in answer.tool_calls] == ["web_search", "view_image", "local_shell"]
    assert answer.response_id == "resp_1"


def test_a_compaction_keeps_what_can_be_read_and_its_pictures_leave_the_line():
    (transcript,) = CODEX.read(EVERYTHING)
    entries = transcript.thread.entries
    picture = next(part for each in entries for part in each.message.content if isinstance(part, Image)).source.data
    assert len(picture) > 1000
    for entry in entries:
        assert picture not in str(entry.message.provider_json)
    compacted = [each.message for each in entries if each.message.source == "compaction"]
    assert [each.role for each in compacted] == ["flush", "user", "user", "user", "assistant"]


def test_older_results_are_objects_that_say_whether_they_failed():
    result = next(each for each in messages(EVERYTHING) if isinstance(each, ToolMessage) and each.is_error)
    assert (result.text, result.tool_name) == ("permission denied", "local_shell")


def test_what_another_agent_says_is_its_own():
    told = [each for each in messages(EVERYTHING) if each.source == "agent_message"]
    assert [(each.agent, each.text) for each in told] == [
        ("/root/worker", "The other half is done."),
        ("/root/other", "Me too."),
    ]


def test_an_item_of_an_unknown_kind_stays_where_it_stood_and_is_reported():
    data = rollout(said("assistant", "a"), item(type="novel_item", x=5e-06), said("assistant", "b"))
    ((transcript,), drift) = CODEX.read_with_unknown(data)
    (answer,) = [each.message for each in transcript.thread.path() if not is_record(each)]
    assert [type(part).__name__ for part in answer.content] == ["Text", "Opaque", "Text"]
    assert [str(each) for each in drift] == ["line 3: unknown block response_item novel_item"]
    assert CODEX.write(transcript).body == data


def test_a_snapshot_is_no_message():
    data = rollout(said("user", "a"), item(type="ghost_snapshot", ghost_commit={}), item(type="other"))
    assert [each.role for each in messages(data)] == ["user"]


# -- turns -------------------------------------------------------------------------------------------------------------


def test_an_answer_that_was_interrupted_says_so():
    cut = next(each for each in messages(EVERYTHING) if each.text == "Half an ans")
    assert (cut.finish_reason, cut.finish_reason_raw) == ("other", "interrupted")


def test_an_abort_behind_a_whole_answer_is_not_its_end():
    data = rollout(
        item(type="function_call", name="f", arguments="{}", call_id="c"),
        counted(10, (10, 4, 5, 1)),
        event(type="turn_aborted", reason="interrupted"),
    )
    (answer,) = messages(data)
    assert answer.finish_reason is None


def test_answers_are_parted_by_what_they_cost_and_by_turns():
    data = rollout(
        said("assistant", "a"),
        counted(10, (10, 4, 5, 1)),
        said("assistant", "b"),
        {"type": "turn_context", "payload": {"model": "m"}},
        said("assistant", "c"),
    )
    assert [(each.text, each.model) for each in messages(data)] == [("a", None), ("b", None), ("c", "m")]


@pytest.mark.parametrize(("turns", "left"), [(2, ["one", "four"]), (9, ["four"])])
def test_a_rollback_behind_a_compaction_stays_behind_it(turns, left):
    """It takes back prompts that the compaction kept, never the compaction itself."""
    kept = [said("user", text)["payload"] for text in ("one", "two")]
    data = rollout(
        said("user", "zero"),
        {"type": "compacted", "payload": {"message": "", "replacement_history": kept}},
        said("user", "three"),
        event(type="thread_rolled_back", num_turns=turns),
        said("user", "four"),
    )
    (transcript,) = CODEX.read(data)
    assert [each.text for each in for_model(transcript.thread.path())] == left
    assert [each.text for each in for_people(transcript.thread.path())] == ["zero", "four"]
    assert CODEX.write(transcript).body == data


def test_a_rollback_of_more_turns_than_there_were_keeps_what_stood_before_them():
    data = rollout(
        item(type="message", role="developer", content=[{"type": "input_text", "text": "be brief"}]),
        said("user", "one"),
        said("assistant", "1"),
        event(type="thread_rolled_back", num_turns=9),
        said("user", "two"),
    )
    (transcript,) = CODEX.read(data)
    assert [each.text for each in for_model(transcript.thread.path())] == ["be brief", "two"]


def test_a_sub_agent_names_its_parent_and_does_not_count_what_it_copied():
    (transcript,) = CODEX.read(SUBAGENT)
    session = transcript.metadata["session"]
    assert (session["parent"], session["agent"]) == ("0192f0c4-7777-7000-8000-0000000000aa", "Ada")
    assert session["more"]["turns"] == ["t2"]
    usage = usage_once(each.message for each in transcript.thread.entries)
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (10, 8, 2, 2)


def test_a_fork_is_itself_whatever_head_it_copied():
    (transcript,) = CODEX.read((FILES / "fork.jsonl").read_bytes())
    session = transcript.metadata["session"]
    assert transcript.thread.id == session["id"] == "0192f0c4-7777-7000-8000-0000000000bb"
    assert (session["cwd"], session["more"]["forked_from_id"][-2:]) == ("/w", "aa")


# -- detection ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "name", "found"),
    [
        (rollout(), "x.jsonl", True),
        (rollout(said("user", "a")).partition(b"\n")[2], "x.jsonl", True),
        (b'{"id":"a","timestamp":"2025-05-07T17:24:21Z","instructions":null}\n', "", True),
        (b'{"type":"session","id":"a"}\n', "", False),
        (b"", "rollout-2025-05-07T17-24-21-5973b6c0-94b8-487b-a530-2aeb6098ae0e.jsonl", False),
    ],
)
def test_it_is_known_by_its_head(data, name, found):
    assert (CODEX.detect(data, name) is not None) is found


# -- edits and writing -------------------------------------------------------------------------------------------------


def edited(data, change):
    (transcript,) = CODEX.read(data)
    changed = Thread(transcript.thread.id)
    for each in transcript.thread.entries:
        changed.add([Entry(each.id, each.parent, change(each.message))])
    changed.add((), transcript.thread.branches)
    return CODEX.write(type(transcript)(changed, transcript.title, transcript.metadata))


def replacing(old, new):
    def change(message):
        parts = [
            part.replace(text=part.text.replace(old, new)) if isinstance(part, Text) else part
            for part in message.content
        ]
        return message.replace(content=parts) if old in message.text else message

    return change


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("everything", "I look at it first.", "I looked."),
        ("everything", "What does this picture show?", "What is this?"),
        ("everything", "Go on.", "Stop."),
        ("everything", "You are a coding agent.", "You are an agent."),
        ("everything", "permission denied", "no"),
        ("everything", "Ask first.", "Never ask."),
        ("everything", "The other half is done.", "Half is done."),
        ("everything", "stream disconnected before completion", "stream cut"),
        ("subagent", "Your task.", "Your new task."),
        ("subagent", "Done.", "Not done."),
        ("subagent", "Put in by the program.", "Put in."),
    ],
)
def test_an_edit_changes_the_item_and_the_event_that_repeats_it_and_nothing_else(file, old, new):
    data = (FILES / f"{file}.jsonl").read_bytes()
    written = edited(data, replacing(old, new))
    lines, before = written.body.splitlines(), data.splitlines()
    assert len(lines) == len(before)
    for line, was in zip(lines, before, strict=True):
        if line != was:
            assert json.loads(line) == json.loads(was.replace(old.encode(), new.encode()))
    again = [each.text for each in messages(written.body)]
    assert any(new in text for text in again)
    assert not any(old in text for text in again)


def test_an_edited_usage_is_an_edited_count():
    def change(message):
        if not isinstance(message, AssistantMessage) or message.usage is None or message.usage.output != 50:
            return message
        return message.replace(usage=Usage(input=200, cache_read=1000, output=7, reasoning=30))

    written = edited(EVERYTHING, change)
    (count, *_) = [each for each in lines_of(written) if each["payload"].get("type") == "token_count"]
    assert count["payload"]["info"]["last_token_usage"]["output_tokens"] == 37
    assert len(written.body.splitlines()) == len(EVERYTHING.splitlines())


def test_what_a_marker_hides_is_hidden_in_the_program_too():
    written = CODEX.write(transcript_of([p.user("old"), p.flush(reason="new topic"), p.user("new")]))
    assert written.losses == ()
    (there,) = CODEX.read(written.body)
    assert [each.text for each in for_model(there.thread.path())] == ["new"]
    assert next(e.message.reason for e in there.thread.path() if isinstance(e.message, FlushMarker)) == "new topic"


def test_discarded_answers_and_placeholders_are_no_items():
    talk = [
        p.user("go"),
        p.assistant("blocked").replace(tags=("discarded",)),
        p.assistant("Sorry.").replace(tags=("placeholder",)),
    ]
    written = CODEX.write(transcript_of(talk))
    assert kinds(written)[-2:] == [("response_item", "other"), ("event_msg", "agent_message")]
    (there,) = CODEX.read(written.body)
    assert [each.text for each in for_model(there.thread.path())] == ["go"]
    assert [each.text for each in for_people(there.thread.path())] == ["go", "Sorry."]


def test_each_turn_says_the_model_that_answers_it():
    talk = [p.user("a"), p.assistant("A", model="m1"), p.user("b"), p.assistant("B", model="m2"), p.user("c")]
    lines = lines_of(CODEX.write(transcript_of(talk)))
    assert [each["payload"]["model"] for each in lines if each["type"] == "turn_context"] == ["m1", "m2", "m2"]
    there = messages(CODEX.write(transcript_of(talk), carry=False).body)
    assert [each.model for each in there if isinstance(each, AssistantMessage)] == ["m1", "m2"]


def test_answers_behind_one_another_stay_two():
    talk = transcript_of([p.user("a"), p.assistant("A"), p.assistant("B")])
    assert [each.text for each in messages(CODEX.write(talk, carry=False).body)] == ["a", "A", "B"]


def test_arguments_that_are_no_json_stay_what_the_model_wrote():
    call = p.MalformedToolCall('{"a": ', "cut", "f", "c1")
    written = CODEX.write(transcript_of([p.user("a"), p.assistant(call), p.tool("bad", tool_call_id="c1")]))
    items = [each["payload"] for each in lines_of(written) if each["type"] == "response_item"]
    assert (items[1]["arguments"], items[1]["call_id"]) == ('{"a": ', "c1")
    assert written.losses == ()


def test_a_file_is_lost_to_the_program_and_carried():
    talk = transcript_of([p.user("read", p.File(p.Inline("QUJD"), "application/pdf", "a.pdf"))])
    written = CODEX.write(talk)
    assert [str(each) for each in written.losses] == [
        "messages[0]: file converted (the program reads texts and images only; carried along)"
    ]
    check_strictly(written)
    assert messages(written.body)[0].content[1].name == "a.pdf"


def test_a_line_that_another_program_changed_wins_over_what_was_carried():
    written = CODEX.write(transcript_of([p.user("one").replace(metadata={"k": 1})])).body
    assert messages(written)[0].metadata == {"k": 1}
    other = messages(written.replace(b'"one"', b'"two"'))[0]
    assert (other.text, dict(other.metadata)) == ("two", {})


def test_a_developer_message_is_the_developers():
    there = messages(CODEX.write(transcript_of([p.developer("Be brief."), p.user("hi")]), carry=False).body)
    assert isinstance(there[0], DeveloperMessage)


# -- odd values --------------------------------------------------------------------------------------------------------

ODD = [None, True, -1, 1.5, "", "x", "\ud83d", [], {}, [[]], {"a": 1}, ["x"], {"type": "message"}, 10**30]


def places(value, path=()):
    if path:
        yield path
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(each, (*path, key))


SEEDS = [seed if seed < 20 else pytest.param(seed, marks=pytest.mark.long) for seed in range(60)]


@pytest.mark.parametrize("seed", SEEDS)
def test_odd_values_anywhere_are_kept_and_never_written_anew(seed):
    """What is read is written back; written anew it is still what the program reads; an edit raises nothing."""
    chance = random.Random(seed)
    lines = [json.loads(line) for line in chance.choice((EVERYTHING, SUBAGENT, ROLLOUT)).splitlines()]
    for _ in range(chance.randint(1, 4)):
        line = chance.choice(lines)
        *path, last = chance.choice(list(places(line)))
        for key in path:
            line = line[key]
        line[last] = json.loads(json.dumps(chance.choice(ODD)))
    data = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    (transcript,) = CODEX.read(data)
    assert CODEX.write(transcript).body == data
    told = [without_records(each.message) for each in transcript.thread.path() if not is_record(each)]
    check_strictly(CODEX.write(transcript_of(told, metadata=transcript.metadata)))
    assert edited(data, replacing("e", "E")).body


def usage_record(last):
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    return {"type": "token_usage_record", "payload": {"usage": dict(zip(names, last, strict=True))}}


@pytest.mark.finding("F-79")
@pytest.mark.parametrize("prompt", [(), (said("user", "hi"),)], ids=["counts alone", "behind a prompt"])
def test_counts_without_an_answer_are_summed_once_each(prompt):
    lines = (*prompt, counted(120, (100, 40, 20, 5)), counted(120, (100, 40, 20, 5)), counted(350, (200, 100, 30, 0)))
    data = rollout({"type": "turn_context", "payload": {"model": "gpt-5-codex"}}, *lines)
    (transcript,) = CODEX.read(data)
    total = usage_once(entry.message for entry in transcript.thread.entries)
    assert (total.input, total.cache_read, total.output, total.reasoning) == (160, 140, 45, 5)
    assert [each.text for each in messages(data)] == ["hi"] * len(prompt)
    assert CODEX.write(transcript).body == data
    assert list(for_model(transcript.thread.path())) == messages(data)


@pytest.mark.finding("F-79")
def test_a_count_that_two_lines_tell_is_summed_once():
    data = rollout(usage_record((100, 40, 20, 5)), counted(120, (100, 40, 20, 5)))
    (transcript,) = CODEX.read(data)
    assert usage_once(entry.message for entry in transcript.thread.entries).total == 120


@pytest.mark.finding("F-79")
def test_counts_that_a_sub_agent_copied_are_not_summed():
    meta = {**META, "payload": {**META["payload"], "subagent_history_start_ordinal": 5}}
    lines = [meta, {**counted(120, (100, 40, 20, 5)), "ordinal": 2}, {**counted(350, (200, 100, 30, 0)), "ordinal": 6}]
    (transcript,) = CODEX.read(b"".join(json.dumps(each).encode() + b"\n" for each in lines))
    assert usage_once(entry.message for entry in transcript.thread.entries).total == 230
