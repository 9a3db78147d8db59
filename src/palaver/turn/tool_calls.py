"""A batch of tool calls: plan each, request decisions, and run them.

Rules:

- Decisions that are passed in apply to the calls that were open when the turn started, and to no later ones.
- Where the user writes on beside the decisions (``closing``), open calls without one are not run, and nobody is asked.
- Rules of middleware come before the policy, also for early reads.
- A call has the same idempotency key in every process that runs it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from inspect import isawaitable
from typing import Any

from palaver.core.messages import AssistantMessage
from palaver.core.pairs import client_calls
from palaver.core.parts import ToolCall
from palaver.turn import approvals, events
from palaver.turn.approvals import Decision, Recorded, plan, refuse_duplicate_ids
from palaver.turn.calls import Decided, Planned, PlannedCall, Ran
from palaver.turn.journal import Depths
from palaver.turn.limits import Spending
from palaver.turn.middleware import Chain, RunContext, ToolRequest, hook_time
from palaver.turn.tool import AgentTool, Output, Policy, Rule, Toolbox, ToolContext, idempotency_key, own_exits
from palaver.turn.tool_call import Called, Eager, call_tool
from palaver.turn.tool_output import READ_RESULT


class ToolCalls:
    """Plans, approves and runs the calls of one turn. ``eager`` holds the early reads, if they are on."""

    def __init__(
        self,
        chain: Chain,
        toolbox: Toolbox,
        policy: Policy,
        context: RunContext,
        spending: Spending,
        *,
        result_limit: int | None = None,
        depths: Depths | None = None,
        decisions: Mapping[str, Decision] = {},
        known: Recorded = Recorded(),  # noqa: B008 (frozen)
        closing: bool = False,
        early: bool = False,
        key: Callable[[ToolCall], str] | None = None,
        readable: bool | None = None,
    ) -> None:
        """Run calls of the tools in ``toolbox``.

        ``result_limit`` bounds the characters of a result where its tool has no limit; ``known`` are the approval
        records of the open calls, and ``closing`` says that those without a decision are not run; with ``early`` reads
        start while their answer streams. ``key`` returns the idempotency key of a call; by default it is made of the
        depth of its answer in the thread (``depths``). ``readable`` says whether ``read_result`` is offered, by default
        whether the toolbox has it.
        """
        self._chain, self._toolbox = chain, toolbox
        self._own_policy: Policy = policy
        self._context, self._spending, self._result_limit = context, spending, result_limit
        self._decisions: Mapping[str, Decision] = decisions
        self._closing = closing
        self._known = known
        self._depths = depths or Depths()
        self._key = key
        self._readable = READ_RESULT in toolbox if readable is None else readable
        self._policy: Policy = self._gate if chain.rules else policy
        self.call = chain.around_tool(run_tool_itself, context)
        early = early and not chain.withholds and any(tool.effect == "read" for tool in toolbox)
        self.eager = Eager(toolbox, self._policy, self._run_early) if early else None

    @property
    def has_known(self) -> bool:
        """Whether there are approval records of the calls that are planned next."""
        return bool(self._known.requests)

    async def plan(self, message: AssistantMessage, indexes: Sequence[int], *, may_have_run: bool = False) -> Planned:
        """Plan the calls at ``indexes``. ``may_have_run`` says that they may have run already."""
        calls = client_calls(message)
        chosen = [(index, calls[index]) for index in indexes]
        known, self._known = self._known, Recorded()
        if not known.requests:
            self._decisions, self._closing = {}, False  # not for later calls, which may have the same ids
        with hook_time("the policy") if callable(self._policy) else nullcontext():
            planned = await plan(chosen, self._toolbox, self._policy, may_have_run=may_have_run, known=known)
        if known.requests or any(each.verdict == "ask" for each in planned):
            planned = refuse_duplicate_ids(planned, calls)
        pending = {each.call.id for each in planned if each.verdict == "ask"}
        new = bool(pending) and not pending <= known.pending.keys()
        record = approvals.pending_record(planned, may_have_run=may_have_run or known.may_have_run) if new else None
        return Planned(planned, record)

    async def _gate(self, call: ToolCall) -> Rule:
        """The policy after the rules of middleware."""
        tool = self._toolbox.find(call.name)
        assert tool is not None  # noqa: S101 (a policy is only called for known tools)
        return await self.judge(call, tool)

    async def judge(self, call: ToolCall, tool: AgentTool) -> Rule:
        """Return the decision of middleware and policy about a call."""
        return await self._chain.judge(call, tool, self._context, self._own_policy)

    async def approve(self, planned: Sequence[PlannedCall]) -> Decided:
        """Request decisions about pending calls, if somebody can decide."""
        requests = tuple([approvals.request(each) for each in planned if each.verdict == "ask"])
        decisions = {
            each.call.id: self._decisions[each.call.id] for each in requests if each.call.id in self._decisions
        }
        left = tuple([each for each in requests if each.call.id not in decisions])
        closed = [each.call.id for each in left] if self._closing else []
        handled: Mapping[str, Decision] = {}
        failed: Exception | None = None
        if left and not self._closing:
            self._context.emit(events.ApprovalNeeded(agent=self._context.agent, run=self._context.run, requests=left))
            if self._context.decide is not None:
                try:
                    handled = await _decisions_of(self._context.decide, left)
                    decisions.update(handled)
                except Exception as error:  # noqa: BLE001 (after any error the calls stay pending)
                    failed = error
        calls = tuple([self._resolved(each, decisions) for each in planned])
        record = approvals.decided_record(decisions, closed, handled) if decisions or closed else None
        return Decided(calls, record, failed)

    def _resolved(self, planned: PlannedCall, decisions: Mapping[str, Decision]) -> PlannedCall:
        decision = decisions.get(planned.call.id)
        if planned.verdict != "ask":
            return planned
        if decision is None:
            return approvals.undecided(planned) if self._closing else planned
        self._context.emit(
            events.ApprovalGiven(agent=self._context.agent, run=self._context.run, call=planned.call, decision=decision)
        )
        return approvals.resolved(planned, decision, self._toolbox)

    async def run(self, planned: PlannedCall) -> Ran:
        """Run a call, or take the result of its early read."""
        called = await self.called(planned)
        return Ran(planned.index, called.message, called.records, *self._spending.take())

    async def called(self, planned: PlannedCall) -> Called:
        """Run a call as ``run`` does, and return its whole outcome with its error. Raises nothing but cancellation."""
        early = None if self.eager is None else await self.eager.take(planned.call)
        called = early if early is not None else await self._run_at(planned, None)
        if self._context.watch is not None:
            self._context.emit(
                events.ToolFinished(
                    agent=self._context.agent,
                    run=self._context.run,
                    call=planned.call,
                    message=called.message,
                    outcome=called.outcome,
                    seconds=called.seconds,
                )
            )
        return called

    async def passed_on(self, planned: PlannedCall) -> ToolRequest | Output:
        """Run a call whose tool commits its own result, with all middleware and without a time limit.

        Returns the output if middleware answered in place of the tool, else the request. Raises what the tool raises.
        """
        request = self._request(planned, None)
        output = await self.call(request)
        return request if request.state.started else output

    async def _run_early(self, planned: PlannedCall) -> Called:
        return await self._run_at(planned, len(self._context.path()))

    async def _run_at(self, planned: PlannedCall, place: int | None) -> Called:
        request = self._request(planned, place)
        if self._context.watch is not None:
            self._context.emit(
                events.ToolStarted(
                    agent=self._context.agent, run=self._context.run, call=planned.call, tool=request.tool.name
                )
            )
        return await call_tool(planned, request, self.call, readable=self._readable)

    def _request(self, planned: PlannedCall, place: int | None) -> ToolRequest:
        """Return the request of a call of the message at an index of the conversation; ``None``: of the last answer."""
        tool = self._tool(planned)
        path = self._context.path()
        if self._key is not None:
            key = self._key(planned.call)
        else:
            depth = self._depths.at(path, self._index_of_calls() if place is None else place)
            key = idempotency_key(self._context.thread, depth, planned.index)
        context = ToolContext(
            call=planned.call,
            agent=self._context.agent,
            run=self._context.run,
            thread=self._context.thread,
            path=path,
            values=self._context.values,
            emit=partial(self._progress, planned.call),
            show=self._context.emit,
            idempotency_key=key,
            deps=self._context.deps,
            host=self._context,
        )
        limit = tool.limit or self._result_limit
        return ToolRequest(tool=tool, arguments=planned.arguments, context=context, limit=limit)

    def _tool(self, planned: PlannedCall) -> AgentTool:
        tool = self._toolbox.find(planned.tool or "")
        assert tool is not None  # noqa: S101 (planned calls have one)
        return tool

    def _index_of_calls(self) -> int:
        """The index of the message with the calls: the same in every process that runs them."""
        path = self._context.path()
        place = len(path) - 1
        while place >= 0 and not isinstance(path[place].message, AssistantMessage):
            place -= 1
        return place

    def _progress(self, call: ToolCall, value: Any) -> None:
        self._context.emit(
            events.ToolProgress(agent=self._context.agent, run=self._context.run, call=call, value=value)
        )


async def _decisions_of(
    decide: approvals.Decide, left: tuple[approvals.ApprovalRequest, ...]
) -> Mapping[str, Decision]:
    """Return the decisions of a handler. Raises its errors, and ``MessageError`` if it returns anything else."""
    given: Any = decide(left)
    found = approvals.checked_mapping(await given if isawaitable(given) else given, "decide")
    approvals.checked_decisions(found, left)
    return found


async def run_tool_itself(request: ToolRequest) -> Output:
    """Run the tool itself, after all middleware."""
    request.state.started = True
    with own_exits():
        output = await request.tool.run(request.arguments, request.context)
    request.state.finished = True
    return output
