"""Bound what another side sends, by counting the bytes that were taken.

Rules:

- ``LimitedBytes`` gives the chunks of an answer until their sum passes the limit, and then raises.
- ``LimitedLines`` decodes UTF-8 and gives whole lines, so that a reader who joins pieces joins few. It tells of a line
  that is longer than the limit before the end of it has come.

Stability: experimental.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, Protocol


class Closing(AsyncIterable[bytes], Protocol):
    """Chunks of bytes that can be left before their end."""

    @property
    def aclose(self) -> Callable[[], Awaitable[None]]:
        """Take no more."""
        ...


class LimitedBytes:
    """Chunks of bytes, at most ``limit`` bytes in sum; ``error`` makes what is raised of the reason."""

    def __init__(self, inner: Closing, limit: int, error: Callable[[str], Exception]) -> None:
        """Take nothing yet."""
        self._inner, self._limit, self._error = inner, limit, error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Give the chunks."""
        taken = 0
        async for chunk in self._inner:
            taken += len(chunk)
            if taken > self._limit:
                raise self._error(too_long("an answer", self._limit))
            yield chunk

    async def aclose(self) -> None:
        """Take no more."""
        await self._inner.aclose()


class LimitedLines(codecs.BufferedIncrementalDecoder):
    """Decodes UTF-8; past a line of ``limit`` bytes it calls ``exceeded`` once, and gives nothing more."""

    def __init__(self, errors: str, limit: int, exceeded: Callable[[str], None]) -> None:
        """Begin before the first byte."""
        super().__init__(errors)
        self._limit, self._exceeded = limit, exceeded
        self._line = 0
        self._held: list[bytes] = []
        self._over = False

    def decode(self, input: bytes, final: bool = False) -> str:  # type: ignore[override]  # noqa: FBT001, FBT002 (its base's signature)
        """Decode what came."""
        if self._over:
            return ""
        first, newline, _ = input.partition(b"\n")
        longest = max(self._line + len(first), *map(len, input.split(b"\n")[1:-1]), 0) if newline else 0
        self._line = len(input) - input.rfind(b"\n") - 1 if newline else self._line + len(input)
        if max(longest, self._line) > self._limit:
            self._over = True
            self._exceeded(too_long("a line", self._limit))
            self._held.clear()
            return ""
        whole, newline, rest = input.rpartition(b"\n")
        if not newline and not final:
            self._held.append(rest)
            return ""
        lines = b"".join([*self._held, whole, newline, *([rest] if final else [])])
        self._held = [] if final else [rest]
        return super().decode(lines, final)

    def _buffer_decode(self, input: Any, errors: str, final: bool) -> tuple[str, int]:  # noqa: FBT001 (its base's signature)
        return codecs.utf_8_decode(input, errors, final)


def too_long(what: str, limit: int) -> str:
    """What is said of something that passes a limit."""
    return f"{what} of more than {limit} bytes"
