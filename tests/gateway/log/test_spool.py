"""The spool: whole records or none, also after a crash, and no folder is used by two processes."""

import threading

import anyio
import pytest
from hypothesis import given, strategies as st

from palaver.core.errors import UnavailableError
from palaver.gateway.log import spool
from palaver.gateway.log.spool import Spool, framed, lock_folder, segments


def records(folder):
    found = []
    for each in segments(folder):
        with each.open("rb") as file:
            found += [record.data for record in spool.read(file, 0)]
    return found


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=6), st.data())
def test_a_segment_that_was_cut_anywhere_gives_its_whole_records(tmp_path_factory, several, data):
    whole = b"".join(map(framed, several))
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.mktemp("cut") / "0.spool"
    path.write_bytes(whole[:cut] + data.draw(st.sampled_from([b"", bytes(20)])))
    found = records(path.parent)
    assert found == several[: len(found)]
    assert len(b"".join(map(framed, several[: len(found) + 1]))) > cut or found == several


def test_records_are_there_in_order_over_several_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(spool, "SEGMENT", 100)
    with Spool(tmp_path, max_bytes=10_000) as opened:
        several = [bytes([each]) * 60 for each in range(1, 20)]
        for each in several:
            opened.append(each)
        assert records(opened.folder) == several
        assert len(segments(opened.folder)) > 5
        assert opened.size == sum(each.stat().st_size for each in segments(opened.folder))


@pytest.mark.row("GW-36")
@pytest.mark.parametrize("segment", [100, 10_000])
def test_it_is_full_until_somebody_has_read_it(tmp_path, monkeypatch, segment):
    monkeypatch.setattr(spool, "SEGMENT", segment)
    with Spool(tmp_path, max_bytes=300) as opened:
        while not opened.full:
            opened.append(b"x" * 60)
        assert opened.full
        for each in segments(opened.folder)[:-1]:
            each.unlink()
        assert not opened.full
        opened.append(b"x")
        assert records(opened.folder) == [b"x"]


def test_a_write_that_fails_is_undone_and_refused_until_one_succeeds(tmp_path, monkeypatch):
    with Spool(tmp_path, max_bytes=10_000) as opened:
        opened.append(b"one")
        real = spool.os.writev
        monkeypatch.setattr(spool.os, "writev", lambda file, pieces: real(file, [pieces[0][:5]]))
        with pytest.raises(UnavailableError, match="no space left"):
            opened.append(b"two")
        assert opened.full
        monkeypatch.setattr(spool.os, "writev", real)
        assert not opened.full
        opened.append(b"three")
        assert records(opened.folder) == [b"one", b"three"]


@pytest.mark.row("GW-36")
def test_a_disk_that_has_no_room_for_an_exchange_is_full_though_less_fits(tmp_path, monkeypatch):
    room, real = 6000, spool.os.writev

    def writev(file, pieces):
        taken = b"".join(pieces)[: room - spool.os.fstat(file).st_size]
        return real(file, [taken])

    monkeypatch.setattr(spool.os, "writev", writev)
    with Spool(tmp_path, max_bytes=1 << 20) as opened:
        with pytest.raises(UnavailableError):
            opened.append(b"x" * 8000)
        assert opened.full
        opened.append(b"small")
        assert opened.full
        room = 10_000
        assert not opened.full
        opened.append(b"x" * 8000)
        assert records(opened.folder) == [b"small", b"x" * 8000]


@pytest.mark.parametrize("place", range(3))
def test_a_record_that_was_altered_hides_none_behind_it(tmp_path, place):
    several = [bytes([each]) * 60 for each in range(1, 5)]
    data = bytearray(b"".join(map(framed, several)))
    data[68 * place + 20] ^= 1
    (tmp_path / "0.spool").write_bytes(data)
    with (tmp_path / "0.spool").open("rb") as file:
        found = list(spool.read(file, 0))
    assert [each.whole for each in found] == [each != place for each in range(4)]
    assert [each.data for each in found if each.whole] == several[:place] + several[place + 1 :]
    assert found[-1].end == len(data)


def test_a_folder_is_locked_while_its_process_lives(tmp_path):
    with Spool(tmp_path, max_bytes=10_000) as opened:
        assert lock_folder(opened.folder) is None
    assert lock_folder(opened.folder) is None
    spool.os.close(opened.lock)
    assert lock_folder(opened.folder) is not None
    assert lock_folder(tmp_path / "nothing") is None


def test_those_who_wait_for_the_disk_share_one_sync(tmp_path, monkeypatch):
    done, real, first = [], spool.os.fsync, threading.Event()

    def fsync(file):
        if not done:
            first.wait(30)
        done.append(file)
        real(file)

    monkeypatch.setattr(spool.os, "fsync", fsync)

    async def work(opened):
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                opened.append(b"x")
                tasks.start_soon(opened.synced)
                await anyio.lowlevel.checkpoint()
            first.set()

    with Spool(tmp_path, max_bytes=10_000, sync=True) as opened:
        anyio.run(work, opened)
    assert 1 < len(done) < 5
