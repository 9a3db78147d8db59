"""Every column of every row is vouched for: one that is changed behind the store's back is found and named."""

import pytest

import palaver as p
from palaver.core.errors import DamageError
from palaver.store.records import is_unreadable
from palaver.store.store import Query
from tests.store.postgres.server import run

pytestmark = [pytest.mark.server, pytest.mark.law(8)]

PICTURE = p.Image.from_bytes(bytes(range(256)) * 16)

# How a value of a type becomes another one.
OTHER = {
    "bigint": "coalesce({c}, 0) + 1000",
    "smallint": "{c} # 2",
    "text": "coalesce({c}, '') || 'x'",
    "ARRAY": "{c} || array['x']",
    "uuid": "gen_random_uuid()",
    "bytea": "case when octet_length({c}) = 0 then '\\x00'::bytea else set_bit({c}, 0, 1 - get_bit({c}, 0)) end",
}
COLUMNS = [
    "threads.thread",
    "threads.id",
    "threads.token",
    "threads.title",
    "threads.tags",
    "threads.metadata",
    "threads.created_at",
    "threads.updated_at",
    "threads.changed",
    "threads.length",
    "threads.proof",
    "branches.thread",
    "branches.name",
    "branches.head",
    "branches.proof",
    "bodies.body",
    "bodies.digest",
    "bodies.encoding",
    "bodies.size",
    "bodies.data",
    "bodies.uses",
    "bodies.proof",
    "fresh.body",
    "words.body",
    "words.words",
    "words.proof",
    "entries.thread",
    "entries.place",
    "entries.parent",
    "entries.body",
    "entries.sent_at",
    "entries.stamps",
    "entries.id",
    "entries.seal",
    "moves.token",
    "moves.thread",
    "moves.branch",
    "moves.kind",
    "moves.before",
    "moves.after",
    "moves.moved_at",
    "moves.proof",
    "keys.thread",
    "keys.key",
    "keys.place",
    "keys.count",
    "keys.proof",
    "blobs.digest",
    "blobs.encoding",
    "blobs.size",
    "blobs.data",
    "blobs.proof",
]


def fill(store):
    store.create("t", title="T", tags=["a"], metadata={"n": 1})
    first, second = store.append("t", [p.user("one"), p.user("two " * 1000)], key="k").entries
    assert store.search(Query(text="one"))  # indexes the words so far; those of what follows stay to be indexed
    store.append("t", [p.user("seen", PICTURE)])
    store.fork("t", "side", at=first.id)
    store.append("t", [p.assistant("another")], branch="side")
    store.rewind("t", second.id)
    assert store.verify().ok


def test_every_column_is_tried(store, schema):
    found = run(
        schema,
        "select c.table_name || '.' || c.column_name from information_schema.columns c "
        "join information_schema.tables t using (table_schema, table_name) "
        "where c.table_schema = %s and c.table_name <> 'migrations' and t.table_type = 'BASE TABLE'",
        schema,
    )
    assert {row[0] for row in found} - {"moves.move"} == set(COLUMNS)  # it only orders


def test_a_change_of_any_column_of_any_row_is_found(store, schema):
    fill(store)
    kinds = dict(
        run(
            schema,
            "select table_name || '.' || column_name, data_type from information_schema.columns "
            "where table_schema = %s",
            schema,
        )
    )
    for generated in ("threads alter thread", "bodies alter body", "moves alter move"):
        run(schema, f"alter table {{s}}.{generated} drop identity")
    for place in COLUMNS:
        table, column = place.split(".")
        rows = [row[0] for row in run(schema, f"select ctid::text from {{s}}.{table} order by ctid")]
        assert rows, table
        for number in range(len(rows)):
            backup = f"create table {{s}}.backup as table {{s}}.{table}"
            run(schema, backup)
            value = OTHER[kinds[place]].replace("{c}", column).replace("%", "%%")
            run(
                schema,
                f"update {{s}}.{table} set {column} = {value} "
                f"where ctid = (select ctid from {{s}}.{table} order by ctid offset {number} limit 1)",
            )
            verified = store.verify()
            run(schema, f"delete from {{s}}.{table}")
            run(schema, f"insert into {{s}}.{table} select * from {{s}}.backup")
            run(schema, "drop table {s}.backup")
            assert not verified.ok, f"{place} of row {number} was changed, and nobody saw"
            assert all(each.place and each.reason for each in verified.damage)
    assert store.verify().ok


@pytest.mark.parametrize("table", ["entries", "branches", "bodies", "threads"])
def test_a_row_that_is_gone_is_found(store, schema, table):
    fill(store)
    run(schema, f"delete from {{s}}.{table} where ctid = (select max(ctid) from {{s}}.{table})")
    assert not store.verify().ok


def test_blobs_that_are_gone_are_found(store, schema):
    fill(store)
    run(schema, "delete from {s}.blobs")
    (damage,) = store.verify().damage
    assert damage.kind == "missing"
    assert damage.place.startswith("bodies ")
    bad = [entry.message for entry in store.read("t") if is_unreadable(entry.message)]
    assert ["it is not there" in each.payload["reason"] for each in bad] == [True]
    assert "seen" in bad[0].payload["text"]


def test_reading_names_table_and_place(store, schema):
    fill(store)
    run(schema, "update {s}.bodies set data = set_byte(data, 5, 7) where size < 200")
    altered = [each.message for each in store.read("t") if is_unreadable(each.message)]
    assert altered[0].payload["reason"] == "entries t/0: altered: its hash does not match"
    run(schema, "delete from {s}.entries where place = 1")
    with pytest.raises(DamageError, match="entries t/1"):
        store.read("t", start=1)
    with pytest.raises(DamageError, match="entries t/1"):
        store.path("t")


def test_a_path_in_a_circle_ends(store, schema):
    fill(store)
    run(schema, "update {s}.entries set parent = 1 where place = 0")
    with pytest.raises(DamageError, match="entries t/1"):
        store.path("t")
    assert not store.verify().ok


def test_verify_says_which_entry(store, schema):
    fill(store)
    run(schema, "update {s}.entries set sent_at = sent_at + 1 where place = 1")
    (damage,) = store.verify().damage
    assert (damage.kind, damage.place, damage.thread) == ("altered", "entries t/1", "t")
    assert damage.entry == store.read("t")[1].id
