"""Claude Code sessions: what records become, trees, responses in pieces, compactions, sub-agents, what is written."""

from __future__ import annotations

import json
import re

import pytest
from msgspec import Raw

import palaver as p
from palaver import transcripts
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
from palaver.core.parts import Image, Reasoning
from palaver.threads import for_model, for_people
from palaver.threads.thread import Entry
from palaver.threads.view import DISCARDED, PLACEHOLDER
from palaver.transcripts.claude_code.injected_text import source_of
from palaver.transcripts.claude_code.shapes import file_name
from palaver.transcripts.conversation import derived_id, session_of, transcript_of
from palaver.transcripts.format import Origin
from palaver.transcripts.original_bytes import bare
from tests.transcripts.samples import FOLDER, origin

CLAUDE = transcripts.get("claude_code")
SESSION = (FOLDER / "claude_code" / "session.jsonl").read_bytes()
ID = "5a2c1f00-1111-4222-8333-000000000001"
BASE = {
    "isSidechain": False,
    "userType": "external",
    "cwd": "/w",
    "sessionId": ID,
    "version": "2.1.4",
    "gitBranch": "main",
}


def uuid(number):
    return None if number is None else f"aaaaaaaa-0000-4000-8000-{number:012}"


def link(kind, number, parent, **fields):
    stamp = f"2026-01-02T03:{number // 60:02}:{number % 60:02}.000Z"
    return {"parentUuid": uuid(parent), **BASE, "type": kind, "uuid": uuid(number), "timestamp": stamp, **fields}


def user(number, parent, content, **fields):
    return link("user", number, parent, message={"role": "user", "content": content}, **fields)


def result(number, parent, call, text="done", **fields):
    return user(number, parent, [{"type": "tool_result", "tool_use_id": call, "content": text}], **fields)


def answer(number, parent, message, block, *, stop=None, tokens=1, **fields):
    content = [{"type": "text", "text": block}] if isinstance(block, str) else [block]
    said = {
        "id": message,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": tokens, "cache_read_input_tokens": 5},
    }
    return link("assistant", number, parent, message=said, requestId=f"req_{message}", **fields)


def call(name, **fields):
    return {"type": "tool_use", "id": name, "name": "Read", "input": fields}


def attachment(number, parent, kind, **fields):
    return link("attachment", number, parent, attachment={"type": kind, **fields})


def file(*records):
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def only(*records, name=""):
    data = records[0] if isinstance(records[0], bytes) else file(*records)
    (transcript,) = CLAUDE.read(data, Origin(name=name))
    assert CLAUDE.write(transcript).body == data
    return transcript


def path(*records):
    return only(*records).thread.path()


def drift(*records):
    return [str(each) for each in CLAUDE.read_with_unknown(file(*records))[1]]


def texts(messages):
    return [each.text for each in messages]


def calls_and_results(messages):
    return [
        tuple(each.id for each in message.tool_calls) if isinstance(message, AssistantMessage) else message.tool_call_id
        for message in messages
        if isinstance(message, AssistantMessage | ToolMessage)
    ]


# -- responses ---------------------------------------------------------------------------------------------------------


def test_a_response_in_pieces_is_one_answer():
    """Its records have others between them, its usage is the largest, its end the last."""
    answers = [each for each in for_people(only(SESSION).thread.path()) if isinstance(each, AssistantMessage)]
    first = answers[0]
    assert [type(part).__struct_config__.tag for part in first.content] == [
        "reasoning",
        "text",
        "tool_call",
        "tool_call",
    ]
    assert first.content[0] == Reasoning(
        "",
        signature="c2lnbmF0dXJlLXRoYXQtb25seS10aGUtcHJvdmlkZXItY2FuLWNoZWNr",
        wire="anthropic_messages",
    )
    assert first.tool_calls[0].arguments_json == '{"file_path":"/home/me/project/notes.txt","limit":1.0}'
    assert first.usage is not None
    assert (first.usage.input, first.usage.output, first.usage.cache_read, first.usage.cache_write) == (4, 42, 200, 10)
    assert (first.finish_reason, first.finish_reason_raw) == ("tool_calls", "tool_use")
    assert (first.response_id, first.model) == ("msg_01", "claude-sonnet-4-5-20250929")
    assert first.sent_at == 1767323047000


def test_usage_is_the_largest_report_and_not_the_last():
    (_, said) = for_model(
        path(user(1, None, "hi"), answer(2, 1, "m", "a", tokens=7), answer(3, 2, "m", "b", stop="end_turn", tokens=2))
    )
    assert said.usage is not None
    assert said.usage.output == 7
    assert said.finish_reason == "stop"


def test_results_of_parallel_calls_stand_on_one_line():
    """Each hangs on its own call, and the next answer on one of them."""
    records = (
        user(1, None, "go"),
        answer(2, 1, "m", call("a")),
        answer(3, 2, "m", call("b")),
        answer(4, 3, "m", call("c"), stop="tool_use"),
        result(5, 3, "b"),
        result(6, 2, "a"),
        result(7, 4, "c"),
    )
    for last in (5, 6, 7):
        seen = calls_and_results(for_model(path(*records, answer(8, last, "n", "done", stop="end_turn"))))
        assert seen == [("a", "b", "c"), "b", "a", "c", ()]


def test_what_hangs_on_the_results_stands_on_the_line_too():
    """A hook speaks behind each result; the next answer hangs on one of the two."""
    records = (
        user(1, None, "go"),
        answer(2, 1, "m", call("a")),
        result(3, 2, "a"),
        attachment(4, 3, "hook_additional_context", content=["first hook"]),
        answer(5, 2, "m", call("b"), stop="tool_use"),
        result(6, 5, "b"),
        attachment(7, 6, "hook_additional_context", content=["second hook"]),
    )
    for last in (4, 7):
        thread = only(*records, answer(8, last, "n", "done", stop="end_turn")).thread
        assert texts(for_model(thread.path())) == ["go", "", "done", "first hook", "done", "second hook", "done"]
        assert list(thread.branches) == ["main"]


