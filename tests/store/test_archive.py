"""A thread in one file: what was written comes back, or the reader says where it does not."""

import io
import json
import random
from binascii import b2a_base64
from contextlib import suppress
from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from palaver import Image, assistant, user
from palaver.core import canonical, jsontext
from palaver.core.errors import DamageError, DecodeError, NotFoundError, PalaverError, StoreError
from palaver.core.parts import Blob, Inline
from palaver.store import archive
from palaver.store.archive import copy_thread, export_thread, import_thread, zstd
from palaver.store.memory import MemoryStore
from palaver.store.records import is_unreadable
from palaver.store.sqlite import SQLiteStore
from palaver.testing.ill_typed import older_writer, unreadable_values
from palaver.testing.strategies import any_messages, json_objects, odd_text
from palaver.threads.ids import uuid7
from palaver.threads.thread import MAIN, Entry, Thread, stamped

PICTURE = bytes(range(256)) * 4
PICTURE_TEXT = b2a_base64(PICTURE, newline=False).decode()


def exported(store, thread, **options):
    out = io.BytesIO()
    export_thread(store, thread, out, **options)
    return out.getvalue()


def imported(data, store=None, **options):
    store = MemoryStore() if store is None else store
    return store, import_thread(store, io.BytesIO(data), **options)


def lines(data):
    return data.splitlines(keepends=True)


def ended(body, entries, blobs=0):
    """Close a file that a test wrote or altered by hand."""
    end = {"entries": entries, "blobs": blobs, "sha256": sha256(body).hexdigest()}
    return body + jsontext.encode({"end": end}) + b"\n"


def reclosed(data, change):
    """The same file with other lines before the end, and an end that agrees with them."""
    *kept, end = lines(data)
    counts = json.loads(end)["end"]
    return ended(b"".join(change(kept)), counts["entries"], counts["blobs"])


def media(text):
    return Image(Inline(text), "image/png")


@pytest.fixture
def trip():
    """A thread with two branches, of which the second begins in the middle."""
    store = MemoryStore()
    store.create("trip", title="To Rome", tags=("travel",), metadata={"budget": jsontext.value(b"5e-06")})
    first = store.append("trip", [user("where to?"), assistant("Rome"), user("when?")]).entries
    store.fork("trip", "paris", at=first[0].id)
    store.append("trip", [assistant("Paris")], branch="paris")
    return store


def same_thread(one, other, thread, as_=None):
    mine, its = one.info(thread), other.info(as_ or thread)
    assert one.read(thread) == other.read(as_ or thread)
    assert (mine.title, mine.tags, mine.metadata, mine.branches) == (its.title, its.tags, its.metadata, its.branches)


# -- round trips -------------------------------------------------------------------------------------------------------

LARGE = st.sampled_from([PICTURE_TEXT, PICTURE_TEXT + "=", "\u2028" * 1024, "_-8=" * 256, "A" * 1024])


def with_media(message, texts):
    if message.role not in {"user", "assistant", "tool"}:
        return message
    named = [Image(Blob("stored:sha256:" + "0" * 64))] if texts else []
    return message.replace(content=(*message.content, *map(media, texts), *named))


MESSAGES = st.builds(with_media, any_messages(newer=True), st.lists(LARGE, max_size=2))


@st.composite
def stores(draw):
    """A store with one thread, "t": a tree of any messages, some of them not stamped, with branches anywhere."""
    thread = Thread("t")
    for place, message in enumerate(draw(st.lists(MESSAGES, max_size=5))):
        parent = draw(st.none() | st.sampled_from([entry.id for entry in thread.entries])) if place else None
        name = f"entry-{place}"
        thread.add([Entry(name, parent, stamped(message, name, place) if draw(st.booleans()) else message)])
    heads = st.none() | st.sampled_from([entry.id for entry in thread.entries]) if len(thread) else st.none()
    branches = draw(st.dictionaries(st.sampled_from([MAIN, "b", "ä ö", '"']), heads))
    store = MemoryStore()
    tags = draw(st.lists(odd_text(6), max_size=2))
    store.create("t", title=draw(st.none() | odd_text()), tags=tags, metadata=draw(json_objects()))
    store.add("t", thread.entries, branches=branches)
    return store


