"""Calls that wait for a decision: how a task says so, and how a message of the client decides them.

- A turn that waits is a task in the state ``input-required``. The message of its status names each call, and has a data
  part ``{"pending": […], "run"}``: the calls and the name of the turn, as ``GET …/approvals`` of HTTP returns them.
- The client's next message of the task decides: a data part ``{"decisions": {CALL: {"decision": "approve"}}}``, as
  ``POST …/decisions`` takes it. A text answers where the only call that waits takes nothing but an answer, such as a
  question to the user. Any other text is the next message of the conversation, and closes the calls.
- A task decides the calls of its own turn only, which its status named last: another task of its context may wait, too.
- Decisions that do not fit leave the task as it is: the status says why.

Source: https://a2a-protocol.org/latest/specification/ (``TASK_STATE_INPUT_REQUIRED``, multi-turn interactions).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.serve.a2a.sdk import Message, MessageToDict, ParseDict, Part, Role, Task
from palaver.serve.http.access import UserDecisions, parse_decisions
from palaver.serve.http.turns import public_requests
from palaver.threads.ids import uuid7
from palaver.turn.approvals import answer

if TYPE_CHECKING:
    from palaver.serve.workers import PendingTurn
    from palaver.turn.approvals import ApprovalRequest

_DECISIONS: Final = "decisions"
_PENDING: Final = "pending"


def waiting_message(waiting: PendingTurn, why: str = "") -> Message:
    """Return the message of the status of a task whose turn is ``waiting``. ``why`` is what was wrong, if anything."""
    lines = [why, *map(_line, waiting.requests)]
    named = {} if waiting.run is None else {"run": waiting.run}
    data = {"data": {_PENDING: public_requests(waiting.requests), **named}}
    parts = [Part(text="\n".join(filter(None, lines))), ParseDict(data, Part())]
    return Message(role=Role.ROLE_AGENT, message_id=uuid7(), parts=parts)


def waiting_turn(task: Task) -> str | None:
    """Return the name of the turn that a ``task`` said last that it waits for; ``None`` if it never did."""
    for message in (task.status.message, *reversed(task.history)):
        for part in message.parts if message.role == Role.ROLE_AGENT else ():
            found = _data_of(part)
            if _PENDING in found:
                run = found.get("run")
                return run if isinstance(run, str) else None
    return None


def _line(request: ApprovalRequest) -> str:
    asked = f"{request.tool} {request.call.arguments_json} waits for a decision: {', '.join(request.choices)}."
    return f"{asked} {request.reason}".strip()


def decisions_of(message: Message, text: str, waiting: PendingTurn) -> UserDecisions | None:
    """Return what a message of a task decides, of which ``text`` is the text; ``None`` where it is a plain message.

    ``waiting`` is the turn that the task waits for. Raises ``DecodeError`` for decisions that are not of their form,
    beside a text, or of another turn.
    """
    for part in message.parts:
        found = _data_of(part)
        if _DECISIONS in found:
            if len(message.parts) > 1:
                raise DecodeError("decisions are sent alone, a text is the next message", path="parts", source="a2a")
            if waiting.run is None:
                raise DecodeError("no call of this task has waited", path="decisions", source="a2a")
            given = parse_decisions(jsontext.encode(_whole(found)))
            if given.run not in {None, waiting.run}:
                why = f"the calls of this task belong to the turn {waiting.run!r}"
                raise DecodeError(why, path="run", source="a2a")
            return UserDecisions(decisions=given.decisions, run=waiting.run)
    only = waiting.requests[0] if len(waiting.requests) == 1 else None
    if only is not None and only.choices == ("answer",):
        return UserDecisions(decisions={only.call.id: answer(text)}, run=waiting.run)
    return None


def _data_of(part: Part) -> Mapping[str, Any]:
    """Return the object of a data part; an empty one for any other part."""
    found: Any = MessageToDict(part).get("data") if part.WhichOneof("content") == "data" else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _whole(value: object) -> object:
    """Return a JSON value with whole numbers as such: the SDK reads all numbers as doubles."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(each) for each in cast("list[object]", value)]
        case dict():
            return {key: _whole(each) for key, each in cast("Mapping[str, object]", value).items()}
        case _:
            return value
