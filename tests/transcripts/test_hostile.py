"""The traps of docs/spec/dialects.md#0 that are the same for all formats; those of one stand in its own tests."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

import palaver as p
from palaver import transcripts
from palaver.core.errors import LossError, PalaverError
from palaver.core.jsontext import EMPTY_OBJECT
from palaver.core.messages import AssistantMessage
from palaver.store.sqlite import SQLiteStore
from palaver.threads.thread import usage_once
from palaver.transcripts.conversation import transcript_of
from tests.folding import over
from tests.transcripts.samples import FILES, IDS, origin

NAMES = transcripts.names()
READ = [name for name in NAMES if transcripts.get(name).record_reader is not None]
BYTES = [name for name in READ if transcripts.get(name).fidelity == "bytes"]
LINES = [name for name in BYTES if transcripts.get(name).layout == "lines"]
FIRST = dict(reversed(FILES))
every_file = pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
every_format = pytest.mark.parametrize("name", READ)
every_lines = pytest.mark.parametrize("name", LINES)


def stays(name, data):
    """Read without an exception; of class ``bytes``, written back as it was. Gives what was read."""
    file_format = transcripts.get(name)
    found = file_format.read(data)
    if found and file_format.fidelity == "bytes":
        assert file_format.write_many(found).body == data
    return found


def a_file(name):
    return FIRST[name].read_bytes()


def opening(name):
    """The first line of a file of lines, which names the session."""
    return a_file(name).splitlines(keepends=True)[0]


# -- structure ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["claude_code", "pi"])
def test_trap_1_parents_may_name_each_other_themselves_or_nobody(name):
    """Cycles, a link to what comes later, and one to nothing: each entry has one place, and there is an end."""
    uuids = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(4)]
    chain = [(uuids[0], uuids[2]), (uuids[1], uuids[0]), (uuids[2], uuids[1]), (uuids[3], uuids[3])]
    if name == "pi":
        records = [
            {"type": "message", "id": own, "parentId": parent, "message": {"role": "user", "content": own}}
            for own, parent in chain
        ]
        head = opening(name)
    else:
        records = [
            {"type": "user", "uuid": own, "parentUuid": parent, "message": {"role": "user", "content": own}}
            | {"sessionId": uuids[0], "timestamp": "2026-01-02T03:04:05.000Z"}
            for own, parent in chain
        ]
        head = b""
    data = head + b"".join(json.dumps(each).encode() + b"\n" for each in records)
    (transcript,) = stays(name, data)
    assert {entry.message.text for entry in transcript.thread.entries} >= set(uuids)
    assert len(transcript.thread.path()) <= len(transcript.thread.entries)


@every_format
def test_trap_3_ids_may_stand_twice(name):
    """A file that tells itself twice: every byte is kept, and every entry has an id of its own."""
    data = a_file(name)
    for transcript in stays(name, data + data):
        ids = [entry.id for entry in transcript.thread.entries]
        assert len(ids) == len(set(ids))


@every_file
def test_trap_4_usage_counts_once_over_copies_of_a_file(name, path):
    """A fork repeats what its origin said; both together cost what one of them did."""
    file_format, data = transcripts.get(name), path.read_bytes()
    told = [entry.message for each in file_format.read(data, origin(path)) for entry in each.thread.entries]
    again = [entry.message for each in file_format.read(data, origin(path)) for entry in each.thread.entries]
    assert usage_once([*told, *again]) == usage_once(told)


@pytest.mark.parametrize("name", BYTES)
def test_trap_9_results_without_calls_and_calls_without_results_are_a_conversation(name):
    """Open ends are written and read like anything else."""
    file_format = transcripts.get(name)
    if file_format.record_writer is None:
        pytest.skip("it is only read")
    call = p.tool_call("look", {}, id="c1")
    said = [
        p.tool("found", tool_call_id="c0"),
        p.user("Go."),
        p.assistant("", tool_calls=[call]),
        p.user("And?"),
        AssistantMessage(),
    ]
    written = file_format.write(transcript_of([each.replace(sent_at=1_767_323_045_000) for each in said]))
    assert stays(name, written.body)


@over("data", [b"", b"\n", b"\n\n", b"{}", b"[]", b"null", b"{}\n{}\n", b" ", b"\xef\xbb\xbf", b"0"])
@every_format
def test_trap_9_a_file_that_holds_nothing_is_read(name, data):
    stays(name, data)
    transcripts.detect(data)


@every_lines
def test_trap_9_a_header_alone_is_a_conversation(name):
    assert stays(name, opening(name))


# -- values ------------------------------------------------------------------------------------------------------------

NUMBERS = ("5e-06", "0.000005", "1.0", str(2**70), "-0", "1e400", "1E+2", "0.1000")
STRINGS = (
    "\u2028\u2029\x85",
    r"\ud83d cut",
    r"\ude00",
    r"a\u0000b",
    r"\/ \u00e9 \ud83d\ude00",
    r"sha256:\u0000",
    "x" * 100,
    r"\r\n",
)


ODD = [*NUMBERS, *(f'"{text}"' for text in STRINGS), '{"a":1,"a":2}', "[[],{}]", "null"]


@over("odd", ODD)
@every_format
@pytest.mark.parametrize("many", [2, pytest.param(6, marks=pytest.mark.long)])
def test_traps_11_to_13_and_16_a_value_stays_as_it_was_written(name, odd, many):
    """Numbers, escapes, line separators, keys that stand twice: put in the place of any value, they are kept."""
    data = a_file(name)
    places = [place for place in range(len(data)) if data.startswith((b'":', b'": '), place)]
    step = max(len(places) // many, 1)
    for place in places[ODD.index(odd) % step :: step]:  # other places for each
        start = place + 2
        stays(name, data[:start] + odd.encode() + b',"palaver-odd":' + data[start:])


@every_format
def test_trap_14_bytes_that_are_no_text_stay(name):
    data = a_file(name)
    for hostile in (b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf"):
        for place in (0, len(data) // 3, len(data)):
            stays(name, data[:place] + hostile + data[place:])
    stays(name, bytes(1000))


@every_lines
def test_trap_14_torn_and_glued_lines_stay_in_their_place_and_are_reported(name):
    file_format, lines = transcripts.get(name), a_file(name).splitlines(keepends=True)
    garbled = b"".join((lines[0], b'{"type":"us\n', b"not json\n", *lines[1:], b'{"torn":'))
    found, drift = file_format.read_with_unknown(garbled)
    assert file_format.write_many(found).body == garbled
    assert {"garbage", "torn"} <= {each.kind for each in drift}
    glued = lines[0] + b"".join(lines[1:]).replace(b"\n", b"")
    stays(name, glued)


@every_format
def test_trap_14_objects_within_objects_do_not_exhaust_the_stack(name):
    data = a_file(name)
    deep = b'{"a":' * 3000 + b"1" + b"}" * 3000
    place = data.find(b'":') + 2
    for each in (deep, deep + b"\n", b"[" * 100_000, b'{"type":"user","message":' + deep + b"}\n"):
        stays(name, each)
    stays(name, data[:place] + deep + b',"x":' + data[place:])


@every_format
def test_trap_16_line_ends_byte_order_marks_and_blank_lines_stay(name):
    data = a_file(name)
    for each in (
        data.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + data,
        b"\n\n" + data,
        data + b"\n \n\t\n",
        data.rstrip(b"\n"),
        data.replace(b"\n", b"\n\n"),
    ):
        stays(name, each)


TIMES = ('"2026-01-02T03:04:05.678Z"', '"2026-01-02T03:04:05"', "1767323045", "1767323045.5", "1767323045678")
ODD_TIMES = ("1767323045678000000", '"yesterday"', '""', "-1", "1e300", "1e400", "null", "[]", "true", str(10**30))


@over("time", [*TIMES, *ODD_TIMES])
@every_format
def test_trap_17_a_time_of_any_kind_is_read_or_passed_over(name, time):
    data = a_file(name)
    for key in (b'"timestamp":', b'"timestamp": ', b'"created_at":', b'"sentAt":', b'"created":', b'"time":'):
        start = data.find(key)
        if start >= 0:
            start += len(key)
            stays(name, data[:start] + time.encode() + b',"palaver-odd":' + data[start:])


@over("arguments", ["{}", "", "[1]", '"text"', "{broken", '{"a":1,"a":2}', '{ "a" : 5e-06 }', "{\n}"])
@pytest.mark.parametrize("name", BYTES)
def test_trap_18_arguments_of_any_kind_are_written_and_read(name, arguments):
    file_format = transcripts.get(name)
    if file_format.record_writer is None:
        pytest.skip("it is only read")
    call = p.ToolCall("c1", "look", arguments)
    said = [p.user("Go."), AssistantMessage(content=(call,)), p.tool("found", tool_call_id="c1")]
    written = file_format.write(transcript_of([each.replace(sent_at=1_767_323_045_000) for each in said]))
    assert stays(name, written.body)


# -- size --------------------------------------------------------------------------------------------------------------


def test_trap_15_an_image_that_stands_a_thousand_times_is_one_blob(tmp_path):
    """A session whose every prompt repeats an image: a store keeps it once."""
    data = "iVBORw0KGgo" + "A" * 20_000
    lines = [opening("pi")]
    for number in range(1000):
        block = {"type": "image", "data": data, "mimeType": "image/png"}
        message = {"role": "user", "content": [block], "timestamp": 1_767_323_045_000 + number}
        parent = f"{number - 1:08x}" if number else None
        record = {"type": "message", "id": f"{number:08x}", "parentId": parent, "message": message}
        lines.append(json.dumps(record).encode() + b"\n")
    file = b"".join(lines)
    (transcript,) = transcripts.get("pi").read(file)
    with SQLiteStore(tmp_path / "threads.db") as store:
        store.add(transcript.thread.id, transcript.thread.entries, branches=transcript.thread.branches)
        thread = store.load(transcript.thread.id)
    back = type(transcript)(thread, transcript.title, transcript.metadata)
    assert transcripts.get("pi").write(back).body == file
    assert sum(each.stat().st_size for each in tmp_path.rglob("*") if each.is_file()) < len(file) // 8


BOUNDED = """
import sys
from palaver import transcripts
from palaver.transcripts.conversation import Joined
name, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
head = {"pi": b'{"type":"session","version":3,"id":"0192f0c4-7777-7000-8000-00000000000a","cwd":"/"}\\n'}
lines = {
    "claude_code": b'{"type":"user","uuid":"%s","parentUuid":%s,"sessionId":"0192f0c4-7777-7000-8000-00000000000a",'
    b'"message":{"role":"user","content":"%s"}}\\n',
    "pi": b'{"type":"message","id":"%s","parentId":%s,"message":{"role":"user","content":"%s"}}\\n',
}
compaction = {
    "pi": b'{"type":"compaction","id":"%s","parentId":%s,"summary":"s","firstKeptEntryId":%s,"tokensBefore":9}\\n'
}  # pi repeats what a compaction kept, so what came since the last one is in memory
reader, joined, text = transcripts.get(name).reader(), 0, b"x" * size
joined += sum(isinstance(step, Joined) for step in reader.feed(head.get(name, b"")))
before = b"null"
for number in range(count):
    own = b"00000000-0000-4000-8000-%012d" % number
    line = lines[name] % (own, before, text)
    before = b'"' + own + b'"'
    if name in compaction and number % 50 == 49:
        own = b"00000000-0000-4000-8001-%012d" % number
        line += compaction[name] % (own, before, before)
        before = b'"' + own + b'"'
    for start in range(0, len(line), 65536):
        joined += sum(isinstance(step, Joined) for step in reader.feed(line[start : start + 65536]))
