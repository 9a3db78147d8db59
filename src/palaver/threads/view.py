"""The base of all views of a thread: how a view follows a path, and what hides a message.

Rules:

- A view depends only on its path and its arguments. It remembers how far it read: it reads the new entries of a path
  that continues there, and starts again on any other path.
- A marker deletes nothing. It hides what stands before it, by scope (K8): ``thread`` (default of a flush) hides all of
  it, ``agent`` the same for the marker's own agent alone, ``turn`` (default of a rescue) the failed turn. A turn begins
  with the last user message whose mode is not ``"tool"``, else with the thread.
- Messages tagged ``DISCARDED``, ``PLACEHOLDER`` or ``RECORD`` are never sent to a model (K13).
- A lifetime (``expiry``) ends with the step or prompt: an answer ends the step, and the next user message behind an
  answer ends the prompt. A summary counts as an answer.
- Visible messages are held by reference, back to the last marker that hid everything.

Expiry: messages that last for one step of an agent, or for one user prompt (docs/spec/codebuff.md#9.1):

- The tag ``expires:agent-step`` lasts to the end of the step, ``expires:user-prompt`` to the end of the prompt. With
  both, the shorter one counts. The end of a prompt ends its last step.
- The thread keeps expired messages. ``expire`` returns the list without them, or the same object when nothing expires.
  Views for models leave them out (``threads.view``).
- Pairs stay whole: a result that expires takes its call with it, and an answer its results. An answer of which only
  reasoning is left goes too.

Messages that a compaction repeated in a thread:

- Readers of session files append, behind a compaction, the summary and copies of the messages that it kept, with
  ``source="compaction"``. Palaver's own compaction repeats a message on another branch, with its id.
- A copy has the role, the parts and the answered call of an earlier message of its thread. A summary is no copy.
- Models need the copies; ``without_copies`` gives readers and searches each message once.

The model's view of a thread of one agent with its user:

- All messages in order, without markers, what they hide, and messages tagged as unsent. A marker with scope ``agent``
  hides nothing here (``AgentView`` applies it).
- Nothing is repaired: ``threads.repair`` and the wires do that.
- ``keep`` is a window on the last messages other than system and developer messages, which always stay, as does the
  message that opened the user's last turn. A result without its call in the window is left out.
- Without ``keep``, a view after an append costs what was appended, and copies nothing; a hidden turn costs one copy of
  the references where an earlier view still holds them. With ``keep``, a view costs the window and system messages.

A person's view of a thread:

- The whole conversation in order, each message once: tool calls and results stay, and so do markers and what they hide
  from models.
- System and developer messages (C7), user messages with mode ``"tool"`` or a ``source`` (F25), compaction summaries and
  discarded answers are left out.
- Texts shown in place of an answer stay: placeholders, and texts that the runtime emitted (K13).
- A view after an append costs what was appended.

Stability: experimental.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from itertools import accumulate
from operator import is_
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast

from palaver.core import canonical
from palaver.core.errors import MessageError, StoreError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    Scope,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.pairs import client_calls
from palaver.core.parts import MalformedToolCall, Reasoning, Text, ToolCall
from palaver.core.type_checks import check_arguments
from palaver.threads.thread import (
    RECORD as RECORD,  # noqa: PLC0414 (a tag of views, too)
    Entry,
    ListPrefix,
)

DISCARDED: Final = "discarded"
"""Tag of an answer that was not shown: it was blocked or cancelled, or came too late. Views leave it out."""

PLACEHOLDER: Final = "placeholder"
"""Tag of a text that the user was shown in place of an answer. Views for people show it, models never see it."""

_UNSENT: Final = frozenset((DISCARDED, PLACEHOLDER, RECORD))


def scope_of(marker: RescueMarker | FlushMarker) -> Scope:
    """Return what a marker hides: its scope, or the default of its kind."""
    if marker.scope is not None:
        return marker.scope
    return "turn" if isinstance(marker, RescueMarker) else "thread"


def is_sent(message: Message) -> bool:
    """Whether no tag keeps a message from the models."""
    return not message.tags or _UNSENT.isdisjoint(message.tags)


def check_keep(keep: int | None) -> int | None:
    """Return the size of a window. Raises ``StoreError`` when it is negative."""
    if keep is not None and keep < 0:
        raise StoreError(f"keep: {keep} is not a number of messages")
    return keep


class View(ABC):
    """Follows a path, and reads each of its entries once."""

    def __init__(self) -> None:
        """Start before the first entry."""
        self._read = 0
        self._last: str | None = None
        self._reset()

    def follow(self, path: Sequence[Entry]) -> None:
        """Read the new entries of ``path``; start again when it does not continue the path that was read before."""
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
    """A view for a model: the messages that no marker hides. System messages stand outside its window."""

    _OUTSIDE: ClassVar[tuple[type[Message], ...]] = (SystemMessage, DeveloperMessage)

    @abstractmethod
    def _includes(self, message: Message) -> bool:
        """Whether a message can be in the view at all."""

    @abstractmethod
    def _applies(self, marker: RescueMarker | FlushMarker) -> bool:
        """Whether a marker whose scope is ``agent`` hides something here."""

    def _ends_step(self, message: Message) -> bool:
        """Whether a message ends a step of the viewing agent."""
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
        """Hide all messages from a position on. A list that a caller holds is copied first, once."""
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


# -- expiry ----------------------------------------------------------------------------------------


EXPIRES_AGENT_STEP: Final = "expires:agent-step"
EXPIRES_USER_PROMPT: Final = "expires:user-prompt"

EndOf: TypeAlias = Literal["agent-step", "user-prompt", "agentStep", "userPrompt"]
"""What ends. Codebuff's spellings are accepted too."""