@pytest.mark.law(1)
@pytest.mark.row("DAS-05")
@pytest.mark.row("DAS-06")
@given(stores())
def test_what_was_written_comes_back_and_is_written_the_same_again(store):
    data = exported(store, "t")
    there, result = imported(data)
    same_thread(store, there, "t")
    assert (result.entries_new, result.entries_known) == (store.info("t").length, 0)
    again = exported(there, "t")
    assert lines(again)[1:-1] == lines(data)[1:-1]
    assert imported(data, there)[1].entries_new == 0
    same_thread(store, there, "t")


@given(stores(), st.data())
def test_a_copy_of_a_path_is_that_path(store, data):
    branch = data.draw(st.sampled_from(sorted(store.info("t").branches)))
    there, result = imported(exported(store, "t", branch=branch))
    assert list(there.path("t", branch)) == list(store.path("t", branch))
    assert there.info("t").length == result.entries_new == len(store.path("t", branch))


@given(stores())
def test_a_copy_to_another_store_can_be_repeated(store):
    there = MemoryStore()
    first = copy_thread(store, there, "t")
    second = copy_thread(store, there, "t")
    same_thread(store, there, "t")
    assert first.entries_new == second.entries_known == store.info("t").length
    assert second.entries_new == 0


def test_a_thread_goes_through_a_store_on_disk(trip, tmp_path):
    blob = trip.put_blob(PICTURE)
    trip.append("trip", [user("look", media(PICTURE_TEXT)), user(media(PICTURE_TEXT + "="), Image(blob, "image/png"))])
    trip.append("trip", [user("again", media(PICTURE_TEXT))], branch="paris")
    data = exported(trip, "trip")
    with SQLiteStore(tmp_path / "a.db") as disk:
        assert copy_thread(trip, disk, "trip").entries_new == 7
        assert lines(exported(disk, "trip"))[1:-1] == lines(data)[1:-1]
        trip.append("trip", [user("more")])
        assert copy_thread(trip, disk, "trip").entries_new == 1
        same_thread(trip, disk, "trip")
        with pytest.raises(StoreError, match=trip.read("trip")[0].id):
            imported(reclosed(data, contradiction), disk)
        assert disk.get_blob(blob) == PICTURE
        assert disk.verify().ok
        back = MemoryStore()
        copy_thread(disk, back, "trip")
        same_thread(trip, back, "trip")


# -- the form ----------------------------------------------------------------------------------------------------------

GOLDEN = (
    b'{"palaver_thread":1,"id":"trip","title":"To R\xc3\xb3ma","tags":["travel"],"metadata":{"n":5e-06},'
    b'"created_at":1700000000000,"branches":{"main":"a2","other":"a1"}}\n'
    b'{"id":"a1","parent":null,"message":{"role":"user","content":[{"type":"text","text":"where to?"}],'
    b'"id":"a1","sent_at":1}}\n'
    b'{"id":"a2","parent":"a1","message":{"role":"assistant","content":[{"type":"text","text":"\xe2\x80\xa8"}],"id":"x"}}\n'
)


def golden():
    store = MemoryStore(clock=lambda: 1_700_000_000_000)
    metadata = {"n": jsontext.value(b"5e-06")}
    store.create("trip", title="To Róma", tags=("travel",), metadata=metadata)
    entries = [Entry("a1", None, user("where to?", id="a1", sent_at=1)), Entry("a2", "a1", assistant("\u2028", id="x"))]
    store.add("trip", entries, branches={MAIN: "a2", "other": "a1"})
    return store


def test_the_form_of_a_file():
    assert exported(golden(), "trip") == ended(GOLDEN, 2)