joined += sum(isinstance(step, Joined) for step in reader.finish())
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(joined, int(peak.split()[1]) // 1024)
"""


def peak_of(name, count, size):
    """The entries that joined, and the most memory in MiB that reading them took."""
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BOUNDED), name, str(count), str(size)],
        capture_output=True,
        text=True,
        check=True,
    )
    joined, peak = map(int, ran.stdout.split())
    return joined, peak


linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")


@linux
@pytest.mark.parametrize("name", ["claude_code", "pi"])
def test_trap_15_a_file_is_read_in_memory_for_one_record(name):
    joined, peak = peak_of(name, 100, 400_000)  # 40 MB
    assert joined >= 100
    assert peak < 90


@linux
@pytest.mark.parametrize("name", ["claude_code", "pi"])
def test_trap_15_a_line_of_thirteen_million_characters_is_read(name):
    joined, peak = peak_of(name, 1, 12_800_000)
    assert joined >= 1
    assert peak < 250


@linux
@pytest.mark.long
@pytest.mark.parametrize("name", ["claude_code", "pi"])
def test_trap_15_a_file_of_three_hundred_megabytes_is_read_in_memory_for_one_record(name):
    joined, peak = peak_of(name, 3000, 100_000)
    assert joined >= 3000
    assert peak < 150


# -- change ------------------------------------------------------------------------------------------------------------


@every_lines
def test_trap_19_what_is_new_is_kept_and_reported(name):
    """A record of a type that does not exist yet: the file is read on, and the report says so."""
    file_format, data = transcripts.get(name), a_file(name)
    newer = data.rstrip(b"\n") + b'\n{"type":"palaver-future","payload":{"x":1}}\n'
    found, drift = file_format.read_with_unknown(newer)
    assert file_format.write_many(found).body == newer
    assert drift


@every_format
def test_detection_of_any_beginning_never_raises(name):
    data = a_file(name)
    for size in range(0, min(len(data), 400), 7):
        transcripts.detect(data[:size], "x.jsonl")


def test_detection_of_hostile_bytes_never_raises():
    for each in (b"[" * 70_000, b'{"a":' * 70_000, bytes(70_000), b"\xff" * 70_000, b'"' + b"a" * 70_000):
        transcripts.detect(each)


@pytest.mark.parametrize("name", NAMES)
def test_a_writer_refuses_by_one_error_only(name):
    """A branch that is not there, a loss that was forbidden."""
    file_format = transcripts.get(name)
    if file_format.record_writer is None:
        pytest.skip("it is only read")
    transcript = transcript_of([p.user("Hi", p.Audio(p.Url("x")), p.Opaque("nobody", EMPTY_OBJECT)).replace(sent_at=1)])
    with pytest.raises(PalaverError):
        file_format.write(transcript, branch="no such branch")
    if file_format.write(transcript).losses:
        with pytest.raises(LossError):
            file_format.write(transcript, losses="raise")
