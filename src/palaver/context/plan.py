"""The plan of a compaction: the messages for a model, what each weighs, and what was done to them so far.

Rules (law 9; docs/spec/kairo.md#3.7):

- A plan is a value. A stage is a function from a plan to a plan; one that finds nothing to do gives the plan back as
  the same object. What a stage gives weighs less than what it was given, or is that (I6).
- A plan is made of whole histories: every call has its results right behind it (``of`` repairs what is not so).
- ``Item.tokens`` are estimates; ``scale`` brings the sum to what the model's provider would count. Sizes that people
  and triggers see (``Plan.tokens``, ``capacity``) are in the provider's tokens.
- What a stage books for a message that it made or changed is counted again where the plan has a ``weigh``
  (``Ledger.plan``), so that a plan wins what the ledger measures next, and nothing else.
- ``Item.origin`` is the place of a message in the history that the plan was made of, also where a stage shortened it;
  ``None`` for a message that a stage made in the place of others. So it is known what stands for what, and the thread
  can be written anew from there (``context.rewriting``).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct, structs

from palaver.core.errors import MessageError
from palaver.core.messages import Message
from palaver.threads.repair import repair
from palaver.tokens.estimate import estimate

SOURCE: Final = "compaction"
"""The ``source`` of a message that stands for others."""


class Item(Struct, frozen=True, gc=False):
    """A message, its tokens by estimate, and where it stood."""

    message: Message
    tokens: int
    origin: int | None = None


class Change(Struct, frozen=True):
    """What a stage did: how many messages it shortened, folded or removed, and the tokens before and after."""

    stage: str
    messages: int
    before: int
    after: int


class Weights(Struct, frozen=True):
    """Items with what each of them adds to a prompt, and what stands around a message, on the average."""

    items: tuple[Item, ...]
    around: float


Weigh: TypeAlias = Callable[[Sequence[Item]], Weights]


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be sent to a model.

    ``capacity``: what messages, system prompt and tools may take together, in tokens. ``fixed``: the estimate of
    system prompt and tools, ``around`` that of what stands around a message, on the average. ``now``: Unix
    milliseconds, for stages that look at age. ``keep_last`` are tags: of each, the last message that has it is kept as
    it is. ``sum`` is that of the items. ``weigh`` counts the items that a stage gives; ``None`` takes its word.
    """

    items: tuple[Item, ...]
    sum: int
    capacity: int
    fixed: int = 0
    around: float = 0.0
    scale: float = 1.0
    now: int = 0
    keep_last: frozenset[str] = frozenset()
    changes: tuple[Change, ...] = ()
    weigh: Weigh | None = None

    @property
    def tokens(self) -> int:
        """What all of it is, in the provider's tokens."""
        return self.weighing(self.sum, len(self.items))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, oldest first."""
        return tuple([item.message for item in self.items])

    def weighing(self, sum: int, messages: int) -> int:
        """What all of it were if so many messages, of that estimate together, were left."""
        return round((sum + self.fixed + self.around * messages) * self.scale)

    def scaled(self, estimate: int) -> int:
        """An estimate in the provider's tokens."""
        return round(estimate * self.scale)

    def changed(self, stage: str, items: Sequence[Item], messages: int) -> Plan:
        """The plan with other items, as a stage made them of ``messages`` messages; the same where nothing is won."""
        weights = Weights(tuple(items), self.around) if self.weigh is None else self.weigh(items)
        found = structs.replace(
            self, items=weights.items, around=weights.around, sum=sum([item.tokens for item in weights.items])
        )
        if found.sum >= self.sum or (self.weigh is not None and found.tokens >= self.tokens):
            return self
        change = Change(stage, messages, self.tokens, found.tokens)
        return structs.replace(found, changes=(*self.changes, change))

    def ending_at(self, tokens: int) -> Plan:
        """The plan whose last change ends at the tokens that were measured of it.

        Weights of single messages are rounded, so their sum may differ by a few tokens from what the ledger measures.
        """
        if not self.changes:
            return self
        last = structs.replace(self.changes[-1], after=tokens)
        return structs.replace(self, changes=(*self.changes[:-1], last))


def plan_of(
    messages: Sequence[Message],
    *,
    capacity: int,
    tokens: Sequence[int] | None = None,
    fixed: int = 0,
    around: float = 0.0,
    scale: float = 1.0,
    now: int = 0,
    keep_last: Iterable[str] = (),
) -> Plan:
    """A plan of a history that is whole, or that is repaired first. ``tokens`` are its estimates, one a message."""
    whole = repair(messages).messages
    if whole is not messages:
        places = {id(message): place for place, message in enumerate(messages)}
        items = [Item(each, estimate(each), places.get(id(each))) for each in whole]
    else:
        weights = [estimate(each) for each in messages] if tokens is None else tokens
        if len(weights) != len(messages):
            raise MessageError(f"tokens: {len(weights)} estimates for {len(messages)} messages")
        items = list(map(Item, messages, weights, range(len(messages))))
    return Plan(
        items=tuple(items),
        sum=sum([item.tokens for item in items]),
        capacity=capacity,
        fixed=fixed,
        around=around,
        scale=scale,
        now=now,
        keep_last=frozenset(keep_last),
    )
