"""Approvals: plan tool calls, request decisions, and write both as records of the thread.

Rules (DAS-25, ADR 17):

- A call is planned in this order: find the tool by its name, check the arguments, ask the policy. ``deny`` wins over
  everything, then the tool's own rule, then the policy. A call that fails a step gets a result with the reason.
- A decision is ``approve``, ``edit`` (other arguments, checked again), ``reject`` or ``answer`` (a text in place of
  the result). Edited arguments that a caller passes to a run or a session must fit; those of a handler are checked
  when the tool would run, and the model is told. The request lists the allowed ones. The model's call in the thread
  does not change.
- Requests and decisions are records: messages without content, with the tag ``record``. No view shows them and no wire
  sends them. Another process can decide days later. A batch runs when all of its calls are decided
  (``palaver.turn.open_calls``).
- A run that would go on with a call does not begin when its tool is missing: the call still waits. ``reject`` and
  ``answer`` need no tool.

Stability: experimental.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from msgspec import Raw, Struct, structs

from palaver.core import jsontext
from palaver.core.errors import MessageError, PalaverError, excerpt
from palaver.core.messages import Message, SystemMessage
from palaver.core.parts import Json, ToolCall
from palaver.threads.view import RECORD
from palaver.turn.calls import PlannedCall
from palaver.turn.notes import MAY_HAVE_RUN, MAY_HAVE_RUN_BEFORE, NOT_RUN_UNDECIDED
from palaver.turn.tool import CHOICES, DecisionKind, Policy, Rule, as_rule, rule_of

if TYPE_CHECKING:
    from palaver.turn.tool import AgentTool, Toolbox


class DecisionError(MessageError):
    """Decisions do not fit the calls that wait. Nothing was decided."""

    error_code = "decision"


SOURCE: Final = "approval"
"""The ``source`` of records of requests and decisions."""
PENDING: Final = "pending"
"""The second tag of a record of requests. Stores search for it."""


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A request for a decision: the call as the model wrote it, its tool, the reason, and the allowed decisions."""

    call: ToolCall
    tool: str
    reason: str = ""
    choices: tuple[DecisionKind, ...] = CHOICES


class Decision(Struct, frozen=True, kw_only=True):
    """A decision. ``arguments`` belong to ``edit``; ``text`` is the reason of ``reject`` or the text of ``answer``.

    Where a client ran the call itself, ``is_json`` says that the text is the result as JSON, and ``is_error`` that it
    failed, and why.
    """

    kind: DecisionKind
    arguments: Mapping[str, Any] | None = None
    text: str = ""
    is_json: bool = False
    is_error: bool = False

    def __post_init__(self) -> None:
        """Refuse unknown kinds and values that a thread cannot store. Raises ``MessageError``."""
        kind, arguments, text = cast("tuple[object, object, object]", (self.kind, self.arguments, self.text))
        if kind not in CHOICES:
            raise MessageError(f"a decision is one of {', '.join(CHOICES)}, not {excerpt(repr(kind))}")
        if not isinstance(text, str):
            raise MessageError(f"{kind}: {excerpt(repr(text))} is not a text")
        if arguments is not None:
            if not isinstance(arguments, Mapping):
                raise MessageError(f"{kind}: {excerpt(repr(arguments))} is not a mapping of arguments")
            jsontext.checked(dict(cast("Mapping[str, Any]", arguments)), "arguments")
        if self.is_json and jsontext.unreadable(Raw(text.encode()), jsontext.DEEPEST):
            raise MessageError(f"{kind}: {excerpt(repr(text))} is not JSON")


def approve() -> Decision:
    """Run the call as it is."""
    return Decision(kind="approve")


def edit(arguments: Mapping[str, Any]) -> Decision:
    """Run the call with these ``arguments`` in place of its own.

    Raises ``MessageError`` unless they are a mapping of JSON values.
    """
    value = cast("object", arguments)
    return Decision(kind="edit", arguments=dict(arguments) if isinstance(value, Mapping) else arguments)


