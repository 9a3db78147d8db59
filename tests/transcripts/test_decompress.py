"""Files of some kilobytes that hold gigabytes: what is unpacked, a line and references have limits."""

import io
import json
import zipfile

import pytest

from palaver import transcripts
from palaver.core.errors import DecodeError
from palaver.transcripts import file_reader, record
from palaver.transcripts.conversation import collected
from palaver.transcripts.file_reader import LEAST, Unpacker, steps_of, zstd

pytestmark = pytest.mark.finding("F-104")

LINE = b'{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s","timestamp":"2024-01-01T00:00:00Z","message":'
PIECE = 1 << 20


def packed(head, piece, times):
    """A compressed file, made without holding what it unpacks to."""
    pack = zstd.ZstdCompressor()
    return b"".join([pack.compress(head), *(pack.compress(piece) for _ in range(times)), pack.flush()])


@pytest.fixture(scope="module")
def bomb():
    return packed(LINE + b'{"role":"user","content":"', b"a" * PIECE, (LEAST // PIECE) + 8)


def test_unpacking_ends_at_the_limit_and_gives_small_pieces(bomb):
    sizes = []
    with pytest.raises(DecodeError, match="zstd -d"):
        sizes.extend(len(piece) for piece in Unpacker().feed(bomb))
    assert max(sizes) <= PIECE
    assert LEAST - PIECE <= sum(sizes) <= LEAST


def test_a_packed_session_is_read_in_pieces_of_any_size_over_all_frames():
    text = LINE + b'{"role":"user","content":"hi"}}\n'
    data = zstd.compress(text) + zstd.compress(b"\n" * (3 * PIECE)) + zstd.compress(text)
    for size in (1, 7, len(data)):
        unpacker = Unpacker()
        found = b"".join(piece for at in range(0, len(data), size) for piece in unpacker.feed(data[at : at + size]))
        assert found == text + b"\n" * (3 * PIECE) + text


def test_a_file_that_packs_well_and_is_large_is_read(monkeypatch):
    monkeypatch.setattr(file_reader, "LEAST", 1000)
    body = b"".join(b"%d" % number for number in range(100_000))
    assert b"".join(Unpacker().feed(zstd.compress(body))) == body


def test_a_line_without_an_end_is_one_error(monkeypatch):
    monkeypatch.setattr(record, "LONGEST", 10_000)
    text = LINE + b'{"role":"user","content":"hi"}}\n'
    file = io.BytesIO(text + b"a" * 20_000)
    with pytest.raises(DecodeError, match="line 2"):
        collected(steps_of(transcripts.get("claude_code"), file))


def test_blank_lines_without_end_are_one_error(monkeypatch):
    monkeypatch.setattr(record, "BLANKS", 10_000)
    file = io.BytesIO(LINE + b'{"role":"user","content":"hi"}}\n' + b"\n" * (record.BLANKS + 1))
    with pytest.raises(DecodeError, match="blank"):
        collected(steps_of(transcripts.get("claude_code"), file))


def test_messages_that_a_sample_names_again_and_again_are_not_repeated():
    many = 300
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", '{"version":2,"status":"success","eval":{"task":"x"}}')
        archive.writestr("samples/1/sample.json", json.dumps({"id": 1, "message_refs": [[0, many]] * many}))
        archive.writestr("samples/1/messages/0.json", json.dumps([{"role": "user", "content": "x"}] * many))
    (transcript,), drift = transcripts.get("inspect").read_with_unknown(file.getvalue())
    assert len(transcript.thread.path()) <= 4 * many + 2  # and the records of what is no message
    assert any("references" in str(each) for each in drift)
