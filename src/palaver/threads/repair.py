"""Repair of broken tool pairs: takes a history, and returns it or a repaired copy, with a receipt.

Rules (docs/spec/pains.md#1 to #3, #19; docs/spec/wires.md#9):

- The thread keeps the history as it was; repair makes the copy that is replayed. Nothing is changed in place: messages
  that need no repair are the same objects, and a history that needs none is returned as the same object.
- A result answers the nearest call of its id before it, and stands right behind its call: only other results and
  markers may stand between. A result elsewhere is moved there. A result that names no call gets the id of the only open
  call right before it that can be meant (``core.pairs.tied``); where two can be, nothing is guessed.
- A call that the application must answer and that has no result gets one with a fixed text, marked as an error
  (``unanswered="answer"``), or is left out (``"drop"``): a user, system or developer message, and the end, are then
  boundaries that no result crosses; every call of an id counts as answered when a result of that id follows it before
  the next boundary, and those that shared it are answered as above. Calls that the provider runs stay.
- A result without a call, a second one for the same call, and one that names no call and fits none are orphans: sent as
  user text (``orphans="tell"``), kept where they stand (``"keep"``: commands that a user ran), or left out
  (``"drop"``).
- An id belongs to the first call that has it. A later one gets ``<id>-2``, and so on, as does its result; ids that
  occur anywhere in the history are never given.
- A turn that broke off (``finish_reason`` is ``"error"``) is replayed without reasoning that has no proof, and the
  results it lacks say that it was interrupted.
- An assistant message that repair leaves empty is removed. Malformed calls are left to the wires.
- Pure and deterministic; doing it twice does nothing new. Costs the length of the history.

After a repair, wires find no pair to repair, except orphans that were kept.

Stability: experimental.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, TypeGuard, cast

from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.pairs import BETWEEN, MISSING_RESULT, TIED, missing, paired, reach, result_as_user, tied
from palaver.core.parts import AnyPart, Reasoning, ToolCall
from palaver.core.request import Loss
from palaver.core.type_checks import check_arguments

Unanswered: TypeAlias = Literal["answer", "drop"]
Orphans: TypeAlias = Literal["tell", "keep", "drop"]

INTERRUPTED_RESULT: Final = "No result: the turn was interrupted."

_BOUNDARIES: Final = (UserMessage, SystemMessage, DeveloperMessage)
_RESULT_TEXTS: Final = {
    False: (MISSING_RESULT, "had no result; a fixed one was added"),
    True: (INTERRUPTED_RESULT, "the turn ended before its result; a fixed one was added"),
}


class Repaired(NamedTuple):
    """The history to replay, and the repairs. ``repairs`` name places in the history that was given."""

    messages: Sequence[Message]
    repairs: tuple[Loss, ...]


_At: TypeAlias = tuple[int, int]
"""The place of a part: its message, and its position there."""


class _Call(NamedTuple):
    """A call that stays, and the place of the result that answers it."""

    at: _At
    call: ToolCall
    answer: int | None


def repair(messages: Sequence[Message], *, unanswered: Unanswered = "answer", orphans: Orphans = "tell") -> Repaired:
    """Complete every tool pair in ``messages``, and leave out what a broken turn left that cannot be replayed.

    ``unanswered`` is ``"answer"`` (a call without a result gets a fixed error result) or ``"drop"`` (the call is left
    out). ``orphans`` is ``"tell"`` (a result without a call becomes user text), ``"keep"`` or ``"drop"``. Raises
    ``MessageError`` for any other value.
    """
    check_arguments("repair", repair, {"unanswered": unanswered, "orphans": orphans})
    if is_whole(messages):
        return Repaired(messages, ())
    given = messages
    messages, repairs = _tied(messages)
    left_out = _unproven(messages)
    if unanswered == "drop":
        left_out |= _unanswered(messages)
    calls = _calls(messages, left_out, bounded=unanswered == "drop")
    renamed = _renamed(calls, messages)
    edited = _edited(messages, left_out, renamed, repairs)
    for each in calls:
        if each.at in renamed and each.answer is not None:
            result = cast("ToolMessage", messages[each.answer])
            edited[each.answer] = result.replace(tool_call_id=renamed[each.at])
            repairs.append(Loss("converted", "tool result", "its call got a new id", each.answer))
    out = _placed(edited, calls, renamed, orphans, repairs)
    if not repairs:
        return Repaired(given, ())
    return Repaired(out, tuple(sorted(repairs, key=_place)))


def is_whole(messages: Sequence[Message]) -> bool:
    """Whether there is clearly nothing to repair: one cheap pass, before the expensive ones.

    It is true when no id is used twice, every call is directly followed by its results alone, and no turn broke off.
    """
    used: set[str | None] = set()
    due: set[str | None] = set()
    for message in messages:
        if type(message) is ToolMessage:
            if message.tool_call_id not in due:
                return False
            due.remove(message.tool_call_id)
        elif due:
            return False
        elif type(message) is AssistantMessage:
            if message.finish_reason == "error":
                return False
            for part in message.content:
                if type(part) is ToolCall and not part.provider_executed:
                    if part.id in used:
                        return False
                    used.add(part.id)
                    due.add(part.id)
    return not due


def _place(loss: Loss) -> tuple[int, int]:
    return (-1 if loss.message is None else loss.message, -1 if loss.part is None else loss.part)


def _tied(messages: Sequence[Message]) -> tuple[Sequence[Message], list[Loss]]:
    """The history with the ids of the calls that results without one answer."""
    ties = tied(messages)
    if not ties:
        return messages, []
    edited = list(messages)
    for place, call_id in ties.items():
        edited[place] = cast("ToolMessage", edited[place]).replace(tool_call_id=call_id)
    return edited, [Loss("converted", "tool result", TIED, place) for place in ties]


def _calls(messages: Sequence[Message], left_out: Mapping[_At, Loss], *, bounded: bool) -> list[_Call]:
    """The calls that stay, each with its result. ``bounded`` says that no result crosses a boundary."""
    found = [
        ((index, position), part)
        for index, message in enumerate(messages)
        for position, part in enumerate(message.content)
        if _is_ours(part) and (index, position) not in left_out
    ]
    ends = reach([not (bounded and isinstance(message, _BOUNDARIES)) for message in messages])
    answers = paired([(at[0], call.id) for at, call in found], messages, [ends[at[0]] for at, _ in found])
    return [_Call(at, call, answer) for (at, call), answer in zip(found, answers, strict=True)]


def _is_ours(part: AnyPart) -> TypeGuard[ToolCall]:
    """Whether it is a call that the application must answer."""
    return isinstance(part, ToolCall) and not part.provider_executed


# -- what is left out --------------------------------------------------------------------------------------------------


def _unproven(messages: Sequence[Message]) -> dict[_At, Loss]:
    """Reasoning of broken turns whose proof never came; an empty proof is none (docs/spec/wires.md#1.5)."""
    why = "the turn ended before its signature arrived"
    return {
        (index, position): Loss("dropped", "reasoning", why, index, position)
        for index, message in enumerate(messages)
        if _broke_off(message)
        for position, part in enumerate(message.content)
        if isinstance(part, Reasoning) and not part.signature and not part.encrypted
    }


def _broke_off(message: Message | None) -> bool:
    return isinstance(message, AssistantMessage) and message.finish_reason == "error"


def _unanswered(messages: Sequence[Message]) -> dict[_At, Loss]:
    """Calls that no result of their id follows before the next boundary."""
    found: dict[_At, Loss] = {}
    answered: set[str | None] = set()
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, _BOUNDARIES):
            answered = set()
        elif isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        for position, part in enumerate(message.content):
            if _is_ours(part) and part.id not in answered:
                found[index, position] = Loss("dropped", "tool call", "had no result", index, position)
    return found


