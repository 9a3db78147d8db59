"""The message log: what it writes, what it reads back, and what it does when it cannot write."""

import contextlib
import errno
import json
import logging
import os
import re
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import platformdirs
import pytest
from hypothesis import given, strategies as st
from msgspec import structs

import palaver
from palaver.core.errors import DecodeError, NotFoundError, StoreError, UnavailableError
from palaver.core.messages import RescueMarker
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.store.jsonl import lines, log_file
from palaver.store.jsonl.log import JsonlLog, LogFailure, default_directory
from palaver.store.jsonl.log_line import LogContext
from palaver.store.jsonl.log_reader import read_log, threads_of
from palaver.store.records import is_unreadable
from palaver.store.store import Damage
from palaver.testing import strategies
from palaver.testing.ill_typed import older_writer, unreadable_values
from palaver.threads import Entry, Thread

NOON = 1_795_176_000_123  # 2026-11-20T12:00:00.123Z
HI = palaver.user("hi").replace(id="u1", sent_at=NOON)
TRIP = LogContext(thread="trip")


def new_log(directory, told=None, **options):
    return JsonlLog(directory, clock=lambda: NOON, on_error=None if told is None else told.append, **options)


def said(number):
    return palaver.user(f"message {number}").replace(id=f"m{number}")


def ids(where):
    return [line.message.id for line in read_log(where)]


def context_of(entry, **fields):
    return LogContext(thread="trip", entry=entry.id, parent=entry.parent, **fields)


# -- what stands there -----------------------------------------------------------------------------------------------


@pytest.mark.row("DAS-20")
@pytest.mark.conflict("C26")
def test_a_line_says_the_whole_message_and_its_context(tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.token_hex", lambda _: "9f2c41d07ab3")
    answer = palaver.assistant("ho").replace(id="a1", agent="triage")
    with new_log(tmp_path) as log:
        log.append(HI, LogContext(thread="trip", run="r7", model="m-1", generation_seconds=9.0))
        log.append(
            answer,
            LogContext(
                thread="trip",
                run="r7",
                agent="triage",
                model="m-1",
                round=1,
                generation_seconds=1.23456,
                entry="a1",
                parent="u1",
                branch="main",
                extra={"cost": 0.5},
            ),
        )
        first, second = log.path.read_bytes().splitlines()
    assert re.sub(rb'"crc":"[0-9a-f]{8}"', b'"crc":"-"', first) == (
        b'\t{"log":1,"type":"message","writer":"9f2c41d07ab3","line":1,"time":"2026-11-20T12:00:00.123Z",'
        b'"thread":"trip","run":"r7","message":{"role":"user","content":[{"type":"text","text":"hi"}],"id":"u1",'
        b'"sent_at":1795176000123},"crc":"-"}'
    )
    assert re.sub(rb'"crc":"[0-9a-f]{8}"', b'"crc":"-"', second) == (
        b'\t{"log":1,"type":"message","writer":"9f2c41d07ab3","line":2,"time":"2026-11-20T12:00:00.123Z",'
        b'"thread":"trip","run":"r7","agent":"triage","model":"m-1","round":1,"generation_seconds":1.235,'
        b'"entry":"a1","parent":"u1","branch":"main","cost":0.5,'
        b'"message":{"role":"assistant","content":[{"type":"text","text":"ho"}],"id":"a1","agent":"triage"},"crc":"-"}'
    )


@pytest.mark.row("DAS-20")
@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (1.23456, 1.235),
        (1.0005, 1.001),
        (2.5e-4, 0.0),
        (5e-4, 0.001),
        (0.1 + 0.2, 0.3),
        (3, 3.0),
        (-5e-4, -0.001),
        (1e300, 1e300),
    ],
)
def test_seconds_are_rounded_to_milliseconds_half_away_from_zero(tmp_path, seconds, written):
    with new_log(tmp_path) as log:
        log.append(palaver.assistant("ho"), LogContext(thread="trip", generation_seconds=seconds))
    (line,) = read_log(tmp_path)
    assert line.context.generation_seconds == written


