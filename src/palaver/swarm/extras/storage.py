"""Storage: items with ids that a client's turns keep, and find again by what they mean.

Rules (docs/spec/agent-swarm-kit.md#6, #K17, #S19; ASK-25):

- ``Storage`` is what an application writes, ``StorageCell`` one live storage. ``index`` gives the text of an item, or
  several, by which it is found; the best of its texts counts.
- Writing and reading happen one at a time, in the order of asking. What fails (``key``, ``index``, the type, the store)
  rejects that caller and leaves nothing; the next one comes in.
- An embedding that fails does not take back an item: it is found by no search until embedding it succeeded, which each
  search tries. The event of a search names the items that it had to leave out.
- A search gives the items whose score is at least ``score``, the best first, equal ones in the order in which they were
  first kept, and no more than ``total``. It sees the items that were there when it began.
- Items are JSON, and copies; ``type`` is what they are read as. An id is a string or a whole number; ``1`` and ``"1"``
  are one.
- ``list`` without a filter publishes nothing, every other operation one event.

Texts as vectors: each is embedded once, a few at a time, and compared with what is searched for.

Rules:

- A vector is remembered for an item and a text of it; with a cache also for the text alone, by the SHA-256 of the text,
  in values that outlive the process. A cache that cannot be written costs only time.
- At most ``pool`` texts are embedded at once, whoever asks. An embedding that fails is logged, and tried again when it
  is wanted again.

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
from palaver.swarm.shared_value import (
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

# --- vectors ----------------------------------------------------------------------------------------------------------


Vector: TypeAlias = tuple[float, ...]
Embed: TypeAlias = Callable[[str], Awaitable[Sequence[float]]]
Similarity: TypeAlias = Callable[[Sequence[float], Sequence[float]], float]
Texts: TypeAlias = Mapping[str, Sequence[str]]
"""The texts of items, by the items' names."""

_logger: Final = logging.getLogger(__name__)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors; 0 where one has no length.

    Raises ``SwarmError`` for vectors of unequal dimensions.
    """
    if len(one) != len(other):
        raise SwarmError(f"vectors of {len(one)} and of {len(other)} numbers cannot be compared")
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / lengths if lengths else 0.0


class Vectors:
    """The vectors of the items of one storage."""

    def __init__(
        self, name: str, embed: Embed, still: Callable[[str], bool], *, pool: int, cache: Values | None = None
    ) -> None:
        """Embed with a function; ``still`` says which items are there, ``cache`` keeps vectors of texts."""
        self._embed, self._still, self._cache, self._pool = embed, still, cache, pool
        self._kind = f"embedding:{name}"
        self._free = anyio.Semaphore(pool)
        self._queue = Queue(f"embeddings of storage {name!r}")
        self._known: dict[str, dict[str, Vector]] = {}

    async def of(self, text: str) -> Vector:
        """The vector of a text. Raises what embedding raises, and ``SwarmError`` for what is no vector."""
        key = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if self._cache is not None:
            kept = self._cache.get(self._kind, key)
            if kept is not None:
                return tuple(kept)
        async with self._free:
            given = await self._embed(text)
        try:
            vector = tuple([float(each) for each in given])
        except (TypeError, ValueError) as error:
            raise SwarmError(f"{self._kind}: an embedding must be numbers: {error}") from error
        if self._cache is not None:
            await self._keep(self._cache, key, vector)
        return vector

    async def learn(self, ask: Callable[[], Texts]) -> dict[str, tuple[Vector, ...]]:
        """Embed what is not known yet of texts, which are asked for when it is their turn; give what is known then."""
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
        """Forget the vectors of an item but those of these texts."""
        known = self._known.pop(name, {})
        if texts:
            self._known[name] = {text: known[text] for text in texts if text in known}

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()

    async def _work(self, wanted: Iterator[tuple[str, str]], found: dict[str, dict[str, Vector]]) -> None:
        for name, text in wanted:
            try:
                vector = await self.of(text)
            except Exception as error:
                _logger.warning("%s: item %r was not embedded", self._kind, name, exc_info=error)
            else:
                found[name][text] = vector
                if self._still(name):
                    self._known.setdefault(name, {})[text] = vector

    async def _keep(self, cache: Values, key: str, vector: Vector) -> None:
        try:
            await cache.put(self._kind, key, vector)
        except (StoreError, SwarmError) as error:
            _logger.warning("%s: a vector was not kept", self._kind, exc_info=error)


def best(wanted: Vector, vectors: Sequence[Vector], similarity: Similarity) -> float:
    """How much the nearest of several vectors resembles the wanted one."""
    return max([similarity(wanted, each) for each in vectors])


def cut(scored: Sequence[tuple[float, Any]], score: float, total: int | None) -> list[tuple[float, Any]]:
    """Those of at least ``score``, the best first, equal ones in their own order, and no more than ``total``."""
    enough = sorted((each for each in scored if each[0] >= score), key=lambda each: -each[0])
    return enough[:total]


# --- storage ----------------------------------------------------------------------------------------------------------


T = TypeVar("T")

Id: TypeAlias = str | int

SCORE: Final = 0.65
"""How alike an item and a search must be, where nothing else is said."""
POOL: Final = 5
"""How many texts are embedded at once, where nothing else is said."""

BEGUN: Final = "storage-begun"
"""The kind of the record that says that a storage has its default items."""


_DIGITS: Final = 18
"""Longer numbers are no index that anybody counts up."""


def _id(item: Any) -> Id:
    """What an item of a mapping type is called."""
    given: Id = item["id"]
    return given


@dataclass(frozen=True, eq=False, slots=True)
class Storage(Generic[T]):
    """Items of a client, or with ``shared`` of all. Without ``embed`` there is no search.

    ``default`` are the items that a storage begins with, or a function of the client that gives them, plain or
    asynchronous. They are kept when it is first used; what is removed later stays removed.

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
        """Raise ``SwarmError`` without a name, without room to embed in, and for a field of the wrong type."""
        if not callable(self.default) and isinstance(self.default, Iterator):
            object.__setattr__(self, "default", tuple(self.default))  # every client begins with these items
        named("storage", self)
        if self.pool < 1:
            raise SwarmError(f"storage {self.name!r}: at least one text must be embedded at once")


