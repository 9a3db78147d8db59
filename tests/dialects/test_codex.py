"""Codex rollouts: what lines become, what is written, and the traps."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import dialects
from palaver.core.messages import AssistantMessage, FlushMarker, ToolMessage, UserMessage
from palaver.core.parts import Text
from palaver.core.usage import Usage
from palaver.dialects.conversation import transcript_of
from palaver.threads import Entry, Thread, for_model, for_people, usage_once
from tests.dialects.samples import FOLDER

CODEX = dialects.get("codex")
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
    _, drift = CODEX.read_with_drift((FILES / "paginated.jsonl").read_bytes())
    assert [str(each) for each in drift] == ["line 11: torn", "line 10: unknown record novelty"]


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


def test_markers_are_lost_and_said():
    written = CODEX.write(transcript_of([p.user("go"), p.rescue("odd")]), history="all")
    assert [str(each) for each in written.losses] == ["messages[1]: rescue dropped (a rollout has no such line)"]


@pytest.mark.parametrize("name", ["pi", "claude_code"])
def test_a_compaction_is_a_compaction_again(name):
    path = next(each for each in sorted((FOLDER / name).glob("*.jsonl")) if b"compact" in each.read_bytes())
    (source,) = dialects.get(name).read(path.read_bytes())
    (there,) = CODEX.read(CODEX.write(source).body)
    shown = "".join(each.text for each in for_model(source.thread.path()))
    again = "".join(each.text for each in for_model(there.thread.path()))
    assert again == shown.replace("\ud83d", "?")  # which the receipt says


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
