"""The stage in which a model sums up what is old. A pure function: it says what to ask, and what an answer is worth.

Rules (docs/spec/kairo.md#3.3, #D3, #D5, #D13, #D15, #D30, KAI-07, KAI-09; docs/spec/deepagents-swift.md#8.5, DAS-28;
docs/spec/codebuff.md#4.2):

- The newest messages stay: ``keep`` of them, fewer when they weigh more than ``most`` of the capacity, but always the
  newest round, and results that the model has not seen. The cut lies between rounds, so that one task and many rounds
  can be cut too. Before it, what is untouchable and the first task stay, byte for byte and in order; then comes the
  summary, then the newest messages.
- Where fewer than two messages would go, or too little of the weight, nothing is asked.
- The model is told to sum up, before and behind the transcript, and that nothing inside it is meant for it. An earlier
  summary is part of what is summed up, and is replaced.
- The answer loses reasoning in tags that stands before it. One that says nothing, or does not make the plan lighter,
  is a ``SummaryError``, and nothing has changed. So is an answer that was cut off: ``summary_of`` tells.
- The summary is a user message, so that every wire carries it, also beside a system prompt. ``payload`` names what it
  stands for; the messages themselves stay in the thread.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import structs

from palaver.context.kept import kept, rounds
from palaver.context.plan import Item, Plan
from palaver.context.stages import Summarise, Work
from palaver.context.standing import standing
from palaver.context.summary_prompt import AFTER, BEFORE, PROMPT
from palaver.context.transcript import Entry, entry, transcript
from palaver.core.errors import MessageError, SummaryError
from palaver.core.factories import system, user
from palaver.core.messages import AssistantMessage
from palaver.core.request import Request, Settings
from palaver.stream.local.thinking import REASONING
from palaver.tokens.estimate import estimate_text

HEAD: Final = "[Auto-compacted summary]\n"
NOTE: Final = "\n\n[The messages that this stands for are kept in the thread and can be read back there.]"
KEEP: Final = 6
MOST: Final = 0.25
MAX_TOKENS: Final = 20_480
SETTINGS: Final = Settings(max_tokens=MAX_TOKENS, temperature=0.3)

_FEWEST: Final = 2
_LEAST: Final = 0.05
_SHORTEST: Final = estimate_text(HEAD + NOTE) + 50
"""Tokens of the shortest summary that says something: with less to win, nobody need be asked."""
_LEFT_OUT: Final = 0.2
_SMALLEST: Final = 1024
"""Tokens of a transcript at least, and of an answer: with less, nobody can sum up anything."""
_NOTHING: Final = frozenset(("", "none", "na"))
"""What stands under the headings of a summary of nothing."""
_WHOLE: Final = frozenset((None, "stop", "other"))


class _Cut(NamedTuple):
    """A plan in three: places that stay before the summary, places that go, and where the newest messages begin."""

    stays: list[int]
    goes: list[int]
    tail: int


def summarising(
    name: str = "auto",
    *,
    keep: int = KEEP,
    most: float = MOST,
    capacity: int | None = None,
    settings: Settings = SETTINGS,
    prompt: str = PROMPT,
) -> Work:
    """Give the work of a stage that has a model sum up what is old; see the module for its rules.

    ``keep``: messages that stay. ``most``: the share of the capacity that they may weigh. ``capacity``: tokens that the
    summing model takes, prompt and answer together; ``None`` takes that of the plan. ``settings`` are those of the
    question. Raises ``MessageError`` for numbers that make no sense.
    """
    if keep < 0:
        raise MessageError(f"keep: {keep} messages cannot be kept")
    if not 0 <= most <= 1:
        raise MessageError(f"most: {most} is not a share of the capacity")
    if capacity is not None and capacity < 1:
        raise MessageError(f"capacity: a model that takes {capacity} tokens cannot be asked")

    def work(plan: Plan) -> Plan | Summarise:
        cut = _cut(plan, keep, most)
        weight = sum([plan.items[at].tokens for at in cut.goes])
        if len(cut.goes) < _FEWEST or weight < max(_LEAST * plan.sum, _SHORTEST):
            return plan
        entries = _entries(plan, cut)
        if not entries:
            return plan
        room = plan.capacity if capacity is None else capacity
        answer = min(settings.max_tokens or MAX_TOKENS, max(room // 4, _SMALLEST))
        asked = structs.replace(settings, max_tokens=answer)
        around = plan.scaled(estimate_text(prompt) + estimate_text(BEFORE) + estimate_text(AFTER))
        tokens = max(room - answer - around, _SMALLEST)
        size = int(tokens / max(plan.scale, 1e-9) * 3.5)
        return _question(_Asked(name, plan, cut, asked, prompt), entries, size, 0)

    return work


class _Asked(NamedTuple):
    """What stays the same when a question is asked again about less."""

    name: str
    plan: Plan
    cut: _Cut
    settings: Settings
    prompt: str


def _question(asked: _Asked, entries: Sequence[Entry], size: int, untold: int) -> Summarise:
    """The question about these entries, in about so many bytes."""
    text = transcript(entries, size, untold=untold)
    request = Request(
        messages=(system(asked.prompt), user(f"{BEFORE}{text}{AFTER}")),
        settings=asked.settings,
    )

    def applied(answer: str) -> Plan:
        return _applied(asked, answer)

    def shorter() -> Summarise | None:
        rest, room = list(entries), min(size, len(text.encode("utf-8", "surrogatepass")))
        while rest := _fewer(rest):
            left_out = untold + len(entries) - len(rest)
            less = _question(asked, rest, int(room * (1 - _LEFT_OUT)), left_out)
            if len(less.request.messages[1].text) < len(request.messages[1].text):
                return less
        return None

    return Summarise(request, applied, shorter, asked.name)


def _fewer(entries: Sequence[Entry]) -> list[Entry]:
    """Without the oldest fifth, or the oldest one; what people said and earlier summaries go last."""
    droppable = [at for at, each in enumerate(entries) if not each.dear] or list(range(len(entries)))
    left_out = set(droppable[: max(1, int(len(droppable) * _LEFT_OUT))])
    return [each for at, each in enumerate(entries) if at not in left_out]


def _cut(plan: Plan, keep: int, most: float) -> _Cut:
    """Where to cut: between rounds, behind everything that is old."""
    items, known = plan.items, kept(plan)
    whole = rounds(items)
    least = _unseen(whole, items)
    tail, weight = len(items), 0
    for start, end in reversed(whole):
        weight += sum([item.tokens for item in items[start:end]])
        fits = len(items) - start <= keep and plan.scaled(weight) <= most * plan.capacity
        if not (fits or end == len(items) or start >= least):
            break
        tail = start
    stays: list[int] = []
    goes: list[int] = []
    for start, end in whole:
        if start < tail:
            places = range(start, end)
            (goes if all(known.removable(at) for at in places) else stays).extend(places)
    return _Cut(stays, goes, tail)


def _unseen(whole: Sequence[tuple[int, int]], items: Sequence[Item]) -> int:
    """Where results begin that the model has not seen, with the answer that asked for them; else the end."""
    for start, end in reversed(whole):
        if isinstance(items[start].message, AssistantMessage):
            return start if end - start > 1 else len(items)
    return len(items)


def _entries(plan: Plan, cut: _Cut) -> list[Entry]:
    """What the model is to read: all before the cut, so that what is summed up makes sense; none when nothing goes."""
    found: list[Entry] = []
    going = set(cut.goes)
    says = False
    for at, item in enumerate(plan.items[: cut.tail]):
        each = entry(item.message, stays=at not in going)
        if each is not None:
            found.append(_unwrapped(each))
            says = says or at in going
    return found if says else []


def _unwrapped(each: Entry) -> Entry:
    """An earlier summary without what we wrote around it."""
    return structs.replace(each, text=each.text.removeprefix(HEAD).removesuffix(NOTE))


def _applied(asked: _Asked, answer: str) -> Plan:
    """The plan with a summary in the place of what went. Raises ``SummaryError``."""
    text = _answered(answer)
    plan, cut = asked.plan, asked.cut
    gone = [plan.items[at] for at in cut.goes]
    items = [
        *[plan.items[at] for at in cut.stays],
        standing(plan, asked.name, f"{HEAD}{text}{NOTE}", gone),
        *plan.items[cut.tail :],
    ]
    found = plan.changed(asked.name, items, len(gone))
    if found is plan:
        raise SummaryError(f"the summary is no shorter than the {len(gone)} messages that it would stand for")
    return found


def _answered(answer: str) -> str:
    """The answer without reasoning that stands before it. Raises ``SummaryError`` when nothing is said."""
    text = answer.strip()
    pairs = [pair for pair in REASONING.values() if pair is not None]
    while opened := next((pair for pair in pairs if text.startswith(pair.opens)), None):
        text = text[len(opened.opens) :].partition(opened.closes)[2].strip()
    if any(text.endswith(pair.closes) and pair.opens not in text for pair in pairs):
        text = ""  # the prompt of the model opened its reasoning, and nothing follows it
    said = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    if all("".join(filter(str.isalnum, line)).lower() in _NOTHING for line in said):
        raise SummaryError("the summary is empty")
    return text


def summary_of(message: AssistantMessage) -> str:
    """The text of a model's answer. Raises ``SummaryError`` where it is not whole.

    An answer that ran into its limit, was filtered or refused, or calls tools, is half a summary or none.
    """
    if message.finish_reason not in _WHOLE:
        raise SummaryError(f"the summary is not whole: the answer ended with {message.finish_reason!r}")
    return message.text
