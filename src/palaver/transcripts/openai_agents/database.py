"""Sessions of the OpenAI Agents SDK in a SQLite database, read and written (docs/spec/dialects.md#9).

Rules:

- A row is an item, a session a conversation; rows are read in the order of their ids. The database is opened read-only.
  Rows without an item stay records.
- With the tables of ``AdvancedSQLiteSession``, branches are read from ``message_structure``: they share the messages
  before they diverge. The usage of a turn (``turn_usage``) is added to the last answer of the turn.
- The two tables of ``SQLiteSession`` are written, with the main branch of each conversation; existing sessions are not
  changed.

Stability: experimental.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from palaver.core import jsontext
from palaver.core.errors import EncodeError, StoreError
from palaver.threads.thread import MAIN, Entry, Thread
from palaver.transcripts import assembly, documents
from palaver.transcripts.conversation import Session, Transcript, collected, session_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.fields import read_time
from palaver.transcripts.format import Origin
from palaver.transcripts.omissions import branches_left_out
from palaver.transcripts.openai_agents.reader import RecordReader, is_made
from palaver.transcripts.openai_agents.shapes import NAME, RUN, is_item, is_locked, read_usage
from palaver.transcripts.openai_agents.writer import RecordWriter
from palaver.transcripts.record import Record
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import Options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.core.request import Loss
    from palaver.transcripts.conversation import Step

_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS agent_sessions (
        session_id TEXT PRIMARY KEY,
        created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
    );
    CREATE TABLE IF NOT EXISTS agent_messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL,
        message_data TEXT NOT NULL,
        created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id) ON DELETE CASCADE
    );
    CREATE INDEX IF NOT EXISTS idx_agent_messages_session_id ON agent_messages (session_id, id);
"""


_SESSIONS: Final = """
    SELECT session_id FROM (
        SELECT session_id, 0 AS rank, rowid AS place FROM agent_sessions
        UNION ALL
        SELECT session_id, 1, min(id) FROM agent_messages
        WHERE session_id NOT IN (SELECT session_id FROM agent_sessions) GROUP BY session_id
    ) ORDER BY rank, place
"""
"""A session whose own row is missing still has its messages."""


class _Placed(NamedTuple):
    """A row in a branch, and its turn."""

    row: int
    turn: int | None