# -- what is changed ---------------------------------------------------------------------------------------------------


def _renamed(calls: Sequence[_Call], messages: Sequence[Message]) -> dict[_At, str]:
    """New ids for calls whose id an earlier call has."""
    first: dict[str, _At] = {}
    later = [each for each in calls if first.setdefault(each.call.id, each.at) != each.at]
    if not later:
        return {}
    taken = {part.id for message in messages for part in message.content if isinstance(part, ToolCall)}
    taken.update(message.tool_call_id or "" for message in messages if isinstance(message, ToolMessage))
    counts: dict[str, int] = {}
    renamed: dict[_At, str] = {}
    for at, call, _ in later:
        count = counts.get(call.id, 2)
        while f"{call.id}-{count}" in taken:
            count += 1
        counts[call.id] = count
        renamed[at] = f"{call.id}-{count}"
        taken.add(renamed[at])
    return renamed


def _edited(
    messages: Sequence[Message], left_out: Mapping[_At, Loss], renamed: Mapping[_At, str], repairs: list[Loss]
) -> list[Message | None]:
    """The messages without what is left out, their calls with new ids; ``None`` where nothing is left."""
    edited: list[Message | None] = list(messages)
    repairs += left_out.values()
    repairs += [Loss("converted", "tool call", "an earlier call has its id; it got a new one", *at) for at in renamed]
    for index in dict.fromkeys([index for index, _ in (*left_out, *renamed)]):
        message = messages[index]
        content = [
            cast("ToolCall", part).replace(id=renamed[index, position]) if (index, position) in renamed else part
            for position, part in enumerate(message.content)
            if (index, position) not in left_out
        ]
        edited[index] = message.replace(content=content) if content else None
        if not content:
            repairs.append(Loss("dropped", "message", "nothing was left of it", index))
    return edited


