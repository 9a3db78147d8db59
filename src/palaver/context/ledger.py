"""The token ledger of a conversation: an estimate for each message, anchored to what the provider reported.

Rules (KAI-03, D29, F37):

- A ledger follows a growing sequence of messages and estimates each once. A sequence that diverges keeps the estimates
  of the common beginning.
- The next prompt is the last answer with a trusted usage report, the anchor, plus the estimate of everything
  follows it. Without an anchor, the estimate of everything is corrected by ``Calibration``.
- Messages are counted by the estimate or by a ``Counter``. Media have rates of their own (``MediaRates``), and a report
  with media teaches less, since calibration is about text.
- Reasoning counts while its turn is open and the answer carries the proof that its provider wants back; a user message
  ends the turn. The share that the provider keeps is learned.
- An answer is not an anchor behind a marker or compaction, from another model, or when the provider ran tools.
- Expired messages are subtracted from the anchor's report.
- After an append, every call costs what is new; with lifetimes, what is visible.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct, structs

from palaver.context.plan import SOURCE, CountedItems, Item, Plan, plan_of
from palaver.context.rewrite import calibration_before
from palaver.core.errors import MessageError
from palaver.core.messages import AssistantMessage, FlushMarker, Message, RescueMarker, UserMessage
from palaver.core.parts import Opaque, ServerToolResult, ToolCall
from palaver.core.request import OutputFormat
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.threads.thread import Entry, ListPrefix
from palaver.threads.view import RECORD, ModelView, has_lifetime, is_sent
from palaver.tokens.calibration import Calibration
from palaver.tokens.counter import Counter, EstimateCounter
from palaver.tokens.estimate import estimate_media, estimate_reasoning, estimate_tools, has_proof, overhead
from palaver.tokens.media import MediaRates


class Measure(Struct, frozen=True, kw_only=True):
    """The size of a prompt.

    ``tokens``: by the provider's count; ``estimate``: of messages, system prompt and tools.

    The rest is for ``Ledger.learn``. ``weight``: the estimate with the overhead around each message, without reasoning
    that is not sent; ``media``: the part of it that is media; ``reasoning``: tokens of reasoning that the prompt may
    contain; ``without``: the tokens if it does not.
    """

    tokens: int
    estimate: int
    weight: int
    media: int = 0
    reasoning: int = 0
    without: int = 0


class _Mark(Struct, frozen=True, gc=False):
    """Sums up to and including a message. ``user`` is the place of the last user message, -1 without one."""

    weight: int
    media: int
    user: int
    thoughts: int
    """Tokens of the turn's reasoning so far that is sent back, as reported."""
    reasoning: int
    """The part of the weight that is reasoning."""
    closed: int
    """The same, of finished turns."""

    def sent(self, replay: float) -> int:
        """Return the weight without reasoning that is not sent any more."""
        return self.weight - self.closed - round((1 - replay) * (self.reasoning - self.closed))

    def since(self, earlier: _Mark, replay: float) -> int:
        """Return the same for the messages after an earlier mark."""
        closed = max(self.closed - earlier.reasoning, 0)
        reasoning = self.reasoning - earlier.reasoning
        return self.weight - earlier.weight - closed - round((1 - replay) * (reasoning - closed))


class _Expired(NamedTuple):
    """Messages that an answer saw and whose lifetime is over, so that they are not sent any more: text, and media."""

    weight: int = 0
    media: int = 0


class _Counted(NamedTuple):
    """The counts of one message: its estimate, and how much of it is reasoning, and media."""

    tokens: int
    reasoning: int
    media: int