def test_a_result_whose_parent_is_none_of_the_response_is_found_by_source_or_call():
    base = (user(1, None, "go"), answer(2, 1, "m", call("a")), answer(3, 2, "m", call("b"), stop="tool_use"))
    by_source = result(5, 1, "b", sourceToolAssistantUUID=uuid(3))
    by_call = result(5, 1, "b")
    for late in (by_source, by_call):
        messages = for_model(path(*base, result(4, 2, "a"), late, user(6, 5, "next")))
        assert calls_and_results(messages) == [("a", "b"), "a", "b"]


def test_a_result_behind_a_prompt_that_follows_its_call_stays_there():
    records = (
        user(1, None, "go"),
        answer(2, 1, "m", call("a")),
        answer(3, 2, "m", call("b"), stop="tool_use"),
        result(4, 3, "a", "A"),
        user(5, 4, "steer"),
    )
    for late in (result(6, 5, "b", "B"), result(6, 5, "b", "B", sourceToolAssistantUUID=uuid(3))):
        assert texts(for_model(path(*records, late, user(7, 6, "next")))) == ["go", "", "A", "steer", "B", "next"]


def test_a_call_that_two_responses_claim_moves_no_result_by_its_id_alone():
    records = (
        user(1, None, "go"),
        answer(2, 1, "m", call("a"), stop="tool_use"),
        user(3, 1, "again"),
        answer(4, 3, "n", call("a"), stop="tool_use"),
    )
    elsewhere = only(*records, result(5, 1, "a")).thread
    assert calls_and_results(for_model(elsewhere.path())) == ["a"]
    by_parent = only(*records, result(5, 4, "a")).thread
    assert calls_and_results(for_model(by_parent.path())) == [("a",), "a"]


def test_a_notice_between_the_records_of_a_response_does_not_end_it():
    messages = for_model(
        path(
            user(1, None, "go"),
            answer(2, 1, "m", call("a")),
            user(3, 2, "Base directory for this skill", isMeta=True),
            answer(4, 3, "m", "and so on", stop="tool_use"),
            result(5, 2, "a"),
        )
    )
    assert [type(each) for each in messages] == [UserMessage, AssistantMessage, UserMessage, ToolMessage]
    assert messages[1].text == "and so on"


def test_an_answer_without_an_id_is_an_answer():
    records = [user(1, None, "hi"), answer(2, 1, "m", "one"), answer(3, 2, "m", "two")]
    for each in records[1:]:
        del each["message"]["id"]
    assert texts(for_model(path(*records))) == ["hi", "one", "two"]


def test_one_record_that_cannot_be_read_does_not_take_its_response_along():
    records = (user(1, None, "hi"), answer(2, 1, "m", "one"), answer(3, 2, "m", {"type": "text", "text": 5}))
    assert texts(for_model(path(*records))) == ["hi", "one"]
    assert any("unknown block" in each for each in drift(*records))


def test_an_answer_of_the_program_is_shown_and_not_sent():
    thread = only(SESSION).thread
    shown = [each for each in for_people(thread.path()) if each.text == "API Error: overloaded"]
    assert [each.tags for each in shown] == [(PLACEHOLDER,)]
    before = thread.path()[: [each.message for each in thread.path()].index(shown[0]) + 1]
    assert shown[0] not in for_model(before)


def test_a_long_response_is_given_when_it_ends_and_the_reader_holds_no_more():
    reader = CLAUDE.reader()
    steps = list(reader.feed(file(user(1, None, "hi"), answer(2, 1, "m", "one"))))
    assert texts(step.entry.message for step in steps[1:]) == ["hi"]
    steps = list(reader.feed(file(user(3, 2, "next"))))
    assert texts(step.entry.message for step in steps) == ["one", "next"]


# -- trees -------------------------------------------------------------------------------------------------------------


def test_the_leaf_is_the_last_in_the_file_and_the_others_are_branches():
    thread = only(user(1, None, "one"), answer(2, 1, "m", "a"), user(3, 2, "two"), user(4, 2, "other")).thread
    assert texts(for_people(thread.path())) == ["one", "a", "other"]
    assert texts(for_people(thread.path("branch-1"))) == ["one", "a", "two"]


def test_the_main_leaf_is_no_sidechain_no_team_mate_and_no_notice():
    records = [user(1, None, "one"), answer(2, 1, "m", "a"), user(3, 1, "older")]
    for aside in ({"isSidechain": True}, {"teamName": "crew"}, {"isMeta": True}):
        thread = only(*records, user(4, 2, "aside", **aside)).thread
        assert texts(for_people(thread.path()))[-1] == "older"
    thread = only(*records[:2], user(4, 2, "<command-name>/clear</command-name>", isMeta=True)).thread
    assert len(thread.path()) == 3  # where there is nothing else, that


def test_what_stands_behind_the_leaf_is_on_the_main_line():
    thread = only(
        user(1, None, "hi"),
        answer(2, 1, "m", "a", stop="end_turn"),
        link("system", 3, 2, subtype="stop_hook_summary", content="1 hook ran"),
        attachment(4, 3, "hook_additional_context", content=["mind the tests"]),
    ).thread
    assert list(thread.branches) == ["main"]
    assert texts(for_model(thread.path())) == ["hi", "a", "mind the tests"]