@pytest.mark.row("DAS-05")
def test_a_file_that_was_written_by_hand_is_read():
    same_thread(golden(), imported(ended(GOLDEN, 2))[0], "trip")


def test_every_32_entries_a_line_vouches_for_what_stands_before_it():
    store = MemoryStore()
    store.create("t")
    store.append("t", [user(str(n)) for n in range(70)])
    written = lines(exported(store, "t"))
    checks = [at for at, line in enumerate(written) if b"so_far" in line]
    assert checks == [33, 66]
    for at in checks:
        said = json.loads(written[at])["so_far"]
        assert said == {"entries": said["entries"], "sha256": sha256(b"".join(written[:at])).hexdigest()}
    assert [json.loads(written[at])["so_far"]["entries"] for at in checks] == [32, 64]


def test_media_of_more_than_one_message_are_written_once():
    store = MemoryStore()
    store.create("t")
    once = b2a_base64(b"other" * 300, newline=False).decode()
    store.append("t", [user("a", media(PICTURE_TEXT)), user("b", media(PICTURE_TEXT)), user(media(once), media(once))])
    store.append("t", [user(media("short")), user(media("short"))])
    data = exported(store, "t")
    assert data.count(PICTURE_TEXT.encode()) == 1
    assert [json.loads(line).get("blob") for line in lines(data)][:3] == [
        None,
        "sha256:" + sha256(PICTURE).hexdigest(),
        None,
    ]
    assert data.count(b'"blob":') == 1
    assert data.count(once.encode()) == 2
    same_thread(store, imported(data)[0], "t")


def test_media_that_only_another_branch_repeats_stay_in_their_message():
    store = MemoryStore()
    store.create("t")
    store.append("t", [user("a", media(PICTURE_TEXT))])
    store.fork("t", "b")
    store.append("t", [user("b", media(PICTURE_TEXT))], branch="b")
    assert b'"blob":' not in exported(store, "t", branch=MAIN)
    assert b'"blob":' in exported(store, "t", branch="b")


def test_blobs_that_messages_refer_to_come_along():
    store = MemoryStore()
    store.create("t")
    blob = store.put_blob(PICTURE)
    store.append("t", [user(Image(blob, "image/png")), user(Image(blob, "image/png"))])
    data = exported(store, "t")
    assert data.count(b'"data":') == 1
    there, result = imported(data)
    assert there.get_blob(blob) == PICTURE
    assert result.damage == ()


def test_a_missing_blob_is_reported():
    store = MemoryStore()
    store.create("t")
    lost = Blob("sha256:" + "0" * 64)
    store.append("t", [user("a")])
    entry = Entry(uuid7(), store.info("t").branches[MAIN], user(Image(lost)))
    store.add("t", [entry], branches={MAIN: entry.id}, absent=[lost.hash])
    there, result = imported(exported(store, "t"))
    assert [(each.kind, each.place.split(",")[0]) for each in result.damage] == [("missing", "line 3")]
    same_thread(store, there, "t")


def test_a_file_whose_name_ends_in_zst_is_compressed(trip, tmp_path):
    path = tmp_path / "trip.jsonl.zst"
    with path.open("wb") as out:
        assert export_thread(trip, "trip", out).entries == 4
    assert zstd.decompress(path.read_bytes()) == exported(trip, "trip")
    there = MemoryStore()
    with path.open("rb") as data:
        import_thread(there, data)
    same_thread(trip, there, "trip")


def test_a_file_that_cannot_seek_is_read(trip):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def seek(self, *_):
            raise io.UnsupportedOperation

        tell = seek

    plain = exported(trip, "trip")
    for data in (plain, zstd.compress(plain)):
        there = MemoryStore()
        import_thread(there, Pipe(data))
        same_thread(trip, there, "trip")


def test_a_file_is_read_from_where_it_stands(trip):
    data = io.BytesIO(b"before\n" + exported(trip, "trip"))
    data.seek(7)
    there = MemoryStore()
    import_thread(there, data)
    same_thread(trip, there, "trip")


