"""Requests for approval, decisions, and how both are kept in the thread.

Rules:

- A decision is ``approve``, ``edit`` (other arguments, checked again like the model's own), ``reject`` (the model is
  told, with the reason), or ``answer`` (a text stands in place of the result). A request says which are allowed;
  one that is not is refused at the call that brings it, and what is pending stays so; from ``decide``, within a run,
  it is a failure of that call, and so are edited arguments that do not fit the tool. A rejection is none (DAS-25).
- The model's call stays as it was in the thread. What was decided is kept in records: messages without content, with
  the tag ``record``, which no view shows and no wire sends. So a process can stop while something is pending, and
  another one goes on days later. What was decided is never asked again, unless the call may have run half.
- A batch runs when all of it is decided. Records are read in their order: what is asked anew is pending again.
- Asking the user is the same mechanism: a tool whose calls can only be answered (``ask_user``).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct, structs

from palaver.agent.calls import PlannedCall
from palaver.agent.notes import MAY_HAVE_RUN, MAY_HAVE_RUN_BEFORE
from palaver.agent.permission import CHOICES, DecisionKind
from palaver.core import jsontext
from palaver.core.errors import MessageError, PalaverError, excerpt
from palaver.core.messages import Message, SystemMessage
from palaver.core.parts import ToolCall
from palaver.threads.view import RECORD

SOURCE: Final = "approval"
"""The ``source`` of records of what is pending, and of what was decided."""
PENDING: Final = "pending"
"""The second tag of a record of what is pending, by which a store finds it."""


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """Something to decide: a call as the model wrote it, the tool it means, why it is asked, what may be decided."""

    call: ToolCall
    tool: str
    reason: str = ""
    choices: tuple[DecisionKind, ...] = CHOICES


class Decision(Struct, frozen=True, kw_only=True):
    """What was decided. ``arguments`` belong to ``edit``; ``text`` is the reason of ``reject`` or the ``answer``."""

    kind: DecisionKind
    arguments: Mapping[str, Any] | None = None
    text: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no decision, and what cannot be kept in a thread. Raises ``MessageError``."""
        kind, arguments, text = cast("tuple[object, object, object]", (self.kind, self.arguments, self.text))
        if kind not in CHOICES:
            raise MessageError(f"a decision is one of {', '.join(CHOICES)}, not {excerpt(repr(kind))}")
        if not isinstance(text, str):
            raise MessageError(f"{kind}: {excerpt(repr(text))} is not a text")
        if arguments is not None:
            if not isinstance(arguments, Mapping):
                raise MessageError(f"{kind}: {excerpt(repr(arguments))} is no mapping of arguments")
            jsontext.checked(dict(cast("Mapping[str, Any]", arguments)), "arguments")


def approve() -> Decision:
    """Let it run as it is."""
    return Decision(kind="approve")


def edit(arguments: Mapping[str, Any]) -> Decision:
    """Let it run with other arguments. Raises ``MessageError`` for what is no mapping that JSON can say."""
    given = cast("object", arguments)
    return Decision(kind="edit", arguments=dict(arguments) if isinstance(given, Mapping) else arguments)


def reject(reason: str = "") -> Decision:
    """Do not let it run, and tell the model why."""
    return Decision(kind="reject", text=reason)


def answer(text: str) -> Decision:
    """Give the model this text in place of a result."""
    return Decision(kind="answer", text=text)


Decide: TypeAlias = Callable[[tuple[ApprovalRequest, ...]], Awaitable[Mapping[str, Decision]] | Mapping[str, Decision]]
"""Decides: requests in, decisions by the id of the call out. What is left out stays pending.

Where it raises, or gives anything else, the run ends as ``waiting`` with that error, and all of it stays pending.
"""


def request(planned: PlannedCall) -> ApprovalRequest:
    """What is to be decided of a call that asks."""
    return ApprovalRequest(
        call=planned.call,
        tool=planned.tool or planned.call.name,
        reason=planned.text,
        choices=tuple(planned.choices),  # type: ignore[arg-type]
    )


def resolved(planned: PlannedCall, decision: Decision, check: Callable[[ToolCall], Any]) -> PlannedCall:
    """What becomes of a call by a decision. ``check`` reads edited arguments, and raises what the model is told."""
    if decision.kind not in planned.choices:
        allowed = ", ".join(planned.choices)
        return _not_run(planned, "invalid", f"{decision.kind!r} is not allowed here, but {allowed}.", decision)
    if decision.kind == "approve":
        return structs.replace(planned, verdict="run", metadata=_noted(decision))
    if decision.kind == "reject":
        reason = f" Reason: {decision.text}" if decision.text else ""
        name = planned.call.name
        text = f"The user rejected the {name} tool call.{reason} Do not retry it unless the user asks for it."
        if MAY_HAVE_RUN in planned.text:
            text = f"{text} {MAY_HAVE_RUN_BEFORE}"
        return _not_run(planned, "answered", text, decision)
    if decision.kind == "answer":
        return _not_run(planned, "answered", decision.text or "(no answer)", decision)
    return _edited(planned, decision, check)


