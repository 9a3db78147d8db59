"""The calls of an agent's answers: which are run, which wait, and the results of the others.

Rules (docs/spec/agent-swarm-kit.md#3.1; ADR 35):

- First come the checks of the swarm: the tool must exist, and the arguments must be valid. Then middleware, policy and
  approvers decide, as for every turn (``palaver.turn.tool_calls``). No call of a batch runs before all are decided.
- A call that waits is a record in the client's thread, and ends its turn as ``waiting``, with the answer ``""``. A call
  that is denied, rejected or answered by a person has a result; when none is left to run, the model is asked again.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from palaver.core.errors import MessageError, ToolError, TurnError, excerpt
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.pairs import client_calls
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.swarm.batch import (
    NOT_RUN,
    SKIPPED,
    Batch,
    Planned,
    chosen,
    duplicate,
    malformed,
    retryable,
    returns,
    shown,
    winner,
    with_calls,
)
from palaver.swarm.call import LOGGER, CallContext, called, watched
from palaver.swarm.names import of_turn
from palaver.swarm.tool import SwarmTool
from palaver.swarm.turn import Turn
from palaver.turn import approvals
from palaver.turn.approvals import ApprovalRequest, Decision, Recorded
from palaver.turn.calls import PlannedCall, result_without_run
from palaver.turn.notes import deferred_record
from palaver.turn.tool import Output
from palaver.turn.tool_calls import ToolCalls
from palaver.turn.tool_output import error_output

if TYPE_CHECKING:
    from palaver.swarm.agent import SwarmAgent
    from palaver.swarm.agent_turn import AgentTurn
    from palaver.swarm.session import Session


class DecidedCalls(Struct, frozen=True):
    """What is known of the calls of an answer that waited: their records, and the decisions.

    ``closing``: those without a decision are not run.
    """

    known: Recorded = Recorded()
    decisions: Mapping[str, Decision] = {}
    closing: bool = False


class AgentCalls:
    """The part of an agent's session that runs calls."""

    session: Session
    agent: SwarmAgent
    _batches: list[Batch]

    # -- what an agent's session gives -------------------------------------------------------------------------------

    @abstractmethod
    def _part(self, turn: Turn) -> AgentTurn: ...
    @abstractmethod
    def _late(self, turn: Turn) -> bool: ...
    @abstractmethod
    async def _step(self, turn: Turn, place: CallContext, *, again: bool = False) -> None: ...
    @abstractmethod
    async def _text(self, turn: Turn, place: CallContext, answer: AssistantMessage, *, again: bool) -> None: ...
    @abstractmethod
    async def _mark(self, turn: Turn, place: CallContext, reason: str) -> None: ...
    @abstractmethod
    async def _rescue(self, turn: Turn, place: CallContext, reason: str, *, retry: bool = True) -> None: ...
    @abstractmethod
    async def rescued(self, turn: Turn, place: CallContext, reason: str) -> None:
        """Discard the agent's part of a turn, and answer with a rescue."""

    @abstractmethod
    async def go_on(self, turn: Turn) -> None:
        """Ask the model with the thread as it is."""

    # -- calls -------------------------------------------------------------------------------------------------------

    def halt(self) -> None:
        """Start no more tools."""
        for batch in self._batches:
            batch.halt()

    async def _calls(
        self,
        turn: Turn,
        place: CallContext,
        answer: AssistantMessage,
        calls: Sequence[ToolCall],
        offered: dict[str, SwarmTool],
        *,
        again: bool,
    ) -> None:
        if duplicate(calls) is not None:
            reason = "Duplicate tool call id in model output"
            await self._mark(turn, place, reason)
            turn.fail(TurnError(reason))
            return
        made, limit = calls, self.agent.max_tool_calls
        calls = chosen(made, offered, limit)
        broken = malformed(answer, limit) if winner(calls, offered) is None else None
        if broken is not None and not retryable(broken, offered):
            await self._refuse(turn, place, answer, broken)
            return
        skipped = [call for call in made if call not in calls]
        self._publish_skipped(skipped)
        if not calls and broken is None:
            await self._text(turn, place, with_calls(answer, ()), again=again)
            return
        told = [call for call in skipped if returns(call.name, offered)]
        answer = with_calls(answer, [call for call in made if call in calls or call in told])
        await self.session.keep(of_turn(turn, answer))
        for call in told:
            await self._tell_model(call.id, call.name, error_output(SKIPPED.format(limit=limit)))
        await self._begin(turn, place, answer, calls, offered=offered, broken=broken)

    async def _begin(
        self,
        turn: Turn,
        place: CallContext,
        answer: AssistantMessage,
        calls: Sequence[ToolCall],
        *,
        offered: dict[str, SwarmTool],
        broken: MalformedToolCall | None = None,
        decided: DecidedCalls = DecidedCalls(),  # noqa: B008 (frozen)
    ) -> None:
        """Start the calls of a stored answer; ``decided`` is for calls that waited for a decision."""
        checked = await self._planned(turn, place, answer, calls, offered=offered, broken=broken)
        if checked is None or self._overtaken(turn):
            return
        tools = self._part(turn).tool_calls(
            offered,
            {each.call.id: (each.call.arguments_json, each.arguments) for each in checked},
            known=decided.known,
            decisions=decided.decisions,
            closing=decided.closing,
        )
        planned = await self._allowed(turn, place, answer, checked, tools)
        if planned is None or self._overtaken(turn):
            return
        batch = Batch(self, turn, place, planned, tools=tools, text=answer.text)
        self._batches = [each for each in self._batches if not each.turn.over]
        self._batches.append(batch)
        self.session.spawn(turn, batch.run)

    def _overtaken(self, turn: Turn) -> bool:
        """Return whether the agent is no longer needed; a turn whose agent was changed from outside is answered."""
        if self._late(turn) and turn.overtaken:
            turn.resolve("")
        return self._late(turn)

    async def _planned(
        self,
        turn: Turn,
        place: CallContext,
        answer: AssistantMessage,
        calls: Sequence[ToolCall],
        *,
        offered: dict[str, SwarmTool],
        broken: MalformedToolCall | None,
    ) -> list[Planned] | None:
        """Check all calls before any is run; ``None`` when none may run, and the turn has continued otherwise."""
        planned: list[Planned] = []
        wrong: dict[str, Exception] = {}
        indexes = {call.id: index for index, call in enumerate(client_calls(answer))}
        if broken is not None and broken.id:
            wrong[broken.id] = MessageError(f"the arguments are not JSON: {broken.reason}")
        for call in calls:
            tool = offered.get(call.name)
            if tool is None:
                await self._rescue(turn, place, f"No target function for {call.name}")
                return None
            await watched("on_validate", tool.on_validate, place, call)
            checked = await self._checked(place, tool, call)
            if isinstance(checked, Exception) and tool.returns:
                wrong[call.id] = checked
                continue
            if checked is None or isinstance(checked, Exception):
                await self._rescue(turn, place, f"Function validation failed: {shown(call)}")
                return None
            await watched("on_before_call", tool.on_before_call, place, call)
            run = PlannedCall(indexes[call.id], call, tool.name, arguments=checked[0])
            planned.append(Planned(call, tool, checked[0], run))
        if not wrong or self._late(turn):
            return planned
        named = [(each.id, each.name) for each in (*calls, *([broken] if broken is not None else ()))]
        for call_id, name in named:
            error = wrong.get(call_id or "", ToolError(NOT_RUN))
            await self._tell_model(call_id or "", name, error_output(error))
        await self._step(turn, place)
        return None

    async def _allowed(
        self, turn: Turn, place: CallContext, answer: AssistantMessage, planned: Sequence[Planned], tools: ToolCalls
    ) -> Sequence[Planned] | None:
        """Have middleware, policy and approvers decide calls; ``None`` when none may run, and the turn continued."""
        agent = self.agent
        rules = any(each.tool.inner is not None and each.tool.inner.rule is not None for each in planned)
        waited = tools.has_known
        if agent.policy == "allow" and not agent.chain.rules and not rules and not waited:
            return planned
        by_index = {each.planned.index: each for each in planned}
        event = await tools.plan(answer, tuple(by_index))
        judged = event.calls
        if event.pending is not None:
            self.session.may_wait = True
            await self.session.keep(event.pending)
        if any(each.verdict == "ask" for each in judged):
            decided = await tools.approve(judged)
            judged = decided.calls
            if decided.record is not None:
                await self.session.keep(decided.record)
            if decided.error is not None:
                self._log_error("decide", decided.error)
            if any(each.verdict == "ask" for each in judged):
                deferred = self._part(turn).deferred
                if deferred and not waited:  # else a record has it already
                    await self.session.keep(
                        deferred_record([each.replace(agent=each.agent or agent.name) for each in deferred])
                    )
                self._wait(turn, tuple([approvals.request(each) for each in judged if each.verdict == "ask"]))
                return None
        runs: list[Planned] = []
        for each in judged:
            before = by_index[each.index]
            if each.verdict == "run":
                runs.append(Planned(each.call, before.tool, each.arguments, each))
                continue
            refused = result_without_run(each).replace(agent=agent.name)
            await self.session.keep_tool_output(refused, agent=None, call=None)
        if not runs and not self._late(turn):
            await self._step(turn, place)
            return None
        return runs

    def _wait(self, turn: Turn, requests: tuple[ApprovalRequest, ...]) -> None:
        """End a turn whose calls wait for a decision; ``Session.decide`` continues it."""
        if turn.claim():
            turn.outcome, turn.pending = "waiting", requests
            turn.give("")

    def _publish_skipped(self, calls: Iterable[ToolCall]) -> None:
        """Publish the calls of an answer that are not run: they exceed the limit, or another one wins."""
        for call in calls:
            named = {"toolId": call.id, "toolName": call.name}
            self.session.publish_event("agent", "tool-skipped", self.agent.name, input=named)

    async def _tell_model(self, call_id: str, name: str | None, output: Output) -> None:
        """Store the result of a call that was not run."""
        message = ToolMessage(
            content=output.content,
            tool_call_id=call_id,
            tool_name=name,
            is_error=output.is_error,
            agent=self.agent.name,
            mode="tool",
        ).replace(metadata=output.metadata)
        await self.session.keep_tool_output(message, agent=None, call=None)

    async def _refuse(
        self, turn: Turn, place: CallContext, answer: AssistantMessage, broken: MalformedToolCall
    ) -> None:
        """Reject an answer with a call that could not be parsed."""
        await self.session.keep(of_turn(turn, answer))
        reason = f"Function validation failed: name={broken.name} arguments={excerpt(broken.raw, 200)}"
        await self._rescue(turn, place, reason)

    async def _checked(self, place: CallContext, tool: SwarmTool, call: ToolCall) -> tuple[Any] | Exception | None:
        """Return the checked arguments of a call in a tuple, the exception of its check, or ``None`` when refused."""
        try:
            arguments = tool.check(call)
        except Exception as error:  # noqa: BLE001 (a check that raises has refused)
            LOGGER.warning("the tool %r of %r got invalid arguments: %s", tool.name, self.agent.name, error)
            self._tell_tool_error(call, error)
            return error
        try:
            passes = tool.validate is None or await called(tool.validate, place, arguments)
        except Exception as error:  # noqa: BLE001 (as above)
            LOGGER.error("the validation of %r of the agent %r raised", tool.name, self.agent.name, exc_info=error)
            self._tell_tool_error(call, error)
            return None
        return (arguments,) if passes else None

    def _tell_tool_error(self, call: ToolCall, error: Exception) -> None:
        """Publish the exception of a check, with the name of the tool."""
        named = {"toolId": call.id, "toolName": call.name}
        told = {"error": f"{type(error).__name__}: {error}"}
        self.session.publish_event("agent", "tool-error", self.agent.name, input=named, output=told)

    def _log_error(self, what: str, error: Exception) -> None:
        """Log an error with its traceback, and publish it: it is not raised, so it would not be seen otherwise."""
        LOGGER.error("%s of the agent %r raised", what, self.agent.name, exc_info=error)
        self._tell_error(error)

    def _tell_error(self, error: Exception) -> None:
        self.session.publish_event(
            "agent", "error", self.agent.name, output={"error": f"{type(error).__name__}: {error}"}
        )