@pytest.mark.row("DAS-20")
def test_a_file_is_named_by_the_time_in_utc_and_nobody_else_has_its_name(tmp_path):
    logs = [new_log(tmp_path / "deep" / "er") for _ in range(20)]
    assert not (tmp_path / "deep").exists()  # nothing is touched before the first message
    for log in logs:
        log.append(HI, TRIP)
        log.close()
    names = [path.name for path in (tmp_path / "deep" / "er").iterdir()]
    assert len(names) == 20
    assert all(re.fullmatch(r"2026-11-20T12-00-00Z-[0-9a-f]{6}\.jsonl", name) for name in names)


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_nobody_else_may_read_it(tmp_path):
    with new_log(tmp_path / "log") as log:
        log.append(HI, TRIP)
        assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(log.path.parent.stat().st_mode) == 0o700


def test_the_default_directory_is_the_user_s():
    assert default_directory() == Path(platformdirs.user_log_dir("palaver", appauthor=False))


@pytest.mark.row("DAS-20")
def test_no_message_is_logged_twice_within_its_thread(tmp_path):
    with new_log(tmp_path) as log:
        for _ in range(2):
            log.append(said(1), TRIP)
            log.append(said(1), LogContext(thread="other"))
            log.append(said(1), LogContext(thread="trip", entry="e1"))
            log.append(palaver.user("no id"), TRIP)
    found = [(line.context.thread, line.context.entry, line.message.id) for line in read_log(tmp_path)]
    assert found == [("trip", None, "m1"), ("other", None, "m1"), ("trip", "e1", "m1"), *[("trip", None, None)] * 2]


@pytest.mark.row("DAS-29")
@pytest.mark.parametrize("thread", ["../../out", "/etc/passwd", "a\x00b", "..", "", "a\u2028\ud800"])
def test_a_thread_s_id_is_never_a_path(tmp_path, thread):
    with new_log(tmp_path / "log") as log:
        log.append(HI, LogContext(thread=thread))
    assert [path.parent for path in tmp_path.rglob("*.jsonl")] == [tmp_path / "log"]
    (line,) = read_log(tmp_path / "log")
    assert line.context.thread == thread


@pytest.mark.law(1)
@pytest.mark.row("MSG-10", "DAS-06", "DAS-10")
@given(st.lists(strategies.any_messages(newer=True) | strategies.any_messages(), max_size=4))
def test_messages_come_back_equal(tmp_path_factory, messages):
    where = tmp_path_factory.mktemp("log")
    with new_log(where) as log:
        for number, message in enumerate(messages):
            log.append(message, LogContext(thread="t", entry=str(number)))
    reader = read_log(where)
    assert [line.message for line in reader] == messages
    assert not reader.damage


@given(strategies.odd_text(), st.integers(1, 2**70), strategies.json_objects())
def test_a_context_comes_back_equal(tmp_path_factory, text, number, extra):
    extra = {f"x-{key}": value for key, value in extra.items()}
    context = LogContext(
        thread=text, run=text, agent=text, round=number, entry=text, parent=text, branch=text, extra=extra
    )
    where = tmp_path_factory.mktemp("log")
    with new_log(where) as log:
        log.append(HI, context)
    (line,) = read_log(where)
    assert line.context == context
    assert line.time == NOON


@pytest.mark.row("MSG-10")
def test_calls_that_do_not_parse_are_kept_as_they_came(tmp_path):
    broken = palaver.assistant(MalformedToolCall('{"q": ', "arguments are cut"), ToolCall("c1", "find", '{"a": 5e-06}'))
    with new_log(tmp_path) as log:
        log.append(broken, TRIP)
    (line,) = read_log(tmp_path)
    assert line.message.malformed_tool_calls == broken.malformed_tool_calls
    assert line.message.tool_calls[0].arguments_json == '{"a": 5e-06}'


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"round": 0}, "rounds count from 1"),
        ({"generation_seconds": float("nan")}, "is not a duration"),
        ({"extra": {"message": 1}}, "'message' is a field of the line"),
        ({"extra": {"crc": 1}}, "'crc' is a field of the line"),
        ({"extra": {"a": object()}}, "extra.a: object is not a JSON value"),
    ],
)
def test_a_context_that_no_line_can_say_is_refused_where_it_is_made(fields, reason):
    with pytest.raises(StoreError, match=re.escape(reason)):
        LogContext(thread="trip", **fields)


