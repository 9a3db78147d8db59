"""The store in a folder of JSON Lines: the one suite, and what only a folder can be."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import run_state_machine_as_test

import palaver as p
from palaver.core.errors import ConflictError, DecodeError, NotFoundError, StoreError, UnavailableError
from palaver.store.jsonl import JsonlStore, journal, lines
from palaver.store.jsonl.folder import LOCK, SUFFIX
from palaver.store.location import open_store
from palaver.store.records import (
    BlobAdded,
    BlobsRemoved,
    EntriesAdded,
    ThreadCreated,
    ThreadDeleted,
    ThreadUpdated,
    is_unreadable,
)
from palaver.store.store import Query
from palaver.testing import strategies
from palaver.testing.stores_machine import machine
from palaver.threads import Entry
from tests.generated import examples, fifty
from tests.store import conformance, crash
from tests.store.disks import small_disk


@pytest.mark.law(8)
@pytest.mark.parametrize("check", conformance.CHECKS)
def test_conformance(check, tmp_path):
    check(lambda: JsonlStore(tmp_path / "store"))


@pytest.mark.law(8)
def test_conformance_of_small_files(tmp_path):
    for number, check in enumerate(conformance.CHECKS):
        where = tmp_path / str(number)
        check.values[0](lambda where=where: JsonlStore(where, sync="flush", max_bytes=500))


@pytest.mark.law(8)
@pytest.mark.hypothesis
def test_state_machine(tmp_path):
    where = tmp_path / "store"
    run_state_machine_as_test(
        machine(lambda: JsonlStore(where, sync="flush"), clear=lambda: shutil.rmtree(where, ignore_errors=True)),
        settings=fifty,
    )


@pytest.mark.law(8)
@pytest.mark.row("ASK-29", "DAS-29")
@pytest.mark.parametrize("times", [8, pytest.param(200, marks=pytest.mark.long)])
def test_what_was_acknowledged_survives_a_kill(tmp_path, times):
    assert crash.survive(f"jsonl:{tmp_path / 'store'}", times) > times


def said(store):
    return {info.id: (info, list(store.read(info.id))) for info in store.threads()}


def texts(entries):
    return [entry.message.text for entry in entries]


def files(where):
    return sorted(each for each in where.iterdir() if each.name.endswith(SUFFIX))


def file_of(where, words):
    (file,) = [each for each in files(where) if words in each.read_bytes()]
    return file


@pytest.fixture
def sound(tmp_path):
    """A folder of several files, threads, branches and blobs, closed."""
    where = tmp_path / "store"
    for name in "abc":
        with JsonlStore(where, sync="flush") as store:
            store.create(name, title=name.upper(), tags=["x"], metadata={"n": 1.0})
            for count in range(8):
                store.append(name, [p.user(f"{name}.{count}.{each}") for each in range(2)], key=f"k{count}")
            store.fork(name, "side", at=store.path(name)[3].id)
            store.append(name, [p.assistant(f"{name} on the side")], branch="side")
            store.update(name, title="T")
            store.put_blob(name.encode() * 100)
    return where


# -- changes as JSON -------------------------------------------------------------------------------------------------


def changes():
    odd, times = strategies.odd_text(), st.integers(-(2**70), 2**70)
    tags = st.lists(odd, max_size=2).map(tuple)
    metadata = strategies.json_objects()
    entries = st.builds(Entry, odd, st.none() | odd, strategies.any_messages(newer=True))
    heads = st.dictionaries(odd, st.none() | odd, max_size=2)
    return st.one_of(
        st.builds(ThreadCreated, thread=odd, at=times, title=st.none() | odd, tags=tags, metadata=metadata),
        st.builds(ThreadUpdated, thread=odd, at=times),
        st.builds(ThreadUpdated, thread=odd, at=times, title=st.none() | odd, tags=tags, metadata=metadata),
        st.builds(
            EntriesAdded,
            thread=odd,
            at=times,
            entries=st.lists(entries, max_size=2).map(tuple),
            branches=heads,
            key=odd,
        ),
        st.builds(ThreadDeleted, thread=odd, at=times),
        st.builds(BlobAdded, data=st.binary()),
        st.builds(BlobsRemoved, digests=st.lists(st.binary(min_size=32, max_size=32), max_size=2).map(tuple)),
    )


@pytest.mark.law(1)
@given(st.lists(changes(), max_size=3))
def test_changes_come_back_equal(given_):
    assert journal.decode(journal.encode(given_)) == (given_, [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{}", "expected an array"),
        (b'[{"change":"merged"}]', r"\[0\].change: unknown change 'merged'"),
        (b'[{"change":"deleted","thread":"t","at":1,"why":1}]', r"\[0\].why: not known to this version"),
    ],
)
def test_changes_of_a_newer_version_cannot_be_read(text, reason):
    with pytest.raises(DecodeError, match=f"^journal: .*{reason}"):
        journal.decode(text)


@pytest.mark.finding("F-01")
@pytest.mark.parametrize(
    ("change", "reason", "made"),
    [
        (b'{"change":"deleted","thread":"t"}', "'at'", []),
        (b'{"change":"deleted","thread":"t","at":1.0}', "at: expected a whole number", []),
        (b'{"change":"created","thread":"t","at":1,"metadata":[]}', "metadata: expected an object", ["t"]),
        (b'{"change":"created","thread":"t","at":1,"title":7}', "title: expected a string", ["t"]),
        (b'{"change":"joined","thread":"t","at":1,"entries":[{"id":"e"}]}', "an entry has", ["t"]),
        (b'{"change":"blob","data":"?"}', "data: not base64", []),
        (b'{"change":"dropped","digests":["x"]}', "digests: not a digest", []),
        (b"1", "no change but a number", []),
        (b'["created"]', "no change but an array", []),
        (b'{"thread":"t"}', "without a name", []),
        (b'{"change":7,"thread":"t"}', "without a name", []),
    ],
)
def test_what_is_not_readable_of_a_change_is_damage(change, reason, made):
    deleted = ThreadDeleted(thread="other", at=2)
    changes, damage = journal.decode(b"[" + change + b"," + journal.encode([deleted])[1:], "the place")
    assert [each.thread for each in changes] == [*made, "other"]
    assert {(each.kind, each.place) for each in damage} == {("unreadable", "the place")}
    assert any(reason in each.reason for each in damage)


# -- what a folder may be --------------------------------------------------------------------------------------------


def test_a_folder_of_others_is_refused_and_not_changed(tmp_path):
    (tmp_path / "mine.jsonl").write_text("{")
    with pytest.raises(StoreError, match="not a store"):
        JsonlStore(tmp_path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("mine.jsonl", "{")]


def test_a_location_that_cannot_be_had(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="file"):
        JsonlStore(tmp_path / "file")
    with pytest.raises(StoreError, match="sync"):
        JsonlStore(tmp_path / "x", sync="none")


def test_it_is_opened_by_its_location(tmp_path, sound):
    with open_store(sound) as store, open_store(f"jsonl:{tmp_path / 'new'}") as other:
        assert isinstance(store, JsonlStore)
        assert isinstance(other, JsonlStore)


@pytest.mark.parametrize(
    "line",
    [
        lines.write("change", "w", 1, [("seq", b"99"), ("changes", b'[{"change":"merged"}]')]),
        lines.write("message", "w", 1, []),
        lines.write("change", "w", 1, [("changes", b"[]")]),
    ],
)
def test_a_line_of_a_newer_version_is_refused(sound, line):
    (sound / f"z{SUFFIX}").write_bytes(line)
    with pytest.raises(StoreError, match="newer version"):
        JsonlStore(sound)


def test_a_copy_without_its_lock_is_a_store(sound, tmp_path):
    with JsonlStore(sound) as store:
        before = said(store)
    (sound / LOCK).unlink()
    with JsonlStore(sound) as store:
        assert said(store) == before


def test_a_lock_that_is_stale_hides_nothing(sound):
    """The number in the lock is not synced: a machine that went down may leave any."""
    with JsonlStore(sound) as store:
        before = said(store)
    for number in (0, 5, 10**6, -1):
        (sound / LOCK).write_bytes(number.to_bytes(8, "little", signed=True))
        with JsonlStore(sound) as store:
            assert said(store) == before


def test_lines_of_a_writer_that_died_before_it_notified_are_read_by_others(sound):
    with JsonlStore(sound) as store, JsonlStore(sound) as dying:
        store.info("a")
        dying._folder._publish_seq = lambda seq: JsonlStore_tell(dying, seq)
        with pytest.raises(KeyboardInterrupt):
            dying.append("a", [p.user("written")])
        assert texts(store.path("a"))[-1] == "written"
        assert store.append("a", [p.user("next")]).entries[0].parent == store.path("a")[-2].id
        with JsonlStore(sound) as anew:
            assert texts(anew.path("a"))[-2:] == ["written", "next"]


def JsonlStore_tell(store, seq):  # noqa: N802 (it stands for the method)
    if seq >= 0:
        raise KeyboardInterrupt
    type(store._folder)._publish_seq(store._folder, seq)


def test_a_closed_store_says_so_and_can_be_closed_again(sound):
    store = JsonlStore(sound)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.info("a")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_store_opened_before_a_fork_is_the_parent_s(sound):
    with JsonlStore(sound) as store:
        store.append("a", [p.user("before")])
        child = os.fork()
        if not child:
            try:
                store.append("a", [p.user("child")])
            except StoreError as error:
                store.close()
                with JsonlStore(sound) as own:
                    own.append("a", [p.user("own")])
                os._exit(7 if "forked" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        store.append("a", [p.user("parent")])
        assert texts(store.path("a", last=3)) == ["before", "own", "parent"]


# -- several processes -----------------------------------------------------------------------------------------------

COUNTER = """
import sys, palaver as p
from palaver.core.errors import ConflictError
from palaver.store.jsonl import JsonlStore
with JsonlStore(sys.argv[1], sync="flush") as store:
    for count in range(40):
        while True:
            head = store.info("a").branches["main"]
            number = int(store.path("a", last=1)[0].message.text) if head else 0
            try:
                store.append("a", [p.user(str(number + 1))], expect=head)
                break
            except ConflictError:
                continue
