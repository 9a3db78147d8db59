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
- Exchanges are written in batches (``Store.add_all``). Ids of threads and entries derive from the id of the exchange,
  and each is added whole: to write it again changes nothing.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from palaver.core.errors import NotFoundError
from palaver.gateway.log.history import digest, instructions, links, title
from palaver.store.store import Addition
from palaver.threads.thread import MAIN, Entry, stamped

if TYPE_CHECKING:
    from palaver.core.messages import AssistantMessage, Message
    from palaver.core.usage import Usage
    from palaver.gateway.database import Database, Migrations, Transaction
    from palaver.gateway.log.logged import LoggedExchange
    from palaver.store.store import Store

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
    """What an exchange says: the history, its answer if there is one, and that answer as the client sees it.

    ``estimate`` is what it used, where the provider does not say.
    """

    messages: Sequence[Message]
    digests: Sequence[bytes | None]
    """The ``history.digest`` of each message."""
    answer: AssistantMessage | None
    visible: AssistantMessage | None
    estimate: Usage | None = None


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


class _Place(NamedTuple):
    """Where a known beginning of a history ends: its last message, counted from 0, and the entry of that."""

    message: int
    thread: str
    entry: str


class _History(NamedTuple):
    """What an exchange says, and the links of all but the first messages, which are instructions."""

    exchange: LoggedExchange
    turn: Turn
    instructions: int
    links: Sequence[str]

    @property
    def asked(self) -> Sequence[str]:
        """The links of what the client sent."""
        return self.links[: len(self.turn.messages) - self.instructions]


class Conversations:
    """Writes exchanges into the threads of a store."""

    def __init__(self, store: Store, database: Database) -> None:
        """Keep the arguments."""
        self._store, self._database = store, database

    def add(self, exchanges: Sequence[tuple[LoggedExchange, Turn]], *, again: bool) -> list[Placed]:
        """Add what is new in exchanges, in their order. ``again``: some may be there already. Raises ``StoreError``."""
        histories = [_history(*each) for each in exchanges]

        def work(transaction: Transaction) -> tuple[list[Placed], list[Addition]]:
            batch = _Batch(self._store, transaction, again=again)
            return [batch.place(each) for each in histories], batch.additions

        placed, additions = self._database.run(work)
        self._store.add_all(additions)
        return placed


class _Batch:
    """Places exchanges, of which none is stored yet, unless they are written ``again``."""

    def __init__(self, store: Store, transaction: Transaction, *, again: bool) -> None:
        self._store, self._transaction, self._again = store, transaction, again
        self._links: dict[str, _Place | None] = {}
        """What the links of this batch lead to; ``None`` where no exchange answered."""
        self._heads: dict[str, dict[str, str | None]] = {}
        self.additions: list[Addition] = []

    def place(self, history: _History) -> Placed:
        """Return where an exchange belongs, and add what is new in it."""
        place = self._continued(history.asked)
        if history.turn.answer is None:
            return Placed(None if place is None else place.thread)
        placed = self._begin(history) if place is None else self._continue(history, place)
        for each in placed.links:
            self._links[each.link] = _Place(0, placed.thread or "", each.entry) if each.answered else None
        return placed

    def _continued(self, links: Sequence[str]) -> _Place | None:
        """Return the longest known beginning of a history that holds an answer of an exchange."""
        for end in range(len(links), 0, -_SLICE):
            start = max(end - _SLICE, 0)
            asked = [*links[start:end], *[""] * (_SLICE - (end - start))]
            rows = self._transaction.rows(_KNOWN, *asked)
            found = {link: _Place(0, thread, entry) for link, thread, entry in rows}
            for message in range(end - 1, start - 1, -1):
                link = links[message]
                place = self._links[link] if link in self._links else found.get(link)
                if place is not None and self._is_there(place.thread):
                    heads = self._heads[place.thread]
                    return place._replace(message=message) if len(heads) < _MAX_BRANCHES else None
        return None

    def _is_there(self, thread: str) -> bool:
        """Whether a thread was not deleted since; then its heads are known."""
        if thread not in self._heads:
            try:
                self._heads[thread] = dict(self._store.info(thread).branches)
            except NotFoundError:
                return False
        return True

    def _begin(self, history: _History) -> Placed:
        """Begin a thread."""
        exchange, turn = history.exchange, history.turn
        thread = _id(exchange.id, "thread")
        origin = {"api": exchange.api, "caller": exchange.caller, "team": exchange.team}
        origin["client"] = exchange.headers.get("user-agent")
        entries = _entries(exchange, turn, 0, None)
        if not self._is_stored(thread, entries[-1].id):
            self._heads[thread] = {}
            self._add(
                Addition(
                    thread=thread,
                    entries=entries,
                    branches=_heads(exchange, entries, {}, None),
                    title=title(turn.messages),
                    tags=(TAG,),
                    metadata={"gateway": {name: text for name, text in origin.items() if text is not None}},
                )
            )
        return Placed(
            thread, entries[-1].id, _new_links(history.links, entries[history.instructions :], answered=False)
        )

    def _continue(self, history: _History, place: _Place) -> Placed:
        """Add what follows a known beginning."""
        entries = _entries(history.exchange, history.turn, history.instructions + place.message + 1, place.entry)
        if not self._is_stored(place.thread, entries[-1].id):
            branches = _heads(history.exchange, entries, self._heads[place.thread], place.entry)
            self._add(Addition(thread=place.thread, entries=entries, branches=branches))
        links = _new_links(history.links[place.message + 1 :], entries, answered=True)
        return Placed(place.thread, entries[-1].id, links)

    def _is_stored(self, thread: str, answer: str) -> bool:
        """Whether an exchange was stored already, before a failure: then its heads must not be set again."""
        try:
            return self._again and self._is_there(thread) and bool(self._store.path(thread, answer, last=1))
        except NotFoundError:
            return False

    def _add(self, addition: Addition) -> None:
        self._heads[addition.thread].update(addition.branches)
        self.additions.append(addition)


def _history(exchange: LoggedExchange, turn: Turn) -> _History:
    first = instructions(turn.messages)
    spoken = [*turn.digests[first:], *([] if turn.visible is None else [digest(turn.visible)])]
    return _History(exchange, turn, first, links(spoken, exchange.caller or ""))


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
    digits = f"{int.from_bytes(digest) & ~_FIXED | _VERSION_8:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