# -- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("MSG-13")
def test_the_log_of_a_run_equals_the_thread(tmp_path):
    thread = Thread("trip", clock=lambda: NOON)
    with new_log(tmp_path) as log:

        def say(*messages, branch="main", **fields):
            for entry in thread.append(*messages, branch=branch):
                log.append(entry.message, context_of(entry, branch=branch, **fields))

        say(palaver.system("be kind"), palaver.user("find a hotel"))
        call = ToolCall("c1", "find", '{"q": "hotel"}')
        say(palaver.assistant("one moment", call), round=1)
        say(palaver.tool("c1", "Ritz"), round=1)
        say(palaver.assistant("the Ritz"), round=2)
        thread.fork("cheaper", at=thread.path()[1].id)
        say(palaver.user("and cheap"), branch="cheaper")
        say(RescueMarker(reason="empty answer"))
    rebuilt = threads_of(read_log(tmp_path))
    assert rebuilt.damage == ()
    assert list(rebuilt.threads) == ["trip"]
    assert rebuilt.threads["trip"].entries == thread.entries
    assert rebuilt.threads["trip"].branches == thread.branches
    answers = [line for line in read_log(tmp_path) if line.message.role in {"assistant", "tool"}]
    assert [line.context.round for line in answers] == [1, 1, 2]


def test_lines_without_entries_stand_one_behind_the_other(tmp_path):
    with new_log(tmp_path) as log:
        for number in range(4):
            log.append(said(number), LogContext(thread="ab"[number % 2]))
    lines_ = list(read_log(tmp_path))
    rebuilt = threads_of(lines_)
    assert {name: [e.message.id for e in thread.path()] for name, thread in rebuilt.threads.items()} == {
        "a": ["m0", "m2"],
        "b": ["m1", "m3"],
    }
    assert [entry.id for entry in rebuilt.threads["a"].path()] == [lines_[0].id, lines_[2].id]


@pytest.mark.finding("S-12")
def test_what_stands_behind_a_damaged_line_follows_what_stands_before_it(tmp_path):
    with new_log(tmp_path) as log:
        for number in range(1, 6):
            parent = f"e{number - 1}" if number > 1 else None
            log.append(said(number), context_of(Entry(f"e{number}", parent, said(number))))
        path = log.path
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*rows[:2], b"x" + rows[2][1:], *rows[3:]]))
    rebuilt = threads_of(read_log(path))
    thread = rebuilt.threads["trip"]
    assert [entry.id for entry in thread.path()] == ["e1", "e2", "e3", "e4", "e5"]
    assert [entry.id for entry in thread.path() if is_unreadable(entry.message)] == ["e3"]
    path.write_bytes(b"".join(rows[2:]))  # a log that begins later has no record before its first entry
    rebuilt = threads_of(read_log(path))
    assert [entry.id for entry in rebuilt.threads["trip"].path()] == ["e3", "e4", "e5"]


def test_lines_without_a_place_in_a_thread_are_reported(tmp_path):
    entries = [Entry("e1", None, said(1)), Entry("e3", "e2", said(3)), Entry("e1", None, said(9))]
    for entry in entries:
        with new_log(tmp_path / entry.message.id) as log:
            log.append(entry.message, context_of(entry))
    rebuilt = threads_of(line for each in ("m1", "m3", "m9", "m1") for line in read_log(tmp_path / each))
    assert [(each.kind, each.thread, each.entry) for each in rebuilt.damage] == [
        ("missing", "trip", "e3"),
        ("altered", "trip", "e1"),
    ]
    thread = rebuilt.threads["trip"]
    assert [(entry.id, entry.parent) for entry in thread.entries] == [("e1", None), ("e2", "e1"), ("e3", "e2")]
    assert is_unreadable(thread.entry("e2").message)
    assert thread.head() == "e3"  # the second e1 says nothing new