"""


@pytest.mark.law(8)
def test_expect_holds_among_processes(tmp_path):
    where = tmp_path / "store"
    with JsonlStore(where) as store:
        store.create("a")
        processes = [subprocess.Popen([sys.executable, "-c", COUNTER, where]) for _ in range(3)]
        assert [each.wait() for each in processes] == [0, 0, 0]
        assert texts(store.path("a")) == [str(number) for number in range(1, 121)]
        assert store.verify().ok
        assert len(files(where)) == 4


def test_a_folder_that_others_hold_is_waited_for_but_not_forever(sound):
    with (
        JsonlStore(sound) as store,
        JsonlStore(sound, timeout=0.05) as other,
        store._lock,
        pytest.raises(UnavailableError, match="locked by others"),
    ):
        other.info("a")
    with JsonlStore(sound) as store, JsonlStore(sound) as other, ThreadPoolExecutor(1) as pool:
        with store._lock:
            waiting = pool.submit(other.append, "a", [p.user("waited")])
            threading.Event().wait(0.05)
            assert not waiting.done()
        assert waiting.result().entries


def test_a_call_that_nothing_was_written_before_reads_no_file(sound, monkeypatch):
    with JsonlStore(sound) as store:
        monkeypatch.setattr(store._folder, "files", lambda: pytest.fail("looked at the files"))
        store.append("a", [p.user("1")])
        assert texts(store.path("a"))[-1] == "1"


# -- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.law(8)
@pytest.mark.parametrize("part", [0, 40])
def test_a_full_disk_is_an_error_and_nothing_was_written(sound, monkeypatch, part):
    with JsonlStore(sound) as store:
        store.append("a", [p.user("before")], key="before")
        before, real = said(store), os.write

        def write(fd, data):
            if len(data) <= 40:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if not part:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(fd, bytes(data)[: len(data) - part])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            with pytest.raises(UnavailableError, match="No space left"):
                store.append("a", [p.user("lost")], key="k")
            assert said(store) == before
        assert not store.append("a", [p.user("lost")], key="k").repeated
        after = said(store)
        assert store.verify().ok
    with JsonlStore(sound) as store:
        assert said(store) == after
        assert store.damage == ()


def test_a_disk_that_does_not_sync_is_an_error_and_the_key_says_what_became_of_it(sound, monkeypatch):
    with JsonlStore(sound) as store:
        store.append("a", [p.user("before")])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "EIO")))
            with pytest.raises(UnavailableError):
                store.append("a", [p.user("perhaps")], key="k")
        assert store.append("a", [p.user("perhaps")], key="k").repeated
        assert texts(store.path("a")).count("perhaps") == 1
        assert store.verify().ok


def test_every_write_is_synced_and_so_is_the_folder(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino) or real(fd))
    where = tmp_path / "store"
    with JsonlStore(where) as store:
        store.create("a")
        assert synced == [files(where)[0].stat().st_ino, where.stat().st_ino]
        store.append("a", [p.user("1")])
        assert synced[2:] == [files(where)[0].stat().st_ino]
    with JsonlStore(where, sync="flush") as store:
        store.append("a", [p.user("2")])
    assert len(synced) == 3


def test_an_interrupt_leaves_no_half_call_in_memory(sound, monkeypatch):
    def interrupted(change):
        if isinstance(change, EntriesAdded):
            raise KeyboardInterrupt
        type(store)._commit(store, change)

    with JsonlStore(sound) as store:
        before, entries = said(store), store.read("a")
        with monkeypatch.context() as patch:
            patch.setattr(store, "_commit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.add("half", entries)
        assert said(store) == before
        assert store.add("half", entries) == len(entries)


# -- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.law(8)
@settings(max_examples=examples(40))
@given(st.data())
def test_a_torn_end_is_cut_and_reported_and_all_else_is_there(data):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder) / "store"
        with JsonlStore(where, sync="flush") as store:
            store.create("a")
            for count in range(4):
                store.append("a", [p.user(f"{count}.{each}") for each in range(3)])
        (file,) = files(where)
        whole = file.read_bytes()
        ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
        size = data.draw(st.integers(0, len(whole)))
        zeros = data.draw(st.sampled_from([0, 1, 4096]))
        file.write_bytes(whole[:size] + bytes(zeros))
        complete = sum(end <= size + 1 for end in ends)  # a line is whole without its line break
        with JsonlStore(where, sync="flush") as store:
            kept = store.info("a").length if complete else 0
            assert kept == 3 * max(complete - 1, 0)
            assert bool(store.damage) == (size not in {0, *ends} or bool(zeros))
            assert all(each.kind == "torn" and each.place.startswith(str(file)) for each in store.damage)
            assert store.verify().ok
            if complete:
                store.append("a", [p.user("next")])
        with JsonlStore(where, sync="flush") as store:
            assert store.damage == ()
            if complete:
                assert texts(store.path("a"))[-1] == "next"


def test_a_line_that_lacks_only_its_line_break_gets_one(sound):
    file = file_of(sound, b"a.0.1")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with JsonlStore(sound) as store:
        assert [each.kind for each in store.damage] == ["torn"]
    assert file.read_bytes() == whole


@pytest.mark.law(8)
@pytest.mark.parametrize("seed", range(40))
def test_a_changed_byte_is_reported_and_the_rest_is_there(sound, seed):
    rng = random.Random(seed)
    with JsonlStore(sound) as store:
        before = {entry.id: entry for _, entries in said(store).values() for entry in entries}
    file = rng.choice(files(sound))
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    with JsonlStore(sound) as store:
        assert store.damage
        found = {entry.id: entry for _, entries in said(store).values() for entry in entries}
        sound_ones = {id_: entry for id_, entry in found.items() if not is_unreadable(entry.message)}
        assert all(entry.message == before[id_].message for id_, entry in sound_ones.items()), "made up"
        assert len(found) >= len(before) - 2
        assert store.append(next(store.threads()).id, [p.user("it goes on")]).entries


def test_an_entry_without_its_parent_is_reported(sound):
    file = file_of(sound, b"a.0.1")
    rows = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([rows[1], *rows[3:]]))  # the creation, and the second append
    with JsonlStore(sound) as store:
        reasons = [each.reason for each in store.damage]
        assert sum("the beginning of the thread" in each for each in reasons) == 1
        assert sum("a record stands for it" in each for each in reasons) == 1
        assert {each.thread for each in store.damage} == {None, "a"}
        assert texts(store.read("a"))[:5] == ["a.0.0", "a.0.1", "", "a.2.0", "a.2.1"]
        assert texts(store.path("a"))[:4] == ["a.0.0", "a.0.1", "", "a.2.0"]
        assert texts(store.path("a", "side"))[:3] == ["a.0.0", "a.0.1", ""]
        assert store.info("a").title == "T"
        assert not store.verify().ok


@pytest.mark.finding("F-01")
@pytest.mark.finding("S-12")
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("harm", ["byte", "garbage", "cut out", "two lines"])
def test_the_messages_behind_a_damaged_line_are_read_with_a_record_in_its_place(tmp_path, batch, harm):
    with JsonlStore(tmp_path / "s") as store:
        store.create("t")
        for number in range(10):
            store.append("t", [p.user(f"m{number}.{each} precious") for each in range(batch)])
        before = store.path("t")
    (file,) = files(tmp_path / "s")
    rows = file.read_bytes().splitlines(keepends=True)
    lost = {5, 6} if harm == "two lines" else {5}
    rows[6] = {"garbage": b"garbage\n", "cut out": b""}.get(harm, rows[6].replace(b"precious", b"precioux"))
    rows[7] = rows[7].replace(b"precious", b"precioux") if harm == "two lines" else rows[7]
    file.write_bytes(b"".join(rows))
    with JsonlStore(tmp_path / "s") as store:
        path = store.path("t")
        kept = [each.message for at, each in enumerate(before) if at // batch not in lost]
        assert [each.message for each in path if not is_unreadable(each.message)] == kept
        assert list(path) == list(store.read("t"))
        records = {each.id: each.message for each in path if is_unreadable(each.message)}
        assert before[5 * batch + batch - 1].id in records or harm == "two lines"
        assert path.index(next(each for each in path if each.id in records)) == 5 * batch
        assert records.keys() <= {each.entry for each in store.damage}
        assert records.keys() <= {each.entry for each in store.verify().damage}
        stored = "".join(json.loads(bytes(each.payload_json)).get("text", "") for each in records.values())
        if harm in {"byte", "two lines"}:
            assert len(records) == batch * len(lost)
            assert all(f"m{number}.0 precioux" in stored for number in lost)
        added = store.append("t", [p.user("it goes on")]).entries
        whole = [*path, *added]
        assert list(store.path("t")) == whole
    with JsonlStore(tmp_path / "s") as store:
        assert list(store.path("t")) == whole
        store.create("other")
        store.delete("other")
        store.gc()
        assert list(store.path("t")) == whole
        assert records.keys() <= {each.entry for each in store.verify().damage}


def test_verify_tells_what_the_files_no_longer_say(sound):
    with JsonlStore(sound) as store:
        assert store.verify().ok
        file = file_of(sound, b"c.0.1")
        whole = file.read_bytes()
        file.write_bytes(b"\n".join(whole.split(b"\n")[:-3]) + b"\n")  # whole lines: nothing in the file tells
        found = store.verify()
        assert [(each.kind, each.thread) for each in found.damage] == [("missing", "c")]
        file.write_bytes(whole.replace(b"c.0.1", b"c.0.9"))
        assert any(each.kind == "altered" for each in store.verify().damage)
        file.write_bytes(whole[:-3])
        assert not store.verify().ok
        assert file.read_bytes() == whole[:-3]  # it changes nothing
        file.unlink()
        assert [(each.kind, each.thread) for each in store.verify().damage] == [("missing", "c")]


# -- removing --------------------------------------------------------------------------------------------------------


def on_disk(where, words):
    return any(words in file.read_bytes() for file in where.iterdir())


@pytest.mark.law(8)
def test_gc_takes_what_was_deleted_from_the_disk_and_keeps_all_else(sound):
    with JsonlStore(sound) as store, JsonlStore(sound) as lagging:
        lagging.append("a", [p.user("in a file that goes")])
        used = store.put_blob(b"used" * 100)
        store.append("b", [p.user(p.Image(used))], key="blob")
        store.append("b", [], key="nothing")
        store.delete("a")
        before = said(store)
        size = sum(file.stat().st_size for file in files(sound))
        assert on_disk(sound, b"a.3.1")
        freed = store.gc()
        assert (freed.messages, freed.blobs) == (18, 3)
        (file,) = files(sound)
        assert freed.size == size - file.stat().st_size
        assert not on_disk(sound, b"a.3.1")
        assert said(store) == said(lagging) == before
        assert store.gc().messages == store.gc().size == 0
        lagging.append("b", [p.user("after")])
        assert texts(store.path("b"))[-1] == "after"
        assert store.verify().ok
        assert lagging.verify().ok
        after = said(store)
    with JsonlStore(sound) as store:
        assert said(store) == after
        assert store.get_blob(used) == b"used" * 100
        assert store.append("b", [p.user("b.3.0"), p.user("b.3.1")], key="k3").repeated
        assert store.append("b", [], key="nothing").repeated
        with pytest.raises(NotFoundError):
            store.info("a")
        assert [info.id for info in store.threads()] == ["b", "c"]


def test_a_state_of_nothing_is_a_state(sound):
    with JsonlStore(sound) as store, JsonlStore(sound) as other:
        assert len(said(other)) == 3
        for name in "abc":
            store.delete(name)
        store.gc()
        assert said(other) == {}
    with JsonlStore(sound) as store:
        assert said(store) == {}


@pytest.mark.law(8)
@pytest.mark.parametrize("step", range(12))
def test_a_gc_that_is_cut_off_anywhere_changes_nothing(sound, monkeypatch, step):
    with JsonlStore(sound) as store:
        store.delete("a")
        before = said(store)
    left = [step]

    def stop(real):
        def call(*args, **options):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return real(*args, **options)

        return call

    store = JsonlStore(sound)
    with monkeypatch.context() as patch:
        from pathlib import Path

        for owner, name in ((Path, "rename"), (Path, "unlink"), (os, "fsync"), (os, "pwrite")):
            patch.setattr(owner, name, stop(getattr(owner, name)))
        try:
            store.gc()
        except KeyboardInterrupt:
            pass
        else:
            assert step > 8
    assert said(store) == before
    with JsonlStore(sound) as other:
        assert said(other) == before
        other.gc()
        other.append("b", [p.user("on")])
        assert other.verify().ok
        assert not on_disk(sound, b"a.3.1")
    assert texts(store.path("b"))[-1] == "on"
    store.close()


def test_a_damaged_file_is_kept_aside(sound):
    file = file_of(sound, b"b.0.1")
    file.write_bytes(file.read_bytes().replace(b"b.0.1", b"b.0.9"))
    with JsonlStore(sound) as store:
        store.delete("a")
        store.gc()
        assert [each.name for each in sound.iterdir() if each.name.endswith(".damaged")] == [f"{file.name}.damaged"]
        before = said(store)
        assert {each.kind for each in store.verify().damage} == {"unreadable"}, "what could not be read stays named"
    with JsonlStore(sound) as store:
        assert said(store) == before
        assert store.damage == ()


def test_a_conflict_writes_nothing(sound):
    with JsonlStore(sound) as store:
        before = [file.read_bytes() for file in files(sound)]
        with pytest.raises(ConflictError):
            store.append("a", [p.user("x")], expect=None)
        with pytest.raises(ConflictError):
            store.create("a")
        assert [file.read_bytes() for file in files(sound)] == before


@pytest.mark.law(8)
@pytest.mark.finding("F-108")
def test_what_another_wrote_is_synced_before_a_line_behind_it(tmp_path, monkeypatch):
    """Its writer may have died between its line and the sync."""
    with JsonlStore(tmp_path / "store", sync="flush") as dead:
        dead.create("t")
        dead.append("t", [p.user("not synced")])
        (theirs,) = (tmp_path / "store").glob(f"*{SUFFIX}")
        steps = []
        sync, write = os.fsync, os.write
        monkeypatch.setattr(os, "fsync", lambda fd: (steps.append(("sync", name_of(fd))), sync(fd))[1])
        monkeypatch.setattr(os, "write", lambda fd, data: (steps.append(("write", name_of(fd))), write(fd, data))[1])
        with JsonlStore(tmp_path / "store") as store:
            store.append("t", [p.user("first")])
            first, steps[:] = list(steps), []
            store.append("t", [p.user("second")])
            second, steps[:] = list(steps), []
            dead.append("t", [p.user("not synced either")])
            steps.clear()
            store.append("t", [p.user("third")])
    written = [name for step, name in first if step == "write"]
    assert first.index(("sync", theirs.name)) < first.index(("write", written[0]))
    assert written[0] != theirs.name
    assert ("sync", theirs.name) not in second
    assert steps.index(("sync", theirs.name)) < steps.index(("write", written[0]))


def name_of(fd):
    return Path(f"/proc/self/fd/{fd}").readlink().name


@pytest.mark.finding("F-111")
@pytest.mark.parametrize("lock", [True, False])
def test_a_store_in_a_read_only_folder_is_read(tmp_path, lock):
    with small_disk(tmp_path / "disk", 4096) as disk:
        folder = disk / "store"
        with JsonlStore(folder) as store:
            store.create("t")
            store.append("t", [p.user("one"), p.user("two")])
        (file,) = folder.glob("*.jsonl")
        with file.open("ab") as torn:
            torn.write(b'{"torn')
        if not lock:
            (folder / "palaver.lock").unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with JsonlStore(folder) as store:
            assert [each.message.text for each in store.read("t")] == ["one", "two"]
            assert [hit.excerpt for hit in store.search(Query(text="two"))] == ["two"]
            assert [each.kind for each in store.damage] == ["torn"]
            for write in (
                lambda: store.append("t", [p.user("three")]),
                lambda: store.create("u"),
                lambda: store.update("t", title="T"),
                lambda: store.put_blob(b"x"),
                lambda: store.delete("t"),
                store.gc,
            ):
                with pytest.raises(UnavailableError, match="open for reading only"):
                    write()
            assert [each.message.text for each in store.read("t")] == ["one", "two"]
            assert [info.title for info in store.threads()] == [None]
        with pytest.raises(UnavailableError, match=r"[Rr]ead-only"):
            JsonlStore(disk / "new")


@pytest.mark.finding("F-109")
def test_entries_of_damaged_lines_are_found_without_reading_all_lines_for_each():
    stretches = [journal.LostBytes(str(number), b'{"id":"e%d","parent":null}' % number) for number in range(500)]
    lost = journal.LostLines(stretches)
    assert [lost.find(f"e{number}") for number in range(500)] == stretches
    assert lost._left == journal._SEARCHED
    assert lost.find("e7") == stretches[7]  # out of order, too
    assert lost._left > journal._SEARCHED - 500 * 500
    lost._left = 10_000
    assert [lost.find(f"nobody {number}") for number in range(500)] == [None] * 500
    assert lost.find("e8") == stretches[8]  # where the last one stood, and behind it, is always looked at


@pytest.mark.finding("F-01")
def test_the_bytes_of_a_damaged_stretch_are_kept_once(tmp_path):
    with JsonlStore(tmp_path / "s") as store:
        store.create("t")
        ids = [store.append("t", [p.user(f"m{number} " + "precious " * 50)]).entries[0].id for number in range(40)]
        for each in ids:
            store.fork("t", f"to {each}", at=each)
    (file,) = files(tmp_path / "s")
    rows = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(row.replace(b"precious", b"precioux") for row in rows))
    with JsonlStore(tmp_path / "s") as store:
        records = [each.message for each in store.read("t") if is_unreadable(each.message)]
        assert len(records) == 40
        texts = [each.payload["text"] for each in records]
        assert sum(map(len, texts)) < 2 * file.stat().st_size
        assert all(any(f"m{number} precioux" in each for each in texts) for number in range(40))