def reject(reason: str = "") -> Decision:
    """Do not run the call. The model gets the ``reason``; it may be empty."""
    return Decision(kind="reject", text=reason)


def answer(text: str) -> Decision:
    """Return ``text`` to the model in place of a result."""
    return Decision(kind="answer", text=text)


Decide: TypeAlias = Callable[[tuple[ApprovalRequest, ...]], Awaitable[Mapping[str, Decision]] | Mapping[str, Decision]]
"""A function from requests to decisions by call id, plain or async. A call without a decision stays pending.

If it raises or returns anything else, the run ends as ``waiting`` with that error, and all calls stay pending.
"""


def request(planned: PlannedCall) -> ApprovalRequest:
    """Return the request for a planned call that needs a decision."""
    return ApprovalRequest(
        call=planned.call,
        tool=planned.tool or planned.call.name,
        reason=planned.text,
        choices=tuple(planned.choices),  # type: ignore[arg-type]
    )


def resolved(planned: PlannedCall, decision: Decision, toolbox: Toolbox) -> PlannedCall:
    """Apply a decision to a call. Edited arguments that its tool refuses become a result with the reason."""
    refused = decision.kind == "answer" and decision.is_error  # that the call failed may always be said
    if decision.kind not in planned.choices and not refused:
        allowed = ", ".join(planned.choices)
        return _not_run(planned, "invalid", f"{decision.kind!r} is not allowed here, but {allowed}.", decision)
    if decision.kind == "reject":
        text = decision.text.strip()
        stop = "" if unicodedata.category(text[-1:] or ".").startswith("P") else "."
        reason = f" Reason: {text}{stop}" if text else ""
        name = planned.call.name
        text = f"The user rejected the {name} tool call.{reason} Do not retry it unless the user asks for it."
        if MAY_HAVE_RUN in planned.text:
            text = f"{text} {MAY_HAVE_RUN_BEFORE}"
        return _not_run(planned, "answered", text, decision)
    if decision.kind == "answer":
        content = (Json(Raw(decision.text.encode())),) if decision.is_json else ()
        answered = _not_run(planned, "answered", decision.text or "(no answer)", decision)
        return structs.replace(answered, content=content, is_error=decision.is_error)
    tool = toolbox.find(planned.tool or planned.call.name)
    if tool is None:
        return _not_run(planned, "invalid", toolbox.unknown(planned.call.name), decision)
    if decision.kind == "approve":
        return structs.replace(planned, verdict="run", metadata=_noted(decision))
    return _edited(planned, decision, tool.check)


def undecided(planned: PlannedCall) -> PlannedCall:
    """Answer a call that waits as not run, because the user went on without a decision about it."""
    text = MAY_HAVE_RUN if MAY_HAVE_RUN in planned.text else NOT_RUN_UNDECIDED
    return structs.replace(planned, verdict="invalid", text=text)


def _edited(planned: PlannedCall, decision: Decision, check: Callable[[ToolCall], Any]) -> PlannedCall:
    try:
        call = _with_arguments(planned.call, decision)
        arguments = check(call)
    except PalaverError as error:
        return _not_run(planned, "invalid", f"The edited arguments do not fit: {error}", decision)
    return structs.replace(planned, call=call, arguments=arguments, verdict="run", metadata=_noted(decision))


def _with_arguments(call: ToolCall, decision: Decision) -> ToolCall:
    text = bytes(jsontext.checked(dict(decision.arguments or {}), "arguments")).decode()
    return structs.replace(call, arguments_json=text)


def _not_run(planned: PlannedCall, verdict: Literal["invalid", "answered"], text: str, by: Decision) -> PlannedCall:
    return structs.replace(planned, verdict=verdict, text=text, metadata=_noted(by))


