"""Exchanges as threads of a store: each message of a conversation once, though clients send the whole of it each turn.

Rules:

- The links of a history (``history``) are rows of the gateway's database: link → thread and entry. The longest known
  beginning that holds an answer of an exchange is continued; only what follows it is added. Any other history begins a
  thread: the same question, or the same examples before it, may be sent a thousand times.
- A thread of more than ``_MAX_BRANCHES`` branches is not continued.
- The branch ``main`` is the conversation as it was last sent. Where a history differs from it in the middle, what came
  after that place is kept as ``earlier-…``. Where it continues another branch, it stays on that.
- The answer of an exchange that did not end well is on a branch of its own, ``partial-…``. Without any answer, there
  is nothing in the thread.
- An answer's metadata names its exchange: ``{"exchange": id}``.
- Ids of threads and entries derive from the id of the exchange, and an exchange is one call of ``Store.add``: to write
  it again changes nothing.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from palaver.core.errors import ConflictError, NotFoundError
from palaver.gateway.log import history
from palaver.threads.thread import MAIN, Entry, stamped

if TYPE_CHECKING:
    from palaver.core.messages import AssistantMessage, Message
    from palaver.gateway.database import Database, Migrations, Transaction
    from palaver.gateway.log.logged import LoggedExchange
    from palaver.store.store import Store, ThreadInfo

TAG: Final = "gateway"
MIGRATIONS: Final[Migrations] = (
    (
        """CREATE TABLE {s}.log_links (
            link TEXT PRIMARY KEY, thread TEXT NOT NULL, entry TEXT NOT NULL, answered BIGINT NOT NULL
        )""",
        "CREATE INDEX log_links_thread ON {s}.log_links (thread)",
    ),
)
_SLICE: Final = 8
_KNOWN: Final = "SELECT link, thread, entry FROM {s}.log_links WHERE answered = 1 AND link IN (?, ?, ?, ?, ?, ?, ?, ?)"
_LINK: Final = (
    "INSERT INTO {s}.log_links VALUES (?, ?, ?, ?) ON CONFLICT (link) "
    "DO UPDATE SET thread = excluded.thread, entry = excluded.entry, answered = excluded.answered"
)
_MAX_BRANCHES: Final = 64
_FIXED: Final = 0xF << 76 | 3 << 62
_VERSION_8: Final = 8 << 76 | 2 << 62


class Turn(NamedTuple):
    """What an exchange says: the history, its answer if there is one, and that answer as the client sees it."""

    messages: Sequence[Message]
    answer: AssistantMessage | None
    visible: AssistantMessage | None


class Link(NamedTuple):
    """A link of a history, and its entry. ``answered``: an exchange answered there, or before."""

    link: str
    entry: str
    answered: bool


class Placed(NamedTuple):
    """Where an exchange is: its thread, the entry of its answer, and links that are new."""

    thread: str | None = None
    entry: str | None = None
    links: Sequence[Link] = ()

    def write(self, transaction: Transaction) -> None:
        """Write the links."""
        for each in self.links:
            transaction.rows(_LINK, each.link, self.thread, each.entry, int(each.answered))


class _Known(NamedTuple):
    """The longest known beginning of a history: its last message, counted from 0."""

    place: int
    info: ThreadInfo
    entry: str


class Conversations:
    """Writes exchanges into the threads of a store."""

    def __init__(self, store: Store, database: Database) -> None:
        """Keep the arguments."""
        self._store, self._database = store, database

    def add(self, exchange: LoggedExchange, turn: Turn) -> Placed:
        """Add what is new in an exchange. Raises ``StoreError``."""
        messages = turn.messages
        first = history.instructions(messages)
        spoken = [*messages[first:], *([] if turn.visible is None else [turn.visible])]
        links = history.links(spoken, exchange.caller or "")
        known = self._find(links[: len(messages) - first])
        if turn.answer is None:
            return Placed(None if known is None else known.info.id)
        if known is None:
            return self._begin(exchange, turn, links, first)
        return self._continue(exchange, turn, links, known, first)

    def _begin(self, exchange: LoggedExchange, turn: Turn, links: Sequence[str], first: int) -> Placed:
        """Begin a thread."""
        thread = _id(exchange.id, "thread")
        origin = {"api": exchange.api, "caller": exchange.caller, "team": exchange.team}
        origin["client"] = exchange.headers.get("user-agent")
        with suppress(ConflictError):  # it was begun before the process died
            self._store.create(
                thread,
                title=history.title(turn.messages),
                tags=(TAG,),
                metadata={"gateway": {name: text for name, text in origin.items() if text is not None}},
            )
        entries = _entries(exchange, turn, 0, None)
        self._store.add(thread, entries, branches=_heads(exchange, entries, {}, None))
        return Placed(thread, entries[-1].id, _new_links(links, entries[first:], answered=False))

    def _continue(
        self, exchange: LoggedExchange, turn: Turn, links: Sequence[str], known: _Known, first: int
    ) -> Placed:
        """Add what follows a known beginning."""
        entries = _entries(exchange, turn, first + known.place + 1, known.entry)
        heads = known.info.branches
        if entries[-1].id not in heads.values():
            self._store.add(known.info.id, entries, branches=_heads(exchange, entries, heads, known.entry))
        return Placed(known.info.id, entries[-1].id, _new_links(links[known.place + 1 :], entries, answered=True))

    def _find(self, links: Sequence[str]) -> _Known | None:
        """Find the longest known beginning that holds an answer of an exchange."""
        for end in range(len(links), 0, -_SLICE):
            start = max(end - _SLICE, 0)
            found = self._known(links[start:end])
            for place in range(end - 1, start - 1, -1):
                at = found.get(links[place])
                if at is None:
                    continue
                with suppress(NotFoundError):  # the thread was deleted since
                    info = self._store.info(at[0])
                    return _Known(place, info, at[1]) if len(info.branches) < _MAX_BRANCHES else None
        return None

    def _known(self, links: Sequence[str]) -> dict[str, tuple[str, str]]:
        asked = [*links, *[""] * (_SLICE - len(links))]
        rows = self._database.run(lambda it: it.rows(_KNOWN, *asked))
        return {link: (thread, entry) for link, thread, entry in rows}


def _entries(exchange: LoggedExchange, turn: Turn, start: int, parent: str | None) -> list[Entry]:
    """Return the entries of an exchange: its messages from ``start`` on, and its answer."""
    messages = [*turn.messages[start:]]
    if turn.answer is not None:
        messages.append(turn.answer.replace(metadata={**turn.answer.metadata, "exchange": exchange.id}))
    entries: list[Entry] = []
    for place, message in enumerate(messages, start):
        entry = _id(exchange.id, str(place))
        entries.append(Entry(entry, parent, stamped(message, entry, exchange.at)))
        parent = entry
    return entries


def _heads(
    exchange: LoggedExchange, entries: Sequence[Entry], heads: Mapping[str, str | None], known: str | None
) -> dict[str, str | None]:
    """Return which branches end where, when the entries follow the entry ``known``."""
    whole = exchange.outcome == "answered"
    last = entries[-1].id if whole else entries[-1].parent
    moved: dict[str, str | None] = {}
    names = [name for name, head in heads.items() if head == known]
    if last == known:  # only a partial answer follows
        pass
    elif MAIN in names or not names:
        moved[MAIN] = last
        before = heads.get(MAIN)
        if before is not None and before != known and list(heads.values()).count(before) == 1:
            moved[f"earlier-{exchange.id[-12:]}"] = before
    else:
        moved[names[0]] = last
    if not whole:
        moved[f"partial-{exchange.id[-12:]}"] = entries[-1].id
    return moved


def _new_links(links: Sequence[str], entries: Sequence[Entry], *, answered: bool) -> list[Link]:
    last = entries[-1]
    return [Link(link, each.id, answered or each is last) for link, each in zip(links, entries, strict=True)]


def _id(exchange: str, name: str) -> str:
    """Return an id that derives from that of an exchange: a UUID of version 8 (RFC 9562)."""
    digest = sha256(f"{exchange} {name}".encode()).digest()[:16]
    return str(UUID(int=int.from_bytes(digest) & ~_FIXED | _VERSION_8))