class _PlanCounter:
    """Weighs the items of a plan as the ledger would measure them: reasoning of finished turns is not sent."""

    def __init__(self, count: Callable[[Message], _Counted], calibration: Calibration) -> None:
        """Use the current corrections."""
        self._count, self._calibration = count, calibration
        self._known: dict[int, tuple[Message, _Counted, int]] = {}

    def __call__(self, items: Sequence[Item]) -> CountedItems:
        """Return the items with what each adds to a prompt."""
        replay, scale = self._calibration.replay, self._calibration.scale
        begins = max([place for place, item in enumerate(items) if ends_turn(item.message)], default=-1)
        weighed: list[Item] = []
        around = 0
        for place, item in enumerate(items):
            _, counted, beside = self._facts(item.message)
            reasoning = round((replay if place > begins else 0.0) * counted.reasoning)
            said = counted.tokens - counted.reasoning - counted.media
            tokens = max(said + reasoning + round(counted.media / scale), 0)
            weighed.append(item if tokens == item.tokens else Item(item.message, tokens, item.origin))
            around += beside
        return CountedItems(tuple(weighed), around / max(len(items), 1))

    def _facts(self, message: Message) -> tuple[Message, _Counted, int]:
        """The counts of a message, made once; the message is kept, so that its ``id()`` stays its own."""
        found = self._known.get(id(message))
        if found is None:
            found = self._known[id(message)] = message, self._count(message), overhead(message)
        return found


def ends_turn(message: Message) -> bool:
    """Return whether a message ends the turn before it: it is from a person, as far as messages show that."""
    return isinstance(message, UserMessage) and message.mode != "tool"


_START: Final = _Mark(0, 0, -1, 0, 0, 0)