# -- reading ---------------------------------------------------------------------------------------------------------


def test_other_kinds_are_counted_and_unreadable_lines_are_reported(tmp_path):
    good = [("time", b'"2026-11-20T12:00:00Z"'), ("thread", b'"trip"'), ("message", b'{"role":"user"}')]
    bad = {
        "time": b'"noon"',
        "thread": b"1",
        "round": b"true",
        "message": b'{"role":1}',
        "entry": b"[]",
        "generation_seconds": b'"1"',
    }
    rows = [lines.write("mark", "w", 1, []), lines.write("message", "w", 2, good)]
    for number, (name, value) in enumerate(bad.items(), 3):
        rows.append(lines.write("message", "w", number, [*[each for each in good if each[0] != name], (name, value)]))
    rows.append(lines.write("message", "w", len(bad) + 3, good[:2]))
    (tmp_path / "a.jsonl").write_bytes(b"".join(rows))
    (tmp_path / "notes.txt").write_text("not a log")
    reader = read_log(tmp_path)
    assert [(line.id, is_unreadable(line.message)) for line in reader] == [("w-2", False), ("w-6", True)]
    assert reader.others == {"mark": 1}
    assert [damage.kind for damage in reader.damage] == ["unreadable"] * 7
    assert [re.split("[:.]", damage.reason)[1].strip() for damage in reader.damage] == [*bad, "message"]
    assert [damage.place.rpartition(" ")[2] for damage in reader.damage] == [
        str(sum(map(len, rows[:index]))) for index in range(2, 9)
    ]


def test_a_newer_writer_s_keys_are_kept(tmp_path):
    fields = [
        ("time", b'"2026-11-20T12:00:00.5+01:00"'),
        ("thread", b'"t"'),
        ("cost", b"0.10"),
        ("message", b'{"role":"user"}'),
    ]
    (tmp_path / "a.jsonl").write_bytes(lines.write("message", "w", 1, fields))
    (line,) = read_log(tmp_path / "a.jsonl")
    assert line.context.extra == {"cost": 0.1}
    assert line.time == NOON - 123 - 3_600_000 + 500


def test_a_log_that_is_not_there_or_cannot_be_read(tmp_path):
    with pytest.raises(NotFoundError, match="nowhere"):
        read_log(tmp_path / "nowhere")
    (tmp_path / "a.jsonl").mkdir()
    with pytest.raises(UnavailableError, match="directory"):
        list(read_log(tmp_path))
    assert list(read_log(tmp_path / "a.jsonl")) == []


def test_damage_costs_no_other_message(tmp_path):
    with new_log(tmp_path) as log:
        for number in range(6):
            log.append(said(number), TRIP)
    data = next(tmp_path.iterdir()).read_bytes()
    rows = data.split(b"\n")
    data = data.replace(rows[2], rows[2][:50] + bytes(9) + rows[2][59:])
    next(tmp_path.iterdir()).write_bytes(data[:-20])
    reader = read_log(tmp_path)
    assert [line.message.id for line in reader] == ["m0", "m1", "m3", "m4"]
    assert [damage.kind for damage in reader.damage] == ["altered", "torn"]


# -- rotation --------------------------------------------------------------------------------------------------------


def test_a_full_file_is_followed_by_the_next_and_the_order_is_that_of_their_names(tmp_path):
    with new_log(tmp_path, max_bytes=1000) as log:
        for number in range(50):
            log.append(said(number), TRIP)
    files = sorted(tmp_path.iterdir())
    assert len(files) > 5
    assert all(1000 <= file.stat().st_size < 1500 for file in files[:-1])
    assert ids(tmp_path) == [f"m{number}" for number in range(50)]
    assert not read_log(files[3]).damage
    assert next(read_log(files[3])).id.endswith("-1")