def test_last_prompt_names_the_leaf_until_more_is_said():
    fork = (user(1, None, "one"), answer(2, 1, "m", "a"), user(3, 2, "older"), user(4, 2, "newer"))
    named = {"type": "last-prompt", "lastPrompt": "older", "leafUuid": uuid(3), "sessionId": ID}
    assert texts(for_people(path(*fork)))[-1] == "newer"
    assert texts(for_people(path(*fork, named)))[-1] == "older"
    assert texts(for_people(path(*fork, named, answer(5, 4, "n", "said since"))))[-1] == "said since"
    assert texts(for_people(path(*fork, named, answer(5, 3, "n", "said since"))))[-2:] == ["older", "said since"]


@pytest.mark.parametrize("last", [p.user("note", source="x"), p.flush(reason="new"), p.system("s"), p.rescue("r")])
def test_a_conversation_that_ends_in_no_leaf_ends_there_when_it_is_read(last):
    transcript = transcript_of((p.user("one"), p.assistant("two"), last))
    first = transcript.thread.path()[0].id
    transcript.thread.add([Entry("side", first, p.user("side"))], {"side": "side"})
    (again,) = CLAUDE.read(CLAUDE.write(transcript).body)
    told = [entry.message.role for entry in again.thread.path() if "record" not in entry.message.tags]
    assert told == ["user", "assistant", last.role]


def test_an_unknown_link_does_not_cut_the_chain():
    novel = link("dream", 2, 1)
    assert texts(for_people(path(user(1, None, "one"), novel, user(3, 2, "two")))) == ["one", "two"]
    assert drift(user(1, None, "one"), novel) == ["line 2: unknown record dream"]


def test_a_prompt_without_an_id_is_read_in_its_place():
    """Also while an answer of another writer is open."""
    loose = {key: each for key, each in user(9, None, "loose").items() if key != "uuid"}
    side = {"isSidechain": True, "agentId": "x"}
    only(user(1, None, "one", **side), answer(2, 1, "m", "a", **side), loose, answer(3, 2, "m", "b", **side))


def test_progress_and_attachments_are_links():
    messages = for_people(
        path(
            user(1, None, "one"),
            link("progress", 2, 1, data={"type": "hook_progress"}),
            attachment(3, 2, "hook_success", content="", hookEvent="PostToolUse"),
            answer(4, 3, "m", "two"),
        )
    )
    assert texts(messages) == ["one", "two"]


def test_a_parent_that_is_not_there_begins_anew_and_is_reported():
    records = (user(1, None, "one"), user(2, 99, "two"))
    assert texts(for_people(path(*records))) == ["two"]
    assert drift(*records) == ["line 2: link parentUuid"]


def test_records_that_name_each_other_are_read():
    for records in (
        [user(1, 1, "self")],
        [user(1, 2, "one"), user(2, 1, "two")],
        [answer(1, 2, "m", "one"), user(2, 1, "two")],
    ):
        thread = only(*records).thread
        assert len(thread.entries) == len(records)


def test_a_chain_that_a_resume_wrote_again_is_followed_where_it_came_last():
    """Two records of each ``uuid``: both are kept, people see one."""
    chain = (user(1, None, "one"), answer(2, 1, "m", "a", stop="end_turn"))
    thread = only(*chain, *chain, user(3, 2, "two")).thread
    assert texts(for_people(thread.path())) == ["one", "a", "two"]
    assert len({entry.id for entry in thread.entries}) == 5


def test_clear_begins_anew():
    thread = only(user(1, None, "one"), answer(2, 1, "m", "a"), user(3, None, "two")).thread
    assert texts(for_people(thread.path())) == ["two"]
    assert len(thread.branches) == 2


def test_a_sidechain_in_the_file_of_a_session_is_a_branch():
    thread = only(SESSION).thread
    assert ["Look for the weather station.", "There is none."] in [
        texts(for_people(thread.path(branch))) for branch in thread.branches
    ]


def test_the_answers_of_two_writers_may_alternate():
    side = {"isSidechain": True, "agentId": "x"}
    thread = only(
        user(1, None, "main"),
        user(2, None, "side", **side),
        answer(3, 1, "m", "m1"),
        answer(4, 2, "s", "s1", **side),
        answer(5, 3, "m", "m2"),
        answer(6, 4, "s", "s2", **side),
    ).thread
    assert texts(for_people(thread.path())) == ["main", "m1m2"]
    assert texts(for_people(thread.path("branch-1"))) == ["side", "s1s2"]


def test_a_record_that_follows_an_open_answer_of_another_writer_finds_it():
    side = {"isSidechain": True, "agentId": "x"}
    thread = only(user(1, None, "main"), answer(2, 1, "m", call("t")), user(3, 2, "side", **side)).thread
    assert texts(for_people(thread.path())) == ["main", "", "side"]


# -- two histories -----------------------------------------------------------------------------------------------------


def test_a_compaction_hides_from_models_what_people_see():
    line = only(SESSION).thread.path()
    assert texts(for_model(line)) == [
        "This session is being continued. The user asked for two files.",
        "<command-name>/model</command-name>",
        "Go on.",
        "Gladly.",
    ]
    people = texts(for_people(line))
    assert people[0].startswith("Read both files")
    assert people[-2:] == ["Go on.", "Gladly."]
    assert "This session is being continued. The user asked for two files." not in people


def compaction(number, logical, **metadata):
    return link(
        "system",
        number,
        None,
        subtype="compact_boundary",
        content="Conversation compacted",
        logicalParentUuid=uuid(logical),
        compactMetadata={"trigger": "auto", "preTokens": 9, **metadata},
    )


def summary(number, parent):
    return user(number, parent, "In short.", isCompactSummary=True, isVisibleInTranscriptOnly=True)


EARLIER = (
    user(1, None, "one"),
    answer(2, 1, "m", call("a")),
    answer(3, 2, "m", call("b"), stop="tool_use"),
    result(4, 2, "a", "A"),
    result(5, 3, "b", "B"),
    answer(6, 5, "n", "two", stop="end_turn"),
)


