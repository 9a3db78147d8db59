"""Texts as vectors: each is embedded once, a few at a time, and compared with what is searched for.

Rules:

- A vector is remembered for an item and a text of it; with a cache also for the text alone, by the SHA-256 of the text,
  in values that outlive the process. A cache that cannot be written costs only time.
- At most ``pool`` texts are embedded at once, whoever asks. An embedding that fails is logged, and tried again when it
  is wanted again.

Stability: experimental.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from operator import mul
from typing import Any, Final, TypeAlias

import anyio

from palaver.core.errors import StoreError, SwarmError
from palaver.swarm.cell import Queue
from palaver.swarm.records import Values

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
