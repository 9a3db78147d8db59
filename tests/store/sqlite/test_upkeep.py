"""What is deleted leaves the disk; what is shared stays; damage of any row is told."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import palaver as p
from palaver.core.errors import DamageError, NotFoundError, StoreError
from palaver.store import search_text
from palaver.store.records import is_unreadable
from palaver.store.sqlite import SQLiteStore, verify
from palaver.store.store import Query

SECRET = "Zanzibarian xylophonist quokkas"


def disk(path):
    """Every byte of the store's files."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(path.name + "*")))


def filled(path, many=300):
    """A store with one thread to delete among others."""
    store = SQLiteStore(path, sync="normal")
    for name in ("keep", "gone"):
        store.create(name, title=f"title of {name}", tags=[f"tag-of-{name}"], metadata={"of": name})
        for count in range(many):
            store.append(name, [p.user(f"{name} number {count} of some more words", tags=[name])], key=f"{name}{count}")
    store.append("keep", [p.user("a shared message")])
    store.append("gone", [p.user("a shared message"), p.user(SECRET), p.user(SECRET * 200)])
    store.fork("gone", "branch-of-gone")
    store.append("gone", [p.user(p.File(p.Inline("c2VjcmV0IGZpbGU=" * 200), name="quokkafile.txt"))])
    store.index()
    return store


@pytest.mark.law(8)
@pytest.mark.parametrize("indexed", [True, False])
def test_no_byte_of_what_was_deleted_is_left(tmp_path, indexed):
    path = tmp_path / "palaver.db"
    with filled(path) as store:
        if not indexed:
            store.append("gone", [p.user("unindexed platypus")])
        assert b"quokkas" in disk(path)
        store.delete("gone")
        assert store.search(Query(text="quokkas")) == []
        freed = store.gc()
        assert freed.messages == 303 + (not indexed)
        assert freed.blobs == 1
        assert freed.size > 0
        left = disk(path)
        for text in (SECRET, "gone", "secret file", "quokka", "platypus", *search_text.words(SECRET)):
            assert text.encode() not in left, text
        assert b"shared" in left
        assert [hit.thread for hit in store.search(Query(text="shared"))] == ["keep"]
        assert [hit.thread for hit in store.search(Query(tag="keep", limit=1))] == ["keep"]
        assert store.verify().ok
        assert store.gc() == type(freed)()
    assert b"quokka" not in disk(path)


def test_gc_makes_up_for_one_that_was_cut_off(tmp_path):
    path = tmp_path / "palaver.db"
    with filled(path) as store:
        store.delete("gone")
        whole = store._writer.run
        store._writer.run = lambda work, *, alone=False: None if alone else whole(work)
        store.gc()
    with SQLiteStore(path) as store:
        assert store.gc().size > 0
        assert b"quokka" not in disk(path)


def test_a_message_that_is_given_again_after_its_thread_was_deleted_is_found(tmp_path):
    with filled(tmp_path / "palaver.db", many=5) as store:
        store.delete("gone")
        store.append("keep", [p.user(SECRET)])
        store.gc()
        assert [hit.entry.message.text for hit in store.search(Query(text="xylophonist"))] == [SECRET]
        assert len(store.search(Query(text="xylophonist keep"))) == 0
        store.create("again")
        for count in range(5):
            store.append("again", [p.user(f"platypus {count}")])
        assert len(store.search(Query(text="platypus"))) == 5, "ids of removed bodies are used again"


def test_words_of_other_rules_are_made_anew(tmp_path, monkeypatch):
    from palaver.store.sqlite import search_index

    with filled(tmp_path / "palaver.db", many=5) as store:
        monkeypatch.setattr(search_index, "VERSION", search_index.VERSION + 1)
        assert store.index() == 14
        assert len(store.search(Query(text="quokkas"))) == 2
        store.delete("gone")
        monkeypatch.setattr(search_index, "VERSION", search_index.VERSION + 1)
        assert store.gc().messages == 8
        assert store.search(Query(text="quokkas")) == []
        assert len(store.search(Query(text="number", limit=99))) == 5


def test_an_append_costs_nothing_for_search(tmp_path):
    with filled(tmp_path / "palaver.db", many=5) as store:
        before = rows(store, "SELECT count(*) FROM words_data")
        store.append("keep", [p.user("platypus")])
        assert rows(store, "SELECT count(*) FROM words_data") == before
        assert store.index() == 1
        assert store.index() == 0


def test_two_who_index_at_once_index_once(tmp_path):
    from palaver.store.sqlite import search_index

    with filled(tmp_path / "palaver.db", many=5) as store:
        store.append("keep", [p.user("platypus"), p.user("platypus too")])
        with store._reader() as db:
            reach, found = search_index.next_texts(db)
        assert len(found) == 2
        for _ in range(2):
            store._writer.run(search_index.add_texts(reach, found))
        assert len(store.search(Query(text="platypus"))) == 2
        assert store.index() == 0


def test_what_is_removed_while_it_is_indexed_does_not_come_back(tmp_path):
    from palaver.store.sqlite import search_index

    path = tmp_path / "palaver.db"
    with filled(path, many=5) as store:
        store.create("brief")
        store.append("brief", [p.user("platypus")])
        with store._reader() as db:
            reach, found = search_index.next_texts(db)
        store.delete("brief")
        store.gc()
        store._writer.run(search_index.add_texts(reach, found))
        store.append("keep", [p.user("takes over its number")])
        assert [hit.entry.message.text for hit in store.search(Query(text="takes over"))] == ["takes over its number"]
    assert b"platypus" not in disk(path)


def rows(store, query):
    with store._reader() as db:
        return db.execute(query).fetchall()


