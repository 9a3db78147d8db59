"""Sessions of real programs: the same bytes back, and from there into every transcript format and every wire.

They lie under ``sessions/<file_format>`` in the corpus; without it these tests are skipped, by name.
"""

from __future__ import annotations

import random

import pytest

import palaver as p
from palaver import transcripts, wires
from palaver.store.sqlite import SQLiteStore
from palaver.testing import rules
from palaver.threads.view import for_model
from tests.corpus import CORPUS
from tests.transcripts.samples import opening, origin
from tests.transcripts.test_laws import said, steps_of

NAMES = transcripts.names()
WRITTEN = [name for name in NAMES if transcripts.get(name).record_writer is not None]


def sessions():
    found = [
        pytest.param(folder.name, path, id=f"{folder.name}/{path.name}")
        for folder in sorted((CORPUS / "sessions").glob("*"))
        for path in sorted(folder.rglob("*"))
        if folder.is_dir() and path.is_file() and path.suffix in {".json", ".jsonl", ".txt"}
    ]
    missing = pytest.mark.skip(reason="the sessions of the corpus are absent; PALAVER_CORPUS names its folder")
    return found or [pytest.param(None, None, id="no-corpus", marks=missing)]


every_session = pytest.mark.parametrize(("name", "path"), sessions())
beginning_or_all = pytest.mark.parametrize("lines", [150, pytest.param(None, marks=pytest.mark.long)])
"""What crosses a session with every format and wire takes its first lines, and all of it where tests may be long."""


@every_session
def test_a_session_is_recognised(name, path):
    assert [each.file_format for each in transcripts.detect(path.read_bytes(), path.name)] == [name]


@every_session
@pytest.mark.law(2)
def test_a_session_comes_back_byte_for_byte_and_holds_nothing_unknown(name, path):
    file_format, data = transcripts.get(name), path.read_bytes()
    found, drift = file_format.read_with_unknown(data, origin(path))
    assert drift == ()
    written = file_format.write_many(found)
    assert written.body == data
    assert written.losses == ()


@every_session
@pytest.mark.law(3)
def test_how_a_session_is_cut_does_not_matter(name, path):
    file_format, data = transcripts.get(name), path.read_bytes()
    whole = steps_of(file_format, data, path)
    chance = random.Random(name)
    reader, steps, place = file_format.reader(origin(path)), [], 0
    while place < len(data):
        size = chance.choice((1, 2, 100, 70_000))
        steps += reader.feed(data[place : place + size])
        place += size
    assert [*steps, *reader.finish()] == whole
    assert steps_of(file_format, data, path, 4096) == whole


@every_session
@pytest.mark.law(1)
def test_a_session_comes_back_from_a_store(name, path, tmp_path):
    file_format, data = transcripts.get(name), path.read_bytes()
    found = file_format.read(data, origin(path))
    with SQLiteStore(tmp_path / "threads.db") as store:
        for each in found:
            store.add(each.thread.id, each.thread.entries, branches=each.thread.branches)
        loaded = [type(each)(store.load(each.thread.id), each.title, each.metadata) for each in found]
    assert file_format.write_many(loaded).body == data


@every_session
@pytest.mark.law(5)
@beginning_or_all
@pytest.mark.parametrize("target", WRITTEN)
def test_a_session_goes_to_every_format(name, path, target, lines):
    other = transcripts.get(target)
    for transcript in transcripts.get(name).read(opening(path, lines), origin(path)):
        written = other.write(transcript)
        assert written.body
        if other.record_reader is None or name == target:
            continue
        back, drift = other.read_with_unknown(written.body)
        assert [each for each in drift if each.kind != "link"] == []
        if other.fidelity == "bytes":
            assert other.write_many(back).body == written.body
        texts = "".join(message.text for each in back for message in said(each))
        if None in {loss.message for loss in written.losses}:
            continue
        lost = {loss.message for loss in written.losses}
        told = for_model(transcript.thread.path()) if other.history == "model" and not other.tree else ()
        for place, message in enumerate(told):
            assert place in lost or message.text in texts


@every_session
@pytest.mark.law(5)
@beginning_or_all
@pytest.mark.parametrize("wire", wires.names())
def test_a_session_goes_to_every_wire(name, path, wire, lines):
    for transcript in transcripts.get(name).read(opening(path, lines), origin(path)):
        for branch in transcript.thread.branches:
            messages = tuple(for_model(transcript.thread.path(branch)))
            if not messages:
                continue
            encoded = wires.get(wire).encode_request(p.Request(messages=messages, model="some-model"))
            assert rules.check_request(wire, encoded.body, None) == []