@pytest.mark.parametrize(
    "metadata",
    [
        {"preservedSegment": {"headUuid": uuid(2), "anchorUuid": uuid(8), "tailUuid": uuid(6)}},
        {"preservedMessages": {"uuids": [uuid(n) for n in (2, 3, 4, 5, 6)], "anchorUuid": uuid(8)}},
    ],
)
def test_what_a_compaction_preserved_stands_behind_its_summary(metadata):
    records = (*EARLIER, compaction(7, 6, **metadata), summary(8, 7))
    for parent in (6, 8):
        line = path(*records, user(9, parent, "three"))
        assert texts(for_model(line)) == ["In short.", "", "A", "B", "two", "three"]
        assert texts(for_people(line)) == ["one", "", "A", "B", "two", "three"]


def test_a_second_compaction_may_preserve_what_the_first_did():
    segment = {"preservedSegment": {"headUuid": uuid(6), "anchorUuid": uuid(8), "tailUuid": uuid(6)}}
    again = {"preservedSegment": {"headUuid": uuid(6), "anchorUuid": uuid(11), "tailUuid": uuid(9)}}
    line = path(
        *EARLIER,
        compaction(7, 6, **segment),
        summary(8, 7),
        user(9, 6, "three"),
        compaction(10, 9, **again),
        summary(11, 10),
        user(12, 9, "four"),
    )
    assert texts(for_model(line)) == ["In short.", "two", "three", "four"]
    assert texts(for_people(line)) == ["one", "", "A", "B", "two", "three", "four"]


def test_a_preserved_segment_that_is_not_there_is_not_made_up():
    segment = {"preservedSegment": {"headUuid": uuid(88), "anchorUuid": uuid(8), "tailUuid": uuid(6)}}
    assert texts(for_model(path(*EARLIER, compaction(7, 6, **segment), summary(8, 7)))) == ["In short."]


def test_a_summary_hides_where_its_boundary_is_not_before_it():
    assert texts(for_model(path(user(1, None, "one"), summary(2, 1), user(3, 2, "two")))) == ["In short.", "two"]
    hook = attachment(3, 2, "hook_additional_context", content=["hook"])
    line = path(user(1, None, "one"), compaction(2, 1), hook, summary(4, 3))
    assert texts(for_model(line)) == ["hook", "In short."]


def test_a_boundary_whose_logical_parent_is_not_there_begins_anew():
    line = path(user(1, None, "one"), compaction(2, 77), summary(3, 2), user(4, 3, "two"))
    assert texts(for_people(line)) == ["two"]


def test_notices_are_for_models():
    line = path(user(1, None, "Caveat", isMeta=True), user(2, 1, "hi"))
    assert texts(for_model(line)) == ["Caveat", "hi"]
    assert texts(for_people(line)) == ["hi"]
    assert line[0].message.source == "meta"


def test_what_an_editor_or_a_hook_put_beside_a_prompt_was_not_typed():
    blocks = [
        {"type": "text", "text": "<ide_opened_file>notes.txt</ide_opened_file>"},
        {"type": "text", "text": "Fix it."},
        {"type": "text", "text": "<system-reminder>be\nkind</system-reminder>\n<system-reminder>x</system-reminder>"},
    ]
    line = path(user(1, None, blocks))
    assert texts(for_people(line)) == ["Fix it."]
    assert [each.source for each in for_model(line)] == ["ide_opened_file", None, "system-reminder"]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("<ide_selection>a</ide_selection>", "ide_selection"),
        (" <system-reminder>a</system-reminder>\n", "system-reminder"),
        ("<system-reminder>a</system-reminder> and mine <system-reminder>b</system-reminder>", None),
        ("<system-reminder>never closed", None),
        ("I typed <system-reminder>", None),
        ("<command-name>/model</command-name>", None),
        ("", None),
    ],
)
def test_a_wrapper_is_all_of_a_text_or_none_of_it(text, source):
    assert source_of(text) == source


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"type": "hook_additional_context", "content": ["one", "two"]}, "one\ntwo"),
        ({"type": "hook_blocking_error", "blockingError": {"blockingError": "no", "command": "c"}}, "no"),
        ({"type": "hook_blocking_error", "blockingError": "no"}, "no"),
        ({"type": "hook_success", "content": "ready", "hookEvent": "SessionStart"}, "ready"),
        ({"type": "file", "filename": "/x", "content": {"type": "text", "file": {"content": "inside"}}}, "inside"),
        ({"type": "edited_text_file", "filename": "/x", "snippet": "1 a"}, "1 a"),
        ({"type": "nested_memory", "path": "/x", "content": {"type": "Project", "content": "rules"}}, "rules"),
        ({"type": "todo_reminder", "content": [{"content": "do it", "status": "pending"}], "itemCount": 1}, "do it"),
        ({"type": "skill_listing", "content": "- a skill"}, "- a skill"),
    ],
)
def test_attachments_that_tell_the_model_something(fields, text):
    line = path(user(1, None, "hi"), link("attachment", 2, 1, attachment=fields), user(3, 2, "more"))
    assert texts(for_model(line)) == ["hi", text, "more"]
    assert texts(for_people(line)) == ["hi", "more"]
    assert line[1].message.source == fields["type"]
    assert not drift(user(1, None, "hi"), link("attachment", 2, 1, attachment=fields))


def test_attachments_that_tell_nothing_and_ones_that_are_new():
    line = path(
        user(1, None, "hi"),
        attachment(2, 1, "hook_success", content="ran", hookEvent="PostToolUse"),
        attachment(3, 2, "hologram", content="new"),
        user(4, 3, "more"),
    )
    assert texts(for_model(line)) == ["hi", "more"]
    assert drift(user(1, None, "hi"), attachment(3, 1, "hologram")) == ["line 2: unknown record attachment hologram"]


