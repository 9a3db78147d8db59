"""What holds for every transcript format, tried on every file of ``files/``."""

from __future__ import annotations

import json
import random

import pytest

from palaver import transcripts
from palaver.core import jsontext
from palaver.store.sqlite import SQLiteStore
from palaver.transcripts import original_bytes
from palaver.transcripts.conversation import Began, Ended, Joined, Noted, collected
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record
from tests.folding import over
from tests.transcripts.samples import FILES, FOLDER, IDS, every_pair, goes_to, origin

every_file = pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
BOTH = [
    pytest.param(name, path, id=label)
    for (name, path), label in zip(FILES, IDS, strict=True)
    if transcripts.get(name).record_writer is not None
]
written_file = pytest.mark.parametrize(("name", "path"), BOTH)
"""A test of files of formats that are also written."""
NAMES = transcripts.names()
WRITTEN = [name for name in NAMES if transcripts.get(name).record_writer is not None]
DOCUMENTS = [
    pytest.param(name, path, id=label)
    for (name, path), label in zip(FILES, IDS, strict=True)
    if path.suffix == ".json" and path.name != "lines.json" and transcripts.get(name).fidelity == "bytes"
]


def steps_of(file_format, data, path, size=None):
    reader = file_format.reader(origin(path))
    pieces = [data] if size is None else [data[place : place + size] for place in range(0, len(data), size)]
    return [*(step for piece in pieces for step in reader.feed(piece)), *reader.finish()]


