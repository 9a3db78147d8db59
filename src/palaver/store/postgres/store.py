"""A store in PostgreSQL, for several machines that share their threads.

Rules:

- One schema of one database holds everything (``palaver.store.postgres.schema``). The database's encoding is UTF8.
- Every method is one piece of work on one connection of the pool. When the connection is lost, it is tried again for
  ``timeout`` seconds, and detects what it had done already; then ``UnavailableError`` says that it may have been done.
- Expensive work (JSON, hashes, compression, words) is done before a connection is taken.
- Concurrent appends are sent together (``palaver.store.postgres.appends``).
- Words are indexed on search (``palaver.store.postgres.search``).
- A pool does not survive ``os.fork``: open a store in each process.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import UNSET, UnsetType

from palaver.core.errors import NotFoundError
from palaver.core.messages import Message
from palaver.core.parts import Blob
from palaver.store import message_codec, search_text
from palaver.store.postgres import appends, call_parameters, queries, schema as tables, search, updates, upkeep
from palaver.store.postgres.appends import Writers
from palaver.store.postgres.database import Database
from palaver.store.records import checked_name, prepare
from palaver.store.store import (
    Addition,
    Appended,
    Freed,
    Hit,
    Progress,
    Query,
    Store,
    ThreadInfo,
    Verified,
    as_query,
    check_given,
)
from palaver.threads.ids import uuid7
from palaver.threads.thread import MAIN, Entry

_TIMEOUT: Final = 30.0


class PostgresStore(Store):
    """Keeps threads in a schema of a PostgreSQL database, which is created if it is missing.

    ``conninfo`` is a libpq connection string or URI. Between ``min_size`` and ``max_size`` connections are open.
    ``timeout`` is how many seconds to wait for a lost server.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "palaver",
        min_size: int = 1,
        max_size: int = 16,
        timeout: float = _TIMEOUT,
    ) -> None:
        """Open a store. Raises ``UnavailableError`` without a server, ``StoreError`` for tables of a newer version."""
        self._database = Database(conninfo, schema, min_size=min_size, max_size=max_size, timeout=timeout)
        try:
            self._database.run(lambda link, _: tables.migrate(link))
        except BaseException:
            self._database.close()
            raise
        self._writers = Writers(partial(_send_group, self._database), repr(self))

    # -- threads ---------------------------------------------------------------------------------------------------

    def create(
        self,
        id: str | None = None,
        *,
        title: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> ThreadInfo:
        """Create a thread."""
        name = uuid7() if id is None else checked_name(id, "id of the thread")
        given = updates.details(title, tags, {} if metadata is None else metadata)
        token = uuid7()
        self._database.run(lambda link, _: updates.create(link, name, token, given))
        return self.info(name)

    def info(self, thread: str) -> ThreadInfo:
        """Return the title, tags, metadata, times and heads of a thread."""
        return self._database.run(lambda link, _: queries.info(link, thread))

    def threads(self, *, tag: str | None = None, limit: int | None = None) -> Iterator[ThreadInfo]:
        """Iterate over the threads, the most recently updated first."""
        check_given("threads", tag=tag, limit=limit)
        numbers = self._database.run(lambda link, _: queries.list_threads(link, tag, limit))
        for page in queries.pages(numbers):
            yield from self._infos(page)

    def _infos(self, numbers: list[int]) -> list[ThreadInfo]:
        return self._database.run(lambda link, _: queries.infos(link, numbers))

    def update(
        self,
        thread: str,
        *,
        title: str | UnsetType | None = UNSET,
        tags: Iterable[str] | UnsetType = UNSET,
        metadata: Mapping[str, Any] | UnsetType = UNSET,
    ) -> ThreadInfo:
        """Change the fields that are given."""
        given = updates.details(title, tags, metadata)
        self._database.run(lambda link, _: updates.update(link, thread, given))
        return self.info(thread)

    def delete(self, thread: str) -> None:
        """Remove a thread."""
        self._database.run(lambda link, again: updates.delete(link, thread, again=again))

    # -- messages --------------------------------------------------------------------------------------------------

    def append(
        self,
        thread: str,
        messages: Iterable[Message],
        *,
        branch: str = MAIN,
        expect: str | UnsetType | None = UNSET,
        key: str | None = None,
    ) -> Appended:
        """Append messages to a branch."""
        rows = prepare(messages)
        name = None if key is None else checked_name(key, "key")
        request = appends.AppendRequest(thread, branch, expect, name, rows, call_parameters.size(rows))
        outcome = self._writers.run(request) if request.size <= call_parameters.MAX_BYTES else None
        if outcome is None or outcome.kind == appends.BUSY:
            tried = outcome is not None
            outcome = self._database.run(lambda link, again: appends.append(link, request, again=again or tried))
        return appends.append_result(request, outcome, lambda start, stop: self.read(thread, start=start, stop=stop))

    def add(
        self,
        thread: str,
        entries: Iterable[Entry],
        *,
        branches: Mapping[str, str | None] | None = None,
        absent: Collection[str] = (),
    ) -> int:
        """Add entries as they are. After a lost connection, existing ones do not count as new."""
        given = updates.prepare_add(thread, entries, branches or {}, absent)
        return self._database.run(lambda link, _: updates.add(link, given))

    def add_all(self, additions: Iterable[Addition]) -> int:
        """Add to several threads, in one transaction."""
        given = [
            updates.prepare_add(
                each.thread,
                each.entries,
                each.branches,
                about=updates.details(each.title, each.tags, each.metadata),
            )
            for each in additions
        ]
        return self._database.run(lambda link, _: updates.add_all(link, given)) if given else 0

    def read(self, thread: str, *, start: int = 0, stop: int | None = None) -> Sequence[Entry]:
        """Return entries in the order of appends."""
        check_given("read", start=start, stop=stop)
        return self._database.run(lambda link, _: queries.read(link, thread, start, stop))

    def path(self, thread: str, of: str = MAIN, *, last: int | None = None) -> Sequence[Entry]:
        """Return the conversation up to a head or an entry."""
        check_given("path", of=of, last=last)
        return self._database.run(lambda link, _: queries.path(link, thread, of, last))

    # -- branches --------------------------------------------------------------------------------------------------

    def fork(self, thread: str, name: str, *, of: str = MAIN, at: str | UnsetType | None = UNSET) -> str | None:
        """Create a branch."""
        work = partial(updates.fork, id=thread, name=checked_name(name, "name of the branch"), of=of, at=at)
        token = uuid7()
        return self._database.run(lambda link, again: work(link, token=token, again=again))

    def rewind(
        self, thread: str, to: str | None, *, branch: str = MAIN, expect: str | UnsetType | None = UNSET
    ) -> None:
        """Move the head of a branch."""
        work = partial(updates.rewind, id=thread, to=to, branch=branch, expect=expect, token=uuid7())
        self._database.run(lambda link, again: work(link, again=again))

    # -- search, media ---------------------------------------------------------------------------------------------

    def search(self, query: Query | str) -> list[Hit]:
        """Return matching messages."""
        query = as_query(query)
        search_text.parse(query.text)  # an empty query takes no connection
        if search.needs_index(query):
            self._database.run(lambda link, _: search.catch_up(link))
        return self._database.run(lambda link, _: search.search(link, query))

    def index(self, *, progress: Progress | None = None) -> int:
        """Index new messages; return how many."""
        return self._database.run(lambda link, _: search.catch_up(link, progress))

    def put_blob(self, data: bytes) -> Blob:
        """Store bytes as a blob."""
        kept = message_codec.compress(message_codec.checked_data(data))
        self._database.run(lambda link, _: updates.put_blob(link, kept))
        return message_codec.blob_for(kept.digest)

    def get_blob(self, blob: Blob | str) -> bytes:
        """Return the bytes of a blob."""
        digest = message_codec.digest_of(blob)
        found = self._database.run(lambda link, _: queries.get_blob(link, digest))
        if found is None:
            raise NotFoundError(f"no blob sha256:{digest.hex()}")
        return found

    # -- upkeep ----------------------------------------------------------------------------------------------------

    def verify(self, *, progress: Progress | None = None) -> Verified:
        """Derive every hash again."""
        return self._database.run(lambda link, _: upkeep.verify(link, progress))

    def gc(self, *, progress: Progress | None = None) -> Freed:
        """Remove unused messages and blobs. The tables are locked while they are rewritten."""
        return self._database.run(lambda link, _: upkeep.gc(link, progress))

    def close(self) -> None:
        """Finish waiting appends, and close all connections."""
        self._writers.close()
        self._database.close()

    def __repr__(self) -> str:
        """Return the location, without a password."""
        return f"PostgresStore({self._database.place!r}, schema={self._database.schema!r})"


def _send_group(database: Database, requests: Sequence[appends.AppendRequest]) -> list[appends.Outcome]:
    """Send a group of appends."""
    return database.run(lambda link, again: appends.append_group(link, requests, again=again, waits=False))