def test_a_queued_command_was_typed_and_a_notification_was_not():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    line = path(
        user(1, None, "hi"),
        attachment(2, 1, "queued_command", prompt="also this", commandMode="prompt"),
        attachment(3, 2, "queued_command", prompt=[{"type": "text", "text": "see"}, image], commandMode="prompt"),
        attachment(4, 3, "queued_command", prompt="task 7 ended", commandMode="task-notification"),
    )
    assert texts(for_people(line)) == ["hi", "also this", "see"]
    assert isinstance(for_people(line)[2].content[1], Image)
    assert texts(for_model(line))[-1] == "task 7 ended"


def queue(operation, content=None):
    said = {} if content is None else {"content": content}
    return {
        "type": "queue-operation",
        "operation": operation,
        "timestamp": "2026-01-02T03:04:08.000Z",
        "sessionId": ID,
        **said,
    }


def test_a_dequeued_message_is_read_once():
    start, last = user(1, None, "hi"), answer(9, 1, "m", "well", stop="end_turn")
    assert texts(for_people(path(start, queue("enqueue", "steer"), queue("remove", "steer"), last))) == [
        "hi",
        "steer",
        "well",
    ]
    assert texts(for_people(path(start, queue("enqueue", "steer"), queue("remove"), last))) == ["hi", "steer", "well"]
    attached = attachment(2, 1, "queued_command", prompt="steer", commandMode="prompt")
    late = answer(9, 2, "m", "well", stop="end_turn")
    for records in ((queue("remove", "steer"), attached), (attached, queue("remove", "steer"))):
        assert texts(for_people(path(start, queue("enqueue", "steer"), *records, late))) == ["hi", "steer", "well"]
    assert texts(for_people(path(start, queue("enqueue", "steer"), queue("popAll"), last))) == ["hi", "well"]


def test_a_ui_copy_stays_in_its_record():
    copied = result(3, 2, "a", "text", toolUseResult={"file": {"content": "text for the eye"}})
    line = path(user(1, None, "go"), answer(2, 1, "m", call("a"), stop="tool_use"), copied)
    assert texts(for_model(line)) == ["go", "", "text"]


def test_an_output_that_was_put_aside_is_the_text_that_names_its_file():
    text = (
        "<persisted-output>\nOutput too large (1 MB). Full output saved to: /x/tool-results/a.txt\n</persisted-output>"
    )
    line = path(user(1, None, "go"), answer(2, 1, "m", call("a"), stop="tool_use"), result(3, 2, "a", text))
    assert for_people(line)[-1].text == text


# -- the session -------------------------------------------------------------------------------------------------------


def test_what_a_session_says_of_itself():
    session = session_of(
        only(user(1, None, "hi", slug="a-plan"), {"type": "tag", "tag": "work", "sessionId": ID}).metadata
    )
    assert (session.id, session.cwd, session.program, session.branch) == (ID, "/w", "2.1.4", "main")
    assert session.more == {"slug": "a-plan", "tag": "work"}
    assert session.started_at == 1767322801000
    assert session_of(only(SESSION).metadata).model == "claude-sonnet-4-5-20250929"


def test_the_model_of_a_session_is_none_that_the_program_made_up():
    error = answer(2, 1, "x", "API Error", isApiErrorMessage=True)
    error["message"]["model"] = "<synthetic>"
    assert session_of(only(user(1, None, "hi"), error, answer(3, 2, "m", "a")).metadata).model == "claude-sonnet-4-5"


def titled(kind, text, **fields):
    return {
        "type": kind,
        {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}[kind]: text,
    } | fields


def test_titles_by_their_strength():
    prompt = user(1, None, "hi")
    here, elsewhere = titled("summary", "here", leafUuid=uuid(1)), titled("summary", "not here", leafUuid=uuid(77))
    assert only(here, elsewhere, prompt).title == "here"
    assert only(elsewhere, prompt).title == "not here"
    assert only(elsewhere, titled("summary", "nor here", leafUuid=uuid(78)), prompt).title is None
    assert only(prompt, titled("ai-title", "made", sessionId=ID), here).title == "made"
    named = titled("custom-title", "mine", sessionId=ID)
    assert only(prompt, named, titled("ai-title", "made", sessionId=ID)).title == "mine"
    assert only(prompt, named, titled("custom-title", "mine now", sessionId=ID)).title == "mine now"


def test_a_record_of_the_session_is_no_link_even_with_an_id():
    """The kits that rename and fork sessions give titles a ``uuid``."""
    named = {**titled("custom-title", "mine", sessionId=ID), "uuid": uuid(8), "timestamp": "2026-01-02T03:04:08.000Z"}
    transcript = only(user(1, None, "hi"), named, user(2, 1, "more"))
    assert transcript.title == "mine"
    assert list(transcript.thread.branches) == ["main"]


def test_a_sub_agents_file_is_a_thread_of_its_own():
    main = FOLDER / "claude_code" / "subagent" / "main.jsonl"
    (transcript,) = CLAUDE.read(main.read_bytes(), origin(main))
    session = session_of(transcript.metadata)
    assert (session.agent, session.parent, session.call) == ("b7", ID, "toolu_task")
    assert transcript.thread.id == derived_id("claude_code", ID, "b7")
    assert texts(for_people(transcript.thread.path())) == ["Find the parser.", "It is in src."]


