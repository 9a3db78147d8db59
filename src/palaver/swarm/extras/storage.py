"""Storages: items with ids that a client's turns keep and find again by meaning.

- ``Storage`` is the application's description, ``LiveStorage`` the live storage. ``index`` returns one or several texts
  of an item; the best one counts in a search.
- Reads and writes run one at a time, in order. An error (of ``key``, ``index``, the type or the store) goes to its
  caller and changes nothing.
- An item whose embedding fails stays, but no search finds it until the embedding succeeds; each search retries it and
  names the items that it left out in its event.
- A search returns the items with at least ``score``, the best first, equal ones in insertion order, at most ``total``.
  It sees the items that existed when it started.
- Items are JSON, and copies; ``type`` is their Python type. An id is a string or an integer; ``1`` and ``"1"`` are the
  same.
- ``list`` without a filter publishes nothing; every other operation publishes one event.
- A vector is cached for an item and its text, and with ``cache`` also for the text's SHA-256 across processes. At most
  ``pool`` texts are embedded at the same time.

See docs/spec/agent-swarm-kit.md#6, #K17, #S19; ASK-25.

Stability: experimental.
"""

from __future__ import annotations

import builtins
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from operator import mul
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import anyio

from palaver.core.errors import StoreError, SwarmError
from palaver.swarm.log import Values
from palaver.swarm.state import (
    MISSING,
    Observer,
    Publish,
    Queue,
    SharedValue,
    named,
    observed,
    plain,
    resolved,
    typed,
)

Vector: TypeAlias = tuple[float, ...]
Embed: TypeAlias = Callable[[str], Awaitable[Sequence[float]]]
Similarity: TypeAlias = Callable[[Sequence[float], Sequence[float]], float]
Texts: TypeAlias = Mapping[str, Sequence[str]]
"""The texts of items by the items' names."""