def test_progress_counts_up_to_the_whole():
    store = MemoryStore()
    store.create("t")
    store.append("t", [user(str(n)) for n in range(200)])
    out = io.BytesIO()
    told = []
    export_thread(store, "t", out, progress=lambda *each: told.append(each))
    assert told == [(n, 200) for n in (32, 64, 96, 128, 160, 192, 200)]
    told.clear()
    imported(out.getvalue(), progress=lambda *each: told.append(each))
    size = 2 * len(out.getvalue())
    assert told == sorted(told)
    assert len(told) > 5
    assert {total for _, total in told} == {size}
    assert told[-1] == (size, size)


def test_an_unknown_branch_or_thread_is_not_written(trip):
    out = io.BytesIO()
    with pytest.raises(NotFoundError, match="no branch 'rome'"):
        export_thread(trip, "trip", out, branch="rome")
    with pytest.raises(NotFoundError):
        export_thread(trip, "tour", out)
    assert out.getvalue() == b""


# -- what a newer version wrote ----------------------------------------------------------------------------------------


def newer(kept):
    header = kept[0].replace(b'"palaver_thread":1', b'"palaver_thread":1,"mood":{"x":5e-06}')
    entry = kept[2].replace(b'"parent"', b'"weight":1,"parent"', 1)
    return [header, kept[1], b'{"note":"later"}\n', entry, b'{"note":"again"}\n', *kept[3:]]


@pytest.mark.law(1)
@pytest.mark.row("DAS-05")
def test_what_a_newer_version_added_is_kept_or_reported(trip):
    data = reclosed(exported(trip, "trip"), newer)
    there, result = imported(data)
    assert there.read("trip") == trip.read("trip")
    assert there.info("trip").metadata["thread_file"] == {"mood": {"x": 5e-06}}
    assert [(each.kind, each.reason, each.place.split(",")[0]) for each in result.damage] == [
        ("unreadable", "a line of an unknown kind: 'note'", "line 3"),
        ("unreadable", "an unknown key beside 'message': 'weight'", "line 4"),
    ]
    again = json.loads(lines(exported(there, "trip"))[0])
    assert again["mood"] == {"x": 5e-06}
    assert "thread_file" not in again["metadata"]


def test_metadata_that_only_look_like_kept_keys_stay_metadata():
    for value in ({}, {"id": 1}, "x", None):
        store = MemoryStore()
        store.create("t", metadata={"thread_file": value})
        same_thread(store, imported(exported(store, "t"))[0], "t")


def test_a_newer_form_is_refused(trip):
    data = exported(trip, "trip").replace(b'"palaver_thread":1', b'"palaver_thread":2')
    store = MemoryStore()
    for partial in (False, True):
        with pytest.raises(DecodeError, match="version 2; this version of Palaver reads version 1"):
            imported(data, store, partial=partial)
    assert list(store.threads()) == []


@pytest.mark.row("DAS-05")
def test_a_message_that_this_version_cannot_read_is_an_error_that_names_its_line(trip):
    def change(kept):
        return [kept[0], kept[1].replace(b'"role":"user"', b'"role":"judge"'), *kept[2:]]

    with pytest.raises(DamageError, match=r"line 2, byte \d+: altered: .*unknown role 'judge'"):
        imported(reclosed(exported(trip, "trip"), change))


@pytest.mark.parametrize("data", [b"{}\n", b'{"role":"user","content":[]}\n', b"\x00\n", b"hello", b"[]\n", b"\n"])
def test_what_is_no_thread_file_is_refused(data):
    with pytest.raises(DecodeError, match=r"thread file: line 1: "):
        imported(data, partial=True)


# -- merging -----------------------------------------------------------------------------------------------------------


def test_another_id_makes_another_thread(trip):
    _, result = imported(exported(trip, "trip"), trip, as_="tour")
    assert result.thread == "tour"
    same_thread(trip, trip, "trip", "tour")