def test_a_sub_agent_says_which_call_began_it_and_whose():
    side = {"isSidechain": True, "agentId": "b7"}
    beside = {"agent-b7.meta.json": b'{"agentType":"Explore","toolUseId":"toolu_t","parentAgentId":"a1"}'}
    source = Origin(name="x/subagents/agent-b7.jsonl", beside=beside.get)
    (transcript,) = CLAUDE.read(file(user(1, None, "Find it.", **side)), source)
    session = session_of(transcript.metadata)
    assert (session.call, session.parent) == ("toolu_t", derived_id("claude_code", ID, "a1"))
    assert session.more == {"agentType": "Explore"}


def test_other_programs_records_are_not_taken_for_its_own():
    qwen = {"uuid": uuid(1), "parentUuid": None, "sessionId": ID, "type": "user", "message": {"parts": []}}
    assert CLAUDE.detect(file(qwen)) is None
    assert CLAUDE.detect(file(user(1, None, "hi"))).version == "2.1.4"
    assert CLAUDE.detect(file(titled("summary", "t", leafUuid=uuid(1)))).confidence == 0.7


# -- writing -----------------------------------------------------------------------------------------------------------


def written(*messages, **fields):
    result = CLAUDE.write(transcript_of(messages, **fields))
    return [json.loads(line) for line in result.body.splitlines()], result


def back(result):
    (transcript,) = CLAUDE.read(result.body)
    return [bare(entry.message, "claude_code").replace(id=None) for entry in transcript.thread.path()]


REQUIRED = {
    "uuid",
    "parentUuid",
    "isSidechain",
    "userType",
    "cwd",
    "sessionId",
    "version",
    "gitBranch",
    "timestamp",
    "type",
}

TALK = (
    p.user("What is the weather?", sent_at=1767323045000),
    p.assistant(
        Reasoning("I should look.", signature="c2ln", wire="anthropic_messages"),
        "I shall look.",
        p.ToolCall("toolu_1", "weather", '{"city": "Ulm"}'),
        p.ToolCall("toolu_2", "weather", '{"city": "Bonn"}'),
        model="claude-sonnet-4-5",
        response_id="msg_1",
        finish_reason="tool_calls",
        finish_reason_raw="tool_use",
        sent_at=1767323046000,
    ),
    p.tool("rain", tool_call_id="toolu_1", tool_name="weather", sent_at=1767323047000),
    p.tool("no such town", tool_call_id="toolu_2", tool_name="weather", is_error=True, sent_at=1767323048000),
    p.assistant("Rain in Ulm.", response_id="msg_2", sent_at=1767323049000),
)


def test_one_record_for_each_block_and_all_that_the_program_needs():
    records, result = written(*TALK)
    assert [each["type"] for each in records] == ["user", *["assistant"] * 4, "user", "user", "assistant"]
    for before, each in zip([None, *records], records, strict=False):
        assert each.keys() >= REQUIRED
        assert each["parentUuid"] == (before and before["uuid"])
        assert each["uuid"] == each["uuid"].lower()
        assert len(each["uuid"]) == 36
    answers = [each for each in records if each["type"] == "assistant"]
    assert all(len(each["message"]["content"]) == 1 for each in answers)
    assert all(
        each["message"].keys() >= {"id", "type", "role", "model", "content", "stop_reason", "usage"} for each in answers
    )
    assert [each["message"]["stop_reason"] for each in answers] == [None, None, None, "tool_use", "end_turn"]
    assert len({each["requestId"] for each in answers[:4]}) == 1
    assert not result.losses
    assert back(result) == list(TALK)


def test_the_file_is_named_by_its_session():
    transcript = transcript_of(TALK)
    records, _ = written(*TALK)
    assert file_name(transcript) == f"{records[0]['sessionId']}.jsonl"
    assert file_name(only(SESSION)) == f"{ID}.jsonl"
    main = FOLDER / "claude_code" / "subagent" / "main.jsonl"
    (transcript,) = CLAUDE.read(main.read_bytes(), origin(main))
    assert file_name(transcript) == f"{ID}/subagents/agent-b7.jsonl"


def test_a_title_is_written():
    records, result = written(*TALK, title="Rain")
    assert records[0] == {"type": "custom-title", "customTitle": "Rain", "sessionId": records[1]["sessionId"]}
    assert CLAUDE.read(result.body)[0].title == "Rain"


def test_a_compaction_is_written_as_one():
    records, result = written(
        p.user("one", sent_at=1),
        p.assistant("two", sent_at=2),
        p.flush(reason="compaction", source="compaction", sent_at=3),
        p.user("In short.", source="compaction", sent_at=4),
        p.user("three", sent_at=5),
    )
    boundary, summary = records[2], records[3]
    assert (boundary["subtype"], boundary["parentUuid"]) == ("compact_boundary", None)
    assert boundary["logicalParentUuid"] == records[1]["uuid"]
    assert boundary["compactMetadata"]["trigger"] == "auto"
    assert (summary["isCompactSummary"], summary["parentUuid"]) == (True, boundary["uuid"])
    assert "palaver" not in boundary
    line = CLAUDE.read(result.body)[0].thread.path()
    assert texts(for_model(line)) == ["In short.", "three"]
    assert texts(for_people(line)) == ["one", "two", "three"]


def test_a_flush_of_ours_ends_what_the_program_sees_and_comes_back():
    messages = (p.user("one"), p.flush(reason="begin anew"), p.user("two"))
    _, result = written(*messages)
    found = [each.replace(sent_at=None) for each in back(result)]
    assert found == [messages[0], messages[1], messages[2]]
    assert not result.losses


