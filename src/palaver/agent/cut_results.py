"""Whether something of a conversation was cut, so that tools which read what was cut are of use.

Rules:

- ``read_result`` and ``search_history`` are offered as soon as a result was cut or a part of the conversation was
  compacted, and from then on: a conversation in which nothing is missing pays for no tool that it cannot use.
- Each entry is looked at once, also when runs go on behind each other.

Stability: internal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from palaver.agent.calling import WHOLE
from palaver.context.plan import SOURCE
from palaver.threads.thread import Entry

READING: Final = "reading"
"""The ``scope`` of tools that read what was cut."""
_CUT: Final = frozenset((WHOLE, SOURCE))


@final
class CutResults:
    """Looks for what was cut, in a thread that only grows."""

    __slots__ = ("_cut", "_looked")

    def __init__(self) -> None:
        """Begin before the first entry."""
        self._cut, self._looked = False, 0

    def in_thread(self, entries: Sequence[Entry]) -> bool:
        """Whether something was cut in a thread. Costs what is new in it."""
        if not self._cut:
            self._cut = any(entries[place].message.source in _CUT for place in range(self._looked, len(entries)))
            self._looked = len(entries)
        return self._cut