def test_names_sort_in_their_order_also_when_the_clock_stands_or_steps_back(monkeypatch):
    times = iter([5000, 5000, 3000, 6000, 6500])
    monkeypatch.setattr("secrets.randbelow", lambda _: 0xFFFFFE)
    names = log_file.Names(lambda: next(times))
    given_ = [names.next() for _ in range(5)]
    assert given_ == sorted(given_)
    assert len(set(given_)) == 5


@pytest.mark.finding("F-02")
def test_names_of_processes_that_follow_each_other_in_one_second_sort_by_time():
    names = [log_file.Names(lambda time=time: time).next() for time in range(5000, 5999, 3)]
    assert names == sorted(names)


def test_a_name_that_is_taken_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.randbelow", lambda _: 7)
    taken = tmp_path / "2026-11-20T12-00-00Z-1ec007.jsonl"
    taken.write_text("mine")
    with new_log(tmp_path) as log:
        log.append(HI, TRIP)
        assert log.path.name == "2026-11-20T12-00-00Z-1ec008.jsonl"
    assert taken.read_text() == "mine"


def test_a_copy_of_a_file_adds_nothing(tmp_path):
    with new_log(tmp_path) as log:
        log.append(said(1), TRIP)
        log.append(said(2), TRIP)
        path = log.path
    (tmp_path / "z.jsonl").write_bytes(path.read_bytes())
    reader = read_log(tmp_path)
    assert [line.message.id for line in reader] == ["m1", "m2"]
    assert [each.reason for each in reader.damage] == ["a copy of earlier lines"]


# -- failures --------------------------------------------------------------------------------------------------------


def fill(log, monkeypatch, *, after=0, cut=True):
    """Let the disk be full: a write gets ``after`` bytes there, and the next none."""
    real, state = os.write, {"left": after}

    def write(fd, data):
        if log._file is None or fd != log._file._fd:
            return real(fd, data)
        if not state["left"]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part, state["left"] = bytes(data)[: state["left"]], 0
        return real(fd, part)

    monkeypatch.setattr(os, "write", write)
    if not cut:
        monkeypatch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "EIO")))


@pytest.mark.row("DAS-21")
@pytest.mark.parametrize("sync", ["flush", "fsync"])
@pytest.mark.parametrize(("after", "cut"), [(0, True), (30, True), (30, False)])
def test_a_full_disk_is_reported_and_the_log_goes_on_when_it_can(tmp_path, monkeypatch, sync, after, cut):
    told = []
    log = new_log(tmp_path, told, sync=sync)
    log.append(said(0), TRIP)
    with monkeypatch.context() as patch:
        fill(log, patch, after=after, cut=cut)
        log.append(said(1), TRIP)
        assert [(each.kind, each.lines, each.thread, each.message) for each in told] == [("lost", 1, "trip", "m1")]
        assert isinstance(told[0].cause, OSError)
        if cut:
            log.append(said(2), TRIP)
            assert len(told) == 2
    log.append(said(3), TRIP)
    log.append(said(1), TRIP)  # it is not there, so it may be logged again
    log.close()
    assert log.lost == len(told)
    reader = read_log(tmp_path)
    assert [line.message.id for line in reader] == ["m0", "m3", "m1"]
    assert any("missing" in each.reason for each in reader.damage)  # the log itself says that a line is missing
    assert all(each.kind == "missing" for each in reader.damage) == cut
    assert len(list(tmp_path.iterdir())) == (1 if cut else 2)  # nobody writes behind what could not be cut


