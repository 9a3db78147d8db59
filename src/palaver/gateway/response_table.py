"""The table of stored responses and conversations of the Responses API, in the gateway's database.

Rules:

- A response is stored with its own input only, and with the id of the one before it; its history is the chain of them.
  A chain of which a response was deleted is not found.
- Who asks with another key finds nothing. An id names one response of each key: two may get the same from a provider.
- A conversation names the last response of its chain. Items that a client adds to it are a response without an answer.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import MsgspecError, Raw, json

from palaver.core.errors import DecodeError, NotFoundError
from palaver.threads.ids import now_ms, uuid7

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.gateway.database import Database, Migrations, Transaction

_MIGRATIONS: Final[Migrations] = (
    (
        """CREATE TABLE {s}.stored_responses (
            id TEXT PRIMARY KEY, caller TEXT NOT NULL, at BIGINT NOT NULL, previous TEXT, input BYTEA NOT NULL,
            response BYTEA
        )""",
        "CREATE INDEX stored_responses_at ON {s}.stored_responses (at)",
        """CREATE TABLE {s}.stored_conversations (
            id TEXT PRIMARY KEY, caller TEXT NOT NULL, at BIGINT NOT NULL, metadata BYTEA NOT NULL, head TEXT
        )""",
    ),
    (
        "ALTER TABLE {s}.stored_responses RENAME TO earlier_responses",
        """CREATE TABLE {s}.stored_responses (
            id TEXT NOT NULL, caller TEXT NOT NULL, at BIGINT NOT NULL, previous TEXT, input BYTEA NOT NULL,
            response BYTEA, PRIMARY KEY (caller, id)
        )""",
        "INSERT INTO {s}.stored_responses SELECT id, caller, at, previous, input, response FROM {s}.earlier_responses",
        "DROP TABLE {s}.earlier_responses",
        "CREATE INDEX stored_responses_at ON {s}.stored_responses (at)",
    ),
)
_INSERT: Final = "INSERT INTO {s}.stored_responses VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (caller, id) DO NOTHING"
_CHAIN: Final = """WITH RECURSIVE chain (id, caller, previous, depth) AS (
        SELECT id, caller, previous, 0 FROM {s}.stored_responses WHERE id = ? AND caller = ?
        UNION ALL
        SELECT r.id, r.caller, r.previous, c.depth + 1 FROM {s}.stored_responses r
        JOIN chain c ON r.id = c.previous AND r.caller = c.caller WHERE c.depth < 10000
    ) SELECT r.input, r.response, r.previous FROM chain c
    JOIN {s}.stored_responses r ON r.id = c.id AND r.caller = c.caller ORDER BY c.depth DESC"""
"""The depth ends a chain that leads to itself, which a provider that gives an id twice can make."""
_ITEMS: Final[json.Decoder[list[Raw] | None]] = json.Decoder(list[Raw] | None)
_ITEM: Final = json.Decoder(dict[str, Any])
_LONGEST: Final = 64 * 1024 * 1024
"""Bytes of a history: what a client adds to it costs no model."""
_DAY: Final = 24 * 60 * 60 * 1000


class StoredResponse(NamedTuple):
    """A response: the items of its own input, and the body that the client got."""

    input: list[Raw]
    response: Raw


class Conversation(NamedTuple):
    """A conversation: its metadata, the time in seconds at which it was made, and the last response of its chain."""

    id: str
    created_at: int
    metadata: dict[str, Any]
    head: str | None


class ResponseTable:
    """The stored responses in a database. Its calls block."""

    def __init__(self, database: Database) -> None:
        """Make the tables where they are missing. Raises ``StoreError``."""
        self._database = database
        database.migrate("responses", _MIGRATIONS)

    def add(
        self,
        id: str,
        caller: str,
        *,
        own_input: Sequence[Raw],
        response: bytes | None,
        previous: str | None = None,
        conversation: str | None = None,
    ) -> None:
        """Store a response, as the last one of a conversation where one is named."""
        row = (
            id,
            caller,
            now_ms(),
            previous,
            _packed(own_input),
            None if response is None else zstd.compress(response),
        )
        move: Final = "UPDATE {s}.stored_conversations SET head = ? WHERE id = ? AND caller = ?"

        def work(transaction: Transaction) -> None:
            transaction.rows(_INSERT, *row)
            if conversation is not None:
                transaction.rows(move, id, conversation, caller)

        self._database.run(work)

    def find(self, id: str, caller: str) -> StoredResponse:
        """Return a response. Raises ``NotFoundError``."""
        query: Final = (
            "SELECT input, response FROM {s}.stored_responses WHERE id = ? AND caller = ? AND response IS NOT NULL"
        )
        rows = self._database.run(lambda it: it.rows(query, _storable(id), caller))
        if not rows:
            raise NotFoundError(f"Response with id '{id}' not found.")
        return StoredResponse(_unpacked(rows[0][0]), Raw(zstd.decompress(rows[0][1])))

    def history(self, id: str, caller: str) -> list[Raw]:
        """Return the items of a chain, up to the output of a response. Raises ``NotFoundError``.

        Raises ``DecodeError`` for one that is too long.
        """
        rows = self._database.run(lambda it: it.rows(_CHAIN, _storable(id), caller))
        if not rows or rows[0][2] is not None:
            raise NotFoundError(f"Previous response with id '{id}' not found.")
        items: list[Raw] = []
        size = 0
        for own_input, response, _ in rows:
            added = _unpacked(own_input)
            if response is not None:
                added += _replayable(zstd.decompress(response))
            size += sum(map(len, map(bytes, added)))
            if size > _LONGEST:
                raise DecodeError(f"a history of more than {_LONGEST:,} bytes", source="openai_responses")
            items += added
        return items

    def delete(self, id: str, caller: str) -> None:
        """Delete a response. Raises ``NotFoundError``."""
        query: Final = "DELETE FROM {s}.stored_responses WHERE id = ? AND caller = ? RETURNING id"
        if not self._database.run(lambda it: it.rows(query, id, caller)):
            raise NotFoundError(f"Response with id '{id}' not found.")

    def delete_before(self, days: float) -> None:
        """Delete what is older than some days."""
        time = now_ms() - int(days * _DAY)

        def work(transaction: Transaction) -> None:
            transaction.rows("DELETE FROM {s}.stored_responses WHERE at < ?", time)
            transaction.rows(
                "DELETE FROM {s}.stored_conversations WHERE at < ? "
                "AND (head IS NULL OR head NOT IN (SELECT id FROM {s}.stored_responses))",
                time,
            )

        self._database.run(work)

    # -- conversations -------------------------------------------------------------------------------------------------

    def create_conversation(self, caller: str, metadata: dict[str, Any]) -> Conversation:
        """Make an empty conversation."""
        made = Conversation(f"conv_{uuid7().replace('-', '')}", now_ms() // 1000, metadata, None)
        insert: Final = "INSERT INTO {s}.stored_conversations VALUES (?, ?, ?, ?, NULL)"
        self._database.run(lambda it: it.rows(insert, made.id, caller, made.created_at * 1000, json.encode(metadata)))
        return made

    def conversation(self, id: str, caller: str) -> Conversation:
        """Return a conversation. Raises ``NotFoundError``."""
        query: Final = "SELECT at, metadata, head FROM {s}.stored_conversations WHERE id = ? AND caller = ?"
        rows = self._database.run(lambda it: it.rows(query, _storable(id), caller))
        if not rows:
            raise NotFoundError(f"Conversation with id '{id}' not found.")
        at, metadata, head = rows[0]
        return Conversation(id, at // 1000, json.decode(metadata), head)

    def add_items(self, conversation: Conversation, caller: str, items: Sequence[Raw]) -> None:
        """Add items to a conversation."""
        self.add(
            f"items_{uuid7()}",
            caller,
            own_input=items,
            response=None,
            previous=conversation.head,
            conversation=conversation.id,
        )

    def delete_conversation(self, id: str, caller: str) -> None:
        """Delete a conversation; its responses stay. Raises ``NotFoundError``."""
        query: Final = "DELETE FROM {s}.stored_conversations WHERE id = ? AND caller = ? RETURNING id"
        if not self._database.run(lambda it: it.rows(query, id, caller)):
            raise NotFoundError(f"Conversation with id '{id}' not found.")


def _storable(id: str) -> str:
    """Return an id as a database takes it: half a surrogate or a zero is in none that is stored."""
    return id.encode(errors="replace").decode().replace("\0", "?")


def input_items(value: Raw | None) -> list[Raw]:
    """Return the items of a request's input; a text is a message of the user. Raises ``DecodeError``."""
    data = b"null" if value is None else bytes(value)
    if data.startswith(b'"'):
        return [Raw(b'{"type":"message","role":"user","content":' + data + b"}")]
    try:
        found = _ITEMS.decode(data) or []
        for each in found:
            _ITEM.decode(each)
        return found
    except (MsgspecError, UnicodeError, RecursionError) as error:
        raise DecodeError(str(error), path="input", source="openai_responses") from None


def _replayable(response: bytes) -> list[Raw]:
    """Return the output of a response as items of an input.

    Without ids, which another provider does not know, and without reasoning that nobody could read again.
    """
    output = json.decode(response, type=dict[str, Raw]).get("output")
    found: list[Raw] = []
    for item in [] if output is None else json.decode(output, type=list[dict[str, Raw]]):
        if bytes(item.get("type", b"")) == b'"reasoning"' and not json.decode(item.get("encrypted_content", b"null")):
            continue
        found.append(Raw(json.encode({name: value for name, value in item.items() if name not in {"id", "status"}})))
    return found


def _packed(items: Sequence[Raw]) -> bytes:
    return zstd.compress(b"[" + b",".join(map(bytes, items)) + b"]")


def _unpacked(data: bytes) -> list[Raw]:
    return json.decode(zstd.decompress(data), type=list[Raw])
