"""The message log under kills, forks and size: what was acknowledged is there, and what is held is bounded."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

import palaver
from palaver.store.jsonl.log import JsonlLog
from palaver.store.jsonl.log_line import LogContext
from palaver.store.jsonl.log_reader import read_log

WRITER = """
import sys, palaver
from palaver.store.jsonl.log import JsonlLog
from palaver.store.jsonl.log_line import LogContext
where, name, count = sys.argv[1:]
log = JsonlLog(where, max_bytes=50_000, on_error=lambda failure: sys.exit(str(failure)))
for number in range(int(count)):
    log.append(palaver.user("x" * (number % 700)).replace(id=str(number)), LogContext(thread=name))
    print(number, flush=True)
"""

READER = """
import sys, resource, palaver
from palaver.store.jsonl.log_reader import read_log
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
reader = read_log(sys.argv[1])
count = sum(1 for _ in reader)
print(count, len(reader.damage), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def start(where, name, count):
    return subprocess.Popen([sys.executable, "-c", WRITER, where, name, str(count)], stdout=subprocess.PIPE)


@pytest.mark.law(8)
@pytest.mark.row("DAS-29")
def test_what_a_killed_writer_had_acknowledged_is_there(tmp_path):
    for attempt in range(10):
        where = tmp_path / str(attempt)
        with start(where, "t", 100_000) as process:
            process.stdout.readline()
            time.sleep(random.random() / 10)
            process.send_signal(signal.SIGKILL)
            acknowledged = 1 + process.stdout.read().count(b"\n")
        reader = read_log(where)
        found = [int(line.message.id) for line in reader]
        assert found == list(range(len(found)))
        assert len(found) >= acknowledged
        for damage in reader.damage:  # the system may end a write between two pages when its process is killed
            assert damage.kind == "torn"
            assert damage.place.endswith(f"to {max(where.iterdir()).stat().st_size}")
        assert len(reader.damage) <= 1


def test_several_processes_write_one_directory(tmp_path):
    processes = [start(tmp_path, name, 300) for name in "abc"]
    for each in processes:
        each.communicate()
    assert [each.returncode for each in processes] == [0, 0, 0]
    reader = read_log(tmp_path)
    found = list(reader)
    assert not reader.damage
    for name in "abc":
        mine = [line for line in found if line.context.thread == name]
        assert sorted(int(line.message.id) for line in mine) == list(range(300))
        assert {line.file for line in mine}.isdisjoint({line.file for line in found if line.context.thread != name})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("sync", ["none", "flush"])
def test_a_forked_process_writes_a_file_of_its_own(tmp_path, sync):
    log = JsonlLog(tmp_path, sync=sync)
    log.append(palaver.user("before").replace(id="1"), LogContext(thread="t"))
    child = os.fork()
    if not child:
        try:
            log.append(palaver.user("child").replace(id="2"), LogContext(thread="t"))
            log.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    log.append(palaver.user("parent").replace(id="3"), LogContext(thread="t"))
    log.close()
    reader = read_log(tmp_path)
    assert sorted(line.message.text for line in reader) == ["before", "child", "parent"]
    assert not reader.damage
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("what", "size"),
    [
        ("lines", 50),
        pytest.param("lines", 200, marks=pytest.mark.long),
        ("zeros", 50),
        pytest.param("zeros", 200, marks=pytest.mark.long),
        ("breaks", 4),  # each of its bytes is a line
        pytest.param("breaks", 20, marks=pytest.mark.long),
        ("garbage", 4),
        pytest.param("garbage", 20, marks=pytest.mark.long),
    ],
)
def test_reading_many_megabytes_holds_a_few(tmp_path, what, size):
    with JsonlLog(tmp_path) as log:
        for number in range(200):
            log.append(palaver.user("x" * 10_000).replace(id=str(number)), LogContext(thread="t"))
        path = log.path
    lines = path.read_bytes()
    filler = {"lines": lines, "zeros": bytes(1 << 20), "breaks": b"\n" * (1 << 20), "garbage": b"\xff{x\t" * (1 << 18)}
    with path.open("ab") as file:
        while file.tell() < size << 20:
            file.write(filler[what])
        file.write(b"\n" + lines)
    out = subprocess.run([sys.executable, "-c", READER, path], stdout=subprocess.PIPE, check=True).stdout
    count, damage, kilobytes = map(int, out.split())
    assert (count, damage) == (200, 1)
    assert kilobytes < 40_000
