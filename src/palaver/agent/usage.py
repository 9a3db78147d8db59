"""What the answers in threads used, by agent and by model.

Rules (pains 14, 17):

- Each answer counts once, however often it is met: on several branches of a thread, in a copy of it, in the thread of a
  sub-agent and in that of its caller. The same answer is one with the same response id, else with the same message id.
- Of several forms of one answer (what came before a stream broke off, and all of it) the largest counts.
- Every branch counts, and so does an answer that nobody was shown: it was paid for.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, cast

from msgspec import Struct

from palaver.core.errors import MessageError
from palaver.core.messages import AssistantMessage
from palaver.core.usage import Usage
from palaver.store.stored_thread import StoredThread
from palaver.threads.thread import Entry, Thread
from palaver.turn.journal import AnyThread

Row: TypeAlias = tuple[str | None, str | None]
"""An agent and a model, as the messages name them; ``None`` where they do not."""


class Used(Struct, frozen=True):
    """What was used, by agent and model; ``answers`` is how many answers that were."""

    rows: Mapping[Row, Usage]
    answers: int

    @property
    def by_agent(self) -> dict[str | None, Usage]:
        """The usage of each agent."""
        return self._summed(lambda row: row[0])

    @property
    def by_model(self) -> dict[str | None, Usage]:
        """The usage of each model, by the name that its provider gave it."""
        return self._summed(lambda row: row[1])

    @property
    def total(self) -> Usage:
        """All of it."""
        return sum(self.rows.values(), Usage())

    def _summed(self, key: Callable[[Row], str | None]) -> dict[str | None, Usage]:
        sums: dict[str | None, Usage] = {}
        for row, usage in self.rows.items():
            sums[key(row)] = sums.get(key(row), Usage()) + usage
        return sums


def usage_of(*threads: AnyThread | Iterable[Entry]) -> Used:
    """Return what the answers in ``threads`` used, each a thread or its entries. Costs their length.

    Raises ``MessageError`` for any other value.
    """
    found: dict[object, AssistantMessage] = {}
    for thread in threads:
        for entry in _entries(thread):
            message = entry.message
            if not isinstance(message, AssistantMessage) or message.usage is None:
                continue
            same = ("response", message.response_id) if message.response_id else ("message", message.id or entry.id)
            known = found.get(same)
            if known is None or known.usage is None or known.usage.total < message.usage.total:
                found[same] = message
    rows: dict[Row, Usage] = {}
    for message in found.values():
        row = (message.agent, message.model)
        rows[row] = rows.get(row, Usage()) + (message.usage or Usage())
    return Used(rows, len(found))


def _entries(thread: AnyThread | Iterable[Entry]) -> Iterable[Entry]:
    if isinstance(thread, StoredThread):
        return thread.tree.entries
    if isinstance(thread, Thread):
        return thread.entries
    given = cast("object", thread)
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise MessageError(f"usage_of: expected a thread or a list of entries, got {type(thread).__name__}")
    return thread