def test_a_file_can_be_taken_in_again(trip):
    data = exported(trip, "trip")
    before = trip.info("trip")
    _, result = imported(data, trip)
    assert (result.entries_new, result.entries_known, result.diverged) == (0, 4, ())
    assert trip.info("trip") == before or trip.info("trip").updated_at >= before.updated_at
    assert trip.info("trip").branches == before.branches


def test_an_older_copy_adds_nothing(trip):
    older = exported(trip, "trip")
    trip.append("trip", [assistant("in May")])
    trip.update("trip", title="Grown")
    before = trip.info("trip")
    _, result = imported(older, trip)
    assert (result.entries_new, result.entries_known, result.diverged) == (0, 4, ())
    after = trip.info("trip")
    assert (after.title, after.length, after.branches) == ("Grown", before.length, before.branches)


def test_a_newer_copy_adds_what_is_new(trip):
    there, _ = imported(exported(trip, "trip"))
    trip.append("trip", [assistant("in May")])
    trip.fork("trip", "august")
    trip.append("trip", [user("rather in August")], branch="august")
    _, result = imported(exported(trip, "trip"), there)
    assert (result.entries_new, result.entries_known, result.diverged) == (2, 4, ())
    same_thread(trip, there, "trip")


def test_copies_that_went_their_own_ways_lose_nothing(trip):
    there, _ = imported(exported(trip, "trip"))
    mine = trip.append("trip", [assistant("in May")]).head
    its = there.append("trip", [assistant("in June")]).head
    _, result = imported(exported(trip, "trip"), there)
    assert (result.entries_new, result.diverged) == (1, (MAIN,))
    assert there.info("trip").branches[MAIN] == its
    assert {mine, its} <= set(there.load("trip").leaves)


def test_a_head_that_moves_during_the_import_is_not_moved_back(trip):
    there, _ = imported(exported(trip, "trip"))
    trip.append("trip", [assistant("in May")])

    class Busy(MemoryStore):
        def info(self, thread):
            found = super().info(thread)
            super().append(thread, [user("somebody else")])
            return found

    there.__class__ = Busy
    _, result = imported(exported(trip, "trip"), there)
    assert result.diverged == (MAIN,)
    assert there.path("trip")[-1].message.text == "somebody else"


@pytest.mark.finding("F-103")
def test_blobs_that_gc_removes_during_the_import_are_put_again(tmp_path):
    store = MemoryStore()
    store.create("t")
    store.append("t", [user("see", Image(store.put_blob(PICTURE)))])
    path = tmp_path / "there.db"

    class Busy(SQLiteStore):
        busy = True

        def add(self, *args, **options):
            if self.busy:
                self.busy = False
                with SQLiteStore(path) as other:
                    assert other.gc().blobs == 1
            return super().add(*args, **options)

    with Busy(path) as there:
        result = import_thread(there, io.BytesIO(exported(store, "t")))
        assert result.damage == ()
        assert there.get_blob(there.read("t")[0].message.images[0].source) == PICTURE
        assert there.verify().ok


@pytest.mark.finding("F-104")
def test_a_packed_file_that_holds_far_more_than_its_size_is_refused(trip, monkeypatch):
    monkeypatch.setattr(archive, "_MIN_UNPACKED", 1 << 20)
    data = zstd.compress(exported(trip, "trip") + b" " * (4 << 20))
    with pytest.raises(DecodeError, match="zstd -d"):
        imported(data)


def contradiction(kept):
    return [kept[0], kept[1].replace(b"where to?", b"where now?"), *kept[2:]]


def test_a_file_that_contradicts_is_refused_and_names_the_entry(trip):
    store, _ = imported(exported(trip, "trip"))
    trip.append("trip", [assistant("in May")])
    before = store.info("trip"), store.read("trip")
    with pytest.raises(StoreError, match=trip.read("trip")[0].id):
        imported(reclosed(exported(trip, "trip"), contradiction), store)
    assert (store.info("trip"), store.read("trip")) == before