def test_what_the_program_has_no_record_for_is_passed_over_and_comes_back():
    messages = (
        p.system("Be brief."),
        p.developer("And kind."),
        p.user("hi"),
        p.assistant("blocked", tags=(DISCARDED,)),
        p.rescue("cut off"),
        p.assistant("hello"),
    )
    records, result = written(*messages)
    assert [each["type"] for each in records] == ["system", "system", "user", "system", "system", "assistant"]
    assert [(loss.kind, loss.what, loss.message) for loss in result.losses] == [
        ("converted", "system", 0),
        ("converted", "developer", 1),
        ("converted", "assistant", 3),
        ("converted", "rescue", 4),
    ]
    found = [each.replace(sent_at=None) for each in back(result)]
    assert [each.role for each in found] == [each.role for each in messages]
    assert found[3].tags == (DISCARDED,)


def test_an_answer_that_people_were_shown_is_one_of_the_programs_own():
    records, result = written(p.user("hi"), p.assistant("Out of order.", tags=(PLACEHOLDER,), model="gpt-5"))
    assert records[1]["message"]["model"] == "<synthetic>"
    assert records[1]["isApiErrorMessage"] is True
    assert (back(result)[1].tags, back(result)[1].model) == ((PLACEHOLDER,), "gpt-5")


def test_messages_with_a_source_are_notices():
    records, result = written(p.user("Remember.", source="reminder", sent_at=1), p.user("hi", mode="tool", sent_at=2))
    assert [each["isMeta"] for each in records[:2]] == [True, True]
    assert records[2] == {"type": "last-prompt", "leafUuid": records[1]["uuid"], "sessionId": records[0]["sessionId"]}
    assert [(each.source, each.mode) for each in back(result)[:2]] == [("reminder", None), (None, "tool")]


def test_what_another_provider_reasoned_is_carried_beside():
    message = p.assistant(Reasoning("Hm.", encrypted="xyz", wire="openai_responses"), "Yes.", sent_at=1)
    records, result = written(p.user("?", sent_at=1), message)
    assert [block["type"] for block in records[1]["message"]["content"]] == ["text"]
    assert [loss.what for loss in result.losses] == ["reasoning"]
    assert back(result)[1].content == message.content
    bare_file = CLAUDE.write(transcript_of((p.user("?", sent_at=1), message)), carry=False)
    assert b"palaver" not in bare_file.body


def test_what_says_nothing_says_so():
    records, result = written(p.user(""), p.assistant())
    assert [each["message"]["content"] for each in records] == [
        "(no content)",
        [{"type": "text", "text": "(no content)"}],
    ]
    assert [each.content for each in back(result)] == [p.user("").content, ()]
    assert {loss.what for loss in result.losses} >= {"user", "assistant"}


@pytest.mark.parametrize("raw", [b'"x"', b"5", b'{"type":"text","text":5}', b'{"type":"tool_use"}', b'{"type":"new"}'])
def test_a_block_that_its_own_wire_does_not_take_is_kept_aside(raw):
    block = p.Opaque("anthropic_messages", Raw(raw))
    messages = (p.user("q"), p.assistant("a", block), p.user("b", block))
    _, result = written(*messages)
    assert [each.content for each in back(result)] == [each.content for each in messages]
    assert bool(result.losses) == (raw != b'{"type":"new"}')


def test_a_result_without_a_call_is_written_as_text():
    records, result = written(p.user("hi"), p.tool("lost", tool_call_id="call_9"))
    assert {block["type"] for block in records[1]["message"]["content"]} == {"text"}
    assert [loss.what for loss in result.losses] == ["tool result"]
    assert back(result)[1].tool_call_id == "call_9"