def _noted(decision: Decision) -> dict[str, Any]:
    """Return the result's metadata about the decision (DAS-25: the edit is recorded, the model's call stays)."""
    noted: dict[str, Any] = {"decision": decision.kind}
    if decision.arguments is not None:
        noted["arguments"] = dict(decision.arguments)
    return {SOURCE: noted}


# -- records -----------------------------------------------------------------------------------------------------------


def pending_record(calls: Iterable[PlannedCall], *, may_have_run: bool = False) -> SystemMessage:
    """Return the record that calls are pending. ``may_have_run``: calls of the batch may have run before it."""
    waiting = [
        {"call": each.call.id, "tool": each.tool, "reason": each.text, "choices": list(each.choices)}
        for each in calls
        if each.verdict == "ask"
    ]
    return _record({"pending": waiting, **({"begun": True} if may_have_run else {})}, PENDING)


def decided_record(
    decisions: Mapping[str, Decision], closed: Sequence[str] = (), handled: Iterable[str] = ()
) -> SystemMessage:
    """Return the record of decisions; the batch may run when nothing is pending any more.

    ``closed`` are the ids of calls that are not run, because the user went on without a decision about them;
    ``handled`` those that the ``decide`` of the run decided.
    """
    decided: dict[str, Any] = {}
    for call, decision in decisions.items():
        flags = {name: True for name in ("is_json", "is_error") if getattr(decision, name)}
        decided[call] = {"decision": decision.kind, "text": decision.text, **flags}
        if decision.arguments is not None:
            decided[call]["arguments"] = dict(decision.arguments)
    more = {"closed": list(closed), "handled": list(handled)}
    return _record({"decided": decided, **{key: each for key, each in more.items() if each}})


def _record(payload: dict[str, Any], *tags: str) -> SystemMessage:
    return SystemMessage(source=SOURCE, tags=(RECORD, *tags), mode="tool").replace(payload=payload)


class Recorded(Struct, frozen=True):
    """The records behind a message with calls: the last request of each call, and the decisions since."""

    requests: Mapping[str, ApprovalRequest] = {}
    decided: Mapping[str, Decision] = {}
    may_have_run: bool = False
    """Whether calls may have run before a request was made."""
    closed: frozenset[str] = frozenset()
    """The requests that nobody decides any more."""
    handled: frozenset[str] = frozenset()
    """The requests that the ``decide`` of a run decided, before anybody else saw them."""

    @property
    def asked(self) -> frozenset[str]:
        """The calls that somebody outside of a run was asked about."""
        return frozenset(self.requests.keys() - self.handled)

    @property
    def pending(self) -> Mapping[str, ApprovalRequest]:
        """The requests that wait for a decision."""
        over = self.decided.keys() | self.closed
        return {call: each for call, each in self.requests.items() if call not in over}


def recorded(messages: Sequence[Message], calls: Sequence[ToolCall]) -> Recorded:
    """Read the approval records among messages, for some calls. Later records win."""
    by_id = {call.id: call for call in calls}
    requests: dict[str, ApprovalRequest] = {}
    decided: dict[str, Decision] = {}
    closed: set[str] = set()
    handled: set[str] = set()
    may_have_run = False
    for message in messages:
        if message.source != SOURCE or RECORD not in message.tags:
            continue
        payload = message.payload
        may_have_run = may_have_run or bool(payload.get("begun"))
        for each in payload.get("pending", ()):
            if each["call"] in by_id:
                decided.pop(each["call"], None)
                closed.discard(each["call"])
                handled.discard(each["call"])
                requests[each["call"]] = _request_of(by_id[each["call"]], each)
        for call, each in payload.get("decided", {}).items():
            if call in requests:
                decided[call] = _decision_of(each)
        closed.update(requests.keys() & payload.get("closed", ()))
        handled.update(requests.keys() & payload.get("handled", ()))
    return Recorded(requests, decided, may_have_run, frozenset(closed), frozenset(handled))


