"""The state of one encoding: how to encode, what was lost, which ids were given.

Rules:

- A codec writes through its context what it could not carry (``lose``); a loss found twice is listed once.
- The state that messages leave behind (losses, ids, names taken) can be rolled back to a mark, so that the open end of
  a conversation can be encoded again without encoding what came before it.

Stability: experimental.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from palaver.core.jsontext import NULL
from palaver.core.request import Loss
from palaver.wires._engine import json_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from msgspec import UnsetType

    from palaver.core.jsontext import Fields
    from palaver.core.messages import AssistantMessage, FinishReason, SystemMessage
    from palaver.core.parts import AnyPart
    from palaver.core.request import LossKind, Request
    from palaver.wires._engine.capabilities import IdRule, MediaKind, WireCapabilities


_NONE: Final[dict[FinishReason, str]] = {}


class Options(Struct, frozen=True, kw_only=True):
    """What a caller may ask of an encoding.

    ``takes`` are the media the model takes (``None``: all that the wire can express), so that a model without vision
    gets no image (R08). ``reasoning_as_text`` keeps reasoning that another wire produced as plain text
    (docs/spec/wires.md#1.5). ``metadata`` are the keys of the messages' metadata that may leave (R09, C12).
    ``join_neighbors`` makes one message of neighbours that are alike (CBF-11). ``model`` is the id of the model, for
    wires whose body does not name it.
    """

    takes: frozenset[MediaKind] | None = None
    reasoning_as_text: bool = False
    metadata: frozenset[str] = frozenset()
    join_neighbors: bool = True
    model: str | None = None


class Context:
    """State of one encoding. ``own`` says that the request goes back, unedited, to the wire it came from."""

    def __init__(
        self, wire: str, capabilities: WireCapabilities, *, own: bool, variant: str | None = None, options: Options
    ) -> None:
        """Start with nothing lost and nothing given."""
        self.wire = wire
        self.capabilities = capabilities
        self.own = own
        self.variant = variant
        self.options = options
        self._losses: dict[Loss, None] = {}
        self._taken: dict[str, None] = {}
        self._rewritten: dict[str, str] = {}
        self.whole: Literal["request", "response"] = "request"
        """What is encoded, for the receipt."""
        self.called: dict[str, None] = {}
        """Names of the tools called so far."""
        self.request: Request | None = None
        """The request that is encoded; not its messages, to which others may have been appended."""
        self.system: Sequence[SystemMessage] = ()
        """The leading system messages that stand in the head."""
        self.known: Sequence[AnyPart] | None = None
        """For an edited answer that this wire read: its parts as they were read, which go back as they are."""
        self.offset = 0
        """The position of the first part that is looked at, for a message that is fitted part by part."""
        self.kept: dict[int, Sequence[int]] = {}
        """Where the parts of a fitted message stood before, by its place; only of messages that changed there."""
        self.before: Mapping[int, Sequence[int]] = {}
        """``kept`` of the context that fitted the messages; losses name the parts as they were given."""
        self.left: dict[int, Hashable] = {}
        """What turns left behind, in order; see ``leave``."""

    @property
    def model(self) -> str | None:
        """The id of the model that is asked; ``None`` where neither the request nor the caller names it."""
        if self.options.model is not None:
            return self.options.model
        return None if self.request is None else self.request.model

    @cached_property
    def native(self) -> Fields:
        """What the request keeps for the wire, split."""
        return {} if self.request is None else json_fields.native(self.request, self.wire)

    def names(self, fields: Iterable[str]) -> bool:
        """Whether the request sets one of these fields of the wire to something."""
        return any(self.native.get(field, NULL) != NULL for field in fields)

    # -- losses --

    def lose(
        self,
        kind: LossKind,
        what: str,
        why: str,
        message: int | None = None,
        part: int | None = None,
    ) -> None:
        """Write one thing that could not be carried into the receipt."""
        stood = None if message is None else self.before.get(message)
        if part is not None and stood is not None:
            part = stood[part] if part < len(stood) else part
        self.add(Loss(kind, what, why, message, None if part is None else part + self.offset, self.whole))

    def add(self, loss: Loss) -> None:
        """Add a loss that another module found to the receipt."""
        self._losses[loss] = None

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The receipt so far; rewritten ids are one line."""
        if not self._rewritten:
            return tuple(self._losses)
        count = len(self._rewritten)
        why = f"{count} rewritten to what the wire takes, calls and results alike"
        return (Loss("converted", "tool call ids", why, whole=self.whole), *self._losses)

    def finish_word(
        self,
        message: AssistantMessage,
        read: Callable[[str], FinishReason | None],
        words: Mapping[FinishReason, str],
        *,
        near: Mapping[FinishReason, str] = _NONE,
    ) -> str | UnsetType | None:
        """Return the wire's word for why an answer ended: the one it came with, as long as that still says the same.

        ``read`` tells what a word of the wire means, and ``words`` is the way back. What has no word there is sent as
        the one in ``near``, else as "stop".
        """
        raw = message.finish_reason_raw
        if self.own:
            return raw
        reason = message.finish_reason or "stop"
        if isinstance(raw, str) and read(raw) == reason:
            return raw
        if reason in words:
            return words[reason]
        word = near.get(reason, words["stop"])
        self.lose("approximated", "finish_reason", f"{reason!r} has no equivalent; “{word}” was sent", 0)
        return word

    # -- names that must not repeat --

    def take(self, name: str) -> bool:
        """Take a name; ``False`` when it was taken before."""
        if name in self._taken:
            return False
        self._taken[name] = None
        return True

    def call_id(self, old: str, rule: IdRule, *, taken: set[str]) -> str:
        """Return the id a call is sent with. ``taken`` are the ids of the same turn.

        An id that the wire takes, and that is free, stays. Any other becomes a digest of the old id and of how often
        it came before, so that the same conversation gets the same ids each time (docs/spec/wires.md#1.4).
        """
        if rule.pattern.fullmatch(old) and old not in taken and (not rule.unique or self.take(f"id {old}")):
            return old
        import hashlib  # noqa: PLC0415 (OpenSSL takes longer to load than all of this)

        def name(count: int) -> str:
            digest = hashlib.sha256(f"{old}\0{count}".encode("utf-8", "surrogatepass")).hexdigest()
            return rule.prefix + digest[: rule.digits]

        def free(count: int) -> bool:
            new = name(count)
            return new not in taken and f"id {new}" not in self._taken

        # The names of the first so many are taken, and all others free: the first free one is found by halves.
        count = 0
        if not free(0):
            count = 1
            while not free(count):
                count *= 2
            count = count // 2 + 1 + bisect_left(range(count // 2 + 1, count), True, key=free)  # noqa: FBT003
        new = name(count)
        self.take(f"id {new}")
        self._rewritten[new] = old
        return new

    # -- state between turns --

    def leave(self, state: Hashable) -> None:
        """Leave a value of the codec's own for the turns behind this one, and for the head."""
        if state != self.state:
            self.left[len(self.left)] = state

    @property
    def state(self) -> Hashable:
        """What was left last; ``None`` at the beginning."""
        return self.left[len(self.left) - 1] if self.left else None

    # -- going back --

    def mark(self) -> tuple[int, ...]:
        """Remember the state."""
        return tuple(map(len, self._tables()))

    def rollback(self, mark: tuple[int, ...]) -> None:
        """Forget what came after ``mark``."""
        for table, size in zip(self._tables(), mark, strict=True):
            while len(table) > size:
                table.popitem()

    def _tables(self) -> tuple[dict[Any, Any], ...]:
        return (self._losses, self._taken, self._rewritten, self.called, self.left)
