"""Approvals: planning calls, requests and decisions, and how the thread keeps both.

Rules (DAS-25, ADR 17):

- A call is planned in this order: the tool by its name, the arguments by its ``check``, permission by the policy.
  ``deny`` wins over everything, then the tool's own rule, then the policy. What fails has a result that says so.
- A decision is ``approve``, ``edit`` (other arguments, checked again), ``reject`` or ``answer`` (a text in place of
  the result). The request says which are allowed. The model's call stays in the thread as it was.
- Requests and decisions are records: messages without content, with the tag ``record``, which no view shows and no
  wire sends. Another process can decide days later. A batch runs when all of it is decided.
- Open are the calls of the last answer that have no result behind it. Unless a record says that they wait, they may
  have been run, and are asked again where their tool is not repeatable.
- ``pending`` reads one thread, ``all_pending`` all threads of a store, by the tag of the records. Both block; in async
  code write ``await to_thread(all_pending, store)``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from msgspec import Struct, structs

from palaver.core import jsontext
from palaver.core.errors import MessageError, NotFoundError, PalaverError, excerpt
from palaver.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage
from palaver.core.pairs import client_calls
from palaver.core.parts import ToolCall
from palaver.core.type_checks import check_arguments
from palaver.store.store import Query, Store
from palaver.store.stored_thread import StoredThread
from palaver.threads.thread import MAIN, Entry
from palaver.threads.view import DISCARDED, RECORD
from palaver.turn.calls import PlannedCall
from palaver.turn.journal import AnyThread
from palaver.turn.notes import MAY_HAVE_RUN, MAY_HAVE_RUN_BEFORE, held
from palaver.turn.tool import CHOICES, DecisionKind, Policy, Rule, as_rule, rule_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.turn.tool import Toolbox


# --- approvals --------------------------------------------------------------------------------------------------------


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


# --- planning ---------------------------------------------------------------------------------------------------------


DENIED: Final = "The {name} tool may not be called here."
DUPLICATE: Final = "Not run: an earlier call of this answer has the same id. Call again, with an id of its own."


async def plan(
    calls: Sequence[tuple[int, ToolCall]],
    toolbox: Toolbox,
    policy: Policy,
    *,
    begun: bool = False,
    known: Recorded = Recorded(),  # noqa: B008 (frozen)
) -> tuple[PlannedCall, ...]:
    """Plan calls, each with its place among the calls of its message; ``known`` is what the records say of them."""
    return tuple([await _planned(index, call, toolbox, policy, known, begun=begun) for index, call in calls])


def told_apart(planned: Sequence[PlannedCall], calls: Sequence[ToolCall]) -> tuple[PlannedCall, ...]:
    """Refuse every later call with an id that an earlier one of its answer (``calls``) has, where something is asked.

    Decisions go by the id, and one must not be taken for two calls.
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
    index: int, call: ToolCall, toolbox: Toolbox, policy: Policy, known: Recorded, *, begun: bool
) -> PlannedCall:
    tool = toolbox.find(call.name)
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
    risky = (begun or known.begun) and not tool.is_repeatable
    if rule.judgement == "deny":
        text = rule.text or " ".join(filter(None, (DENIED.format(name=tool.name), rule.reason)))
        text = f"{text} {MAY_HAVE_RUN_BEFORE}" if risky else text
        return structs.replace(planned, verdict="deny", text=text, arguments=None)
    asked = known.asked.get(call.id)
    if asked is None:
        return _ruled(planned, tool.rule or rule, risky=risky)
    planned = _asking(planned, asked.reason, asked.choices)
    decision = known.decided.get(call.id)
    if decision is None:
        return planned
    decided = resolved(planned, decision, tool.check)
    again = decided.verdict == "run" and begun and not tool.is_repeatable
    return _asking(planned, MAY_HAVE_RUN, asked.choices) if again else decided


def _ruled(planned: PlannedCall, rule: Rule, *, risky: bool) -> PlannedCall:
    if rule.judgement == "ask":
        reason = f"{rule.reason} {MAY_HAVE_RUN}".strip() if risky else rule.reason
        return _asking(planned, reason, rule.choices)
    return _asking(planned, MAY_HAVE_RUN, CHOICES) if risky else planned


