"""The base of all views of a thread: how a view follows a path, and what hides a message.

Rules:

- A view depends only on its path and its arguments. It remembers how far it read: on a path that goes on from there it
  reads the new entries, on any other it starts again.
- A marker deletes nothing. It hides what stands before it, by scope (K8): ``thread`` (default of a flush) hides all of
  it, ``agent`` the same for the marker's own agent alone, ``turn`` (default of a rescue) the failed turn. A turn begins
  with the last user message whose mode is not ``"tool"``, else with the thread.
- Messages tagged ``DISCARDED``, ``PLACEHOLDER`` or ``RECORD`` are never sent to a model (K13).
- A lifetime (``expiry``) ends with the step or prompt: an answer ends the step, and the next user message behind an
  answer ends the prompt. A summary counts as an answer.
- Visible messages are held by reference, back to the last marker that hid everything.

Stability: experimental.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from operator import is_
from typing import ClassVar, Final

from palaver.core.errors import StoreError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    Scope,
    SystemMessage,
    UserMessage,
)
from palaver.threads.expiry import EndOf, drop_expired, has_lifetime
from palaver.threads.thread import (
    RECORD as RECORD,  # noqa: PLC0414 (a tag of views, too)
    Entry,
)

DISCARDED: Final = "discarded"
"""Tag of an answer that nobody was shown: it was blocked or cancelled, or came too late. Views leave it out."""

PLACEHOLDER: Final = "placeholder"
"""Tag of a text that the user was shown in place of an answer. Views for people show it, models never see it."""

_UNSENT: Final = frozenset((DISCARDED, PLACEHOLDER, RECORD))


def scope_of(marker: RescueMarker | FlushMarker) -> Scope:
    """What a marker hides: its scope, or the default of its kind."""
    if marker.scope is not None:
        return marker.scope
    return "turn" if isinstance(marker, RescueMarker) else "thread"


def is_sent(message: Message) -> bool:
    """Whether no tag keeps a message from the models."""
    return not message.tags or _UNSENT.isdisjoint(message.tags)


def check_keep(keep: int | None) -> int | None:
    """Give a window's size back. Raises ``StoreError`` when it is negative."""
    if keep is not None and keep < 0:
        raise StoreError(f"keep: a window cannot hold {keep} messages")
    return keep


class View(ABC):
    """Follows a path, and reads each of its entries once."""

    def __init__(self) -> None:
        """Begin before the first entry."""
        self._read = 0
        self._last: str | None = None
        self._reset()

    def follow(self, path: Sequence[Entry]) -> None:
        """Read what is new in a path; start anew when it does not go on from what was read."""
        if self._read and (self._read > len(path) or path[self._read - 1].id != self._last):
            self._read, self._last = 0, None
            self._reset()
        for entry in path[self._read :]:
            self._read_message(entry.message)
            self._read += 1
            self._last = entry.id

    @abstractmethod
    def _reset(self) -> None:
        """Forget what was read."""

    @abstractmethod
    def _read_message(self, message: Message) -> None:
        """Read the next message."""


class ModelsView(View):
    """A view for a model: what markers leave visible. System messages stand outside its window."""

    _OUTSIDE: ClassVar[tuple[type[Message], ...]] = (SystemMessage, DeveloperMessage)

    @abstractmethod
    def _includes(self, message: Message) -> bool:
        """Whether a message can be in the view at all."""

    @abstractmethod
    def _applies(self, marker: RescueMarker | FlushMarker) -> bool:
        """Whether a marker whose scope is ``agent`` hides something here."""

    def _ends_step(self, message: Message) -> bool:
        """Whether a step of whoever sees this is over with a message."""
        return (isinstance(message, AssistantMessage) and is_sent(message)) or message.is_summary

    def _reset(self) -> None:
        self._visible: list[Message] = []
        self._outside: list[int] = []  # positions in ``_visible`` of what stands outside the window
        self._turn = 0  # where in ``_visible`` the last turn begins
        self._answered = 0  # how much of ``_visible`` the last answer has behind it
        self._has_lifetimes = False  # whether anything in ``_visible`` has a lifetime
        self._shared_length = 0  # how much of ``_visible`` somebody holds, and may not change

    def _read_message(self, message: Message) -> None:
        if isinstance(message, (RescueMarker, FlushMarker)):
            scope = scope_of(message)
            if scope == "turn":
                self._hide(self._turn)
            elif scope == "thread" or self._applies(message):
                self._reset()
            return
        answers = self._ends_step(message)
        if answers:
            self._expire("agent-step", len(self._visible))
        if isinstance(message, UserMessage) and message.mode != "tool":
            self._expire("user-prompt", self._answered)
            self._turn = len(self._visible)
        if self._includes(message):
            if isinstance(message, self._OUTSIDE):
                self._outside.append(len(self._visible))
            self._has_lifetimes = self._has_lifetimes or has_lifetime(message)
            self._visible.append(message)
        if answers:
            self._answered = len(self._visible)

    def _expire(self, end_of: EndOf, before: int) -> None:
        """Leave out what expired before a position. Costs what is visible, where anything has a lifetime."""
        if not self._has_lifetimes:
            return
        left = [*drop_expired(self._visible[:before], end_of), *self._visible[before:]]
        self._has_lifetimes = any(message is not None and has_lifetime(message) for message in left)
        if all(map(is_, left, self._visible)):
            return
        at = [0, *accumulate([message is not None for message in left])]
        self._outside = [at[position] for position in self._outside if left[position] is not None]
        self._turn, self._answered = at[self._turn], at[self._answered]
        self._visible, self._shared_length = [message for message in left if message is not None], 0

    def _starts_turn(self, position: int) -> bool:
        """Whether a visible message is one that a turn of the user begins with."""
        message = self._visible[position]
        return isinstance(message, UserMessage) and message.mode != "tool"

    def _hide(self, start: int) -> None:
        """Hide all from a position on. A list that somebody holds stays as it is, and is copied once for that."""
        if start < self._shared_length:
            self._visible, self._shared_length = self._visible[:start], 0
        else:
            del self._visible[start:]
        self._answered = min(self._answered, start)
        while self._outside and self._outside[-1] >= start:
            self._outside.pop()

    def _window(self, keep: int | None) -> int:
        """Where the window of the last ``keep`` messages begins; those that stand outside do not count."""
        start = 0 if keep is None else len(self._visible)
        outside = len(self._outside)
        while start and keep:
            start -= 1
            if outside and self._outside[outside - 1] == start:
                outside -= 1
            else:
                keep -= 1
        return start