class Ledger:
    """The tokens of one conversation of one agent with one model.

    ``model`` is the name of the model; reports of another one are ignored, and ``None`` accepts those of any.
    ``agent``: whose prompts they are; answers that name another agent are ignored. ``rates``: the tokens of media on
    the model. ``calibration`` starts with what is known of the model already, and holds what was learned so far.
    ``counter`` counts messages and tools; by default the estimate does. A counter that weighs media has the same rates.
    Not safe for use from several OS threads.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        agent: str | None = None,
        calibration: Calibration | None = None,
        rates: MediaRates | None = None,
        counter: Counter | None = None,
    ) -> None:
        """Start without messages."""
        self.model = model
        self.agent = agent
        self.calibration = Calibration() if calibration is None else calibration
        self._rates = rates
        self._counter: Counter = EstimateCounter(rates=rates) if counter is None else counter
        self._messages: Sequence[Message] = ()
        self._estimates: list[int] = []
        self._sums: list[int] = [0]
        self._marks: list[_Mark] = [_START]
        self._anchor: AssistantMessage | None = None
        self._followed = 0
        self._leaf: str | None = None
        self._has_lifetimes = False
        self._expired_messages: Sequence[Message] = ()

    # -- estimates -----------------------------------------------------------------------------------------------------

    @property
    def estimates(self) -> Sequence[int]:
        """The estimates of the messages, in their order. A live view, not a copy."""
        return ListPrefix(self._estimates)

    @property
    def around(self) -> float:
        """The estimate of the overhead around a message, on average."""
        return (self._marks[-1].weight - self._sums[-1]) / max(len(self._estimates), 1)

    @property
    def sum(self) -> int:
        """The sum of the estimates."""
        return self._sums[-1]

    def fixed(self, system: Sequence[Message], tools: Sequence[AnyTool], output: OutputFormat | None = None) -> int:
        """Return the estimate of what is sent in addition to the messages.

        That is ``system``, the messages of the system prompt, ``tools``, and the schema of the answer in ``output``.
        """
        said = sum(map(self._counter.count, system))
        return said + self._counter.count_tools(tools) + estimate_tools((), output)

    def follow(self, messages: Sequence[Message]) -> None:
        """Estimate the new messages in ``messages``, all messages of the prompt."""
        held = self._messages
        given = messages if isinstance(messages, ListPrefix) else tuple(messages)
        if not (isinstance(given, ListPrefix) and given.continues(held)):
            same = _common_length(held, given)
            if same < len(self._estimates):
                self._estimates = self._estimates[:same]
                del self._sums[same + 1 :], self._marks[same + 1 :]
        for message in given[len(self._estimates) :]:
            self._add(message)
        self._messages = given

    def _add(self, message: Message) -> None:
        place = len(self._estimates)
        counted = self._counted(message)
        last = self._marks[-1]
        user, thoughts, reasoning, closed = last.user, last.thoughts, last.reasoning + counted.reasoning, last.closed
        if isinstance(message, AssistantMessage):
            thoughts += _reasoning_tokens(message)
        elif ends_turn(message):
            user, thoughts, closed = place, 0, reasoning
        weight = last.weight + counted.tokens + overhead(message)
        self._estimates.append(counted.tokens)
        self._sums.append(self._sums[-1] + counted.tokens)
        self._marks.append(_Mark(weight, last.media + counted.media, user, thoughts, reasoning, closed))

    def _counted(self, message: Message) -> _Counted:
        tokens = self._counter.count(message)
        if isinstance(message, AssistantMessage):
            return _Counted(tokens, estimate_reasoning(message), 0)
        return _Counted(tokens, 0, estimate_media(message, self._rates))

    # -- what a prompt is ----------------------------------------------------------------------------------------------

    def measure(self, messages: Sequence[Message], *, fixed: int, anchor: int | None = None) -> Measure:
        """Return the size of a prompt of ``messages``. ``fixed`` is the estimate of system prompt and tools.

        ``anchor`` is the place of an answer in the messages, as ``anchored`` finds it. Raises ``MessageError`` for a
        negative ``fixed``, and for an anchor that is not an answer with usage.
        """
        if fixed < 0:
            raise MessageError(f"fixed: {fixed} is not a number of tokens")
        self.follow(messages)
        whole = self._marks[-1].weight + fixed
        mark = self._marks[-1]
        weight = mark.sent(self.calibration.replay) + fixed
        if anchor is None:
            tokens = self.calibration.apply(weight - mark.media) + mark.media
            return Measure(tokens=tokens, estimate=whole, weight=weight, media=mark.media)
        known, reasoning = self._known(anchor)
        behind = self._marks[anchor + 1]
        media = mark.media - behind.media
        since = mark.since(behind, self.calibration.replay) - media
        gone = self._expired(anchor)
        without = max(1, known + media - gone.media + round(self.calibration.scale * (since - gone.weight)))
        tokens = max(1, without + round(self.calibration.replay * reasoning))
        return Measure(
            tokens=tokens,
            estimate=whole,
            weight=weight,
            media=mark.media,
            reasoning=reasoning,
            without=without,
        )

    def _known(self, anchor: int) -> tuple[int, int]:
        """Return the tokens that the next prompt has by an answer's report, and those of reasoning that it may have."""
        answer = self._messages[anchor] if 0 <= anchor < len(self._estimates) else None
        usage = answer.usage if isinstance(answer, AssistantMessage) else None
        if not isinstance(answer, AssistantMessage) or usage is None:
            raise MessageError(f"anchor: message {anchor} is not an answer with usage")
        prompt, output = prompt_of(usage), usage.output or 0
        thought = _reasoning_tokens(answer)
        if self._marks[-1].user <= anchor:
            return prompt + output, 0 if usage.reasoning is None else thought
        before, behind = self._marks[anchor], self._marks[anchor + 1]
        prompt -= min(round(self.calibration.replay * before.thoughts), prompt // 2)
        if usage.reasoning is None and behind.reasoning > before.reasoning:  # the reported output includes it
            said = behind.weight - before.weight - (behind.reasoning - before.reasoning)
            output = min(output, round(self.calibration.scale * said))
        return prompt + output, 0

    def anchored(self, path: Sequence[Entry], messages: Sequence[Message]) -> int | None:
        """Return the place in ``messages`` of the last answer on ``path`` with a trusted report, else ``None``.

        ``messages`` are made of the path for the model, and must begin as they did when that answer was requested: a
        moving window has no anchor. Reads only what is new in the path.
        """
        start = self._followed
        if start > len(path) or (start and path[start - 1].id != self._leaf):
            start, self._anchor, self._has_lifetimes = 0, None, False
        new = path[start:]
        self._has_lifetimes = self._has_lifetimes or any(has_lifetime(entry.message) for entry in new)
        for entry in reversed(new):
            message = entry.message
            if hides_earlier(message):
                self._anchor = None
                break
            if isinstance(message, AssistantMessage) and self._is_trusted(message):
                self._anchor = message
                break
        self._followed, self._leaf = len(path), path[-1].id if len(path) else None
        found = None if self._anchor is None else _answer_position(self._anchor, messages)
        if found is None:
            self._anchor = None  # and is not searched again
        self._expired_messages = (
            _ExpiredMessages(path, messages)(self._anchor) if self._has_lifetimes and self._anchor is not None else ()
        )
        return found

    def _expired(self, anchor: int) -> _Expired:
        return self._weight(self._expired_messages) if self._messages[anchor] is self._anchor else _Expired()

    def _weight(self, gone: Sequence[Message]) -> _Expired:
        counted = [(self._counted(message), overhead(message)) for message in gone]
        media = sum([each.media for each, _ in counted])
        return _Expired(sum([each.tokens + beside for each, beside in counted]) - media, media)

    def _is_trusted(self, answer: AssistantMessage) -> bool:
        if not is_sent(answer) or not has_usage_report(answer):
            return False
        if self.agent is not None and answer.agent is not None and answer.agent != self.agent:
            return False
        return same_model(self.model, answer.model)

    # -- plans ---------------------------------------------------------------------------------------------------------

    def plan(
        self,
        messages: Sequence[Message],
        measured: Measure,
        *,
        capacity: int,
        now: int = 0,
        keep_last: Iterable[str] = (),
    ) -> Plan:
        """Return the plan of a compaction of ``messages``: the first of those that were measured, or all of them.

        It weighs as much as ``measured`` says, and a stage saves by it what the ledger measures less. ``capacity`` is
        the most tokens of a prompt; ``now`` and ``keep_last`` are the fields of ``Plan``.
        """
        scale = self.calibration.scale
        bare = plan_of(messages, capacity=capacity, tokens=[0] * len(messages), scale=scale, now=now)
        weigh = _PlanCounter(self._counted, self.calibration)
        found = weigh(bare.items)
        total = sum([item.tokens for item in found.items])
        return structs.replace(
            bare,
            items=found.items,
            around=found.around,
            sum=total,
            fixed=round(measured.tokens / scale - total - found.around * len(found.items)),
            keep_last=frozenset(keep_last),
            counter=weigh,
        )

    # -- learning ------------------------------------------------------------------------------------------------------

    def learn(self, measure: Measure, answer: AssistantMessage) -> None:
        """Learn from ``answer``; an answer without a trusted report changes nothing.

        ``measure`` is what ``measure()`` returned for the prompt that it answers.
        """
        if not has_usage_report(answer) or answer.usage is None or not same_model(self.model, answer.model):
            return
        reported = prompt_of(answer.usage)
        if measure.reasoning > _MIN_REASONING_SHARE * reported:
            self.calibration = self.calibration.with_replay((reported - measure.without) / measure.reasoning)
        media = measure.media
        self.calibration = self.calibration.learned(measure.weight - media, reported - media, unsure=media)

    def carry(self, measure: Measure) -> None:
        """Use ``measure``, that of this prompt, for the next one too, even when the next one does not continue it."""
        self.calibration = self.calibration.carry_over(measure.weight - measure.media, measure.tokens - measure.media)

    def recall(self, path: Sequence[Entry], messages: Sequence[Message], *, fixed: int) -> None:
        """Learn from the answers that a thread has already: those behind the last marker and the last compaction.

        For a ledger that starts with an existing conversation: ``path`` is the conversation, and ``messages`` what the
        model sees of it. The record of a compaction has what was learned before it. ``fixed``, the estimate of system
        prompt and tools, is assumed to have been the same. Costs the length of the path.
        """
        self.follow(messages)
        told: set[int] = set()
        for place in range(len(path) - 1, -1, -1):
            message = path[place].message
            if hides_earlier(message):
                self._restore_calibration(message)
                break
            told.add(id(message))
        gone = _ExpiredMessages(path, messages)
        for place, message in enumerate(messages):
            if isinstance(message, AssistantMessage) and id(message) in told and self._is_trusted(message):
                mark, more = self._marks[place], self._weight(gone(message))
                media = mark.media + more.media
                weight = mark.sent(self.calibration.replay) + fixed + more.weight + more.media
                self.learn(Measure(tokens=0, estimate=0, weight=weight, media=media), message)

    @property
    def learned(self) -> Mapping[str, Any] | None:
        """What was learned of the model, for the record of a compaction; ``None`` when nothing was."""
        known = self.calibration
        return {"model": self.model, **msgspec.to_builtins(known)} if known != Calibration() else None

    def _restore_calibration(self, message: Message) -> None:
        """Start with what the record of a compaction says about the same model."""
        said = calibration_before(message)
        if said is None or self.calibration.reports or not same_model(self.model, said.get("model")):
            return
        self.calibration = Calibration.from_record(said) or self.calibration


_MIN_REASONING_SHARE: Final = 0.1
"""The share of a prompt that reasoning must have, so that a report can show whether it was sent back."""


def prompt_of(usage: Usage) -> int:
    """Return the tokens of the prompt that was answered, cached or not."""
    return (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)


def has_usage_report(answer: AssistantMessage) -> bool:
    """Return whether an answer reports the tokens of its prompt, and of that prompt only.

    False where passes are counted apart, where a tool ran at the provider, which counts every pass, or where an unknown
    block may have done so.
    """
    usage = answer.usage
    if usage is None or usage.passes or prompt_of(usage) <= 0:
        return False
    for part in answer.content:
        if isinstance(part, ServerToolResult | Opaque) or (isinstance(part, ToolCall) and part.provider_executed):
            return False
    return True


def hides_earlier(message: Message) -> bool:
    """Return whether a message hides or changes all before it: a marker, or the record of a compaction."""
    if isinstance(message, RescueMarker | FlushMarker):
        return True
    return RECORD in message.tags and message.source == SOURCE


def _reasoning_tokens(answer: AssistantMessage) -> int:
    """Return the tokens of the reasoning of an answer, if it carries the proof that its provider wants back."""
    if not has_proof(answer):
        return 0
    if answer.usage is not None and answer.usage.reasoning is not None:
        return answer.usage.reasoning
    return estimate_reasoning(answer)


def _common_length(held: Sequence[Message], given: Sequence[Message]) -> int:
    """Return how many messages at the beginning are the same objects."""
    if all(map(is_, held, given)):
        return min(len(held), len(given))
    return next(place for place, same in enumerate(map(is_, held, given)) if not same)


class _ExpiredMessages:
    """Finds the messages with a lifetime that an answer saw and that are not sent any more."""

    def __init__(self, path: Sequence[Entry], messages: Sequence[Message]) -> None:
        """Search a path, of which those messages are sent now. Costs the path, if any message has a lifetime."""
        self._path, self._view = path, ModelView()
        self._sent: set[int] = set()
        self._places: dict[int, int] = {}
        if any(has_lifetime(entry.message) for entry in path):
            self._sent = set(map(id, messages))
            self._places = {id(entry.message): place for place, entry in enumerate(path)}

    def __call__(self, answer: AssistantMessage) -> Sequence[Message]:
        """Return those of an answer; answers must be asked about in the order of the path."""
        place = self._places.get(id(answer))
        if place is None:
            return ()
        return [each for each in self._view(self._path[:place]) if has_lifetime(each) and id(each) not in self._sent]


def _answer_position(answer: AssistantMessage, messages: Sequence[Message]) -> int | None:
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message is answer or (message.id is not None and message.id == answer.id):
            return place
    return None


# -- names of models ---------------------------------------------------------------------------------------------------

_DATED: Final = re.compile(r"[-@:._](latest|preview|\d{6,8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|v\d+|0)$")


def same_model(asked: str | None, answered: str | None) -> bool:
    """Return whether two names mean one model, as far as they show: prefixes and dates at the end do not count."""
    if not asked or not answered:
        return True
    one, other = _base_name(asked), _base_name(answered)
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


def _base_name(name: str) -> str:
    name = name.lower().rpartition("/")[2]
    while (shorter := _DATED.sub("", name)) != name:
        name = shorter
    return name
