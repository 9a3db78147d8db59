"""The texts that the loop writes into a thread: docs/spec/codebuff.md#1.4, #4.1, #5, #6; DAS-19."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.core.parts import MalformedToolCall
from palaver.threads import expire
from palaver.turn import notes

NOTES = [
    (notes.interrupted(), "INTERRUPTED", "User interrupted the response. The assistant's previous work has been"),
    (
        notes.interrupted("The window closed"),
        "INTERRUPTED",
        "The window closed. The assistant's previous work has been",
    ),
    (notes.malformed([MalformedToolCall("{x", "no JSON")]), "TOOL_CALL_ERROR", "\n- no JSON: {x\n"),
    (
        notes.invalid_call("no such tool"),
        "TOOL_CALL_ERROR",
        "Error during tool call: no such tool. Please check the tool name and arguments and try again.",
    ),
    (notes.go_on(), "OUTPUT_LIMIT", "<system>Continue from where you left off.</system>"),
    (notes.stream_broke("reset"), "STREAM_INTERRUPTED", "The response was interrupted: reset."),
    (notes.provider_failed("overloaded."), "PROVIDER_ERROR", "The provider failed: overloaded. Continue"),
    (notes.wrong_output("$.a: missing"), "OUTPUT_ERROR", "Your answer does not fit the schema: $.a: missing."),
    (notes.missing_output(), "OUTPUT_ERROR", 'You must use the "set_output" tool'),
    (notes.step_limit(25), "STEP_LIMIT", "quite a few responses in a row (25)"),
    (notes.step_prompt("Think."), "STEP_PROMPT", "<system>Think.</system>"),
    (notes.warning("X was called 3 times."), "WARNING", "<system>Warning: X was called 3 times.</system>"),
]


@pytest.mark.parametrize(("note", "tag", "text"), NOTES)
def test_a_note_is_user_text_of_the_runtime_with_its_tag(note, tag, text):
    assert type(note) is p.UserMessage
    assert (note.mode, note.source, note.tags[0]) == ("tool", "agent", tag)
    assert text in note.text
    assert note.text.startswith("<system>")
    assert note.text.endswith("</system>")


def test_every_note_has_its_row_in_the_table():
    assert {note.tags for note, _, _ in NOTES} == set(notes.TAGS.values())


def test_only_the_prompt_of_a_step_expires_with_it():
    made = [note for note, _, _ in NOTES]
    assert [note for note in made if note not in expire(made, "agent-step")] == [notes.step_prompt("Think.")]


@pytest.mark.row("DAS-19")
@pytest.mark.parametrize(("size", "shown"), [(199, 199), (200, 200), (201, 200), (5000, 200)])
def test_a_malformed_call_is_shown_up_to_200_characters(size, shown):
    text = notes.malformed([MalformedToolCall("z" * size, "cut off"), MalformedToolCall("good", "why")]).text
    assert ("z" * shown + ("…" if size > shown else "") + "\n") in text
    assert text.count("z") == shown
    assert "- why: good\n" in text


@pytest.mark.row("CBF-26")
@given(st.text())
def test_framing_twice_changes_nothing(text):
    once = notes.steering(text)
    assert notes.steering(once.text) == once
    assert text in once.text
    assert once.text.count("<user_message_sent_while_working>") == 1 + text.count("<user_message_sent_while_working>")
    assert (once.mode, once.source, once.tags) == ("user", None, ("USER_PROMPT",))


def test_results_of_calls_that_were_not_run_differ():
    texts = [
        notes.NOT_RUN_INTERRUPTED,
        notes.NOT_RUN_CANCELLED,
        notes.NOT_RUN_LIMIT,
        notes.NOT_RUN_SKIPPED,
        notes.NOT_RUN_UNDECIDED,
        notes.MAY_HAVE_RUN,
    ]
    assert len(set(texts)) == len(texts)
    assert notes.final_answer_instruction.startswith("Tool calling is now disabled. ")