def test_a_new_thread_that_cannot_be_added_is_not_there(trip):
    class Full(MemoryStore):
        def add(self, *_args, **_options):
            raise StoreError("full")

    store = Full()
    with pytest.raises(StoreError, match="full"):
        imported(exported(trip, "trip"), store)
    assert list(store.threads()) == []


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long():
    """A thread of 70 entries with a blob in it, so that its file has every kind of line."""
    store = MemoryStore()
    store.create("long", title="A long one")
    pictures = {10: [media(PICTURE_TEXT)], 50: [media(PICTURE_TEXT)]}
    store.append("long", [user(f"message {n}", *pictures.get(n, [])) for n in range(70)])
    return store


def entries_in(written):
    return sum(b'"message":' in line for line in written)


@pytest.mark.law(8)
def test_a_file_that_is_cut_anywhere_is_found_and_its_beginning_taken(long):
    data = exported(long, "long")
    written = lines(data)
    starts = [sum(map(len, written[:n])) for n in range(len(written))]
    inside = random.Random(4).sample(range(len(data)), 40)
    for cut in sorted({*starts, *inside, len(data) - 1}):
        whole = [line for start, line in zip(starts, written, strict=True) if start + len(line) <= cut]
        at = sum(map(len, whole))
        place = f"line {len(whole) + 1}, byte {at}"
        store = MemoryStore()
        with pytest.raises(DamageError, match=f"^{place}: torn: "):
            imported(data[:cut], store)
        assert list(store.threads()) == []
        if not whole:
            continue
        _, result = imported(data[:cut], store, partial=True)
        assert [(each.kind, each.place) for each in result.damage] == [("torn", place)]
        assert result.entries_new == entries_in(whole)
        assert list(store.read("long")) == list(long.read("long", stop=entries_in(whole)))
        assert list(store.path("long")) == list(store.read("long"))