@pytest.mark.row("DAS-21")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_device_that_is_full(tmp_path):
    told = []
    with new_log(tmp_path / "log", told, resume="/dev/full") as log:
        log.append(said(1), TRIP)
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, log._file._fd)
        os.close(full)
        log.append(said(2), TRIP)
    assert [each.kind for each in told] == ["unresumed", "lost"]
    assert "regular" in str(told[0])
    assert told[1].cause.errno == errno.ENOSPC
    assert ids(tmp_path / "log") == ["m1"]


@pytest.mark.row("DAS-21")
def test_a_directory_that_cannot_be_made_is_reported_until_it_can(tmp_path):
    told = []
    (tmp_path / "log").write_text("a file stands in the way")
    with new_log(tmp_path / "log", told) as log:
        log.append(said(1), TRIP)
        log.append(said(2), TRIP)
        (tmp_path / "log").unlink()
        log.append(said(3), TRIP)
    assert [(each.kind, each.message, type(each.cause)) for each in told] == [
        ("lost", "m1", FileExistsError),
        ("lost", "m2", FileExistsError),
    ]
    reader = read_log(tmp_path / "log")
    assert [line.message.id for line in reader] == ["m3"]
    assert "lines 1 to 2" in reader.damage[0].reason


@pytest.mark.row("DAS-21")
def test_a_disk_that_does_not_sync_is_reported_and_nothing_is_lost(tmp_path, monkeypatch):
    told = []
    log = new_log(tmp_path, told, sync="fsync")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "EIO")))
        log.append(said(1), TRIP)
    log.append(said(2), TRIP)
    log.close()
    assert [(each.kind, each.message) for each in told] == [("unsynced", "m1")]
    assert log.lost == 0
    assert ids(tmp_path) == ["m1", "m2"]
    assert len(list(tmp_path.iterdir())) == 2  # what the system has of the first file is not known


@pytest.mark.parametrize(("sync", "synced"), [("none", 0), ("flush", 0), ("fsync", 4)])
def test_the_disk_is_waited_for_where_asked(tmp_path, monkeypatch, sync, synced):
    count = []
    monkeypatch.setattr(os, "fsync", count.append)
    with new_log(tmp_path, sync=sync) as log:
        for number in range(3):
            log.append(said(number), TRIP)
        there = ids(tmp_path) if tmp_path.exists() else []
        assert len(there) == (0 if sync == "none" else 3)
    assert len(count) == synced  # each message, and once the directory
    assert ids(tmp_path) == ["m0", "m1", "m2"]


def test_pending_lines_are_written_by_blocks_and_lost_together(tmp_path, monkeypatch):
    told = []
    log = new_log(tmp_path, told, sync="none")
    big = palaver.user("x" * 30_000)
    for number in range(3):
        log.append(big.replace(id=f"m{number}"), TRIP)
    assert ids(tmp_path) == ["m0", "m1", "m2"]
    log.append(said(3), TRIP)
    log.append(said(4), TRIP)
    with monkeypatch.context() as patch:
        fill(log, patch)
        log.close()
    assert [(each.kind, each.lines, each.message) for each in told] == [("lost", 2, "m3")]
    assert ids(tmp_path) == ["m0", "m1", "m2"]


@pytest.mark.row("DAS-21")
def test_a_slow_sink_is_reported_and_keeps_the_order(tmp_path, monkeypatch):
    told, real, now = [], os.write, [0.0]
    monkeypatch.setattr("palaver.store.jsonl.log.time", SimpleNamespace(monotonic=lambda: now[0]))
    log = new_log(tmp_path, told, slow=5.0)
    log.append(said(0), TRIP)
    assert told == []

    def write(fd, data):
        now[0] += 5.5
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    for number in range(1, 4):
        log.append(said(number), TRIP)
    log.close()
    assert [(each.kind, each.message) for each in told] == [("slow", "m1"), ("slow", "m2"), ("slow", "m3")]
    assert ids(tmp_path) == ["m0", "m1", "m2", "m3"]