CHANGES = {
    "threads": ("id = 'KEEP'", "created_at = created_at + 1", "updated_at = 1", "length = length + 1", "mark = x'00'"),
    "abouts": ("data = '{}'", "mark = x'00'", "thread = 77"),
    "branches": ("name = 'x'", "head = 3", "head = NULL", "head = 99999", "mark = x'00'", "thread = 77"),
    "moves": ("at = 1", "branch = 'x'", "head = 0", "number = 7", "mark = x'00'", "thread = 77"),
    "keys": ("key = 'x'", "first = first + 1", "count = 2", "mark = x'00'", "thread = 77"),
    "entries": (
        "id = x'0011'",
        "parent = NULL",
        "parent = 0",
        "parent = 7777",
        "stamps = 0",
        "sent_at = 7",
        "body = 1",
        "body = 7777",
        "seal = x'00'",
        "place = 7777",
        "thread = 77",
    ),
    "bodies": ("digest = x'00'", "encoding = 1 - encoding", "size = 1", "data = x'00'", "id = 7777"),
    "blobs": ("digest = x'00'", "encoding = 1 - encoding", "size = 1", "data = x'00'"),
    "uses": ("body = 7777", "blob = x'00'"),
}


@pytest.mark.law(8)
@pytest.mark.parametrize(("table", "change"), [(table, each) for table, all_ in CHANGES.items() for each in all_])
def test_any_changed_column_is_reported(tmp_path, table, change):
    path = tmp_path / "palaver.db"
    filled(path, many=5).close()
    with closing(sqlite3.connect(path)) as db:
        (order,) = db.execute(f"SELECT group_concat(name) FROM pragma_table_info('{table}') WHERE pk").fetchone()
        keys = db.execute(f"SELECT {order} FROM {table} ORDER BY {order} DESC").fetchall()
        chosen = keys[0] if table != "entries" else keys[1]
        where = " AND ".join(f"{name} = ?" for name in order.split(","))
        assert db.execute(f"UPDATE {table} SET {change} WHERE {where}", chosen).rowcount == 1
        db.commit()
    damage = verify(path).damage
    assert damage
    assert any(table in each.place or table in each.reason for each in damage), damage


def test_lost_rows_are_reported(tmp_path):
    path = tmp_path / "palaver.db"
    filled(path, many=5).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM entries WHERE thread = 1 AND place = 5")
        db.execute("DELETE FROM entries WHERE thread = 2 AND place = 2")
        db.execute("DELETE FROM branches WHERE thread = 2")
        db.commit()
    told = {(each.kind, each.place) for each in verify(path).damage}
    assert told == {
        ("missing", "threads 1"),
        ("missing", "branches 1 'main'"),
        ("missing", "threads 2"),
        ("missing", "entries 2 3"),
        ("missing", "branches 2"),
    }
    with SQLiteStore(path) as store:
        for bad in (
            lambda: store.path("keep"),
            lambda: store.read("keep"),
            lambda: store.append("keep", [p.user("x")]),
        ):
            with pytest.raises(DamageError, match="missing"):
                bad()


def test_what_was_altered_is_not_read(tmp_path):
    path = tmp_path / "palaver.db"
    filled(path, many=5).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE entries SET sent_at = 7 WHERE place = 2")
        db.execute("UPDATE branches SET head = 1 WHERE name = 'branch-of-gone'")
        db.execute("UPDATE blobs SET data = x'00'")
        db.execute("UPDATE bodies SET data = x'00' WHERE id = 4")
        db.commit()
    with SQLiteStore(path) as store:
        for bad in (
            lambda: store.read("keep"),
            lambda: store.read("keep", start=2, stop=3),
            lambda: store.path("gone", "branch-of-gone"),
            lambda: store.append("gone", [p.user("x")], branch="branch-of-gone"),
            lambda: store.read("keep", start=3, stop=4),
        ):
            with pytest.raises(DamageError, match=r"(entries|branches|blobs|bodies) \d"):
                bad()
        assert len(store.read("keep", start=4)) == 2
        assert any(is_unreadable(each.message) for each in store.read("gone", start=8))
        with pytest.raises(NotFoundError):
            store.get_blob("sha256:" + "0" * 64)
        assert len(store.append("keep", [p.user("goes on")]).entries) == 1


def test_an_index_that_holds_too_much_finds_nothing_more(tmp_path):
    path = tmp_path / "palaver.db"
    with filled(path, many=5) as store:
        with closing(sqlite3.connect(path)) as db:
            db.execute("INSERT INTO words (rowid, text, labels) VALUES (7777, 'platypus', '')")
            db.commit()
        assert store.search(Query(text="platypus")) == []


def test_a_query_is_never_taken_for_one_of_sqlite(tmp_path):
    with filled(tmp_path / "palaver.db", many=5) as store:
        for text in (
            "labels : user",
            "NEAR(keep number)",
            "keep NOT number",
            'a" OR "b',
            "^keep",
            "keep + number",
            "-x",
        ):
            assert isinstance(store.search(Query(text=text)), list)
        assert store.search(Query(text="keep", thread="\ud800")) == []
        assert store.search(Query(text="keep", agent="\ud800")) == []
        assert store.search(Query(since=2**70)) == []
        assert len(store.search(Query(until=2**70, limit=9))) == 9
        assert len(store.path("keep", last=2**70)) == len(store.read("keep", start=-5, stop=2**70)) == 6


def test_files_are_closed(tmp_path):
    path = tmp_path / "palaver.db"
    with filled(path, many=5) as store:
        assert Path(f"{path}-wal").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["palaver.db"]
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.info("keep")
    with pytest.raises(StoreError, match="closed"):
        store.append("keep", [p.user("x")])