def said(transcript):
    return [
        without_records(entry.message).replace(id=None) for entry in transcript.thread.path() if not is_record(entry)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_format_has_a_file_and_says_what_it_loses(name):
    file_format = transcripts.get(name)
    assert file_format.name == name
    assert file_format.fidelity == "write" or any(each == name for each, _ in FILES)
    assert file_format.loses


@written_file
@pytest.mark.law(2)
def test_a_file_that_nobody_edited_is_the_same_file(name, path):
    file_format, data = transcripts.get(name), path.read_bytes()
    written = file_format.write_many(file_format.read(data, origin(path)))
    if file_format.fidelity == "bytes":
        assert written.body == data
    else:
        assert [jsontext.normal(each) for each in written.body.splitlines() or [b"null"]] == [
            jsontext.normal(each) for each in data.splitlines() or [b"null"]
        ]
    assert written.losses == ()


@pytest.mark.finding("F-04")
@every_file
def test_records_are_no_messages_of_a_path(name, path):
    for transcript in transcripts.get(name).read(path.read_bytes()):
        found = transcript.thread.path()
        assert found.messages == tuple(entry.message for entry in found if not is_record(entry))


@every_file
def test_it_is_recognised_as_what_it_is_and_as_nothing_else(name, path):
    found = transcripts.detect(path.read_bytes(), path.name)
    assert [each.file_format for each in found] == [name]


@every_file
@pytest.mark.law(3)
def test_how_the_bytes_are_cut_does_not_matter(name, path):
    file_format, data = transcripts.get(name), path.read_bytes()
    whole = steps_of(file_format, data, path)
    for size in (1, 7, 1000):
        assert steps_of(file_format, data, path, size) == whole


@every_file
def test_every_conversation_begins_joins_and_ends(name, path):
    begun, ended = {}, set()
    for step in steps_of(transcripts.get(name), path.read_bytes(), path):
        match step:
            case Began():
                assert step.thread not in begun
                begun[step.thread] = set()
            case Joined():
                assert step.thread not in ended
                assert step.entry.parent is None or step.entry.parent in begun[step.thread]
                assert step.entry.id not in begun[step.thread]
                begun[step.thread].add(step.entry.id)
            case Ended():
                assert set(step.branches.values()) <= begun[step.thread] | {None}
                ended.add(step.thread)
            case Noted():
                assert step.unknown
    assert begun.keys() == ended


@every_file
@pytest.mark.law(6)
@pytest.mark.parametrize("times", [20, pytest.param(60, marks=pytest.mark.long)])
def test_any_bytes_give_steps_and_keep_their_place(name, path, times):
    """Cut, turned over, doubled: nothing is raised, and what is read is written back."""
    file_format, data = transcripts.get(name), path.read_bytes()
    chance = random.Random(f"{name}{path.name}")
    for _ in range(times):
        start, end = sorted(chance.choices(range(len(data) + 1), k=2))
        damaged = chance.choice(
            (
                data[:end],
                data[start:],
                data[:start] + data[end:],
                data[:start] + bytes([chance.randrange(256)]) + data[start + 1 :],
                data[:end] + data[start:],
            )
        )
        sessions = file_format.read(damaged, origin(path))
        if file_format.fidelity == "bytes" and sessions:
            assert file_format.write_many(sessions).body == damaged


@every_file
@pytest.mark.law(1)
def test_a_store_gives_back_what_the_file_said(name, path, tmp_path):
    file_format, data = transcripts.get(name), path.read_bytes()
    sessions = file_format.read(data, origin(path))
    with SQLiteStore(tmp_path / "threads.db") as store:
        for each in sessions:
            store.add(each.thread.id, each.thread.entries, branches=each.thread.branches)
        loaded = [type(each)(store.load(each.thread.id), each.title, each.metadata) for each in sessions]
    for each, back in zip(sessions, loaded, strict=True):
        assert list(back.thread.entries) == list(each.thread.entries)
    if file_format.record_writer is not None:
        written = file_format.write_many(loaded)
        assert written.body == file_format.write_many(sessions).body


@pytest.mark.law(1)
@pytest.mark.finding("F-75")
@pytest.mark.parametrize(("name", "path"), DOCUMENTS)
def test_a_document_spread_over_lines_comes_out_of_a_store_as_it_was(name, path, tmp_path, monkeypatch):
    """Stores keep a JSON value on one line, so what stands in a record on several must stay in the record."""
    monkeypatch.setattr(original_bytes, "LEAST", 1)
    file_format = transcripts.get(name)
    data = json.dumps(json.loads(path.read_bytes()), indent=1).replace("\n", "\r\n").encode()
    sessions = file_format.read(data, origin(path))
    with SQLiteStore(tmp_path / "threads.db") as store:
        for each in sessions:
            store.add(each.thread.id, each.thread.entries, branches=each.thread.branches)
        loaded = [type(each)(store.load(each.thread.id), each.title, each.metadata) for each in sessions]
    assert file_format.write_many(loaded).body == data


@pytest.mark.law(5)
@every_file
@every_pair
@over("target", WRITTEN)
def test_a_conversation_goes_to_every_format(name, path, target, all_targets):
    """What is written is of the format, is read back without drift, and says the same but for its receipt."""
    if not goes_to(name, path, target, WRITTEN, all_targets):
        return
    file_format, other = transcripts.get(name), transcripts.get(target)
    given, known = file_format.read_with_unknown(path.read_bytes(), origin(path))
    odd = {
        each.name.rpartition(" ")[2] for each in known
    }  # blocks of a wire that nobody knows go to where that wire is
    for transcript in given:
        written = other.write(transcript)
        if other.record_reader is None or not said(transcript):
            continue
        found = transcripts.detect(written.body, f"x{other.extension}")
        assert target in [each.file_format for each in found]
        sessions, drift = other.read_with_unknown(written.body)
        assert [each for each in drift if each.kind != "link" and each.name not in odd] == []
        if other.fidelity == "bytes":
            assert other.write_many(sessions).body == written.body
        texts = "".join(message.text for each in sessions for message in said(each))
        lost = {loss.message for loss in written.losses}
        history = other.history if not other.tree else "all"
        if history == "all" and not lost:
            for message in said(transcript):
                assert message.text in texts


def test_the_folder_holds_no_file_of_nobody():
    assert {path.name for path in FOLDER.iterdir()} <= set(NAMES)


@every_file
def test_records_lie_with_one_message_each(name, path):
    """A record belongs to one group, and its number is its own."""
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        numbers = [at for entry in transcript.thread.entries for at in original_bytes.numbers_of(entry.message, name)]
        assert len(numbers) == len(set(numbers))


@every_file
def test_reading_twice_gives_the_same(name, path):
    file_format, data = transcripts.get(name), path.read_bytes()
    one, two = (collected(steps_of(file_format, data, path))[0] for _ in range(2))
    for first, second in zip(one, two, strict=True):
        assert first.thread.id == second.thread.id
        assert list(first.thread.entries) == list(second.thread.entries)
        assert dict(first.thread.branches) == dict(second.thread.branches)