def pairs(records):
    blocks = [
        block
        for each in records
        if "message" in each and isinstance(each["message"]["content"], list)
        for block in each["message"]["content"]
    ]
    made = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return made, [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


def test_ids_of_calls_are_given_once_and_fit_the_wire():
    """Other programs count calls anew in each answer, or spell ids as this provider does not."""
    messages = []
    for turn in range(3):
        messages += [
            p.user(f"turn {turn}"),
            p.assistant(p.ToolCall("call_0", "t", "{}"), p.ToolCall("fc:1|äß" + "x" * 80, "t", "{}")),
            p.tool("a", tool_call_id="call_0"),
            p.tool("b", tool_call_id="fc:1|äß" + "x" * 80),
        ]
    records, result = written(*messages)
    made, answered = pairs(records)
    assert made == answered
    assert len(set(made)) == 6
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", each) for each in made)
    found = [each.tool_call_id for each in back(result) if isinstance(each, ToolMessage)]
    assert found == [each.tool_call_id for each in messages if isinstance(each, ToolMessage)]


def test_a_call_without_an_id_gets_one_and_its_result_too():
    records, _ = written(p.user("?"), p.assistant(p.ToolCall("", "t", "{}")), p.tool("a", tool_call_id=""))
    made, answered = pairs(records)
    assert made == answered
    assert len(made[0]) > 6


def test_a_result_whose_call_a_compaction_hides_is_written_as_text():
    records, result = written(
        p.user("?"),
        p.assistant(p.ToolCall("c", "t", "{}")),
        p.flush(source="compaction"),
        p.tool("a", tool_call_id="c", source="compaction"),
    )
    assert pairs(records) == (["c"], [])
    assert [loss.what for loss in result.losses] == ["tool result"]
    assert isinstance(back(result)[-1], ToolMessage)


def test_the_id_of_a_response_is_given_once():
    messages = (p.user("a"), p.assistant("one", response_id="r"), p.assistant("two", response_id="r"))
    records, result = written(*messages)
    assert len({each["message"]["id"] for each in records[1:]}) == 2
    assert [each.response_id for each in back(result)[1:]] == ["r", "r"]
    assert texts(back(result)) == ["a", "one", "two"]


def test_branches_are_written_and_the_main_one_last():
    transcript = transcript_of(TALK)
    thread = transcript.thread
    side = Entry("side", thread.path()[0].id, p.user("And tomorrow?"))
    thread.add([side], {"side": "side"})
    result = CLAUDE.write(transcript)
    (again,) = CLAUDE.read(result.body)
    assert texts(for_people(again.thread.path())) == texts(TALK)
    assert texts(for_people(again.thread.path("branch-1"))) == ["What is the weather?", "And tomorrow?"]


def edited(data, change):
    (transcript,) = CLAUDE.read(data)
    thread = type(transcript.thread)(transcript.thread.id)
    for entry in transcript.thread.entries:
        thread.add([Entry(entry.id, entry.parent, change(entry.message))])
    thread.add((), transcript.thread.branches)
    result = CLAUDE.write(type(transcript)(thread, transcript.title, transcript.metadata))
    return [json.loads(line) for line in result.body.splitlines()], result


def test_an_edited_prompt_changes_its_record_alone():
    data = file(user(1, None, "secret", slug="s"), answer(2, 1, "m", "ok", stop="end_turn"))
    _, result = edited(
        data, lambda each: each.replace(content=(p.Text("[gone]"),)) if isinstance(each, UserMessage) else each
    )
    assert result.body == data.replace(b'"secret"', b'"[gone]"')


def test_an_edited_answer_keeps_what_is_not_ours():
    data = file(*EARLIER)

    def shout(message):
        return message.replace(content=(p.Text("TWO"),)) if message.text == "two" else message

    _, result = edited(data, shout)
    assert result.body == data.replace(b'"two"', b'"TWO"')


def test_a_block_that_is_taken_away_leaves_the_calls_their_records():
    data = file(
        user(1, None, "go"),
        answer(2, 1, "m", "chatter"),
        answer(3, 2, "m", call("a")),
        answer(4, 3, "m", call("b"), stop="tool_use"),
        result(5, 3, "a", "A"),
        result(6, 4, "b", "B"),
        answer(7, 6, "n", "done", stop="end_turn"),
    )

    def quiet(message):
        return message.replace(content=message.tool_calls) if message.tool_calls else message

    records, written_anew = edited(data, quiet)
    made = [(each["uuid"], each["parentUuid"]) for each in records if each["type"] == "assistant"]
    assert made == [(uuid(3), uuid(1)), (uuid(4), uuid(3)), (uuid(7), uuid(6))]
    line = CLAUDE.read(written_anew.body)[0].thread.path()
    assert texts(for_people(line)) == ["go", "", "A", "B", "done"]


def test_a_block_that_is_added_gets_a_record_of_its_own():
    data = file(user(1, None, "go"), answer(2, 1, "m", "one", stop="end_turn"), user(3, 2, "next"))

    def more(message):
        return message.replace(content=(*message.content, p.Text("and two"))) if message.text == "one" else message

    records, written_anew = edited(data, more)
    assert len({each["uuid"] for each in records}) == 4
    line = CLAUDE.read(written_anew.body)[0].thread.path()
    assert [len(each.message.content) for each in line] == [1, 2, 1]


def test_an_edited_prompt_beside_a_wrapper_keeps_the_wrapper():
    blocks = [
        {"type": "text", "text": "<ide_opened_file>notes.txt</ide_opened_file>"},
        {"type": "text", "text": "Fix it."},
    ]
    data = file(user(1, None, blocks))
    records, _ = edited(
        data, lambda each: each.replace(content=(p.Text("Leave it."),)) if each.text == "Fix it." else each
    )
    assert records[0]["message"]["content"] == [blocks[0], {"type": "text", "text": "Leave it."}]


def test_an_edited_summary_is_one_still():
    segment = {"preservedSegment": {"headUuid": uuid(6), "anchorUuid": uuid(8), "tailUuid": uuid(6)}}
    data = file(*EARLIER, compaction(7, 6, **segment), summary(8, 7), user(9, 8, "three"))

    def shorter(message):
        return message.replace(content=(p.Text("Short."),)) if message.text == "In short." else message

    _, written_anew = edited(data, shorter)
    assert written_anew.body == data.replace(b'"In short."', b'"Short."')


def test_an_edited_attachment_is_a_notice():
    data = file(user(1, None, "hi"), attachment(2, 1, "hook_additional_context", content=["secret"]), user(3, 2, "x"))

    def gone(message):
        return message.replace(content=(p.Text("[gone]"),)) if message.text == "secret" else message

    _, written_anew = edited(data, gone)
    line = CLAUDE.read(written_anew.body)[0].thread.path()
    assert texts(for_model(line)) == ["hi", "[gone]", "x"]
    assert texts(for_people(line)) == ["hi", "x"]


def test_a_session_goes_on_where_it_ended():
    (transcript,) = CLAUDE.read(SESSION)
    thread = transcript.thread
    head = thread.path()[-1].id
    thread.add([Entry("new", head, p.user("And then?", sent_at=1767323070000))], {"main": "new"})
    result = CLAUDE.write(transcript)
    assert result.body.startswith(SESSION)
    record = json.loads(result.body[len(SESSION) :])
    assert (record["sessionId"], record["cwd"], record["version"]) == (ID, "/home/me/project", "2.1.4")
    assert record["parentUuid"] == uuid(24)
    (again,) = CLAUDE.read(result.body)
    assert texts(for_people(again.thread.path()))[-1] == "And then?"


def test_what_goes_on_behind_a_hook_names_the_hook():
    data = file(
        user(1, None, "hi"), answer(2, 1, "m", "a", stop="end_turn"), link("system", 3, 2, subtype="stop_hook_summary")
    )
    (transcript,) = CLAUDE.read(data)
    thread = transcript.thread
    thread.add([Entry("new", thread.path()[-1].id, p.user("next"))], {"main": "new"})
    assert json.loads(CLAUDE.write(transcript).body[len(data) :])["parentUuid"] == uuid(3)
