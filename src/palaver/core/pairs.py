"""Tool calls and their results: make every pair whole.

Rules (docs/spec/wires.md#9, repair 3; docs/spec/pains.md#1):

- Every call of the assistant that the application must answer gets exactly one result, standing right behind the
  assistant message, before anything else.
- A result that stands elsewhere is moved to its call (``settle``). A call without a result gets one with a fixed
  text, marked as an error; a result without a call, or a second one for the same call, is sent as user text
  (``complete``).
- Results match by id: a result answers the nearest call before it. A result that names no call answers the only
  open call of the turn it stands behind that can be meant (``tied``). Where two can be, nothing is guessed.
- Pure and deterministic: no clock, no random value. Doing it twice does nothing new.

Stability: experimental.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple, cast

from palaver.core.messages import AssistantMessage, FlushMarker, Message, RescueMarker, ToolMessage, UserMessage
from palaver.core.parts import Json, MalformedToolCall, Text, ToolCall
from palaver.core.request import Loss

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BETWEEN = (ToolMessage, RescueMarker, FlushMarker)
"""The messages that may stand between a call and its result."""

MISSING_RESULT = "No result: the tool call was not executed."
REPAIR = "repair"
TIED = "names no call; it answers the only one that can be meant"
"""Why a result got the id of a call."""


class Placed(NamedTuple):
    """A message and its position in the conversation it came from. Tool results move in front of a ``note``."""

    index: int  # type: ignore[assignment]  # (hides tuple.index, which nobody needs)
    message: Message
    note: bool = False


def client_calls(message: Message) -> tuple[ToolCall, ...]:
    """Calls that the application, not the provider, must answer."""
    if not isinstance(message, AssistantMessage):
        return ()
    return tuple([part for part in message.content if isinstance(part, ToolCall) and not part.provider_executed])


def names_no_call(message: Message) -> bool:
    """Whether a message is a tool result without the id of a call."""
    return isinstance(message, ToolMessage) and message.tool_call_id is None


class _Turn(NamedTuple):
    """Adjoining assistant messages: their calls without a result, and the results behind them that name no call."""

    calls: list[ToolCall]
    results: list[int]


def tied(messages: Sequence[Message]) -> dict[int, str]:
    """For each result that names no call but can answer only one, its place and the id of that call.

    Only calls of the assistant messages right before it count, and of these only those that no result answers by id.
    A result that names its tool answers the only such call of that tool, any other the only such call there is.
    Costs the length of the history.
    """
    if not any(map(names_no_call, messages)):
        return {}
    found: dict[int, str] = {}
    for turn in _turns(messages):
        due = dict(enumerate(turn.calls))
        ids = Counter(call.id for call in turn.calls)
        of_tool: dict[str, list[int]] = {}
        for number, call in due.items():
            of_tool.setdefault(call.name, []).append(number)
        names = {place: cast("ToolMessage", messages[place]).tool_name for place in turn.results}
        for place in sorted(turn.results, key=lambda place: not names[place]):  # those that name their tool come first
            name = names[place]
            fitting = of_tool.get(name, []) if name else list(due) if len(due) == 1 else []
            if len(fitting) == 1 and ids[due[fitting[0]].id] == 1:
                call = due.pop(fitting[0])
                of_tool[call.name] = []
                found[place] = call.id
    return found


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    """The turns that results stand behind. A call that could not be read may be meant, so that its turn has none."""
    calls = [(place, call) for place, message in enumerate(messages) for call in client_calls(message)]
    answers = paired([(place, call.id) for place, call in calls], messages, [len(messages)] * len(calls))
    due: dict[int, list[ToolCall]] = {}
    for (place, call), answer in zip(calls, answers, strict=True):
        if answer is None:
            due.setdefault(place, []).append(call)
    turns = [_Turn([], [])]
    unread = False
    before: Message | None = None
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            if not isinstance(before, AssistantMessage):
                turns.append(_Turn([], []))
                unread = False
            turns[-1].calls.extend(due.get(place, ()))
            unread = unread or any(isinstance(part, MalformedToolCall) for part in message.content)
        elif names_no_call(message):
            if not unread:
                turns[-1].results.append(place)
        elif not isinstance(message, BETWEEN):
            turns.append(_Turn([], []))
        before = message
    return turns


def whole(placed: Sequence[Placed]) -> bool:
    """Whether every pair is whole already: each call answered once, right behind it, and nothing else answered."""
    due: dict[str, None] = {}
    for item in placed:
        message = item.message
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in due:
                return False
            del due[message.tool_call_id]
        elif due or item.note:
            return False
        elif isinstance(message, AssistantMessage):
            calls = client_calls(message)
            due = dict.fromkeys([call.id for call in calls])
            if len(due) != len(calls):
                return False
    return not due


def settle(placed: Sequence[Placed], *, runs: bool = False) -> tuple[list[Placed], list[Loss]]:
    """Move each result right behind its call, where it does not stand there already.

    With ``runs``, the results of adjoining assistant messages stand behind the last of them.
    """
    claims = _claims(placed, runs=runs)
    claimed = {position for answers in claims.values() for position in answers}
    reaches = reach([isinstance(item.message, ToolMessage) or item.note for item in placed])
    out: list[Placed] = []
    losses: list[Loss] = []
    for position, item in enumerate(placed):
        if position in claimed:
            continue
        out.append(item)
        answers = claims.get(position, ())
        near = sorted(answer for answer in answers if answer < reaches[position])
        far = [answer for answer in answers if answer >= reaches[position]]
        out += [placed[answer] for answer in (*near, *far)]
        losses += [Loss("converted", "tool result", "moved to its call", placed[answer].index) for answer in far]
    return out, losses


def _claims(placed: Sequence[Placed], *, runs: bool) -> dict[int, list[int]]:
    """For each place that results stand behind, the positions of the results of its calls."""
    anchors = _anchors(placed) if runs else range(len(placed))
    calls = [
        (anchors[position], call.id) for position, item in enumerate(placed) for call in client_calls(item.message)
    ]
    results = paired(calls, [item.message for item in placed], [len(placed)] * len(calls))
    claims: dict[int, list[int]] = {}
    for (position, _), result in zip(calls, results, strict=True):
        if result is not None:
            claims.setdefault(position, []).append(result)
    return claims


def paired(calls: Sequence[tuple[int, str]], messages: Iterable[Message], ends: Sequence[int]) -> list[int | None]:
    """For each call, given as its place and id, the place of its result, if there is one.

    It is the first that no earlier call has taken, behind the call, before the next place that calls with the same
    id, and before the call's own end (``ends``).
    """
    waiting: dict[str, deque[int]] = {}
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage) and message.tool_call_id is not None:
            waiting.setdefault(message.tool_call_id, deque()).append(position)
    found: list[int | None] = []
    for (position, call_id), limit, end in zip(calls, _limits(calls), ends, strict=True):
        results = waiting.get(call_id, deque())
        while results and results[0] < position:
            results.popleft()
        behind = bool(results) and results[0] < end and (limit is None or results[0] < limit)
        found.append(results.popleft() if behind else None)
    return found


def reach(passes: Sequence[bool]) -> list[int]:
    """For each place, the next one that does not pass: up to there, a result stands right behind its call."""
    places = [len(passes)] * len(passes)
    for position in range(len(passes) - 2, -1, -1):
        places[position] = places[position + 1] if passes[position + 1] else position + 1
    return places


def _anchors(placed: Sequence[Placed]) -> Sequence[int]:
    """For each position, that of the last assistant message of its run."""
    anchors = list(range(len(placed)))
    for position in range(len(placed) - 2, -1, -1):
        if all(isinstance(item.message, AssistantMessage) for item in placed[position : position + 2]):
            anchors[position] = anchors[position + 1]
    return anchors


def _limits(calls: Sequence[tuple[int, str]]) -> list[int | None]:
    """Up to where the result of each call may stand: the next place that calls with the same id."""
    limits: list[int | None] = []
    later: dict[str, tuple[int, int | None]] = {}
    for position, call_id in reversed(calls):
        at, limit = later.get(call_id, (position, None))
        limit = limit if at == position else at
        later[call_id] = (position, limit)
        limits.append(limit)
    limits.reverse()
    return limits


def complete(
    placed: Sequence[Placed], *, runs: bool = False, stored_elsewhere: bool = False
) -> tuple[list[Placed], list[Loss]]:
    """Answer calls that have no result, and turn results without a call into user text. Results must be settled.

    With ``runs``, adjoining assistant messages are answered together, behind the last of them. With
    ``stored_elsewhere`` the provider has earlier messages, so a result may answer a call that is not here.
    """
    out: list[Placed] = []
    losses: list[Loss] = []
    notes: list[Placed] = []
    due: dict[tuple[int, int], ToolCall] = {}
    places: dict[str | None, deque[tuple[int, int]]] = {}  # of the calls of an id that are due
    seen: set[str | None] = {None}
    last = 0

    def close() -> None:
        for call in due.values():
            out.append(Placed(last, missing(call)))
            losses.append(Loss("converted", "tool call", "had no result; a fixed one was added", last))
        due.clear()
        places.clear()
        out.extend(notes)
        notes.clear()

    for position, item in enumerate(placed):
        message = item.message
        if isinstance(message, ToolMessage):
            waiting = places.get(message.tool_call_id)
            if not waiting and stored_elsewhere and message.tool_call_id not in seen:
                seen.add(message.tool_call_id)
                out.append(item)
            elif not waiting:
                notes.append(Placed(item.index, result_as_user(message), note=True))
                losses.append(Loss("converted", "tool result", "answers no call; sent as user text", item.index))
            else:
                del due[waiting.popleft()]
                out.append(item)
        elif item.note:
            notes.append(item)
        else:
            adjoins = bool(out) and isinstance(out[-1].message, AssistantMessage) and not notes
            if not (runs and adjoins and isinstance(message, AssistantMessage)):
                close()
            out.append(item)
            last = item.index
            for number, call in enumerate(client_calls(message)):
                due[position, number] = call
                places.setdefault(call.id, deque()).append((position, number))
                seen.add(call.id)
    close()
    return out, losses


def missing(call: ToolCall, text: str = MISSING_RESULT, agent: str | None = None) -> ToolMessage:
    """The result of a call that has none: an error with a fixed text."""
    return ToolMessage(
        content=(Text(text),),
        agent=agent,
        tool_call_id=call.id,
        tool_name=call.name,
        is_error=True,
        source=REPAIR,
    )


def result_as_user(message: ToolMessage) -> UserMessage:
    """A result without a call, as user text; media stays media. What is not sent stays, but for ``provider``.

    A wire's field for a tool message may be none for a user message.
    """
    name = f" of {message.tool_name}" if message.tool_name else ""
    head = Text(f"[Tool {'error' if message.is_error else 'result'}{name}]")
    parts = (Text(bytes(part.value_json).decode()) if isinstance(part, Json) else part for part in message.content)
    return UserMessage(
        content=(head, *parts),
        id=message.id,
        agent=message.agent,
        mode=message.mode,
        tags=message.tags,
        sent_at=message.sent_at,
        source=message.source or REPAIR,
        verbatim=message.verbatim,
        payload_json=message.payload_json,
        metadata_json=message.metadata_json,
    )
