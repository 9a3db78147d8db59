"""Times that older versions stored as they were given."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from palaver import DamageError, user
from palaver.store import Query
from palaver.store.records import is_unreadable
from palaver.store.sqlite import SQLiteStore
from palaver.testing.ill_typed import older_writer

pytestmark = [pytest.mark.law(8), pytest.mark.finding("F-01")]


def test_a_time_that_is_no_integer_closes_no_thread(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "a.db") as store:
        store.create("t")
        store.append("t", [user("first")])
        with older_writer():
            [bad] = store.append("t", [structs.replace(user("odd"), sent_at=cast("Any", 1795463123591.6))]).entries
        store.append("t", [user("last")])
    with SQLiteStore(tmp_path / "a.db") as store:
        for entries in (store.read("t"), list(store.path("t"))):
            assert [is_unreadable(entry.message) for entry in entries] == [False, True, False]
            assert [entry.message.text for entry in entries] == ["first", "", "last"]
            assert '"sent_at":1795463123591.6' in entries[1].message.payload["text"]
        assert ("unreadable", bad.id) in {(each.kind, each.entry) for each in store.verify().damage}
        assert [hit.entry.message.text for hit in store.search(Query(text="last"))] == ["last"]
        store.append("t", [user("goes on")])
        assert store.read("t")[-1].message.text == "goes on"


@pytest.mark.parametrize("value", [0.5, 1e400, -1e400])
def test_an_altered_time_is_damage(tmp_path: Path, value: float) -> None:
    with SQLiteStore(tmp_path / "a.db") as store:
        store.create("t")
        store.append("t", [user("first"), user("last")])
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.execute("UPDATE entries SET sent_at = sent_at + ? WHERE place = 0", (value,))
        db.commit()
    with SQLiteStore(tmp_path / "a.db") as store:
        with pytest.raises(DamageError, match="entries 1 0: altered"):
            store.read("t")
        assert not store.verify().ok
        with suppress(DamageError):
            store.append("t", [user("on")])
