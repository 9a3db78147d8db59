"""A compaction plan: the messages for a model, their weights, the budget, and the stages that change them.

Rules (law 9; docs/spec/kairo.md#3.1, #3.3, #3.7, KAI-03, KAI-04; goldens ``effective_budget``, ``stage_triggers``):

- A ``Plan`` is a value. A stage maps a plan to a lighter plan (I6), or returns the same object when it changes nothing.
- Every call in a plan has its results right behind it; ``plan_of`` repairs a history that breaks this.
- ``Item.tokens`` are estimates. ``Plan.tokens`` and ``capacity`` are in the provider's tokens; ``scale`` converts.
- ``Item.origin`` is the place of a message in the history, and ``None`` for a message that a stage made; ``rewrite``
  uses it to write the thread anew.
- The budget of a prompt is ``window - max_output - 13,000``. In a window under 52,000 the reserve is a quarter (ours).
- A stage runs when the plan weighs at least ``min(share * capacity, capacity - buffer)``, where ``capacity - buffer``
  is at least half of the capacity, or when ``early`` says so. Stages run from cheap to dear; the plan is weighed before
  each (I5, D2).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct, structs

from palaver.core.errors import MessageError
from palaver.core.messages import Message
from palaver.core.request import Request, Settings
from palaver.threads.repair import repair
from palaver.tokens.estimate import estimate

# --- plan -------------------------------------------------------------------------------------------------------------


SOURCE: Final = "compaction"
"""The ``source`` of a message that stands for others."""


class Item(Struct, frozen=True, gc=False):
    """A message, its estimated tokens, and its place in the history."""

    message: Message
    tokens: int
    origin: int | None = None


class Change(Struct, frozen=True):
    """What a stage did: how many messages it shortened, folded or removed, and the tokens before and after."""

    stage: str
    messages: int
    before: int
    after: int


class CountedItems(Struct, frozen=True):
    """Items with the tokens that each adds to a prompt, and the average overhead around a message."""

    items: tuple[Item, ...]
    around: float


ItemCounter: TypeAlias = Callable[[Sequence[Item]], CountedItems]


class Plan(Struct, frozen=True, kw_only=True):
    """The messages to be sent to a model, and their budget.

    ``capacity``: the most tokens of messages, system prompt and tools together. ``fixed``: the estimate of system
    prompt and tools, ``around`` that of the average overhead around a message. ``now``: Unix milliseconds, for stages
    that look at age. ``keep_last`` are tags: the last message with each tag is kept unchanged. ``sum`` is that of the
    items. ``counter`` counts the items that a stage returns; with ``None`` the stage's own counts are used.
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
    counter: ItemCounter | None = None

    @property
    def tokens(self) -> int:
        """The size of the plan, in the provider's tokens."""
        return self.tokens_for(self.sum, len(self.items))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, oldest first."""
        return tuple([item.message for item in self.items])

    def tokens_for(self, sum: int, messages: int) -> int:
        """Return what ``tokens`` would be with ``messages`` messages, whose estimates add up to ``sum``."""
        return round((sum + self.fixed + self.around * messages) * self.scale)

    def scaled(self, estimate: int) -> int:
        """Return ``estimate`` in the provider's tokens."""
        return round(estimate * self.scale)

    def changed(self, stage: str, items: Sequence[Item], messages: int) -> Plan:
        """Return the plan with other ``items``; the same plan when it would not be lighter.

        ``stage`` names the stage that made the items, and ``messages`` is the number of messages that it changed.
        """
        weights = CountedItems(tuple(items), self.around) if self.counter is None else self.counter(items)
        found = structs.replace(
            self, items=weights.items, around=weights.around, sum=sum([item.tokens for item in weights.items])
        )
        if found.sum >= self.sum or (self.counter is not None and found.tokens >= self.tokens):
            return self
        change = Change(stage, messages, self.tokens, found.tokens)
        return structs.replace(found, changes=(*self.changes, change))

    def with_measured(self, tokens: int) -> Plan:
        """Return the plan whose last change ends at ``tokens``, as a ledger measured them.

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
    """Return the plan of ``messages``, a history; an incomplete history is repaired first.

    ``tokens`` are the estimates, one a message; without them, and for a repaired history, the messages are estimated
    here. ``capacity``, ``fixed``, ``around``, ``scale``, ``now`` and ``keep_last`` are the fields of ``Plan``. Raises
    ``MessageError`` when there are more or fewer estimates than messages.
    """
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


# --- budget -----------------------------------------------------------------------------------------------------------


WINDOW: Final = 128_000
MAX_OUTPUT: Final = 8_192
RESERVE: Final = 13_000
_MAX_RESERVED: Final = 32_000
"""The most tokens that are reserved for an answer, when the caller did not set its length."""


def prompt_budget(window: int, max_output: int) -> int:
    """Return the tokens that a prompt may have; below 1 when the output takes the whole window.

    ``window`` is the context window of the model, and ``max_output`` the limit of the answer, both in tokens.
    """
    return window - max_output - min(RESERVE, window // 4)


def capacity(window: int | None, max_output: int | None, settings: Settings = Settings()) -> int:  # noqa: B008 (frozen)
    """Return the tokens that a prompt may have; at least a quarter of the window.

    ``window`` and ``max_output`` are the limits of the model, in tokens; ``None`` stands for 128,000 and 8,192. The
    ``max_tokens`` and the ``reasoning_tokens`` of ``settings`` say how much is reserved for the answer.
    """
    known = WINDOW if window is None else window
    asked = settings.max_tokens
    if asked is None:
        most = MAX_OUTPUT if max_output is None else max_output
        asked = min(most, _MAX_RESERVED, max(known // 4, 1)) + (settings.reasoning_tokens or 0)
    elif settings.reasoning_tokens is not None and settings.reasoning_tokens >= asked:
        asked += settings.reasoning_tokens
    if max_output is not None:
        asked = min(asked, max_output)
    return max(prompt_budget(known, asked), known // 4)


# --- stages -----------------------------------------------------------------------------------------------------------


class SummaryRequest(Struct, frozen=True):
    """A question for a model, by the stage of that name. ``apply`` makes the next plan from the text of the answer.

    ``apply`` raises ``SummaryError`` for a text that is empty, or that saves nothing. ``shorter`` is the same question
    with less to summarize, for a model that finds this one too long; ``None`` when nothing more can be left out.
    """

    request: Request
    apply: Callable[[str], Plan]
    shorter: Callable[[], SummaryRequest | None]
    stage: str = "auto"


Work: TypeAlias = Callable[[Plan], "Plan | SummaryRequest"]


class Stage(Struct, frozen=True):
    """A step of compaction. ``share`` is of the capacity, ``buffer`` in tokens; ``early`` is another reason to run."""

    name: str
    run: Work
    share: float
    buffer: int | None = None
    early: Callable[[Plan], bool] | None = None

    def trigger(self, capacity: int) -> int:
        """Return the weight from which on the stage runs; it and ``capacity``, that of the plan, are in tokens."""
        by_share = int(self.share * capacity)
        if self.buffer is None:
            return by_share
        return min(by_share, max(capacity - self.buffer, capacity // 2))

    def due(self, plan: Plan) -> bool:
        """Return whether the stage runs on ``plan``."""
        return plan.tokens >= self.trigger(plan.capacity) or (self.early is not None and self.early(plan))
