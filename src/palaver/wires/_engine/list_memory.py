"""What was read of a list of wire messages, so that reading a longer one costs what is new in it.

Rules:

- Two lists have in common the items at their beginning whose text is the same, byte for byte.
- Reading goes on behind the last place in common where nothing was pending: where what was read does not depend on what
  follows. The wire notes these places.
- What is read is equal to what would be read without a memory; messages in common are the same objects.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from msgspec import Raw

    from palaver.core.messages import Message
    from palaver.core.request import Request


@final
class ListMemory:
    """The memory of one conversation: the last list that was read, and its messages."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._items: Sequence[Raw] = ()
        self._places: list[tuple[int, int]] = []
        self._messages: list[Message] = []
        self._lead: Sequence[Message] = ()

    def resume(self, items: Sequence[Raw], lead: Sequence[Message] = ()) -> tuple[int, list[Message]]:
        """Return the index at which to read on, and the messages before it. ``lead`` stand before those of the list."""
        before = self._items
        common = 0
        if self._lead == lead:
            lead = self._lead
            size = min(len(before), len(items))
            common = next((at for at in range(size) if before[at] != items[at]), size)
        while self._places and self._places[-1][0] > common:
            self._places.pop()
        index, count = self._places[-1] if self._places else (0, len(lead))
        messages = self._messages[:count] if index else list(lead)
        self._items, self._lead, self._messages = items, lead, messages
        return index, messages

    @property
    def items(self) -> Sequence[Raw]:
        """The list that was read last."""
        return self._items

    def note(self, index: int) -> None:
        """Note that nothing is pending behind the item before ``index``."""
        self._places.append((index, len(self._messages)))


@final
class RequestReader:
    """Reads the requests of one conversation, which grows; ``Wire.request_reader`` makes it."""

    def __init__(self, read: Callable[[bytes, ListMemory], Request]) -> None:
        """Read with a function of the wire."""
        self._read = read
        self._memory = ListMemory()

    def read(self, body: bytes) -> Request:
        """Return what ``Wire.decode_request`` does, without ``original``; messages in common are the same objects.

        Raises ``DecodeError``.
        """
        return self._read(body, self._memory)

    def last_item(self, back: int) -> bytes:
        """Return the text of an item of the last list, ``back`` before its end; empty where there is none."""
        items = self._memory.items
        return bytes(items[max(0, len(items) - back)]) if items else b""