@pytest.mark.law(8)
def test_a_compressed_file_that_is_cut_is_found_and_its_beginning_taken(long):
    noise = random.Random(5)
    big = MemoryStore()
    big.create("big")
    big.append("big", [user(noise.randbytes(4096).hex()) for _ in range(200)])
    data = zstd.compress(exported(big, "big"))
    for cut in (len(data) // 2, len(data) - 1):
        with pytest.raises(DamageError, match=r"compressed byte \d+: torn"):
            imported(data[:cut])
    store, result = imported(data[: len(data) // 2], partial=True)
    assert 10 < result.entries_new < 200
    assert list(store.read("big")) == list(big.read("big", stop=result.entries_new))
    assert {each.kind for each in result.damage} == {"torn"}


@pytest.mark.law(6)
@pytest.mark.law(8)
@given(st.data())
def test_a_bit_that_flips_anywhere_is_found(long, data):
    good = exported(long, "long")
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= 1 << data.draw(st.integers(0, 7))
    store = MemoryStore()
    with pytest.raises((DamageError, DecodeError)):
        imported(bytes(bad), store)
    assert list(store.threads()) == []
    try:
        store, result = imported(bytes(bad), store, partial=True, as_="long")
    except (DamageError, DecodeError):  # the header itself
        assert at < len(lines(good)[0])
        assert list(store.threads()) == []
    else:
        assert result.damage
        if at >= len(lines(good)[0]):
            before = entries_in(lines(good[:at]))
            found = list(store.read("long"))
            assert len(found) >= 32 * ((before - 1) // 32)  # the last check before it, unless the flip is in that line
            assert found[:before] == list(long.read("long", stop=min(len(found), before)))


def test_text_that_was_altered_is_taken_up_to_the_last_line_that_vouches(long):
    data = exported(long, "long")
    bad = data.replace(b"message 40", b"massage 40")
    at = data.index(b'{"so_far":{"entries":32')
    with pytest.raises(DamageError, match=rf"altered: the data from byte {at} \(entry 33\) on was changed"):
        imported(bad)
    store, result = imported(bad, partial=True)
    assert list(store.read("long")) == list(long.read("long", stop=32))
    assert [each.kind for each in result.damage] == ["altered"]


ENTRY = b'{"id":"a3","parent":"a2","message":{"role":"user","content":[]}}\n'
MOVED = ENTRY.replace(b"[]", b'[{"type":"image","source":{"kind":"blob","hash":"stored:sha256:%b"}}]')
WRONG = {
    "twice": (ENTRY + ENTRY, 4, "entry a3 occurs twice"),
    "orphan": (ENTRY.replace(b"a2", b"a9"), 3, "entry a3 follows a9, which is not there"),
    "no parent": (b'{"id":"a3","message":{"role":"user","content":[]}}\n', 3, "cannot be read"),
    "no message": (b'{"id":"a3","parent":null,"message":7}\n', 3, "cannot be read"),
    "no id": (ENTRY.replace(b'"a3"', b"3"), 3, "cannot be read"),
    "no line": (b"\n", 2, "cannot be read"),
    "no object": (b"[1]\n", 2, "cannot be read"),
    "no blob": (b'{"blob":"sha256:00","data":""}\n', 2, "cannot be read"),
    "no base64": (b'{"blob":"sha256:%b","data":"*"}\n' % (b"0" * 64), 2, "cannot be read"),
    "another blob": (b'{"blob":"sha256:%b","data":""}\n' % (b"0" * 64), 2, "the hash of the blob does not match"),
    "missing blob": (MOVED % (b"0" * 64), 3, "blob sha256:0+ does not come before"),
    "odd blob": (MOVED % b"xyz", 3, "cannot be read"),
}


@pytest.mark.law(6)
@pytest.mark.parametrize(("extra", "entries", "reason"), WRONG.values(), ids=WRONG)
def test_lines_that_cannot_be_are_named(extra, entries, reason):
    number = 4 + (len(lines(extra)) - 1)
    body = GOLDEN + extra
    place = f"line {number}, byte {len(body) - len(lines(extra)[-1])}"
    with pytest.raises(DamageError, match=f"^{place}: (altered|missing): .*{reason}"):
        imported(ended(body, entries))
    store, result = imported(ended(body, entries), partial=True)
    assert result.entries_new == 2 + number - 4
    assert list(store.path("trip"))[:2] == list(golden().path("trip"))


@pytest.mark.law(6)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_behind_a_header_are_read_or_refused(tail, start):
    body = lines(GOLDEN)[0] + tail if start else tail
    with pytest.raises(PalaverError):
        imported(body)


def test_a_head_that_is_not_there_is_found():
    data = ended(GOLDEN.replace(b'"other":"a1"', b'"other":"a9"'), 2)
    with pytest.raises(DamageError, match="missing: the head of branch 'other', 'a9', is not there"):
        imported(data)
    store, result = imported(data, partial=True)
    assert store.info("trip").branches == {MAIN: "a2", "other": "a2"}
    assert [each.kind for each in result.damage] == ["missing"]


@pytest.mark.parametrize("change", [b'"id":7', b'"id":null', b'"id":"trip","tags":[1]', b'"id":"","branches":{"a":1}'])
def test_a_header_that_cannot_be_read_is_damage(change):
    data = GOLDEN.replace(b'"id":"trip"', change, 1).replace(b'"tags":["travel"],', b"", 1)
    data = data.replace(b',"branches":{"main":"a2","other":"a1"}', b"", 1)
    with pytest.raises(DamageError, match="line 1, byte 0: altered: the header cannot be read"):
        imported(ended(data, 2), partial=True)


def test_what_stands_behind_the_end_is_found(trip):
    data = exported(trip, "trip")
    with pytest.raises(DamageError, match="there is data after the end"):
        imported(data + data)
    store, result = imported(data + data, partial=True)
    same_thread(trip, store, "trip")
    assert [each.kind for each in result.damage] == ["altered"]


def test_a_cut_file_moves_no_branch_of_a_thread_that_is_there(trip):
    there, _ = imported(exported(trip, "trip"))
    trip.append("trip", [assistant("in May"), user("fine")])
    before = there.info("trip").branches
    _, result = imported(b"".join(lines(exported(trip, "trip"))[:-2]), there, partial=True)
    assert result.entries_new == 1
    assert there.info("trip").branches == before


def test_a_file_that_changes_while_it_is_read_adds_nothing(trip):
    class Changing(io.BytesIO):
        def __init__(self, first, second):
            super().__init__(first)
            self.second = second

        def seek(self, place, whence=0):
            if self.tell() == len(self.getvalue()) and place == 0 and self.read_once:
                self.getbuffer()[:] = self.second
            return super().seek(place, whence)

        read_once = False

        def readline(self, *size):
            self.read_once = True
            return super().readline(*size)

    data = exported(trip, "trip")
    second = data.replace(trip.read("trip")[1].id.encode(), b"x" * 36)
    store = MemoryStore()
    with pytest.raises(DamageError, match="the file was changed while it was read"):
        import_thread(store, Changing(data, second))
    assert list(store.threads()) == []


def test_the_file_is_canonical_form_inside(trip):
    written = [json.loads(line) for line in lines(exported(trip, "trip"))[1:-1]]
    assert [canonical.decode(each["message"]) for each in written] == [each.message for each in trip.read("trip")]


def test_how_another_program_spells_a_file_does_not_matter():
    picture = {"type": "image", "source": {"kind": "blob", "hash": "stored:sha256:" + sha256(PICTURE).hexdigest()}}
    messages = [{"role": "user", "content": [picture]}, {"role": "user", "content": [{"text": "é", "type": "text"}]}]
    blob = {"data": PICTURE_TEXT, "blob": "sha256:" + sha256(PICTURE).hexdigest()}
    entries = [{"message": each, "parent": None, "id": f"a{n}"} for n, each in enumerate(messages)]
    body = b'{"palaver_thread": 1, "id": "t"}\n'
    body += b"".join(json.dumps(each).encode() + b" \n" for each in (blob, *entries)).replace(
        b"stored", b"\\u0073tored"
    )
    store, result = imported(ended(body, 2, 1))
    assert [entry.message for entry in store.read("t")] == [user(Image(Inline(PICTURE_TEXT))), user("é")]
    assert result.damage == ()


@pytest.mark.finding("F-01")
def test_generated_bad_records_go_along_with_their_bytes(tmp_path):
    cases = list(unreadable_values())
    with SQLiteStore(tmp_path / "a.db") as store:
        store.create("t")
        store.append("t", [user("first")])
        for _, message in cases:
            with older_writer(), suppress(TypeError, AttributeError, ValueError, PalaverError):
                store.append("t", [message])
        store.append("t", [user("last")])
    with SQLiteStore(tmp_path / "a.db") as store:
        entries = store.read("t")
        assert len(entries) > len(cases) // 2
        again, taken = imported(exported(store, "t"))
    assert taken.damage == ()
    assert again.read("t") == entries
    assert [is_unreadable(entry.message) for entry in entries] == [False, *[True] * (len(entries) - 2), False]


@pytest.mark.finding("F-01")
def test_a_file_with_a_bad_record_is_refused_by_its_line_and_taken_up_to_it():
    store = MemoryStore()
    store.create("t")
    store.append("t", [user("a"), user("b"), user("c")])
    data = exported(store, "t")
    for what, message in unreadable_values():
        with older_writer():
            line = canonical.encode(message)

        def change(kept, line=line):
            bad = {**json.loads(kept[2]), "message": json.loads(line)}
            return [*kept[:2], jsontext.encode(bad) + b"\n", *kept[3:]]

        broken = reclosed(data, change)
        with pytest.raises(DamageError, match=r"^line 3, byte .*cannot be read"):
            imported(broken)
        again, taken = imported(broken, partial=True)
        assert [entry.message.text for entry in again.read("t")] == ["a"], what
        assert [each.kind for each in taken.damage][:1] == ["altered"]