def _decision_of(payload: Mapping[str, Any]) -> Decision:
    return Decision(
        kind=payload["decision"],
        text=payload["text"],
        arguments=payload.get("arguments"),
        is_json=bool(payload.get("is_json")),
        is_error=bool(payload.get("is_error")),
    )


def _request_of(call: ToolCall, payload: Mapping[str, Any]) -> ApprovalRequest:
    return ApprovalRequest(call=call, tool=payload["tool"], reason=payload["reason"], choices=tuple(payload["choices"]))


def checked_mapping(value: object, where: str) -> Mapping[str, Decision]:
    """Check decisions by call id. Raises ``MessageError`` for anything else."""
    if not isinstance(value, Mapping):
        raise MessageError(f"{where}: {excerpt(repr(value))} is not a mapping of decisions by call id")
    table = cast("Mapping[object, object]", value)
    for call, each in table.items():
        if not isinstance(call, str) or not isinstance(each, Decision):
            shown = f"{excerpt(repr(call), 40)}: {excerpt(repr(each), 80)}"
            raise MessageError(f"{where}: {shown} is not a decision by call id; use approve(), reject(…)")
    return cast("Mapping[str, Decision]", value)


def checked_choices(decisions: Mapping[str, Decision], requests: Iterable[ApprovalRequest]) -> None:
    """Refuse decisions that their request does not allow. Raises ``DecisionError``."""
    for each in requests:
        decision = decisions.get(each.call.id)
        if decision is not None and decision.kind not in each.choices:
            allowed = ", ".join(each.choices)
            raise DecisionError(
                f"{decision.kind!r} is not allowed for call {excerpt(each.call.id)!r} of {each.tool!r}, but {allowed}"
            )


def checked_edits(
    decisions: Mapping[str, Decision], requests: Iterable[ApprovalRequest], find: Callable[[str], AgentTool | None]
) -> None:
    """Refuse edited arguments that do not fit their tool, which ``find`` looks up. Raises ``DecisionError``."""
    for each in requests:
        decision, tool = decisions.get(each.call.id), find(each.tool)
        if decision is None or decision.kind != "edit" or tool is None:
            continue
        try:
            tool.check(_with_arguments(each.call, decision))
        except PalaverError as error:
            shown = excerpt(each.call.id)
            raise DecisionError(f"the edited arguments of call {shown!r} do not fit {each.tool!r}: {error}") from None


def checked_decisions(decisions: Mapping[str, Decision], requests: Iterable[ApprovalRequest]) -> None:
    """Refuse decisions about calls that are not pending. Raises ``DecisionError``."""
    pending_ids = {each.call.id for each in requests}
    unknown = sorted(decisions.keys() - pending_ids)
    if unknown:
        waiting = ", ".join(sorted(pending_ids)) or "nothing"
        raise DecisionError(f"nothing is pending for call {excerpt(unknown[0])!r}; pending: {waiting}")


def missing_tools(
    known: Recorded,
    decisions: Mapping[str, Decision],
    find: Callable[[str], AgentTool | None],
    *,
    closing: bool = False,
) -> tuple[ApprovalRequest, ...]:
    """Return the requests that a run cannot go on with, because ``find`` does not know their tool.

    ``decisions`` are new ones. ``closing``: the run closes the calls that nobody has decided.
    """
    decided = {**known.decided, **decisions}
    kinds = {call: decided[call].kind if call in decided else None for call in known.requests.keys() - known.closed}
    going_on = {call for call, kind in kinds.items() if kind not in _WITHOUT_TOOL and not (closing and kind is None)}
    return tuple([each for call, each in known.requests.items() if call in going_on and find(each.tool) is None])


def checked_tools(missing: Sequence[ApprovalRequest]) -> None:
    """Raise ``MessageError`` for the first of the requests whose tools are ``missing``."""
    for each in missing:
        raise MessageError(
            f"tools: call {excerpt(each.call.id)!r} waits for {excerpt(each.tool)!r}, which is not among them; "
            "nothing was changed"
        )