_STEP: Final = frozenset((EXPIRES_AGENT_STEP,))
_PROMPT: Final = frozenset((EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT))
_EXPIRED: Final[dict[str, frozenset[str]]] = {
    "agent-step": _STEP,
    "user-prompt": _PROMPT,
    "agentStep": _STEP,
    "userPrompt": _PROMPT,
}
_EMPTY: Final = Text("")


def expire(messages: Sequence[Message], end_of: EndOf) -> Sequence[Message]:
    """Return those of ``messages`` that last beyond the end of a step or prompt; the same object when all do.

    ``end_of`` says what ends: ``"agent-step"`` or ``"user-prompt"``. Raises ``MessageError`` for any other value.
    """
    if not any(map(has_lifetime, messages)):
        _tags(end_of)
        return messages
    left = drop_expired(messages, end_of)
    if all(mine is its for mine, its in zip(left, messages, strict=True)):
        return messages
    return tuple([message for message in left if message is not None])


def has_lifetime(message: Message) -> bool:
    """Whether a tag says how long a message is there."""
    return bool(message.tags) and not _PROMPT.isdisjoint(message.tags)


def drop_expired(messages: Sequence[Message], end_of: EndOf) -> list[Message | None]:
    """Return each message, or what is left of it; ``None`` where it expired."""
    tags = _tags(end_of)
    left: list[Message | None] = list(messages)
    answer = -1
    gone: set[str] = set()
    lost: dict[int, set[str | None]] = {}
    for place, message in enumerate(messages):
        over = not tags.isdisjoint(message.tags)
        if isinstance(message, AssistantMessage):
            answer = place
            gone = {call.id for call in client_calls(message)} if over else set[str]()
        elif isinstance(message, ToolMessage) and message.tool_call_id in gone:
            over = True
        elif isinstance(message, ToolMessage) and over and answer >= 0:
            lost.setdefault(answer, set()).add(message.tool_call_id)
        if over:
            left[place] = None
    for place, calls in lost.items():
        left[place] = _without(messages[place], calls)
    return left


def _without(answer: Message, calls: Collection[str | None]) -> Message | None:
    """Return an answer without calls; ``None`` when nothing else is in it."""
    rest = [
        part for part in answer.content if not (isinstance(part, ToolCall | MalformedToolCall) and part.id in calls)
    ]
    if not any(part != _EMPTY and not isinstance(part, Reasoning) for part in rest):
        return None
    return answer.replace(content=cast("Any", tuple(rest)))


def _tags(end_of: str) -> frozenset[str]:
    tags = _EXPIRED.get(end_of)
    if tags is None:
        raise MessageError(f"end_of: {end_of!r}: expected one of {', '.join(map(repr, _EXPIRED))}")
    return tags


