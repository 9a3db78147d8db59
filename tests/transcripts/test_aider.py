"""Aider's chat histories: sessions, what the user says, what the program prints, and answers."""

from __future__ import annotations

from palaver import transcripts
from palaver.core.parts import Reasoning
from palaver.transcripts.conversation import session_of
from palaver.transcripts.original_bytes import records_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

AIDER = transcripts.get("aider")
SAMPLE = (FOLDER / "aider" / "sessions.md").read_bytes()
TRIMMED = (FOLDER / "aider" / "trimmed.md").read_bytes()


def path_of(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def test_each_start_of_the_program_is_a_conversation():
    first, second = AIDER.read(SAMPLE)
    assert [session_of(each.metadata).started_at for each in (first, second)] == [1761125352000, 1761239096000]
    assert [session_of(each.metadata).model for each in (first, second)] == ["gemini/gemini-2.5-pro", "gpt-4o"]
    assert session_of(first.metadata).program == "0.86.1"


def test_users_and_answers_take_turns_and_what_is_printed_is_a_record():
    first, _ = AIDER.read(SAMPLE)
    said = [(message.role, message.text) for message in path_of(first)]
    assert [role for role, _ in said] == ["user", "user", "assistant", "user", "assistant"]
    assert [text for role, text in said if role == "user"] == [
        "/add tide.py",
        "Print the tide.\n\nIn metres, please.",
        "Thanks.",
    ]


def test_a_quotation_and_a_heading_of_an_answer_are_its_own():
    first, _ = AIDER.read(SAMPLE)
    answer = path_of(first)[2].text
    assert answer.startswith("I print it:\n\n#### How\n> as the harbour does\n")
    assert answer.endswith(">>>>>>> REPLACE\n```")
    assert "# a comment" in answer


def test_an_answer_has_its_model_and_its_rounded_tokens():
    first, _ = AIDER.read(SAMPLE)
    one, other = [message for message in path_of(first) if message.role == "assistant"]
    assert one.model == "gemini/gemini-2.5-pro"
    assert (one.usage.input, one.usage.output) == (2600, 251)
    assert (other.usage.input, other.usage.cache_read, other.usage.cache_write) == (10000, 2000, 1200)
    assert other.usage.output == 1_000_000


def test_thoughts_are_reasoning():
    _, second = AIDER.read(SAMPLE)
    thought, answer = path_of(second)[-1].content
    assert thought == Reasoning("Six hours earlier.")
    assert answer.text == "At 12:30."


def test_a_file_whose_lines_lost_their_spaces_is_read():
    (transcript,) = AIDER.read(TRIMMED)
    question, answer = path_of(transcript)
    assert (question.text, answer.text, answer.usage.output) == ("When is high tide?", "At 18:42.", 12)


def test_every_byte_is_in_a_record_of_its_conversation():
    for data in (SAMPLE, TRIMMED, SAMPLE.replace(b"\n", b"\r\n"), SAMPLE + b'{"a":1}{"b":2}\n', b"> hi\n\n\n"):
        sessions, unknown = AIDER.read_with_unknown(data)
        assert unknown == ()
        pieces = [
            piece
            for each in sessions
            for entry in each.thread.entries
            for piece in records_of("aider", [entry.message]) or ()
        ]
        assert b"".join(piece.raw for piece in sorted(pieces)) == data


def test_two_starts_in_one_second_are_two_conversations():
    start = b"# aider chat started at 2024-01-15 09:00:00\n\n#### x  \n\n"
    assert len({each.thread.id for each in AIDER.read(start + start)}) == 2
