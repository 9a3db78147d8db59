"""One agent in one session: it takes messages, asks its model, runs the calls, and answers the turn.

Rules (docs/spec/agent-swarm-kit.md#3.1 to #3.6):

- An agent session executes one thing at a time. It is free again when the calls of its answer have started.
- The log stores the answer of a session that is ``gone`` (the agent changed, the turn was cancelled), or whose turn is
  over, with a tag; no client sees it (K13). The log stores what the client sees: the text that ``transform`` returned.
- A failing model, or a hook that raises, is the error of the turn, and leaves no marker.
- A turn costs the window, not the length of the thread: the view reads only new messages.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from palaver.core.errors import PalaverError, SwarmError, ToolError, TurnError, excerpt
from palaver.core.factories import assistant, rescue, system
from palaver.core.messages import AssistantMessage, Message, Mode, RescueMarker, SystemMessage, UserMessage
from palaver.core.pairs import client_calls
from palaver.core.parts import MalformedToolCall, Text
from palaver.models.language_model import Prompt
from palaver.swarm.agent_answers import AgentAnswers
from palaver.swarm.agent_calls import AgentCalls, DecidedCalls
from palaver.swarm.agent_turn import AgentTurn
from palaver.swarm.batch import (
    Batch,
    normalised,
    offered_tools,
    retryable,
    with_calls,
)
from palaver.swarm.call import LOGGER, CallContext, called, watched
from palaver.swarm.names import of_turn
from palaver.swarm.rescue import START, Custom, Recomplete, placeholder
from palaver.swarm.tool import SwarmTool
from palaver.swarm.turn import UNSHOWN, Turn
from palaver.swarm.user_input import UserInput, said
from palaver.turn import calls as outcomes
from palaver.turn.approvals import Decision
from palaver.turn.limits import CUT_ANSWER
from palaver.turn.middleware import Blocked
from palaver.turn.notes import NOT_RUN_SKIPPED, final_answer_instruction, wrong_output
from palaver.turn.open_calls import OpenAnswer
from palaver.turn.tool import Toolbox
from palaver.turn.tool_output import error_output

if TYPE_CHECKING:
    from palaver.models import language_model
    from palaver.swarm.agent import SwarmAgent
    from palaver.swarm.session import Session


class AgentSession(AgentAnswers, AgentCalls):
    """An agent while it serves one client."""

    def __init__(self, session: Session, agent: SwarmAgent) -> None:
        """Serve the client of a session."""
        self.session, self.agent = session, agent
        self.gone = False
        self.asking = 0
        """How many of its executions wait for a model."""
        self._lock = anyio.Lock()
        self._apart = anyio.Lock()
        self._view = session.view(agent)
        self._model: language_model.Session | None = None
        self.carried = session.carried.setdefault(agent.name, {})
        """The state of middleware, from turn to turn."""
        self._batches: list[Batch] = []

    # -- what is asked of it ---------------------------------------------------------------------------------------

    async def execute(self, turn: Turn, told: UserInput, mode: Mode) -> None:
        """Send a message to the agent. Any failure is the error of the turn."""
        try:
            async with self._lock:
                place = self._place(turn)
                await watched("on_execute", self.agent.hooks.on_execute, place, told.text, mode)
                await self.session.close_pending()
                await self._said(turn, told, mode)
                if self.agent.operator is not None:
                    await self._operate(turn, place, told.text)
                else:
                    await self._step(turn, place)
        except Exception as error:  # noqa: BLE001 (it belongs to whoever waits for the answer)
            self._fail(turn, error)

    async def go_on(self, turn: Turn) -> None:
        """Ask the model with the thread as it is, without a new message."""
        try:
            async with self._lock:
                await self._step(turn, self._place(turn))
        except Exception as error:  # noqa: BLE001 (as above)
            self._fail(turn, error)

    async def resume(self, turn: Turn) -> None:
        """Continue an interrupted turn with the thread as it is; a turn in a rescue gets a placeholder."""
        try:
            async with self._lock:
                place = self._place(turn)
                requests = self.session.pending()
                if requests:
                    self._wait(turn, requests)
                    return
                await self.session.close_pending()
                messages = self.session.messages
                hidden = all(isinstance(each, SystemMessage) for each in await self._context(place, turn))
                if self.agent.operator is not None:
                    await self._operate(turn, place, turn.executions[-1][0])
                elif hidden or (messages and isinstance(messages[-1], RescueMarker)):
                    await self._apologise(turn, place)
                else:
                    await self._step(turn, place)
        except Exception as error:  # noqa: BLE001 (as above)
            self._fail(turn, error)

    async def toolbox(self) -> Toolbox:
        """Return the tools that the agent is offered now."""
        offered = await offered_tools(self.agent, self.session.place(self.agent.name), self._log_error)
        return Toolbox([tool.as_agent_tool({}) for tool in offered.values()])

    async def decided(
        self, turn: Turn, opened: OpenAnswer, decisions: Mapping[str, Decision], *, closing: bool
    ) -> None:
        """Continue with calls that waited for a decision. ``closing``: those without one are not run."""
        try:
            async with self._lock:
                place = self._place(turn)
                offered = await offered_tools(self.agent, place, self._log_error)
                part = self._part(turn)
                part.deferred = opened.deferred
                # No model is asked: messages injected by hooks are added behind the results, not before them.
                if not await self._may_ask(turn, place, part, asks=False):
                    return
                part.context.message = opened.message
                decided = DecidedCalls(opened.recorded, decisions, closing)
                await self._begin(turn, place, opened.message, opened.open_calls, offered=offered, decided=decided)
        except Exception as error:  # noqa: BLE001 (as above)
            self._fail(turn, error)

    async def rescued(self, turn: Turn, place: CallContext, reason: str) -> None:
        """Discard the agent's part of this turn, and answer with a rescue."""
        try:
            async with self._lock:
                await self._rescue(turn, place, reason)
        except Exception as error:  # noqa: BLE001 (as above)
            self._fail(turn, error)

    async def run(self, told: UserInput, payload: Any) -> str:
        """Ask the model without a trace in the log, and without tools.

        Returns ``""`` when it called a tool, or when the answer may not be shown.
        """
        async with self._apart:
            return await self._run(told, payload)

    async def _run(self, told: UserInput, payload: Any) -> str:
        place = self.session.place(self.agent.name, payload=payload)
        await watched("on_run", self.agent.hooks.on_run, place, told.text)
        messages = (*await self._context(place, None), told.spoken(self.agent.name, "user"))
        part: AgentTurn | None = None
        failed: Exception | None = None
        try:
            part = AgentTurn(self, self._model_session(fresh=True), run=None, payload=payload)
            chain = self.agent.chain
            for step in (await part.enter(self._spawn), await part.hooks(chain.before_model)):
                messages = messages if step is None else (*messages, *step.inject)
            answer = await self._ask(part, place, messages, ())
            if not isinstance(answer, outcomes.Blocked):
                part.context.message = answer
                await part.hooks(chain.after_model)  # nothing follows this answer
        except Blocked as blocked:
            assert part is not None  # noqa: S101 (its hooks raised it)
            part.outcome, part.reason = "blocked", blocked.reason
            return ""
        except Exception as error:
            failed = error
            if self.agent.on_model_error == "raise":
                raise
            self._log_error("the model", error)
            return await self._transformed(placeholder(self.agent.placeholders))
        finally:
            if part is not None:
                await self.session.end_part(part, "completed" if failed is None else "failed", failed)
        if isinstance(answer, outcomes.Blocked):
            return ""
        text = await self._transformed(answer.text)
        self.session.publish_event(
            "agent", "run", self.agent.name, input={"message": told.text}, output={"result": text}
        )
        if client_calls(answer) or await self._refused(text) is not None:
            return ""
        return text

    # -- an execution ----------------------------------------------------------------------------------------------

    async def _said(self, turn: Turn, told: UserInput, mode: Mode) -> None:
        if self.session.is_past(turn):  # it would be among the messages of the next turn
            return
        message = told.spoken(self.agent.name, mode)
        if mode == "user":
            message = message.replace(payload=turn.payload)
        before = len(self.session.log.path)
        await self.session.keep(of_turn(turn, message))
        if turn.since is None:
            turn.since = self._position(message, before)

    def _position(self, message: UserMessage, start: int) -> int | None:
        """Return the place in the thread, from ``start`` on, of a message that was just stored."""
        path = self.session.log.path
        same = (place for place in range(start, len(path)) if path[place].message.content == message.content)
        return next(same, None)

    async def _step(self, turn: Turn, place: CallContext, *, again: bool = False) -> None:
        """Ask the model, and handle its answer. ``again``: its last answer was refused already."""
        if turn.over:
            return
        try:
            turn.step()
        except TurnError as error:
            await self._rescue(turn, place, str(error), retry=False)
            return
        offered = await offered_tools(self.agent, place, self._log_error)
        answer = await self._answer(turn, place, offered)
        if answer is None:
            return
        await self._take(turn, place, answer, offered, again=again)

    async def _take(
        self,
        turn: Turn,
        place: CallContext,
        answer: AssistantMessage,
        offered: dict[str, SwarmTool],
        *,
        again: bool,
    ) -> None:
        """Handle an answer."""
        broken = next((part for part in answer.content if isinstance(part, MalformedToolCall)), None)
        calls = list(client_calls(answer))
        if calls and self.agent.map_calls is not None:
            calls = list(await called(self.agent.map_calls, calls))
        if self._late(turn):
            await self._withhold(turn, answer)
        elif calls or (broken is not None and retryable(broken, offered)):
            await self._calls(turn, place, answer, calls, offered, again=again)
        elif broken is not None:
            await self._refuse(turn, place, answer, broken)
        else:
            await self._text(turn, place, answer, again=again)

    async def _answer(self, turn: Turn, place: CallContext, offered: dict[str, SwarmTool]) -> AssistantMessage | None:
        """Ask the model; ``None`` when no answer is left to continue with, and that was handled."""
        part = None if self.agent.model is None else self._part(turn)
        if part is not None and not await self._may_ask(turn, place, part):
            return None
        messages = await self._context(place, turn)
        definitions = [tool.definition for tool in offered.values()]
        final = part is not None and part.is_last and bool(definitions)
        self.asking += 1
        try:
            answer = await self._ask(
                part or self._part(turn), place, messages, () if final else definitions, final=final
            )
        except Exception as error:
            if self.agent.on_model_error == "raise":
                raise
            self._log_error("the model", error)
            await self._apologise(turn, place)
            return None
        finally:
            self.asking -= 1
        if isinstance(answer, outcomes.Blocked):
            await self._blocked(turn, place, part or self._part(turn), answer.reason, answer.message)
            return None
        if part is None:
            return answer
        if final:
            part.outcome = "max_iterations"
            answer = with_calls(answer, ())
        return await self._reviewed(turn, place, part, answer)

    async def _may_ask(self, turn: Turn, place: CallContext, part: AgentTurn, *, asks: bool = True) -> bool:
        """Run the hooks before the model, and check the limits; ``False`` when the turn has continued otherwise.

        Without ``asks`` the part only starts, and keeps injected messages for its first model call.
        """
        before_model = self.agent.chain.before_model if asks else ()
        try:
            for step in (await part.enter(self._spawn), await part.hooks(before_model)):
                if step is not None:
                    part.deferred += step.inject
                if step is not None and step.jump == "end":
                    turn.resolve("")
        except Blocked as blocked:
            await self._blocked(turn, place, part, blocked.reason, blocked.message)
            return False
        deferred: tuple[Message, ...] = ()
        if asks:
            deferred, part.deferred = part.deferred, ()
        for message in deferred:
            await self.session.keep(of_turn(turn, message if message.agent else message.replace(agent=self.agent.name)))
        if turn.over:
            return False
        reason = part.over()
        if reason is not None:
            await self._rescue(turn, place, reason, retry=False)
        return reason is None

    async def _reviewed(
        self, turn: Turn, place: CallContext, part: AgentTurn, answer: AssistantMessage
    ) -> AssistantMessage | None:
        """Run the hooks after the model; ``None`` when the turn has continued otherwise."""
        part.context.message = answer
        try:
            step = await part.hooks(self.agent.chain.after_model)
        except Blocked as blocked:
            await self._blocked(turn, place, part, blocked.reason, answer)
            return None
        if step is None:
            return answer
        part.deferred += step.inject
        made = client_calls(answer)
        if step.jump == "end":
            return with_calls(answer, ())
        if step.jump == "model" or (step.inject and not made):
            await self._keep_unshown(answer)
            for call in made:
                await self._tell_model(call.id, call.name, error_output(ToolError(NOT_RUN_SKIPPED)))
            await self._step(turn, place)
            return None
        return answer

    async def _blocked(
        self, turn: Turn, place: CallContext, part: AgentTurn, reason: str, message: AssistantMessage | None
    ) -> None:
        """Store an answer that a guardrail stopped, hidden, and show a placeholder."""
        part.outcome, part.reason = "blocked", reason
        if message is not None:
            await self._discard(turn, message.replace(agent=self.agent.name, mode=message.mode or "tool"))
        await self._rescue(turn, place, reason, retry=False)

    async def _text(self, turn: Turn, place: CallContext, answer: AssistantMessage, *, again: bool) -> None:
        text = await self._transformed(answer.text)
        reason = await self._refused(text)
        if reason is None:
            reason = await self._formed(turn, place, answer, text)
            if reason is None:
                return
            await self._discard(turn, answer)
            await self._rescue(turn, place, reason, retry=False)
            return
        strategy = self.agent.rescue
        if not again and isinstance(strategy, Recomplete):
            await self._said(turn, said(strategy.prompt), "tool")
            await self._step(turn, place, again=True)
            return
        if not again and isinstance(strategy, Custom):
            other = await self._custom(place, strategy, reason)
            text = await self._transformed(other.text)
            if await self._refused(text) is None:
                await self._show(turn, place, other, text)
                return
        await self._discard(turn, answer)
        await self._rescue(turn, place, reason, retry=False)

    async def _formed(self, turn: Turn, place: CallContext, answer: AssistantMessage, text: str) -> str | None:
        """Read an answer in the requested form, and show it; ask again when it does not match, unless it was cut.

        Returns why the answer must not be shown, when the attempts are used up.
        """
        part = turn.parts.get(self.agent.name)
        if self.agent.structured is None or part is None:
            await self._show(turn, place, answer, text)
            return None
        if answer.finish_reason == "length":
            return _cut(part, text)
        try:
            part.output = self.agent.structured.read(text)
        except PalaverError as error:
            part.output_attempts += 1
            if part.output_attempts >= self.agent.limits.output_attempts or part.outcome != "completed":
                part.outcome, part.reason = "invalid_output", str(error)
                return str(error)
            part.deferred += (wrong_output(str(error)),)
            await self._keep_unshown(answer)
            await self._step(turn, place)
        else:
            await self._show(turn, place, answer, text)
        return None

    async def _keep_unshown(self, answer: AssistantMessage) -> None:
        """Store an answer that the model must repeat. It names no turn, since it is not the answer of one."""
        await self.session.keep(answer.replace(tags=(*(answer.tags or ()), UNSHOWN)))

    async def _operate(self, turn: Turn, place: CallContext, text: str) -> None:
        """Ask the operator; after a hand-over without a text, with the client's last message."""
        operator = self.agent.operator
        if operator is None:
            return
        spoken = ""
        with anyio.move_on_after(self.agent.operator_timeout):
            spoken = await operator(place, text.strip() or self.session.last_user or "")
        answer = AssistantMessage(content=(Text(spoken),), agent=self.agent.name, mode="tool", source="operator")
        if not spoken:
            turn.resolve("")
        elif self._late(turn):
            await self._withhold(turn, answer)
        else:
            await self._show(turn, place, answer, spoken)

    # -- calls -----------------------------------------------------------------------------------------------------

    # -- the model -------------------------------------------------------------------------------------------------

    async def _context(self, place: CallContext, turn: Turn | None) -> Sequence[Message]:
        agent = self.agent
        own = agent.instructions
        prompt = own if isinstance(own, str) else str(await called(own, place) or "")
        dynamic = () if agent.dynamic is None else tuple(await called(agent.dynamic, place))
        sections = [each.instructions for each in agent.chain.all if each.instructions]
        texts = (*self.session.swarm.instructions, *agent.system, *dynamic, *agent.flags, *sections)
        self._view.instruct(prompt, texts)
        return self._view(self.session.log.path, since=None if turn is None else turn.since)

    def view_again(self) -> Sequence[Message]:
        """Return what the agent sees of the log, without prompt and instructions, after the log was rewritten."""
        since = None if self.session.turn is None else self.session.turn.since
        return self._view(self.session.log.path, since=since)[len(self._view.prefix) :]

    def _model_session(self, *, fresh: bool = False) -> language_model.Session:
        """Return the agent's conversation with its model; ``fresh``: a separate one. Raises ``SwarmError``."""
        model = self.agent.model
        if model is None:
            raise SwarmError(f"the agent {self.agent.name!r} has no model")
        if fresh:
            return model.session()
        if self._model is None:
            self._model = model.session()
        return self._model

    def _part(self, turn: Turn) -> AgentTurn:
        """Return the agent's part in a turn, and start it if needed. Raises ``SwarmError``."""
        part = turn.parts.get(self.agent.name)
        if part is None:
            part = AgentTurn(self, self._model_session(), run=turn.id, payload=turn.payload)
            turn.parts[self.agent.name] = part
        part.attach(self)
        return part

    def _spawn(self, function: Callable[[], Awaitable[Any]]) -> None:
        self.session.spawn(None, function)

    async def _ask(
        self,
        part: AgentTurn,
        place: CallContext,
        messages: Sequence[Message],
        tools: Sequence[Any],
        *,
        final: bool = False,
    ) -> AssistantMessage | outcomes.Blocked:
        agent = self.agent
        # Middleware changes the conversation, and not the messages before it.
        head = self._view.prefix if agent.chain.all else ()
        part.messages = messages[len(head) :]
        prompt = Prompt(
            messages=part.messages,
            system=(*head, system(final_answer_instruction)) if final else tuple(head),
            tools=tuple(tools),
            settings=agent.settings,
            provider=agent.provider,
            agent=agent.name,
            client=place.client,
        )
        message = await part.ask(prompt, final=final)
        if isinstance(message, outcomes.Blocked):
            return message
        await watched("on_completion", agent.hooks.on_completion, place, messages, message)
        message = message.replace(agent=agent.name, mode=message.mode or "tool")
        if agent.map is not None:
            message = await called(agent.map, message)
        return normalised(message)

    # -- rescue ----------------------------------------------------------------------------------------------------

    async def _mark(self, turn: Turn, place: CallContext, reason: str) -> None:
        for batch in self._batches:
            if batch.turn is turn:
                batch.halt()
        await watched("on_resurrect", self.agent.hooks.on_resurrect, place, turn.mode, reason)
        if turn.over:  # the marker would hide the turn after it
            return
        scope = self.agent.rescue_scope
        await self.session.keep(of_turn(turn, rescue(reason, agent=place.agent, mode="tool", scope=scope)))
        if scope == "thread":
            await self._said(turn, said(START), "tool")

    async def _rescue(self, turn: Turn, place: CallContext, reason: str, *, retry: bool = True) -> None:
        if turn.over:
            return
        before = await self._context(place, turn)
        await self._mark(turn, place, reason)
        if retry and await self._retried(turn, place, reason, before):
            return
        await self._apologise(turn, place)

    async def _retried(self, turn: Turn, place: CallContext, reason: str, before: Sequence[Message]) -> bool:
        """Try to get an answer that can be shown; return whether there was one."""
        strategy = self.agent.rescue
        if isinstance(strategy, Recomplete):
            answer = await self._recompleted(turn, place, strategy, before)
        elif isinstance(strategy, Custom):
            answer = await self._custom(place, strategy, reason)
        else:
            return False
        if answer is None:
            return False
        if client_calls(answer):
            await self._mark(turn, place, "A rescue should not call tools")
            return False
        text = await self._transformed(answer.text)
        refused = await self._refused(text)
        if refused is not None:
            await self._mark(turn, place, f"A rescue failed validation: {refused}")
            return False
        part = turn.parts.get(self.agent.name)
        if self.agent.structured is not None and part is not None and isinstance(strategy, Recomplete):
            if answer.finish_reason == "length":
                await self._mark(turn, place, f"A rescue has no form: {_cut(part, text)}")
                return False
            try:
                part.output = self.agent.structured.read(text)
            except PalaverError as error:
                part.outcome, part.reason = "invalid_output", str(error)
                await self._mark(turn, place, f"A rescue has another form: {error}")
                return False
        await self._show(turn, place, answer, text)
        return True

    async def _recompleted(
        self, turn: Turn, place: CallContext, strategy: Recomplete, before: Sequence[Message]
    ) -> AssistantMessage | None:
        part = self._part(turn)
        if part.over() is not None:
            return None
        messages = await self._context(place, turn)
        if self.agent.rescue_scope != "thread":
            hint = UserMessage(content=(Text(strategy.prompt),), agent=place.agent, mode="tool")
            messages = (*before, hint)
        try:
            turn.step()
            answer = await self._ask(part, place, messages, ())
            if isinstance(answer, outcomes.Blocked):
                part.outcome, part.reason = "blocked", answer.reason
                return None
            part.context.message = answer
            await part.hooks(self.agent.chain.after_model)  # injected messages and next steps have no use here
            return answer
        except Blocked as blocked:
            part.outcome, part.reason = "blocked", blocked.reason
            return None
        except Exception as error:  # noqa: BLE001 (the placeholder is left)
            self._log_error("the model", error)
            return None

    async def _custom(self, place: CallContext, strategy: Custom, reason: str) -> AssistantMessage:
        answer = await called(strategy.answer, place, reason)
        if isinstance(answer, str):
            answer = assistant(answer)
        return normalised(answer.replace(agent=place.agent, mode=answer.mode or "tool"))

    def _place(self, turn: Turn) -> CallContext:
        return self.session.place(self.agent.name, payload=turn.payload, run=turn.id)

    def _fail(self, turn: Turn, error: Exception) -> None:
        self._tell_error(error)
        if not turn.fail(error) and error is not turn.error:
            LOGGER.error("the agent %r raised when its turn was over", self.agent.name, exc_info=error)


def _cut(part: AgentTurn, text: str) -> str:
    """Record that an answer in a form was cut; return the reason, with what came of it."""
    part.outcome, part.reason = "length", f"{CUT_ANSWER}: {excerpt(text)}"
    return part.reason