# -- copies ----------------------------------------------------------------------------------------


COMPACTION: Final = "compaction"
"""The ``source`` of what a compaction put into a thread."""

Fingerprint: TypeAlias = tuple[str, str | None, bytes]


def fingerprint(message: Message) -> Fingerprint:
    """Return the content of a message in a form that can be compared."""
    digest = sha256()
    for part in message.content:
        text = canonical.encode(part)
        digest.update(b"%d:" % len(text))
        digest.update(text)
    return message.role, message.tool_call_id if isinstance(message, ToolMessage) else None, digest.digest()


def without_copies(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries in order, without copies of earlier ones. Copies exist only after a compaction."""
    every = list(entries)
    if not any(entry.message.source == COMPACTION for entry in every):
        return every
    seen: set[Fingerprint] = set()
    kept: list[Entry] = []
    for entry in every:
        message = entry.message
        if message.content:
            what = fingerprint(message)
            if message.source == COMPACTION and what in seen:
                continue
            seen.add(what)
        kept.append(entry)
    return kept


# -- model view ------------------------------------------------------------------------------------


class ModelView(ModelsView):
    """The view of a single agent's model. Call it with each new path: it reads each entry once.

    ``keep`` is the size of the window in messages; ``None`` keeps all. Raises ``StoreError`` when ``keep`` is negative.
    """

    def __init__(self, *, keep: int | None = None) -> None:
        """Make a view that has read nothing yet."""
        check_arguments("ModelView", ModelView.__init__, locals())
        super().__init__()
        self._keep = check_keep(keep)

    def __call__(self, path: Sequence[Entry]) -> Sequence[Message]:
        """Return the messages for the model, at the end of ``path``; immutable."""
        self.follow(path)
        visible = self._visible
        if self._keep is None:
            self._shared_length = len(visible)
            return ListPrefix(visible)
        start = self._window(self._keep)
        before = [position for position in self._outside if position < start]
        if self._keep and self._turn < start and self._starts_turn(self._turn):
            before = sorted((*before, self._turn))
        return (*[visible[position] for position in before], *_without_partial_rounds(visible[start:]))

    def _applies(self, marker: RescueMarker | FlushMarker) -> bool:  # noqa: ARG002 (the contract of the base)
        return False

    def _includes(self, message: Message) -> bool:
        return is_sent(message)


def for_model(path: Sequence[Entry], *, keep: int | None = None) -> Sequence[Message]:
    """Return the messages for a single agent's model, at the end of ``path``. Reads the whole path.

    ``keep`` is the size of the window, as in ``ModelView``. Raises ``StoreError`` when it is negative.
    """
    return ModelView(keep=keep)(path)


def _without_partial_rounds(window: Sequence[Message]) -> list[Message]:
    """Leave out results whose call was cut off. One that names no call stands free, and stays."""
    called: set[str | None] = {None}
    whole: list[Message] = []
    for message in window:
        if isinstance(message, ToolMessage) and message.tool_call_id not in called:
            continue
        called.update(call.id for call in message.tool_calls)
        called.update(call.id for call in message.malformed_tool_calls)
        whole.append(message)
    return whole


# -- people view -----------------------------------------------------------------------------------


_HIDDEN: Final = frozenset((DISCARDED, RECORD))


class PeopleView(View):
    """The view of a person. Call it with each new path: it reads each entry once."""

    def __call__(self, path: Sequence[Entry]) -> Sequence[Message]:
        """Return the messages for a person, at the end of ``path``; immutable."""
        self.follow(path)
        return ListPrefix(self._shown)

    def _reset(self) -> None:
        self._shown: list[Message] = []

    def _read_message(self, message: Message) -> None:
        if is_shown(message):
            self._shown.append(message)


def is_shown(message: Message) -> bool:
    """Whether a person reads a message."""
    if (
        isinstance(message, (SystemMessage, DeveloperMessage))
        or message.is_summary
        or not _HIDDEN.isdisjoint(message.tags)
    ):
        return False
    return not (isinstance(message, UserMessage) and (message.mode == "tool" or message.source is not None))


def for_people(path: Sequence[Entry]) -> Sequence[Message]:
    """Return the messages for a person, at the end of ``path``. Reads the whole path."""
    return PeopleView()(path)