def _asking(planned: PlannedCall, reason: str, choices: Sequence[str]) -> PlannedCall:
    return structs.replace(planned, verdict="ask", text=reason, choices=tuple(choices))


# --- resuming ---------------------------------------------------------------------------------------------------------


class LeftOpen(Struct, frozen=True):
    """The answer whose calls are open, the results that there are, by place, and what the records say."""

    message: AssistantMessage
    calls: tuple[ToolCall, ...]
    results: tuple[ToolMessage | None, ...]
    recorded: Recorded = Recorded()
    held: tuple[Message, ...] = ()
    """What was said meanwhile, for the place behind the results."""

    @property
    def begun(self) -> bool:
        """Whether calls may have been run."""
        return not self.recorded.pending

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have no result."""
        return tuple([call for call, each in zip(self.calls, self.results, strict=True) if each is None])


def left_open(path: Sequence[Entry]) -> LeftOpen | None:
    """What is open at the end of a path; ``None`` when nothing is. Costs the length of the last step."""
    behind: list[Message] = []
    for entry in reversed(path):
        message = entry.message
        if isinstance(message, AssistantMessage) and DISCARDED not in message.tags:
            return _open(message, behind[::-1])
        if not isinstance(message, ToolMessage) and RECORD not in message.tags:
            return None
        behind.append(message)
    return None


def last_answer(path: Sequence[Entry]) -> AssistantMessage | None:
    """The answer that a path ends in; ``None`` when it ends in anything else."""
    for entry in reversed(path):
        if RECORD in entry.message.tags:
            continue
        message = entry.message
        return message if isinstance(message, AssistantMessage) and DISCARDED not in message.tags else None
    return None


def _open(message: AssistantMessage, behind: Sequence[Message]) -> LeftOpen | None:
    calls = client_calls(message)
    results: list[ToolMessage | None] = [None] * len(calls)
    for each in behind:
        if isinstance(each, ToolMessage):
            for place, call in enumerate(calls):
                if results[place] is None and call.id == each.tool_call_id:
                    results[place] = each
                    break
    if all(each is not None for each in results):
        return None
    unanswered = [call for call, each in zip(calls, results, strict=True) if each is None]
    return LeftOpen(message, calls, tuple(results), recorded(behind, unanswered), held(behind))


# --- all pending ------------------------------------------------------------------------------------------------------


_END: Final = 32
"""Entries that are read of a thread at first; a step is seldom longer."""


class PendingApprovals(Struct, frozen=True, kw_only=True):
    """A branch of a thread that waits, and for what."""

    thread: str
    branch: str
    requests: tuple[ApprovalRequest, ...]


def pending(thread: AnyThread, branch: str = MAIN) -> tuple[ApprovalRequest, ...]:
    """What must be decided before a run can go on in a thread. The branch of a ``StoredThread`` is its own."""
    check_arguments("pending", pending, locals())
    return pending_at(thread.path() if isinstance(thread, StoredThread) else thread.path(branch))


def all_pending(store: Store, *, since: int | None = None, limit: int = 10_000) -> tuple[PendingApprovals, ...]:
    """The branches that wait, those asked last first.

    ``since`` (Unix milliseconds) leaves out what was asked before; at most ``limit`` requests are looked at, the
    newest. Raises as ``Store.search`` does.
    """
    check_arguments("all_pending", all_pending, locals())
    hits = store.search(Query(tag=PENDING, since=since, limit=limit))
    return tuple([each for thread in dict.fromkeys(hit.thread for hit in hits) for each in _of(store, thread)])


def _of(store: Store, thread: str) -> Iterator[PendingApprovals]:
    try:
        for branch in store.info(thread).branches:
            requests = pending_at(_end(store, thread, branch))
            if requests:
                yield PendingApprovals(thread=thread, branch=branch, requests=requests)
    except NotFoundError:  # it was deleted just now
        return


def _end(store: Store, thread: str, branch: str) -> Sequence[Entry]:
    end = store.path(thread, branch, last=_END)
    whole = len(end) < _END or any(isinstance(entry.message, AssistantMessage) for entry in end)
    return end if whole else store.path(thread, branch)


def pending_at(path: Sequence[Entry]) -> tuple[ApprovalRequest, ...]:
    """What must be decided at the end of a path."""
    opened = left_open(path)
    return () if opened is None else tuple(opened.recorded.pending.values())
