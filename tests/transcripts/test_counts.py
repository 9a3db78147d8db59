"""What goes from one format to another is all there, counted, wherever the receipt says that nothing was lost."""

# pyright: basic

from __future__ import annotations

from collections import Counter

import pytest
from msgspec import structs

import palaver as p
from palaver import transcripts
from palaver.core.messages import ToolMessage
from palaver.core.parts import MalformedToolCall, Media, Reasoning, Text, ToolCall
from palaver.core.request import Loss
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.counts import Counts, Tally, counts_of, tally, total, unnamed
from palaver.transcripts.writer import chosen_history, is_record
from tests.corpus import CORPUS
from tests.transcripts.samples import FILES, IDS, goes_to, opening, origin

pytestmark = pytest.mark.finding("F-71")

SESSIONS = [(path.parent.name, path) for path in sorted((CORPUS / "sessions").glob("*/*.jsonl"))]
BOTH = [
    name for name in transcripts.names() if transcripts.get(name).record_writer and transcripts.get(name).record_reader
]
WORDS = {
    "results": ("result", "tool", "message"),
    "calls": ("call", "arguments", "assistant", "message"),
    "media": ("image", "audio", "video", "file", "media", "user", "message", "tool", "assistant"),
    "reasoning": ("reasoning", "proof", "assistant", "message"),
    "characters": ("text", "message", "user", "assistant", "system", "developer", "tool", "refusal", "json", "order"),
}
"""What a loss says that names something of a kind."""


def counted(messages):
    found = Counter()
    for message in messages:
        found["results"] += isinstance(message, ToolMessage)
        for part in message.content:
            found["calls"] += isinstance(part, ToolCall)
            found["media"] += isinstance(part, Media)
            found["reasoning"] += isinstance(part, Reasoning) and bool(part.text)
            found["characters"] += len(part.text.strip()) if isinstance(part, Text) else 0
    return found


@pytest.mark.law(5)
@pytest.mark.parametrize(
    ("name", "path", "lines", "all_targets"),
    [
        *(pytest.param(*each, None, False, id=name) for each, name in zip(FILES, IDS, strict=True)),
        *(
            pytest.param(*each, None, True, id=f"everywhere-{name}", marks=pytest.mark.long)
            for each, name in zip(FILES, IDS, strict=True)
        ),
        *(pytest.param(*each, 150, True, id=f"session-{each[0]}") for each in SESSIONS),
        *(pytest.param(*each, None, True, id=f"whole-session-{each[0]}", marks=pytest.mark.long) for each in SESSIONS),
    ],
)
def test_what_is_fewer_is_on_the_receipt(name, path, lines, all_targets):
    for transcript in transcripts.get(name).read(opening(path, lines), origin(path)):
        for target in BOTH:
            if target == name or not (all_targets or goes_to(name, path, target, BOTH, all_targets)):
                continue
            file_format = transcripts.get(target)
            written = file_format.write(transcript)
            path_of = transcript.thread.path()
            entries = transcript.thread.entries if file_format.tree else chosen_history(path_of, file_format.history)
            given = counted([entry.message for entry in entries if not is_record(entry)])
            found = counted(
                [
                    entry.message
                    for each in file_format.read(written.body)
                    for entry in each.thread.entries
                    if not is_record(entry)
                ]
            )
            named = " ".join(loss.what.lower() for loss in written.losses)
            silent = {kind: (count, found[kind]) for kind, count in given.items() if found[kind] < count}
            silent = {kind: each for kind, each in silent.items() if not any(word in named for word in WORDS[kind])}
            assert silent == {}, (target, silent, written.losses)


@pytest.mark.law(5)
@pytest.mark.parametrize("target", [*BOTH, "hf_sts"])
@pytest.mark.parametrize("empty", [p.user(), p.assistant()], ids=["user", "assistant"])
def test_a_message_without_content_is_written_or_on_the_receipt(target, empty):
    said = [p.user("a"), p.assistant("b"), empty, p.user("c"), p.assistant("d")]
    timed = [each.replace(sent_at=1_767_323_045_000 + place) for place, each in enumerate(said)]
    file_format = transcripts.get(target)
    written = file_format.write(transcript_of(timed))
    if any(loss.message == 2 for loss in written.losses):
        return
    assert file_format.record_reader is None or [
        entry.message.role
        for each in file_format.read(written.body)
        for entry in each.thread.entries
        if not is_record(entry)
    ] == [each.role for each in said]


@pytest.mark.law(5)
@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_nothing_is_lost_only_with_equal_counts(name, path):
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        for target in BOTH:
            if goes_to(name, path, target, BOTH, False):
                file_format = transcripts.get(target)
                written = file_format.write(transcript)
                assert written.losses or tally(file_format, [transcript], written).equal, target


def test_messages_calls_results_images_and_texts_are_counted():
    said = [
        p.user("look", p.Image.from_bytes(b"\x89PNG", "image/png"), Text(" \n")),
        p.assistant("so", "then", ToolCall("c1", "f", "{}"), MalformedToolCall(raw="{", reason="cut off")),
        p.tool({"a": 1}, p.Image.from_bytes(b"\x89PNG", "image/png"), tool_call_id="c1"),
    ]
    assert counts_of(said) == Counts(messages=3, calls=2, results=1, images=2, texts=4)


def test_records_are_not_counted_and_a_format_that_is_only_written_has_no_second_count():
    transcript = transcript_of([p.user("a"), p.assistant("b")])
    file_format = transcripts.get("hf_sts")
    found = tally(file_format, [transcript], file_format.write(transcript))
    assert (found.given.messages, found.found, found.equal) == (2, None, True)
    assert str(found) == "messages 2, calls 0, results 0, images 0, texts 2"


def test_a_written_file_that_cannot_be_read_counts_as_nothing():
    transcript = transcript_of([p.user("a")])
    file_format = transcripts.get("agent_swarm_kit")
    written = structs.replace(file_format.write(transcript), chunks=(b"not of it",))
    assert tally(file_format, [transcript], written).found == Counts()


def test_tallies_add_up_and_one_without_a_second_count_leaves_none():
    one = Tally(Counts(messages=1), Counts(messages=1))
    assert total([one, one]) == Tally(Counts(messages=2), Counts(messages=2))
    assert total([one, Tally(Counts(messages=1), None)]).found is None


@pytest.mark.parametrize(
    ("what", "left"), [("message", ()), ("image", ("messages",)), ("title", ("messages", "images"))]
)
def test_a_count_that_differs_is_named_by_a_loss_of_its_kind(what, left):
    found = Tally(Counts(messages=2, images=1), Counts(messages=1))
    assert unnamed(found, [Loss("dropped", what, "no place")]) == left