def read_sqlite(path: str | Path) -> tuple[Transcript, ...]:
    """Read the sessions of a database, in the order in which they began. Raises ``StoreError`` for any other file."""
    place = Path(path)
    try:
        with closing(sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True)) as file:
            file.row_factory = sqlite3.Row
            file.text_factory = _text
            tables = {str(row[0]) for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            rows = file.execute(_SESSIONS)
            return tuple([_session(file, str(row[0]), place.name, tables) for row in rows.fetchall()])
    except sqlite3.Error as error:
        raise StoreError(f"{place.name}: {error}") from None


def _text(raw: bytes) -> str:
    """Return a text of the database, even one that is not UTF-8."""
    return raw.decode("utf-8", "surrogateescape")


def _session(file: sqlite3.Connection, name: str, source: str, tables: set[str]) -> Transcript:
    watch = Watch()
    reading = RecordReader(Origin(name=f"{source}\0{name}"), watch)
    reading.session = Session(file_format=NAME, id=name, started_at=_started(file, name))
    found = file.execute(
        "SELECT id, message_data, created_at FROM agent_messages WHERE session_id = ? ORDER BY id", [name]
    )
    records: dict[int, Record] = {}
    for at, row in enumerate(found.fetchall()):
        records[int(row[0])] = _record(at, row[1])
        if (sent_at := read_time(row[2])) is not None:
            reading.times[at] = sent_at
    branches: dict[str, list[_Placed]] = {}
    with suppress(sqlite3.OperationalError, IndexError):  # older tables of these names have fewer columns
        branches = _branches(file, name) if "message_structure" in tables else {}
        reading.usages.update(_usages(file, name, branches, records) if "turn_usage" in tables else ())
    placed = {each.row for rows in branches.values() for each in rows}
    if not placed:
        branches = {MAIN: [_Placed(row, None) for row in records]}
    (transcript,), _ = collected(_steps(reading, records, branches))
    return transcript


def _started(file: sqlite3.Connection, name: str) -> int | None:
    row = file.execute("SELECT created_at FROM agent_sessions WHERE session_id = ?", [name]).fetchone()
    return None if row is None else read_time(row[0])


def _record(at: int, data: object) -> Record:
    """Return a row as a line."""
    raw = data if isinstance(data, bytes) else str(data).encode("utf-8", "surrogateescape")
    fields = documents.fields_of(raw) or None
    return Record(at, at + 1, raw + b"\n", fields, None if fields else "garbage")


def _branches(file: sqlite3.Connection, name: str) -> dict[str, list[_Placed]]:
    """Return the rows of each branch, the main one first."""
    found: dict[str, list[_Placed]] = {MAIN: []}
    rows = file.execute(
        "SELECT branch_id, message_id, user_turn_number FROM message_structure WHERE session_id = ?"
        " ORDER BY sequence_number, id",
        [name],
    )
    for branch, row, turn in rows.fetchall():
        if isinstance(row, int):
            found.setdefault(str(branch), []).append(_Placed(row, turn))
    return found


def _usages(
    file: sqlite3.Connection, name: str, branches: dict[str, list[_Placed]], records: dict[int, Record]
) -> Iterator[tuple[int, Any]]:
    """Yield the usage of each turn, by the number of the last record that a model made in it."""
    keys = ("requests", "input_tokens", "output_tokens", "total_tokens")
    details = ("input_tokens_details", "output_tokens_details")
    rows = file.execute("SELECT * FROM turn_usage WHERE session_id = ? ORDER BY id", [name])
    for row in rows.fetchall():
        turn = [each.row for each in branches.get(str(row["branch_id"]), ()) if each.turn == row["user_turn_number"]]
        made = [records[each].at for each in turn if each in records and _model_made(records[each])]
        if not made:
            continue
        counts: dict[str, Any] = {key: row[key] for key in keys}
        for key in details:
            if isinstance(row[key], str) and jsontext.is_json(row[key]):
                counts[key] = jsontext.value(row[key])
        yield made[-1], read_usage(jsontext.raw(counts))


def _model_made(record: Record) -> bool:
    return record.fields is not None and is_made(jsontext.raw(record.fields))


def _steps(reading: RecordReader, records: dict[int, Record], branches: dict[str, list[_Placed]]) -> Iterator[Step]:
    """Read each row once: a branch continues from the last row that it shares with those read before."""
    yield from reading.begin()
    heads: dict[int, str | None] = {}
    ends: dict[str, str | None] = {}
    forks = _forks(branches)
    for branch, rows in branches.items():
        reading.conversation.head = None
        for each in rows:
            if each.row in heads:
                reading.conversation.head = heads[each.row]
                continue
            if each.row not in records:
                continue
            yield from reading.record(records[each.row])
            heads[each.row] = None
            if each.row in forks:
                yield from reading.close()
                heads[each.row] = reading.conversation.head
        yield from reading.close()
        ends[branch] = reading.conversation.head
    for row, record in records.items():
        if row not in heads:  # rows that no branch names
            yield from reading.record(record)
    yield from reading.end(ends)


def _forks(branches: dict[str, list[_Placed]]) -> set[int]:
    """Return the rows after which branches diverge."""
    known_messages: set[int] = set()
    found: set[int] = set()
    for rows in branches.values():
        shared = [each.row for each in rows if each.row in known_messages]
        found.update(shared[-1:])
        known_messages.update(each.row for each in rows)
    return found


# -- writing -----------------------------------------------------------------------------------------------------------


def write_sqlite(path: str | Path, transcripts: Iterable[Transcript]) -> tuple[Loss, ...]:
    """Write conversations as sessions of a database, which is created if it is missing; return the losses.

    A session keeps its name, or has that of its thread. Raises ``EncodeError`` for an existing one, ``StoreError`` for
    a file that cannot be written; then nothing is written.
    """
    losses: list[Loss] = []
    try:
        with closing(sqlite3.connect(path)) as file, file:
            file.executescript(_SCHEMA)
            for each in transcripts:
                losses += _write(file, each)
    except sqlite3.Error as error:
        raise StoreError(f"{Path(path).name}: {error}") from None
    return tuple(losses)


def _write(file: sqlite3.Connection, transcript: Transcript) -> tuple[Loss, ...]:
    """Write a conversation as a session."""
    session = session_of(transcript.metadata)
    name = session.id if session.id is not None and session.file_format == NAME else transcript.thread.id
    if file.execute("SELECT 1 FROM agent_sessions WHERE session_id = ?", [name]).fetchone() is not None:
        raise EncodeError(f"the session {name!r} already exists")
    told = _main(transcript, session)
    written = assembly.write(NAME, told, RecordWriter, Options(), layout="either", tree=False, history="model")
    file.execute("INSERT INTO agent_sessions (session_id) VALUES (?)", [name])
    rows = [(name, row) for row in _rows(written.body)]
    file.executemany("INSERT INTO agent_messages (session_id, message_data) VALUES (?, CAST(? AS TEXT))", rows)
    branches = branches_left_out(transcript.thread, (), MAIN)
    return (*written.losses, *branches)


def _main(transcript: Transcript, session: Session) -> Transcript:
    """Return only the main branch of a conversation; of a run, without its record, which is not a row."""
    run = session.more.get("form") == RUN
    thread = Thread(transcript.thread.id)
    parent: str | None = None
    for entry in transcript.thread.path():
        message = without_records(entry.message) if run else entry.message
        thread.add([Entry(entry.id, parent, message)], {MAIN: entry.id})
        parent = entry.id
    return structs.replace(transcript, thread=thread)


def _rows(body: bytes) -> Sequence[bytes]:
    """Return the items of a written file, a row each."""
    cut = documents.cut(body)
    if cut.tail is not None:
        found = [each.raw[len(documents.lead_of(each.raw)) :] for each in cut.items]
    else:
        found = [each for each in body.split(b"\n") if each.strip()]
    return [each for each in found if _is_row(each)]


def _is_row(data: bytes) -> bool:
    fields = documents.fields_of(data)
    return bool(fields) and (is_item(_told(fields)) or is_locked(fields) or "type" in fields)


def _told(fields: Any) -> dict[str, Any]:
    return {key: jsontext.value(raw) for key, raw in fields.items() if key in {"type", "role"}} | dict.fromkeys(
        fields.keys() - {"type", "role"}
    )