# -- where everything stands -------------------------------------------------------------------------------------------


def _placed(
    edited: Sequence[Message | None],
    calls: Sequence[_Call],
    renamed: Mapping[_At, str],
    orphans: Orphans,
    repairs: list[Loss],
) -> tuple[Message, ...]:
    """Return the messages with every result behind its call, missing results added, and orphans handled."""
    ends, behind, moved = _around(edited, calls, renamed, repairs)
    claimed = {each.answer for each in calls}
    out: list[Message] = []
    end = 0
    for index, message in enumerate(edited):
        if isinstance(message, ToolMessage) and index not in claimed:
            kept = _orphan(message, index, orphans, repairs)
            if kept is not None:  # text may not part a call from its results
                (behind[end] if index < end and kept is not message else out).append(kept)
        elif message is not None and index not in moved:
            out.append(message)
        end = ends.get(index, end)
        out += behind.pop(index, ())
    return tuple(out)


def _around(
    edited: Sequence[Message | None], calls: Sequence[_Call], renamed: Mapping[_At, str], repairs: list[Loss]
) -> tuple[dict[int, int], defaultdict[int, list[Message]], set[int]]:
    """Where the results behind each calling message end, what must follow there, and which results are moved."""
    reaches = reach([message is None or isinstance(message, BETWEEN) for message in edited])
    ends: dict[int, int] = {}
    for (index, _), _, answer in calls:
        near = answer if answer is not None and answer < reaches[index] else index
        ends[index] = max(ends.get(index, index), near)
    behind: defaultdict[int, list[Message]] = defaultdict(list)
    moved: set[int] = set()
    for at, call, answer in calls:
        index, position = at
        if answer is None:
            text, why = _RESULT_TEXTS[_broke_off(edited[index])]
            spelled = call.replace(id=renamed[at]) if at in renamed else call
            behind[ends[index]].append(missing(spelled, text, cast("Message", edited[index]).agent))
            repairs.append(Loss("converted", "tool call", why, index, position))
        elif answer >= reaches[index]:
            behind[ends[index]].append(cast("Message", edited[answer]))
            moved.add(answer)
            repairs.append(Loss("converted", "tool result", "moved to its call", answer))
    return ends, behind, moved


def _orphan(message: ToolMessage, index: int, orphans: Orphans, repairs: list[Loss]) -> Message | None:
    match orphans:
        case "keep":
            return message
        case "tell":
            repairs.append(Loss("converted", "tool result", "answers no call; sent as user text", index))
            return result_as_user(message)
        case "drop":
            repairs.append(Loss("dropped", "tool result", "answers no call", index))
            return None