def _edited(planned: PlannedCall, decision: Decision, check: Callable[[ToolCall], Any]) -> PlannedCall:
    try:
        text = bytes(jsontext.checked(dict(decision.arguments or {}), "arguments")).decode()
        call = structs.replace(planned.call, arguments_json=text)
        arguments = check(call)
    except PalaverError as error:
        return _not_run(planned, "invalid", f"The edited arguments do not fit: {error}", decision)
    return structs.replace(planned, call=call, arguments=arguments, verdict="run", metadata=_noted(decision))


def _not_run(planned: PlannedCall, verdict: Literal["invalid", "answered"], text: str, by: Decision) -> PlannedCall:
    return structs.replace(planned, verdict=verdict, text=text, metadata=_noted(by))


def _noted(decision: Decision) -> dict[str, Any]:
    """What the result says of the decision (DAS-25: the edit is recorded, the model's call stays)."""
    noted: dict[str, Any] = {"decision": decision.kind}
    if decision.arguments is not None:
        noted["arguments"] = dict(decision.arguments)
    return {SOURCE: noted}


# -- records ---------------------------------------------------------------------------------------------------------


def pending_record(calls: Iterable[PlannedCall], *, begun: bool = False) -> SystemMessage:
    """The record that calls wait for a decision; nothing of their batch has run since, but maybe before (``begun``)."""
    waiting = [
        {"call": each.call.id, "tool": each.tool, "reason": each.text, "choices": list(each.choices)}
        for each in calls
        if each.verdict == "ask"
    ]
    return _record({"pending": waiting, **({"begun": True} if begun else {})}, PENDING)


def decided_record(decisions: Mapping[str, Decision]) -> SystemMessage:
    """The record of what was decided; when nothing is pending any more, the batch may run."""
    told: dict[str, Any] = {}
    for call, decision in decisions.items():
        told[call] = {"decision": decision.kind, "text": decision.text}
        if decision.arguments is not None:
            told[call]["arguments"] = dict(decision.arguments)
    return _record({"decided": told})


def _record(payload: dict[str, Any], *tags: str) -> SystemMessage:
    return SystemMessage(source=SOURCE, tags=(RECORD, *tags), mode="tool").replace(payload=payload)


class Recorded(Struct, frozen=True):
    """What the records behind a calling message say: what was asked last of each call, and what was decided since."""

    asked: Mapping[str, ApprovalRequest] = {}
    decided: Mapping[str, Decision] = {}
    begun: bool = False
    """Whether calls may have been run before something was asked."""

    @property
    def pending(self) -> Mapping[str, ApprovalRequest]:
        """What is still to be decided."""
        return {call: each for call, each in self.asked.items() if call not in self.decided}


def recorded(messages: Sequence[Message], calls: Sequence[ToolCall]) -> Recorded:
    """Read the records that stand among messages, for some calls; the later one holds."""
    by_id = {call.id: call for call in calls}
    asked: dict[str, ApprovalRequest] = {}
    decided: dict[str, Decision] = {}
    begun = False
    for message in messages:
        if message.source != SOURCE or RECORD not in message.tags:
            continue
        said = message.payload
        begun = begun or bool(said.get("begun"))
        for each in said.get("pending", ()):
            if each["call"] in by_id:
                decided.pop(each["call"], None)
                asked[each["call"]] = _asked(by_id[each["call"]], each)
        for call, each in said.get("decided", {}).items():
            if call in asked:
                decided[call] = Decision(kind=each["decision"], text=each["text"], arguments=each.get("arguments"))
    return Recorded(asked, decided, begun)


def _asked(call: ToolCall, said: Mapping[str, Any]) -> ApprovalRequest:
    return ApprovalRequest(call=call, tool=said["tool"], reason=said["reason"], choices=tuple(said["choices"]))


def checked_mapping(given: object, where: str) -> Mapping[str, Decision]:
    """Decisions by the id of the call, as they were given. Raises ``MessageError`` for anything else."""
    if not isinstance(given, Mapping):
        raise MessageError(f"{where}: {excerpt(repr(given))} is no mapping of decisions by the id of the call")
    table = cast("Mapping[object, object]", given)
    for call, each in table.items():
        if not isinstance(call, str) or not isinstance(each, Decision):
            shown = f"{excerpt(repr(call), 40)}: {excerpt(repr(each), 80)}"
            raise MessageError(f"{where}: {shown} is no decision by the id of a call; such are approve(), reject(…)")
    return cast("Mapping[str, Decision]", given)


def checked_choices(decisions: Mapping[str, Decision], requests: Iterable[ApprovalRequest]) -> None:
    """Refuse decisions that are not among the choices of their request. Raises ``MessageError``."""
    for each in requests:
        decision = decisions.get(each.call.id)
        if decision is not None and decision.kind not in each.choices:
            allowed = ", ".join(each.choices)
            raise MessageError(
                f"{decision.kind!r} is not allowed for call {excerpt(each.call.id)!r} of {each.tool!r}, but {allowed}"
            )


def checked_decisions(decisions: Mapping[str, Decision], requests: Iterable[ApprovalRequest]) -> None:
    """Refuse decisions of what nobody asked. Raises ``MessageError``."""
    asked = {each.call.id for each in requests}
    unknown = sorted(decisions.keys() - asked)
    if unknown:
        waiting = ", ".join(sorted(asked)) or "nothing"
        raise MessageError(f"nothing is pending for call {excerpt(unknown[0])!r}; pending: {waiting}")