def test_a_message_that_json_cannot_say_is_reported(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("palaver.core.canonical.encode", lambda _: (_ for _ in ()).throw(RuntimeError("odd")))
    with new_log(tmp_path, told) as log:
        log.append(HI, TRIP)
    assert [(each.kind, str(each.cause)) for each in told] == [("lost", "odd")]


def test_a_closed_log_loses_what_comes_and_says_so(tmp_path):
    told = []
    log = new_log(tmp_path, told)
    log.close()
    log.close()
    log.append(HI, TRIP)
    assert [str(each) for each in told] == [
        "lost: the log is closed (lines: 1, from message u1 of thread trip on)",
    ]


@pytest.mark.row("DAS-21")
def test_a_failing_on_error_is_isolated_and_may_log_itself(tmp_path, caplog):
    (tmp_path / "log").write_text("in the way")

    def fail(failure):
        assert isinstance(failure, LogFailure)
        with new_log(tmp_path / "second") as other:
            other.append(HI, TRIP)
        if failure.message == "m1":
            log.append(said(2), TRIP)
        raise RuntimeError("no line is free")

    log = JsonlLog(tmp_path / "log", on_error=fail)
    with caplog.at_level(logging.ERROR, "palaver.store.jsonl.log"):
        log.append(said(1), TRIP)
    assert log.lost == 2
    assert len(caplog.records) == 2
    assert ids(tmp_path / "second") == ["u1", "u1"]


def test_without_on_error_there_is_a_warning(tmp_path, caplog):
    (tmp_path / "log").write_text("in the way")
    with caplog.at_level(logging.WARNING, "palaver.store.jsonl.log"):
        new_log(tmp_path / "log").append(said(1), TRIP)
    assert "lost" in caplog.text
    assert "message 1" not in caplog.text  # no text of a message


def test_a_log_that_was_deleted_begins_again(tmp_path):
    with new_log(tmp_path / "log") as log:
        log.append(said(1), TRIP)
        log.path.unlink()
        log.path.parent.rmdir()
        log.append(said(2), TRIP)
    assert ids(tmp_path / "log") == ["m2"]


def test_several_threads_write_whole_lines_in_the_order_of_each(tmp_path):
    with new_log(tmp_path, max_bytes=20_000) as log:

        def run(name):
            for number in range(100):
                log.append(said(f"{name}-{number}"), LogContext(thread=name))

        threads = [threading.Thread(target=run, args=(name,)) for name in "abcd"]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    reader = read_log(tmp_path)
    found = list(reader)
    assert not reader.damage
    for name in "abcd":
        mine = [line.message.id for line in found if line.context.thread == name]
        assert mine == [f"m{name}-{number}" for number in range(100)]


# -- resuming --------------------------------------------------------------------------------------------------------


def resumed(directory, told, path):
    return new_log(directory, told, resume=path)


@pytest.mark.parametrize("tail", [b"", b'\t{"log":1,', bytes(5000), b"\n\n"])
def test_a_file_is_resumed_and_its_torn_tail_cut(tmp_path, tail):
    with new_log(tmp_path) as log:
        log.append(said(1), TRIP)
        log.append(said(2), LogContext(thread="trip", entry="e2"))
        path = log.path
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(tail)
    told = []
    with resumed(tmp_path, told, path) as log:
        assert path.stat().st_size == whole + (2 if tail == b"\n\n" else 0)
        log.append(said(1), TRIP)
        log.append(said(2), LogContext(thread="trip", entry="e2"))
        log.append(said(3), TRIP)
    assert [(type(each), each.kind) for each in told] == (
        [] if not tail else [(Damage, "altered" if tail == b"\n\n" else "torn")]
    )
    assert list(tmp_path.iterdir()) == [path]
    assert ids(path) == ["m1", "m2", "m3"]


def test_a_last_line_that_only_lacks_its_line_break_is_kept(tmp_path):
    with new_log(tmp_path) as log:
        log.append(said(1), TRIP)
        path = log.path
    path.write_bytes(path.read_bytes()[:-1])
    told = []
    with resumed(tmp_path, told, path) as log:
        log.append(said(1), TRIP)
        log.append(said(2), TRIP)
    assert [each.reason for each in told] == ["the last line has no line break"]
    reader = read_log(path)
    assert [line.message.id for line in reader] == ["m1", "m2"]
    assert not reader.damage


def test_a_file_that_cannot_be_resumed_is_reported_and_the_log_begins_its_own(tmp_path):
    told = []
    with resumed(tmp_path, told, tmp_path / "nowhere.jsonl") as log:
        log.append(said(1), TRIP)
        with resumed(tmp_path, told, log.path) as second:  # it is written to
            second.append(said(2), TRIP)
    assert [(each.kind, each.lines) for each in told] == [("unresumed", 0)] * 2
    assert "another writer" in str(told[1])
    assert sorted(ids(tmp_path)) == ["m1", "m2"]


def test_a_line_of_another_wire_is_an_error_of_the_log():
    from palaver.store.jsonl import log_line

    line = lines.Line("message", {}, "w", 1, "f", 0, 9)
    with pytest.raises(DecodeError, match=r"^log: time: got null$"):
        log_line.read(line)


def test_another_word_for_sync_is_refused(tmp_path):
    with pytest.raises(StoreError, match="fsync"):
        JsonlLog(tmp_path, sync="nope")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.finding("F-01")
def test_a_line_without_a_readable_message_cuts_no_path(tmp_path):
    thread = Thread("trip")
    entries = thread.append(palaver.user("a"), palaver.user("b"), palaver.user("c"))
    with JsonlLog(tmp_path) as log, older_writer():
        for entry in entries:
            message = entry.message if entry.id != entries[1].id else structs.replace(entry.message, tags="X")
            log.append(message, LogContext(thread="trip", entry=entry.id, parent=entry.parent))
    reader = read_log(tmp_path)
    path = threads_of(reader).threads["trip"].path()
    assert [entry.id for entry in path] == [entry.id for entry in entries]
    assert [is_unreadable(entry.message) for entry in path] == [False, True, False]
    assert '"tags":"X"' in path[1].message.payload["text"]
    assert [(each.kind, each.thread, each.entry) for each in reader.damage] == [("unreadable", "trip", entries[1].id)]


@pytest.mark.finding("F-04")
def test_a_log_without_a_directory_is_the_user_s(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with JsonlLog() as log:
        log.append(HI, TRIP)
        assert log.directory == default_directory()
    assert log.path is None or log.directory.is_relative_to(tmp_path)
    assert [line.message.text for line in read_log(log.directory)] == [HI.text]


@pytest.mark.finding("F-01")
def test_generated_bad_records_cut_no_path_and_are_named(tmp_path):
    cases = dict(unreadable_values())
    written, parent = {}, None
    with JsonlLog(tmp_path) as log:
        log.append(palaver.user("other"), LogContext(thread="other", entry="e"))
        for number, (what, message) in enumerate(
            {"first": palaver.user("a"), **cases, "last": palaver.user("c")}.items()
        ):
            entry = f"e{number}"
            with older_writer(), contextlib.suppress(TypeError, AttributeError, ValueError):
                log.append(message, LogContext(thread="trip", entry=entry, parent=parent))
                written[entry], parent = what, entry
    reader = read_log(tmp_path)
    threads = threads_of(reader).threads
    assert [entry.message.text for entry in threads["other"].path()] == ["other"]
    path = threads["trip"].path()
    assert [entry.id for entry in path] == list(written)
    assert len(path) > len(cases) // 2
    bad = [entry for entry in path if written[entry.id] not in {"first", "last"}]
    assert all(is_unreadable(entry.message) for entry in bad)
    assert not is_unreadable(path[0].message)
    assert not is_unreadable(path[-1].message)
    assert {(each.kind, each.thread, each.entry) for each in reader.damage} == {
        ("unreadable", "trip", entry.id) for entry in bad
    }
    for entry in bad:
        assert json.loads(entry.message.payload["text"])["role"] == cases[written[entry.id]].role