_logger: Final = logging.getLogger(__name__)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors; 0 when one has no length.

    Raises ``SwarmError`` for vectors of unequal dimensions.
    """
    if len(one) != len(other):
        raise SwarmError(f"vectors of {len(one)} and of {len(other)} numbers cannot be compared")
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / lengths if lengths else 0.0


class Vectors:
    """The vectors of the items of one storage."""

    def __init__(
        self, name: str, embed: Embed, exists: Callable[[str], bool], *, pool: int, cache: Values | None = None
    ) -> None:
        """Embed with a function. ``exists`` tells which items are stored; ``cache`` stores vectors of texts."""
        self._embed, self._exists, self._cache, self._pool = embed, exists, cache, pool
        self._kind = f"embedding:{name}"
        self._free = anyio.Semaphore(pool)
        self._queue = Queue(f"embeddings of storage {name!r}")
        self._known: dict[str, dict[str, Vector]] = {}

    async def vector_of(self, text: str) -> Vector:
        """Return the vector of a text. Raises what ``embed`` raises, and ``SwarmError`` for an invalid vector."""
        key = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if self._cache is not None:
            stored = self._cache.get(self._kind, key)
            if stored is not None:
                return tuple(stored)
        async with self._free:
            given = await self._embed(text)
        try:
            vector = tuple([float(each) for each in given])
        except (TypeError, ValueError) as error:
            raise SwarmError(f"{self._kind}: an embedding must be numbers: {error}") from error
        if self._cache is not None:
            await self._cache_vector(self._cache, key, vector)
        return vector

    async def embed_missing(self, ask: Callable[[], Texts]) -> dict[str, tuple[Vector, ...]]:
        """Embed the texts that have no vector. ``ask`` is called when it is their turn. Return all known vectors."""
        async with self._queue.turn():
            texts = ask()
            found = {
                name: {text: vector for text, vector in self._known.get(name, {}).items() if text in each}
                for name, each in texts.items()
            }
            wanted = [(name, text) for name, each in texts.items() for text in each if text not in found[name]]
            rest = iter(wanted)
            async with anyio.create_task_group() as group:
                for _ in range(min(self._pool, len(wanted))):
                    group.start_soon(self._work, rest, found)
            return {name: tuple(each.values()) for name, each in found.items()}

    def retain(self, name: str, texts: Sequence[str] = ()) -> None:
        """Drop the vectors of an item, except those of these texts."""
        known = self._known.pop(name, {})
        if texts:
            self._known[name] = {text: known[text] for text in texts if text in known}

    def clear(self) -> None:
        """Drop all vectors."""
        self._known.clear()

    async def _work(self, wanted: Iterator[tuple[str, str]], found: dict[str, dict[str, Vector]]) -> None:
        for name, text in wanted:
            try:
                vector = await self.vector_of(text)
            except Exception as error:
                _logger.warning("%s: item %r was not embedded", self._kind, name, exc_info=error)
            else:
                found[name][text] = vector
                if self._exists(name):
                    self._known.setdefault(name, {})[text] = vector

    async def _cache_vector(self, cache: Values, key: str, vector: Vector) -> None:
        try:
            await cache.put(self._kind, key, vector)
        except (StoreError, SwarmError) as error:
            _logger.warning("%s: a vector was not cached", self._kind, exc_info=error)


def best_score(wanted: Vector, vectors: Sequence[Vector], similarity: Similarity) -> float:
    """Return the highest similarity of several vectors with the wanted one."""
    return max([similarity(wanted, each) for each in vectors])


def best_matches(scored: Sequence[tuple[float, Any]], score: float, total: int | None) -> list[tuple[float, Any]]:
    """Return the items with at least ``score``, the best first, equal ones in order, at most ``total``."""
    enough = sorted((each for each in scored if each[0] >= score), key=lambda each: -each[0])
    return enough[:total]


T = TypeVar("T")

Id: TypeAlias = str | int

SCORE: Final = 0.65
"""The default least similarity of an item and a search."""
POOL: Final = 5
"""The default number of texts that are embedded at the same time."""

INITIALIZED: Final = "storage-begun"
"""The kind of the record that marks a storage with default items."""


_DIGITS: Final = 18
"""Longer numbers are not counted up."""


def _id(item: Any) -> Id:
    """Return the id of an item of a mapping type."""
    given: Id = item["id"]
    return given


@dataclass(frozen=True, eq=False, slots=True)
class Storage(Generic[T]):
    """Items of a client, or with ``shared`` of all clients. Without ``embed`` there is no search.

    ``name`` is that of the storage. ``index`` returns the text of an item, or several by name, and ``key`` its id; by
    default that is ``item["id"]``. ``type`` is the Python type of the items; ``None`` leaves them as JSON. ``embed``
    returns the vector of a text, and ``similarity`` a number for two vectors; a search returns items with at least
    ``score``. At most ``pool`` texts are embedded at the same time. ``cache`` also keeps vectors across processes.

    ``default`` are the first items of a storage, or a function of the client that returns them, plain or async. They
    are stored at the first use; an item that is removed later stays removed.

    Observers: ``on_update`` (items, client) after each change, ``on_search`` (search, items, client).
    """

    name: str
    _: KW_ONLY
    index: Callable[[T], str | Mapping[str, str]]
    default: Iterable[T] | Callable[[str], Iterable[T] | Awaitable[Iterable[T]]] = ()
    embed: Embed | None = None
    key: Callable[[T], Id] = _id
    similarity: Similarity = cosine
    type: builtins.type[T] | None = None
    shared: bool = False
    score: float = SCORE
    pool: int = POOL
    cache: bool = False
    on_update: Observer | None = None
    on_search: Observer | None = None

    def __post_init__(self) -> None:
        """Raise ``SwarmError`` without a name, for a ``pool`` below 1, and for a field of the wrong type."""
        if not callable(self.default) and isinstance(self.default, Iterator):
            object.__setattr__(self, "default", tuple(self.default))  # every client starts with these items
        named("storage", self)
        if self.pool < 1:
            raise SwarmError(f"storage {self.name!r}: the batch size must be at least 1")


class LiveStorage(SharedValue, Generic[T]):
    """The live items of a ``Storage``."""

    source: ClassVar[str] = "storage"

    def __init__(
        self, storage: Storage[T], values: Values, client: str, publish: Publish, *, cache: Values | None = None
    ) -> None:
        """Store items in ``values``, a client's own or shared ones, and vectors there or in ``cache``."""
        super().__init__(storage.name, client, publish, shared=storage.shared)
        self._storage, self._values = storage, values
        self._kind = f"storage:{storage.name}"
        self._vectors: Vectors | None = None
        if storage.embed is not None:
            stored = (cache or values) if storage.cache else None
            self._vectors = Vectors(storage.name, storage.embed, self._has, pool=storage.pool, cache=stored)
        self._texts: dict[str, tuple[Any, tuple[str, ...]]] = {}
        self._new: dict[str, None] = {}
        self._initialized = storage.default == ()

    async def _initialize(self) -> None:
        """Store the default items once. Raises what their function raises, and ``StoreError``."""
        if self._initialized:
            return
        await self._values.refresh()
        if self._values.get(INITIALIZED, self._storage.name) is None:
            default: Any = self._storage.default
            given: Any = default(self.client) if callable(default) else default
            items: Iterable[T] = await resolved(given)
            stored = [(self._name(self._storage.key(self._typed(raw))), raw) for raw in map(self._raw, items)]
            for name, raw in stored:
                await self._values.put(self._kind, name, raw)
            await self._values.put(INITIALIZED, self._storage.name, value=True)
        self._initialized = True

    def _raw(self, item: T) -> Any:
        return plain(self.what, item)

    async def upsert(self, item: T) -> None:
        """Store an item, and replace one with the same id.

        Raises what ``key`` and ``index`` raise, ``SwarmError`` for an invalid item, and ``StoreError``.
        """
        async with self._queue.turn():
            await self._initialize()
            raw = plain(self.what, item)
            stored = self._typed(raw)
            name = self._name(self._storage.key(stored))
            texts = self._index(stored)
            await self._values.put(self._kind, name, raw)
            self._texts[name] = (self._values.get(self._kind, name), texts)
            self._new[name] = None
            if self._vectors is not None:
                self._vectors.retain(name, texts)
            await self._changed("upsert", {"item": raw})
        if self._vectors is not None:
            await self._vectors.embed_missing(self._new_texts)

    async def remove(self, item_id: Id) -> None:
        """Remove an item, if it exists."""
        async with self._queue.turn():
            await self._initialize()
            await self._values.remove(self._kind, self._name(item_id))
            self._texts.pop(self._name(item_id), None)
            if self._vectors is not None:
                self._vectors.retain(self._name(item_id))
            await self._changed("remove", {"item_id": item_id})

    async def clear(self) -> None:
        """Remove every item, all or none."""
        async with self._queue.turn():
            await self._initialize()
            await self._values.remove_all(self._kind)
            self._texts.clear()
            if self._vectors is not None:
                self._vectors.clear()
            await self._changed("clear", {})

    async def get(self, item_id: Id) -> T | None:
        """Return an item by its id, or ``None``."""
        async with self._queue.reading():
            await self._initialize()
            await self._values.refresh()
            raw = self._values.get(self._kind, self._name(item_id), MISSING)
            found = None if raw is MISSING else raw
            self.publish_event("get", {"item_id": item_id}, {"result": plain(self.what, found)})
            return None if raw is MISSING else self._typed(raw)

    async def list(self, where: Callable[[T], bool] | None = None) -> tuple[T, ...]:
        """Return the items, or those for which ``where`` is true, in insertion order."""
        async with self._queue.reading():
            await self._initialize()
            items = await self._items()
            if where is not None:
                items = tuple([item for item in items if where(item)])
                self.publish_event("list", output={"result": plain(self.what, items)})
            return items

    async def numeric_index(self) -> int:
        """Return one more than the largest integer id; 1 when there is none."""
        ids = [str(self._storage.key(item)) for item in await self.list()]
        return 1 + max([0, *(int(each) for each in ids if each.isascii() and each.isdigit() and len(each) <= _DIGITS)])

    async def take(self, search: str, *, total: int | None = None, score: float | None = None) -> tuple[T, ...]:
        """Return the items that match a search, the best first. Raises what ``embed`` and ``similarity`` raise.

        Raises ``SwarmError`` for a storage without ``embed``.
        """
        if self._vectors is None:
            raise SwarmError(f"{self.what} has no embedding, so it cannot be searched")
        least = self._storage.score if score is None else score
        async with self._queue.reading():
            await self._initialize()
            await self._values.refresh()
            items = self._values.all(self._kind)
            texts = self._texts_of(items)
        wanted = await self._vectors.vector_of(search)
        vectors = await self._vectors.embed_missing(lambda: texts)
        scored = [(best_score(wanted, each, self._storage.similarity), name) for name, each in vectors.items() if each]
        found = best_matches(scored, least, total)
        output: dict[str, Any] = {"indexed": [{"id": name, "score": reached} for reached, name in found]}
        left_out = [name for name in items if name not in texts or len(vectors[name]) < len(texts[name])]
        if left_out:
            output["left_out"] = left_out
        self.publish_event("take", {"search": search, "total": total, "score": least}, output)
        found_items = tuple([self._typed(items[name]) for _, name in found])
        await observed(self._storage.on_search, search, found_items, self.client)
        return found_items

    async def _items(self) -> tuple[T, ...]:
        await self._values.refresh()
        return tuple([self._typed(raw) for raw in self._values.all(self._kind).values()])

    async def _changed(self, type: str, input: Mapping[str, Any]) -> None:
        self.publish_event(type, input)
        if self._storage.on_update is not None:
            await observed(self._storage.on_update, await self._items(), self.client)

    def _has(self, name: str) -> bool:
        return self._values.get(self._kind, name, MISSING) is not MISSING

    def _new_texts(self) -> Texts:
        """Return the texts of the new items that are not embedded yet."""
        new, self._new = self._new, {}
        return self._texts_of({name: self._values.get(self._kind, name) for name in new if self._has(name)})

    def _texts_of(self, items: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """Return the texts of items, without those that ``index`` cannot read."""
        texts: dict[str, tuple[str, ...]] = {}
        for name, raw in items.items():
            known = self._texts.get(name)
            if known is None or known[0] is not raw:
                try:
                    known = self._texts[name] = (raw, self._index(self._typed(raw)))
                except Exception as error:
                    _logger.warning("%s: item %r has no text", self.what, name, exc_info=error)
                    continue
            texts[name] = known[1]
        return texts

    def _index(self, item: T) -> tuple[str, ...]:
        given: Any = self._storage.index(item)
        texts = (given,) if isinstance(given, str) else tuple(dict.fromkeys(given.values()))
        for text in texts:
            if not isinstance(text, str):
                raise SwarmError(f"{self.what}: an index must be a string or a mapping of strings")
        return texts

    def _name(self, item_id: Any) -> str:
        if isinstance(item_id, bool) or not isinstance(item_id, str | int):
            raise SwarmError(f"{self.what}: an id is a string or a whole number, not {item_id!r}")
        return str(item_id)

    def _typed(self, raw: Any) -> T:
        return typed(self.what, raw, self._storage.type)
