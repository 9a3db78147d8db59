"""The tables of a PostgreSQL store, and their migrations.

Rules:

- A migration is applied in one transaction with its record. An advisory lock lets one process at a time check and
  migrate, so any number of them may start at once. A released migration is never changed.
- ``{s}`` stands for the schema's name, quoted; ``{lock}`` for its advisory lock, ``{words}`` for the one of its words.
- Text that users write freely (titles, tags, metadata, labels) is kept as JSON in ASCII, because PostgreSQL's text
  holds neither NUL nor a lone surrogate. Names (threads, branches, keys, entries) hold neither, and are stored as is.
- Numbers link the tables: ``entries.body`` is ``bodies.body``, ``thread`` is ``threads.thread``. There are no foreign
  keys: the locks below guarantee what they would check for each row.
- Concurrent appends are one call of the function ``append``: one round trip, one transaction, and no network under a
  lock.
- Locks are taken in one order, so that there are no deadlocks: the advisory lock (shared by writers, exclusive for
  ``gc`` and migrations), then the rows of threads in the order of their names, then blobs, then bodies, both in the
  order of their digests. Indexing words takes a second advisory lock, after the first.
- Hashes and seals (``palaver.store.message_codec``) protect the entries. Every other row has a ``proof``: 8 bytes of a
  hash of its columns, derived by the functions ``*_proof`` when it is written, and again by ``verify``.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final, LiteralString, NamedTuple

from palaver.core.errors import StoreError
from palaver.store.postgres.database import Link
from palaver.store.postgres.functions import FUNCTIONS


class Migration(NamedTuple):
    """A step from one version of the tables to the next."""

    version: int
    name: str
    statements: tuple[LiteralString, ...]


_TABLES: Final = """
create sequence {s}.changes;

create table {s}.threads (
    thread bigint generated always as identity primary key,
    id text collate "C" not null unique,
    token uuid not null,
    title text,
    tags text[] not null,
    metadata text not null,
    created_at bigint not null,
    updated_at bigint not null,
    changed bigint not null,
    length bigint not null,
    proof bytea not null
) with (fillfactor = 60);

create table {s}.branches (
    thread bigint not null,
    name text collate "C" not null,
    head bigint,
    proof bytea not null,
    primary key (thread, name)
) with (fillfactor = 60);

create table {s}.bodies (
    body bigint generated always as identity primary key,
    digest bytea not null unique,
    encoding smallint not null,
    size bigint not null,
    data bytea not null,
    uses bytea not null,
    proof bytea not null
);
alter table {s}.bodies alter column data set storage external;

create table {s}.fresh (body bigint primary key);

create table {s}.words (
    body bigint primary key,
    words text not null,
    proof bytea not null
) with (toast_tuple_target = 128);
alter table {s}.words alter column words set storage main;
create index on {s}.words using gin (array_to_tsvector(string_to_array(words, E'\\n'))) with (fastupdate = off);

create table {s}.entries (
    thread bigint not null,
    place bigint not null,
    parent bigint,
    body bigint not null,
    sent_at bigint,
    stamps smallint not null,
    id text collate "C" not null,
    seal bytea not null,
    primary key (thread, place),
    unique (thread, id)
);
create index on {s}.entries (body);

create table {s}.moves (
    move bigint generated always as identity primary key,
    token uuid not null unique,
    thread bigint not null,
    branch text not null,
    kind text not null,
    before bigint,
    after bigint,
    moved_at bigint not null,
    proof bytea not null
);
create index on {s}.moves (thread);

create table {s}.keys (
    thread bigint not null,
    key text collate "C" not null,
    place bigint not null,
    count bigint not null,
    proof bytea not null,
    primary key (thread, key)
);

create table {s}.blobs (
    digest bytea primary key,
    encoding smallint not null,
    size bigint not null,
    data bytea not null,
    proof bytea not null
);
alter table {s}.blobs alter column data set storage external;
"""

# jsonb has neither NUL nor a lone surrogate: a text that has them is read with U+FFFD in their place.
_VIEWS: Final = """
alter table {s}.bodies alter column data set storage extended;

create function {s}.readable(json bytea) returns jsonb language plpgsql immutable as $$
begin
    return convert_from(json, 'UTF8')::jsonb;
exception when others then
    begin
        return regexp_replace(convert_from(json, 'UTF8'), chr(92) || chr(92) || 'u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})',
            chr(92) || chr(92) || 'ufffd', 'g')::jsonb;
    exception when others then
        return null;
    end;
end
$$;

create view {s}.messages as
select t.id as thread, e.place, e.id, p.id as parent, e.sent_at, j.json ->> 'role' as role, j.json ->> 'agent' as agent,
    j.json ->> 'model' as model,
    (select string_agg(part.value ->> 'text', chr(10) order by part.number)
     from jsonb_array_elements(case when jsonb_typeof(j.json -> 'content') = 'array' then j.json -> 'content' end)
         with ordinality as part (value, number)
     where part.value ->> 'type' = 'text') as text, j.json
from {s}.entries e join {s}.threads t on t.thread = e.thread left join {s}.bodies b on b.body = e.body
left join {s}.entries p on p.thread = e.thread and p.place = e.parent
cross join lateral (
    select case when b.encoding = 0 then {s}.readable(b.data) end as json
) j;

create view {s}.conversations as
select id as thread, {s}.readable(convert_to(title, 'UTF8')) #>> '{}' as title,
    created_at, updated_at, length from {s}.threads;
"""

MIGRATIONS: Final = (
    Migration(1, "threads, messages, media and words", (_TABLES, *FUNCTIONS)),
    Migration(2, "views of messages and conversations", (_VIEWS,)),
)
NEWEST: Final = MIGRATIONS[-1].version
_VERSION: Final = "select coalesce(max(version), 0) from {s}.migrations"
_RECORDS: Final = """
create table if not exists {s}.migrations (
    version integer primary key,
    name text not null,
    applied_at timestamptz not null default now()
)
"""


def migrate(link: Link) -> None:
    """Migrate the tables to the newest version. Raises ``StoreError`` for a newer version."""
    if link.value("show server_encoding") != "UTF8":
        raise StoreError("a store needs a database whose encoding is UTF8")
    while True:
        if link.value("select to_regclass(%s || '.migrations')", link.quoted) is not None:
            found = link.value(_VERSION)
            if found > NEWEST:
                raise StoreError(
                    f"schema {link.schema!r} was written by a newer version of Palaver: "
                    f"its tables have version {found}; this version of Palaver knows {NEWEST}"
                )
            if found == NEWEST:
                return
        _step(link)


def _step(link: Link) -> None:
    """Apply the next migration, if nobody else has in the meantime."""
    with link.transaction():
        link.execute("select pg_advisory_xact_lock({lock})")
        if link.value("select to_regnamespace(%s)", link.quoted) is None:
            link.execute("create schema {s}")
        link.script(_RECORDS)
        found = link.value(_VERSION)
        for migration in MIGRATIONS:
            if migration.version == found + 1:
                for statements in migration.statements:
                    link.script(statements)
                link.execute(
                    "insert into {s}.migrations (version, name) values (%s, %s)", migration.version, migration.name
                )
