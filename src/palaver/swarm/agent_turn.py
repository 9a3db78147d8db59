"""One agent's part in one turn, made of ``palaver.turn``: its middleware, limits, spending, receipts and events.

Rules:

- A part begins with the first call of the agent's model in a turn (``before_agent``) and ends with the turn
  (``after_agent``, which gets a ``Run`` of the part). ``run`` and ``consult`` are parts of their own.
- Every event of ``palaver.turn.events`` goes to the agent's ``observers``. The bus gets those of ``_PUBLISHED`` as
  events of the source ``agent``, and text deltas where the agent streams.
- ``Limits`` apply to one part: ``iterations``, ``tokens``, ``cost``, ``seconds`` and ``context_tokens`` end it between
  two model calls, and the last model call that ``iterations`` allows is made without tools.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio

from palaver.core.events import TextDelta
from palaver.core.messages import AssistantMessage, Message
from palaver.models.language_model import Prompt
from palaver.swarm.events import delta_input
from palaver.swarm.names import joined
from palaver.swarm.tool import SwarmTool
from palaver.threads.ids import uuid7
from palaver.threads.thread import MAIN
from palaver.turn import calls, events
from palaver.turn.approvals import Decision, Recorded
from palaver.turn.calls import Answered, ModelFailed
from palaver.turn.events import AgentEvent, Observing, Watch
from palaver.turn.limits import Outcome, Spending, Spent
from palaver.turn.middleware import GRACE, RunContext, Step, hook_time, run_hooks
from palaver.turn.model_call import ModelCalls
from palaver.turn.run import Run
from palaver.turn.tool import Toolbox
from palaver.turn.tool_calls import ToolCalls
from palaver.turn.tool_output import READ_RESULT

if TYPE_CHECKING:
    from palaver.models.language_model import Session as ModelSession
    from palaver.swarm.agent_session import AgentSession
    from palaver.turn.approvals import ApprovalRequest


class AgentTurn:
    """The part of one agent in one turn of one client."""

    def __init__(self, agent_session: AgentSession, model: ModelSession, *, run: str | None, payload: Any) -> None:
        """Start a part. ``run`` is the id of the turn; ``None`` for a question without a trace in the log."""
        session, agent = agent_session.session, agent_session.agent
        assert agent.model is not None  # noqa: S101 (``model`` is a session of it)
        self.agent, self.session = agent, session
        self.iteration = 0
        self.spent = Spent()
        self.spending = Spending()
        self.messages: Sequence[Message] = ()
        """The part of the conversation that the model was sent last."""
        self.outcome: Outcome = "completed"
        self.reason = ""
        self.error: Exception | None = None
        self.output: Any = None
        self.deferred: tuple[Message, ...] = ()
        """The messages that middleware injected, for the place before the next model call."""
        self.output_attempts = 0
        self.start = len(session.log.path)
        self._began = anyio.current_time()
        self._entered = False
        self._watch = _Published(agent_session)
        self._observing = Observing(agent.observers, self._watch) if agent.observers else None
        watch = self._observing or self._watch
        self.context = RunContext(
            agent=agent.name,
            run=run or uuid7(),
            thread=session.log.id,
            deps=payload,
            values=session.values,
            path=lambda: session.log.path,
            emit=watch.put,
            model=agent.model.name,
            language_model=agent.model,
            entries=lambda: session.log.entries,
            messages=lambda: self.messages,
            limits=agent.limits,
            decide=agent.decide,
            price=agent.price,
            rewrite=self._rewrite,
            carried=agent_session.carried,
            spend=self.spending.add,
            watch=watch,
            store=session.live.store,
        )
        self._model = ModelCalls(
            agent.chain,
            self.context,
            self.spending,
            model,
            stream=agent.stream,
            deltas=agent.stream or bool(agent.observers),
        )

    def attach(self, agent_session: AgentSession) -> None:
        """Continue for an agent that came back to the conversation."""
        self._watch.agent_session = agent_session

    async def _rewrite(self, kept: int, messages: Sequence[Message]) -> Sequence[Message]:
        """Replace messages of the log, and return what the model is sent then."""
        await self.session.rewrite(kept, messages, self.messages)
        self.messages = self._watch.agent_session.view_again()
        return self.messages

    # -- begin and end -------------------------------------------------------------------------------------------------

    async def enter(self, spawn: Callable[..., None]) -> Step | None:
        """Run ``before_agent``, once; return what its hooks request. Raises what they raise."""
        if self._entered:
            return None
        self._entered = True
        if self._observing is not None:
            self._observing.begin(spawn)
        path = self.session.log.path
        self.context.emit(
            events.RunStarted(agent=self.agent.name, run=self.context.run, thread=self.context.thread, length=len(path))
        )
        return await self.hooks(self.agent.chain.before_agent)

    async def hooks(self, hooks: Sequence[Any]) -> Step | None:
        """Run hooks; ``None`` without any. Raises what they raise, and the error that a step names."""
        if not hooks:
            return None
        self.context.iteration, self.context.spent = self.iteration, self.spent
        step = await run_hooks(hooks, self.context)
        if step.error is not None:
            raise step.error
        return step

    async def end(self, outcome: Outcome, error: Exception | None, pending: tuple[ApprovalRequest, ...]) -> Run[Any]:
        """Run ``after_agent`` in any case; return the part as a run. Raises nothing but cancellation."""
        if outcome != "completed" and self.outcome == "completed":
            self.outcome = outcome
        self.error = self.error or error
        run = self.result(pending)
        if not self._entered:
            return run
        self.context.ended = run
        with anyio.CancelScope(shield=True):
            limit = GRACE if outcome == "cancelled" else float("inf")
            for hook in self.agent.chain.after_agent:
                try:
                    with hook_time("a hook", limit):
                        await hook(self.context)
                except Exception as failure:  # noqa: BLE001 (it cannot change how the turn ended)
                    self.warn(f"after_agent: {type(failure).__name__}: {failure}", failure)
            self.context.emit(events.RunFinished(agent=self.agent.name, run=self.context.run, result=run))
            if self._observing is not None:
                await self._observing.finish()
        return run

    def result(self, pending: tuple[ApprovalRequest, ...] = ()) -> Run[Any]:
        """Return the part as a ``Run``."""
        path = self.session.log.path
        spending = self.spending
        return Run(
            id=self.context.run,
            agent=self.agent.name,
            thread=self.session.log.thread,
            branch=MAIN,
            path=path,
            start=min(self.start, len(path)),
            outcome=self.outcome,
            output=self.output,
            reason=self.reason or (str(self.error) if self.error is not None else ""),
            error=self.error,
            usage=spending.total,
            usage_by_model=dict(spending.usage),
            cost=spending.cost if spending.usage else None,
            iterations=self.iteration,
            seconds=anyio.current_time() - self._began,
            pending=pending,
            values=self.session.values,
        )

    def warn(self, text: str, error: Exception | None = None) -> None:
        """Publish a warning."""
        self.context.emit(events.Warned(agent=self.agent.name, run=self.context.run, text=text, error=error))

    # -- tools ---------------------------------------------------------------------------------------------------------

    def tool_calls(
        self,
        offered: Mapping[str, SwarmTool],
        checked: Mapping[str, tuple[str, Any]],
        *,
        known: Recorded = Recorded(),  # noqa: B008 (frozen)
        decisions: Mapping[str, Decision] = {},
        closing: bool = False,
    ) -> ToolCalls:
        """Return the planner and runner of the calls of one answer.

        ``checked`` has text and arguments of the calls, by id; ``known`` and ``decisions`` are for calls that waited,
        of which those without a decision are not run when ``closing``.
        """
        toolbox = Toolbox([tool.as_agent_tool(checked) for tool in offered.values()])
        thread, run = self.context.thread, self.context.run
        made = ToolCalls(
            self.agent.chain,
            toolbox,
            self.agent.policy,
            self.context,
            self.spending,
            result_limit=self.agent.result_limit,
            known=known,
            decisions=decisions,
            closing=closing,
            key=lambda call: joined(thread, run, call.id),
            readable=any(tool.name == READ_RESULT for tool in self.agent.middleware_tools),
        )
        self.context.toolbox, self.context.judge, self.context.call_tool = toolbox, made.judge, made.call
        return made

    # -- the model -----------------------------------------------------------------------------------------------------

    def over(self) -> str | None:
        """Return why the model may not be asked again, and record the outcome; ``None`` when it may."""
        seconds = anyio.current_time() - self._began
        limits = self.agent.limits
        over = limits.over(self.spent, seconds)
        if over is None and self.iteration >= limits.iterations:
            over = "max_iterations"
        if over is None:
            return None
        self.outcome = over
        said = f"{self.iteration} model calls" if over == "max_iterations" else ""
        self.reason = said or limits.describe(over, self.spent, seconds)
        return f"{over}: {self.reason}"

    @property
    def is_last(self) -> bool:
        """Whether the next model call is the last that the limits allow."""
        return self.iteration + 1 >= self.agent.limits.iterations

    async def ask(self, prompt: Prompt, *, final: bool = False) -> AssistantMessage | calls.Blocked:
        """Ask the model. Raises what it raises, and what middleware raises."""
        self.iteration += 1
        self.context.iteration = self.iteration

        async def given() -> Prompt:
            return prompt

        event = await self._model.call(self.iteration, given, final=final)
        if isinstance(event, Answered):
            self.spent = self.spent.plus(event.tokens, event.cost, event.context)
            return event.message
        if isinstance(event, ModelFailed):
            raise event.error
        return event


class _Published(Watch):
    """Publishes events of a part on the bus, under the source ``agent``. Publishing never waits."""

    def __init__(self, agent_session: AgentSession) -> None:
        """Publish for an agent that serves a client."""
        super().__init__()
        self.agent_session = agent_session
        session, agent = agent_session.session, agent_session.agent
        self._unchecked = delta_input(session.swarm, agent)

    def put(self, event: AgentEvent) -> None:
        """Publish an event, if it is one for the bus."""
        agent_session = self.agent_session
        session, agent = agent_session.session, agent_session.agent
        if type(event) is TextDelta:
            if agent.stream and not agent_session.gone:
                session.publish_event("agent", "delta", agent.name, input=self._unchecked, output={"text": event.text})
            return
        if type(event) is events.ToolProgress:
            session.publish_event("agent", "tool-progress", agent.name, input={"value": event.value})
            return
        published = _PUBLISHED.get(type(event))
        if published is not None:
            kind, described = published
            session.publish_event("agent", kind, agent.name, output=described(event))

    async def room(self) -> None:
        """Return at once."""


def _losses(event: events.Lost) -> Mapping[str, Any]:
    return {"model": event.model, "losses": [str(each) for each in event.losses]}


def _retrying(event: events.Retrying) -> Mapping[str, Any]:
    error = f"{type(event.error).__name__}: {event.error}"
    return {"model": event.model, "error": error, "attempt": event.attempt, "fallback": event.fallback}


def _compacted(event: events.ContextCompacted) -> Mapping[str, Any]:
    return {"before": event.before, "after": event.after, "capacity": event.capacity}


def _warned(event: events.Warned) -> Mapping[str, Any]:
    return {"text": event.text}


def _needed(event: events.ApprovalNeeded) -> Mapping[str, Any]:
    return {
        "requests": [
            {
                "toolId": each.call.id,
                "toolName": each.tool,
                "arguments": each.call.arguments_json,
                "reason": each.reason,
                "choices": list(each.choices),
            }
            for each in event.requests
        ]
    }


def _given(event: events.ApprovalGiven) -> Mapping[str, Any]:
    return {"toolId": event.call.id, "toolName": event.call.name, "decision": event.decision.kind}


_PUBLISHED: Final[Mapping[type[Any], tuple[str, Callable[[Any], Mapping[str, Any]]]]] = {
    events.Lost: ("lost", _losses),
    events.Retrying: ("retrying", _retrying),
    events.ContextCompacted: ("compacted", _compacted),
    events.Warned: ("warned", _warned),
    events.ApprovalNeeded: ("approval-needed", _needed),
    events.ApprovalGiven: ("approval-given", _given),
}
"""The events of a part for the bus: their type there, and their fields."""