# -- planning ----------------------------------------------------------------------------------------------------------


_WITHOUT_TOOL: Final = ("reject", "answer")
"""The decisions after which the tool does not run."""
DENIED: Final = "The {name} tool may not be called here."
DUPLICATE: Final = "Not run: an earlier call of this answer has the same id. Call again, with an id of its own."


async def plan(
    calls: Sequence[tuple[int, ToolCall]],
    toolbox: Toolbox,
    policy: Policy,
    *,
    may_have_run: bool = False,
    known: Recorded = Recorded(),  # noqa: B008 (frozen)
) -> tuple[PlannedCall, ...]:
    """Plan calls, each with its index in its message; ``known`` is what the records say about them."""
    return tuple(
        [await _planned(index, call, toolbox, policy, known, may_have_run=may_have_run) for index, call in calls]
    )


def refuse_duplicate_ids(planned: Sequence[PlannedCall], calls: Sequence[ToolCall]) -> tuple[PlannedCall, ...]:
    """Refuse each call of an answer (``calls``) whose id an earlier call of it has, where approvals are needed.

    Decisions are by id, and one decision must not apply to two calls.
    """
    first: dict[str, int] = {}
    for index, call in enumerate(calls):
        first.setdefault(call.id, index)
    return tuple(
        [
            each if first[each.call.id] == each.index else structs.replace(each, verdict="invalid", text=DUPLICATE)
            for each in planned
        ]
    )


async def _planned(
    index: int, call: ToolCall, toolbox: Toolbox, policy: Policy, known: Recorded, *, may_have_run: bool
) -> PlannedCall:
    tool = toolbox.find(call.name)
    approval, decision = known.requests.get(call.id), known.decided.get(call.id)
    if tool is None and approval is not None:
        asked = _asking(PlannedCall(index, call, approval.tool), approval.reason, approval.choices)
        return asked if decision is None else resolved(asked, decision, toolbox)
    if tool is None:
        return PlannedCall(index, call, verdict="invalid", text=toolbox.unknown(call.name))
    try:
        arguments = tool.check(call)
    except PalaverError as error:
        return PlannedCall(index, call, tool.name, tool.effect, "invalid", str(error))
    rule = rule_of(policy, call, tool.name, reads=tool.effect == "read")
    if not isinstance(rule, Rule):
        rule = as_rule(await rule)
    planned = PlannedCall(index, call, tool.name, tool.effect, arguments=arguments)
    risky = (may_have_run or known.may_have_run) and not tool.is_repeatable
    if rule.judgement == "deny":
        text = rule.text or " ".join(filter(None, (DENIED.format(name=tool.name), rule.reason)))
        text = f"{text} {MAY_HAVE_RUN_BEFORE}" if risky else text
        return structs.replace(planned, verdict="deny", text=text, arguments=None)
    if approval is None:
        return _ruled(planned, tool.rule or rule, risky=risky)
    planned = _asking(planned, approval.reason, approval.choices)
    if decision is None:
        return planned
    decided = resolved(planned, decision, toolbox)
    again = decided.verdict == "run" and may_have_run and not tool.is_repeatable
    return _asking(planned, MAY_HAVE_RUN, approval.choices) if again else decided


def _ruled(planned: PlannedCall, rule: Rule, *, risky: bool) -> PlannedCall:
    if rule.judgement == "ask":
        reason = f"{rule.reason} {MAY_HAVE_RUN}".strip() if risky else rule.reason
        return _asking(planned, reason, rule.choices)
    return _asking(planned, MAY_HAVE_RUN, CHOICES) if risky else planned


def _asking(planned: PlannedCall, reason: str, choices: Sequence[str]) -> PlannedCall:
    return structs.replace(planned, verdict="ask", text=reason, choices=tuple(choices))