class StorageCell(SharedValue, Generic[T]):
    """One live storage."""

    source: ClassVar[str] = "storage"

    def __init__(
        self, storage: Storage[T], values: Values, client: str, publish: Publish, *, cache: Values | None = None
    ) -> None:
        """Keep items in ``values``, a client's own or shared ones, and vectors there too or in ``cache``."""
        super().__init__(storage.name, client, publish, shared=storage.shared)
        self._storage, self._values = storage, values
        self._kind = f"storage:{storage.name}"
        self._vectors: Vectors | None = None
        if storage.embed is not None:
            kept = (cache or values) if storage.cache else None
            self._vectors = Vectors(storage.name, storage.embed, self._has, pool=storage.pool, cache=kept)
        self._texts: dict[str, tuple[Any, tuple[str, ...]]] = {}
        self._new: dict[str, None] = {}
        self._begun = storage.default == ()

    async def _begin(self) -> None:
        """Keep the items that the storage begins with, once. Raises what their function raises, and ``StoreError``."""
        if self._begun:
            return
        await self._values.refresh()
        if self._values.get(BEGUN, self._storage.name) is None:
            default: Any = self._storage.default
            given: Any = default(self.client) if callable(default) else default
            items: Iterable[T] = await resolved(given)
            kept = [(self._name(self._storage.key(self._typed(raw))), raw) for raw in map(self._raw, items)]
            for name, raw in kept:
                await self._values.put(self._kind, name, raw)
            await self._values.put(BEGUN, self._storage.name, value=True)
        self._begun = True

    def _raw(self, item: T) -> Any:
        return plain(self.what, item)

    async def upsert(self, item: T) -> None:
        """Keep an item, in the place of one with its id.

        Raises what ``key`` and ``index`` raise, ``SwarmError`` for what is no item, and ``StoreError``.
        """
        async with self._queue.turn():
            await self._begin()
            raw = plain(self.what, item)
            kept = self._typed(raw)
            name = self._name(self._storage.key(kept))
            texts = self._index(kept)
            await self._values.put(self._kind, name, raw)
            self._texts[name] = (self._values.get(self._kind, name), texts)
            self._new[name] = None
            if self._vectors is not None:
                self._vectors.retain(name, texts)
            await self._changed("upsert", {"item": raw})
        if self._vectors is not None:
            await self._vectors.learn(self._taken)

    async def remove(self, item_id: Id) -> None:
        """Remove an item, if it is there."""
        async with self._queue.turn():
            await self._begin()
            await self._values.remove(self._kind, self._name(item_id))
            self._texts.pop(self._name(item_id), None)
            if self._vectors is not None:
                self._vectors.retain(self._name(item_id))
            await self._changed("remove", {"item_id": item_id})

    async def clear(self) -> None:
        """Remove every item, all or none."""
        async with self._queue.turn():
            await self._begin()
            await self._values.remove_all(self._kind)
            self._texts.clear()
            if self._vectors is not None:
                self._vectors.clear()
            await self._changed("clear", {})

    async def get(self, item_id: Id) -> T | None:
        """An item by its id, or ``None``."""
        async with self._queue.reading():
            await self._begin()
            await self._values.refresh()
            raw = self._values.get(self._kind, self._name(item_id), MISSING)
            found = None if raw is MISSING else raw
            self.tell("get", {"item_id": item_id}, {"result": plain(self.what, found)})
            return None if raw is MISSING else self._typed(raw)

    async def list(self, where: Callable[[T], bool] | None = None) -> tuple[T, ...]:
        """The items, or those that a function says yes to, in the order in which they were first kept."""
        async with self._queue.reading():
            await self._begin()
            items = await self._items()
            if where is not None:
                items = tuple([item for item in items if where(item)])
                self.tell("list", output={"result": plain(self.what, items)})
            return items

    async def numeric_index(self) -> int:
        """One more than the largest id that is a whole number; 1 where there is none."""
        ids = [str(self._storage.key(item)) for item in await self.list()]
        return 1 + max([0, *(int(each) for each in ids if each.isascii() and each.isdigit() and len(each) <= _DIGITS)])

    async def take(self, search: str, *, total: int | None = None, score: float | None = None) -> tuple[T, ...]:
        """The items that a search means, the best first. Raises what embedding the search and ``similarity`` raise.

        Raises ``SwarmError`` for a storage that cannot embed.
        """
        if self._vectors is None:
            raise SwarmError(f"{self.what} has no embedding, so it cannot be searched")
        least = self._storage.score if score is None else score
        async with self._queue.reading():
            await self._begin()
            await self._values.refresh()
            items = self._values.all(self._kind)
            texts = self._texts_of(items)
        wanted = await self._vectors.of(search)
        vectors = await self._vectors.learn(lambda: texts)
        scored = [(best(wanted, each, self._storage.similarity), name) for name, each in vectors.items() if each]
        found = cut(scored, least, total)
        output: dict[str, Any] = {"indexed": [{"id": name, "score": reached} for reached, name in found]}
        left_out = [name for name in items if name not in texts or len(vectors[name]) < len(texts[name])]
        if left_out:
            output["left_out"] = left_out
        self.tell("take", {"search": search, "total": total, "score": least}, output)
        taken = tuple([self._typed(items[name]) for _, name in found])
        await observed(self._storage.on_search, search, taken, self.client)
        return taken

    async def _items(self) -> tuple[T, ...]:
        await self._values.refresh()
        return tuple([self._typed(raw) for raw in self._values.all(self._kind).values()])

    async def _changed(self, type: str, input: Mapping[str, Any]) -> None:
        self.tell(type, input)
        if self._storage.on_update is not None:
            await observed(self._storage.on_update, await self._items(), self.client)

    def _has(self, name: str) -> bool:
        return self._values.get(self._kind, name, MISSING) is not MISSING

    def _taken(self) -> Texts:
        """The texts of the items that were kept and not embedded yet."""
        new, self._new = self._new, {}
        return self._texts_of({name: self._values.get(self._kind, name) for name in new if self._has(name)})

    def _texts_of(self, items: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The texts of items; those that ``index`` cannot read (any more) are left out."""
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
                raise SwarmError(f"{self.what}: an index must be a text, or texts by name")
        return texts

    def _name(self, item_id: Any) -> str:
        if isinstance(item_id, bool) or not isinstance(item_id, str | int):
            raise SwarmError(f"{self.what}: an id is a string or a whole number, not {item_id!r}")
        return str(item_id)

    def _typed(self, raw: Any) -> T:
        return typed(self.what, raw, self._storage.type)
