"""What fills a model's window, by kind.

Rules (docs/spec/kairo.md#3.1):

- Each part of a prompt has one kind: system prompt, tool definitions, user text, assistant text, reasoning, tool calls,
  tool results, media, summaries. Everything inside a summary is a summary.
- Parts are estimated and scaled to the provider's tokens together, so the kinds add up to the whole. What a provider
  adds around messages is distributed among them.
- The whole is an exact count where one is given, else the last usage report plus the estimate of what came since
  (``Ledger``).
- A system prompt or tools that are not given are part of the scale of everything else.

Stability: experimental.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from palaver.context.ledger import Ledger, ends_turn, prompt_of
from palaver.context.plan import RESERVE, WINDOW, Item, Plan, Stage, capacity
from palaver.core.errors import MessageError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import AnyPart, MalformedToolCall, Media, Reasoning, ServerToolResult, ToolCall
from palaver.core.request import Settings
from palaver.core.tools import AnyTool
from palaver.threads.repair import repair
from palaver.threads.thread import Entry
from palaver.tokens.estimate import estimate, estimate_tools

Kind: TypeAlias = Literal["system", "tools", "user", "assistant", "reasoning", "calls", "results", "media", "summaries"]
KINDS: Final[tuple[Kind, ...]] = (
    "system",
    "tools",
    "user",
    "assistant",
    "reasoning",
    "calls",
    "results",
    "media",
    "summaries",
)
"""The kinds, in the order in which they are listed."""

_LARGEST: Final = 5
_COUNTED: Final[frozenset[Kind]] = frozenset(("calls", "media", "reasoning"))
"""Kinds that are counted by part; the others are counted by message."""
_ROLES: Final[dict[type[Message], Kind]] = {
    SystemMessage: "system",
    DeveloperMessage: "system",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "results",
}


class Share(Struct, frozen=True):
    """The size of one kind: tokens, and the number of messages (of calls, reasoning, media: parts; of tools: each)."""

    kind: Kind
    tokens: int
    count: int


class ToolShare(Struct, frozen=True):
    """The size of the results of one tool."""

    tool: str
    tokens: int
    count: int


class LargeMessage(Struct, frozen=True):
    """A large message. ``place`` counts from 0 in the messages for the model."""

    place: int
    tokens: int
    message: Message


class Report(Struct, frozen=True):
    """The prompt size that the last answer reported, and the estimate without any report."""

    place: int
    tokens: int
    estimate: int


class Step(Struct, frozen=True):
    """A stage of compaction: the weight from which on it runs, and whether it would run now (for any reason)."""

    stage: str
    tokens: int
    due: bool = False


class Contents(Struct, frozen=True, kw_only=True):
    """What fills a window; sizes are in tokens.

    ``window`` is that of the model; ``known`` says whether it was given or assumed. Of it, ``reserved`` is for the
    answer, ``margin`` for the error of estimates, and ``capacity`` for the prompt. ``exact``: ``tokens`` was counted,
    not estimated. ``results`` are by tool, ``largest`` the largest messages, both with the largest first.
    """

    model: str | None
    tokens: int
    exact: bool
    window: int
    known: bool
    capacity: int
    reserved: int
    margin: int
    kinds: tuple[Share, ...]
    results: tuple[ToolShare, ...]
    largest: tuple[LargeMessage, ...]
    messages: int
    report: Report | None
    stages: tuple[Step, ...]

    @property
    def left(self) -> int:
        """The rest of the capacity; 0 when it is used up."""
        return max(self.capacity - self.tokens, 0)

    @property
    def pressure(self) -> float:
        """The share of the capacity that is used; above 1 when it does not fit."""
        return self.tokens / max(self.capacity, 1)

    @property
    def due(self) -> tuple[Step, ...]:
        """The stages that would run now."""
        return tuple([each for each in self.stages if each.due])

    @property
    def next(self) -> Step | None:
        """The stage that runs first when the conversation grows; ``None`` when all are due, or there is none."""
        return min((each for each in self.stages if not each.due), key=lambda step: step.tokens, default=None)


def contents(
    path: Sequence[Entry],
    messages: Sequence[Message],
    *,
    model: str | None = None,
    window: int | None = None,
    max_output: int | None = None,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    system: Sequence[Message] = (),
    tools: Sequence[AnyTool] = (),
    stages: Iterable[Stage] = (),
    exact: int | None = None,
    now: int = 0,
) -> Contents:
    """Return what fills the window of a model.

    ``messages`` are those that a view gives of ``path``; they are counted as they are sent, repaired. ``system``
    stands before them, and ``tools`` are sent with them. ``model`` is the name of the model: usage that another model
    reported is not trusted. ``window`` and ``max_output`` are its limits in tokens; ``None`` stands for 128,000 and
    8,192. ``settings`` are
    those of the prompt: how much of the window is for the answer, and its schema. ``stages`` are those of compaction,
    of which the result says when they run. ``exact`` is what the provider counted; without it, the tokens are
    estimated. ``now`` is the time in Unix milliseconds, for stages that look at it. Costs the length of the
    conversation. Raises ``MessageError`` for a size below 1, and for a negative ``exact``.
    """
    for name, size in (("window", window), ("max_output", max_output)):
        if size is not None and size < 1:
            raise MessageError(f"{name}: {size} is not a number of tokens")
    if exact is not None and exact < 0:
        raise MessageError(f"exact: {exact} is not a number of tokens")
    messages = repair(messages).messages  # as it is sent
    heads = estimate_tools(tools, settings.output)
    fixed = sum(map(estimate, system)) + heads
    ledger = Ledger(model)
    ledger.recall(path, messages, fixed=fixed)
    anchor = ledger.anchored(path, messages)
    measured = ledger.measure(messages, fixed=fixed, anchor=anchor)
    tokens = measured.tokens if exact is None else exact
    if not (messages or system or tools or exact):
        tokens = 0
    scale = tokens / max(measured.estimate, 1)
    room = capacity(window, max_output, settings)
    known = WINDOW if window is None else window
    reserved = max(known - room - min(RESERVE, known // 4), 0)
    items = [Item(message, weight) for message, weight in zip(messages, ledger.estimates, strict=True)]
    plan = Plan(
        items=tuple(items), sum=ledger.sum, capacity=room, fixed=fixed, around=ledger.around, scale=scale, now=now
    )
    weights = [item.tokens for item in ledger.plan(messages, measured, capacity=room).items]
    tally = _tallied((*system, *messages), heads, len(tools), closed=len(system) + _turn(messages))
    sent = tokens / max(sum(tally.sizes.values()), 1)
    heavy = nlargest(_LARGEST, enumerate(weights), key=lambda each: each[1])
    return Contents(
        model=model,
        tokens=tokens,
        exact=exact is not None,
        window=known,
        known=window is not None,
        capacity=room,
        reserved=reserved,
        margin=known - room - reserved,
        kinds=_scaled(tally, tokens),
        results=tuple(
            [ToolShare(name, round(size * sent), tally.results_of[name]) for name, size in tally.tools.most_common()]
        ),
        largest=tuple([LargeMessage(place, round(size * sent), messages[place]) for place, size in heavy if size]),
        messages=len(messages),
        report=_report(messages, anchor, fixed),
        stages=tuple([Step(each.name, each.trigger(room), each.due(plan)) for each in stages]),
    )


def _report(messages: Sequence[Message], anchor: int | None, fixed: int) -> Report | None:
    """Return the last trusted report, and the estimate without any report."""
    answer = None if anchor is None else messages[anchor]
    if anchor is None or not isinstance(answer, AssistantMessage) or answer.usage is None:
        return None
    guessed = Ledger().measure(tuple(messages[:anchor]), fixed=fixed)
    return Report(anchor, prompt_of(answer.usage), guessed.tokens)


# -- kinds -------------------------------------------------------------------------------------------------------------


class _Tally(NamedTuple):
    """Estimates and counts by kind, and of results by tool."""

    sizes: Counter[Kind]
    counts: Counter[Kind]
    tools: Counter[str]
    results_of: Counter[str]


def _turn(messages: Sequence[Message]) -> int:
    """Return where the open turn begins; reasoning before it is not sent any more."""
    places = range(len(messages) - 1, -1, -1)
    return next((place for place in places if ends_turn(messages[place])), 0)


def _tallied(messages: Sequence[Message], heads: int, tools: int, *, closed: int) -> _Tally:
    """Count messages, without the reasoning of the first ``closed`` of them, which is not sent."""
    tally = _Tally(Counter(), Counter(), Counter(), Counter())
    if heads or tools:
        tally.sizes["tools"], tally.counts["tools"] = heads, tools
    called: dict[str, str] = {}
    for place, message in enumerate(messages):
        if isinstance(message, RescueMarker | FlushMarker):
            continue
        if place < closed and isinstance(message, AssistantMessage):
            said = tuple([part for part in message.content if not isinstance(part, Reasoning)])
            message = message.replace(content=said)  # noqa: PLW2901 (the part that is sent)
        called.update((call.id, call.name) for call in message.tool_calls)
        size = _message(message, tally)
        if isinstance(message, ToolMessage) and not message.is_summary:
            name = message.tool_name or called.get(message.tool_call_id or "") or "?"
            tally.tools[name] += size
            tally.results_of[name] += 1
    return tally


def _message(message: Message, tally: _Tally) -> int:
    """Count a message; return its estimate."""
    parts: Counter[Kind] = Counter()
    for part in message.content:
        kind: Kind = "summaries" if message.is_summary else _kind(part, message)
        tally.sizes[kind] += estimate(message.replace(content=cast("tuple[()]", (part,))))
        parts[kind] += 1
    for kind, count in parts.items():
        tally.counts[kind] += count if kind in _COUNTED else 1
    return estimate(message)


def _kind(part: AnyPart, message: Message) -> Kind:
    match part:
        case Reasoning():
            return "reasoning"
        case ToolCall() | MalformedToolCall():
            return "calls"
        case ServerToolResult():
            return "results"
        case Media():
            return "media"
        case _:
            return _ROLES[type(message)]


def _scaled(tally: _Tally, tokens: int) -> tuple[Share, ...]:
    """Return the kinds in the provider's tokens; they add up to the whole."""
    found: list[Kind] = [kind for kind in KINDS if tally.counts[kind]]
    whole = max(sum(tally.sizes.values()), 1)
    shares: list[Share] = []
    before = told = 0
    for kind in found:
        before += tally.sizes[kind]
        upto = round(tokens * before / whole)
        shares.append(Share(kind, upto - told, tally.counts[kind]))
        told = upto
    return tuple(shares)
