"""The driver: carries out what the machine commands. The one place of a run that awaits.

Rules:

- Commands are carried out in order; what comes of one goes into the machine as an event, and gives the next.
- Whatever is raised, from outside (cancellation) or inside, becomes an event too, and the commands that it gives are
  carried out behind a shield: so every message of the run is in its thread, and the thread is whole.
- Nothing here reads the whole conversation: the view, the encoder and the thread each cost what is new.

Stability: experimental.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio import CancelScope, create_memory_object_stream
from anyio.lowlevel import checkpoint
from msgspec import structs

from palaver.agent import approvals, events, machine, notes
from palaver.agent.approvals import ApprovalRequest, Decide, Decision, Recorded
from palaver.agent.calling import Called, call_tool
from palaver.agent.eager import Eager
from palaver.agent.holding import held_record
from palaver.agent.idempotency import idempotency_key
from palaver.agent.limiting import READ_RESULT
from palaver.agent.machine import PlannedCall, State
from palaver.agent.middleware import (
    HOOK_SECONDS,
    Blocked,
    RunContext,
    Step,
    ToolRequest,
)
from palaver.agent.observing import Observing
from palaver.agent.permission import Policy, Rule
from palaver.agent.planning import plan
from palaver.agent.replay_view import ReplayView
from palaver.agent.run import Run, own
from palaver.agent.spending import Spending
from palaver.agent.tool import AgentTool, Output, ToolContext
from palaver.core.errors import PalaverError, StreamError
from palaver.core.events import ReasoningDelta, TextDelta
from palaver.core.factories import system
from palaver.core.messages import AssistantMessage, Message, SystemMessage
from palaver.models.language_model import Answer, Notice, Prompt, Reply
from palaver.store.stored import StoredThread

if TYPE_CHECKING:
    from palaver.agent.agent import Agent
    from palaver.agent.journal import Journal
    from palaver.agent.watching import Watch
    from palaver.core.parts import ToolCall
    from palaver.core.request import Loss
    from palaver.core.usage import Usage
    from palaver.models.language_model import LanguageModel

_SIMPLE: Final = (machine.Append, machine.Warn)


class Carry:
    """What one run hands to the next that goes on behind it: what was viewed and encoded already."""

    __slots__ = ("model", "session", "view")

    def __init__(self, model: LanguageModel) -> None:
        """Begin with nothing."""
        self.model = model
        self.session = model.session()
        self.view = ReplayView()


class Driver:
    """Drives one run, from its first event on."""

    def __init__(
        self,
        agent: Agent[Any],
        journal: Journal,
        first: machine.Begun | machine.Resumed,
        *,
        run: str,
        carry: Carry,
        decide: Decide | None = None,
        decisions: Mapping[str, Decision] | None = None,
        deps: Any = None,
        values: dict[str, Any] | None = None,
        watch: Watch | None = None,
        known: Recorded = Recorded(),  # noqa: B008 (frozen)
    ) -> None:
        """Stand ready. ``known`` is what the records say of the calls that were left open."""
        self.agent, self.journal, self.run = agent, journal, run
        self._first, self._carry = first, carry
        self._chain, self._toolbox = agent.chain, agent.toolbox
        self._decide, self._decisions, self._known = decide, decisions or {}, known
        self._watch = watch
        self.start = len(journal.path)
        self.state = State(limits=agent.limits, reads_output=agent.reads_output, polling=frozenset(agent.polling))
        self.values: dict[str, Any] = {} if values is None else values
        self._queue: deque[machine.Command] = deque()
        self._token = 0
        self._answer: Answer | None = None
        self._spending = Spending()
        self._told: set[Loss] = set()
        self._finish: machine.Finish | None = None
        self._inbox: list[Message] = []
        self.result: Run[Any] | None = None
        """The run, when it is over."""
        self.cancel_reason = ""
        self._cancelled: BaseException | None = None
        self.context = RunContext(
            agent=agent.name,
            run=run,
            thread=journal.thread.id,
            deps=deps,
            values=self.values,
            path=lambda: journal.path,
            emit=self.emit,
            model=agent.model.name,
            spend=self._spending.add,
            judge=self._judge,
            decide=decide,
            watch=watch,
            store=journal.thread.store if isinstance(journal.thread, StoredThread) else None,
        )
        self._policy: Policy = self._gate if self._chain.rules else agent.policy
        self._ask = self._chain.around_model(self._ask_model, self.context)
        self._call = self._chain.around_tool(_run_tool, self.context)
        reads = agent.eager and agent.stream and any(tool.effect == "read" for tool in self._toolbox)
        early = reads and not self._chain.withholds
        self._eager = Eager(self._toolbox, self._policy, self._run_early) if early else None
        self._does: Mapping[type[Any], Callable[[Any], Awaitable[None]]] = {
            machine.Append: self._append,
            machine.Prepare: self._prepare,
            machine.CallModel: self._call_model,
            machine.Review: self._review,
            machine.ReadOutput: self._read_output,
            machine.Plan: self._plan,
            machine.Ask: self._approve,
            machine.Run: self._run_calls,
            machine.Warn: self._warned,
            machine.Finish: self._finished,
        }

    # -- from outside ------------------------------------------------------------------------------------------------

    def steer(self, message: Message) -> None:
        """Say something while the run is under way: it joins at the next boundary of steps (CBF-26)."""
        self._inbox.append(message)

    def emit(self, event: events.AgentEvent) -> None:
        """Show an event to whoever watches."""
        if self._watch is not None:
            self._watch.put(event)

    async def drive(self) -> Run[Any]:
        """Carry the run to its end, and give it. Raises only cancellation from outside."""
        if not isinstance(self._watch, Observing):
            return await self._drive()
        async with self._watch.running():
            return await self._drive()

    async def _drive(self) -> Run[Any]:
        began = anyio.current_time()
        first = structs.replace(self._first, at=began)
        try:
            with anyio.move_on_after(self.agent.limits.seconds) as scope:
                async with self._eager or nullcontext():
                    await self._begin(first)
                    await self._loop()
            if scope.cancelled_caught:
                await self._stop(machine.Interrupted("timed_out", "The time of the run is over."))
        except Exception as error:  # noqa: BLE001 (whatever fails, the thread is left whole)
            await self._stop(machine.Crashed(_alone(error)))
        except BaseException as error:  # noqa: BLE001 (cancellation; raised again below)
            self._cancelled = error
            await self._stop(machine.Interrupted(reason=self.cancel_reason))
        self.context.ended = run = self._ended(anyio.current_time() - began)
        with CancelScope(shield=True):
            await self._after_agent()
            await self._said_late()
        self.result = run = structs.replace(run, path=self.journal.path)
        self.emit(events.RunFinished(agent=self.agent.name, run=self.run, result=run))
        if self._cancelled is not None:
            raise self._cancelled
        return run

    async def _begin(self, first: machine.Event) -> None:
        if self._watch is not None:
            joining = (*first.closing, *first.messages) if isinstance(first, machine.Begun) else ()
            length = self.start + len(joining)
            self.emit(
                events.RunStarted(agent=self.agent.name, run=self.run, thread=self.journal.thread.id, length=length)
            )
        self._feed(first)
        await self._flush()
        if not self._chain.before_agent:
            return
        try:
            wanted = await self._hooks(self._chain.before_agent)
        except Blocked as blocked:
            self._queue.clear()
            self._feed(machine.Blocked(blocked.reason, blocked.message))
            return
        if wanted.jump == "end" and self.state.phase == "prepare":
            self._queue.clear()
            self._feed(machine.Prepared(wanted.inject, "end"))
        elif wanted.inject and self.state.phase == "plan":
            self._feed(machine.Steered(wanted.inject))  # calls are open
        elif wanted.inject:
            self._queue.appendleft(machine.Append(wanted.inject))

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _feed(self, event: machine.Event) -> None:
        if self._inbox:
            said, self._inbox = tuple(self._inbox), []
            self.state, commands = machine.step(self.state, machine.Steered(said))
            self._queue += commands
        self.state, commands = machine.step(self.state, event)
        self._queue += commands

    async def _loop(self) -> None:
        queue = self._queue
        while queue:
            await self._carry_out(queue[0])

    def _carry_out(self, command: machine.Command) -> Awaitable[None]:
        """Carry out the first command of the queue. An append leaves it when it is done, so that none is lost."""
        if type(command) is not machine.Append:
            self._queue.popleft()
        return self._does[type(command)](command)

    async def _stop(self, event: machine.Event) -> None:
        """End the run from any place: what was to be appended is, then what the event asks for."""
        with CancelScope(shield=True):
            partial = self._partial()
            if partial is not None and isinstance(event, machine.Interrupted | machine.Crashed):
                event = structs.replace(event, partial=partial)
            try:
                await self._through(self._flush_all)
                self._feed(event)
                await self._through(self._flush_all)
            except Exception as error:  # noqa: BLE001 (the store itself failed; what it has is whole)
                self._queue.clear()
                self._finish = machine.Finish("failed", error, str(error))

    async def _through(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what can be repeated, to its end: asyncio's own cancellation goes past a shield."""
        while True:
            try:
                await work()
            except anyio.get_cancelled_exc_class() as error:
                self._cancelled = self._cancelled or error
            else:
                return

    async def _flush(self) -> None:
        """Carry out commands that give no event, up to the first that does."""
        while self._queue and isinstance(self._queue[0], _SIMPLE):
            await self._carry_out(self._queue[0])

    async def _flush_all(self) -> None:
        """Carry out commands that give no event, and drop the others."""
        while self._queue:
            if isinstance(self._queue[0], (*_SIMPLE, machine.Finish)):
                await self._carry_out(self._queue[0])
            else:
                self._queue.popleft()

    async def _said_late(self) -> None:
        """Keep what was said when the run was over already; the next one hears it."""
        said, self._inbox = tuple(self._inbox), []
        if not said:
            return
        if self.state.outcome == "waiting":
            said = (held_record((*self.state.held, *said)),)
        self._queue.append(machine.Append(said))
        try:
            await self._through(self._flush_all)
        except Exception as error:  # noqa: BLE001 (the store failed; the run is over all the same)
            self._queue.clear()
            self._warn(f"what was said last is not kept: {error}", error)

    # -- messages ----------------------------------------------------------------------------------------------------

    async def _append(self, command: machine.Append) -> None:
        name = self.agent.name
        messages = [each if each.agent is not None else structs.replace(each, agent=name) for each in command.messages]
        if self._watch is not None:
            await self._watch.room()
        entries = await self.journal.append(messages, self._token + 1)
        self._token += 1
        self._queue.popleft()
        while self.journal.failures:
            failure = self.journal.failures.pop()
            self._warn(f"log: {type(failure).__name__}: {failure}", failure)
        if self._watch is not None:
            for entry in entries:
                self.emit(events.MessageAdded(agent=name, run=self.run, message=entry.message))

    # -- hooks -------------------------------------------------------------------------------------------------------

    async def _hooks(self, hooks: Sequence[Callable[[RunContext], Awaitable[Step | None]]]) -> Step:
        inject: list[Message] = []
        where: machine.Jump | None = None
        self.context.iteration, self.context.spent = self.state.iteration, self.state.spent
        for hook in hooks:
            with anyio.fail_after(HOOK_SECONDS):
                wanted = await hook(self.context)
            if wanted is not None:
                inject += wanted.inject
                where = wanted.jump if where is None else where
        return Step(inject=tuple(inject), jump=where)

    async def _prepare(self, command: machine.Prepare) -> None:  # noqa: ARG002 (a row of the table)
        hooks = self._chain.before_model
        wanted = await self._hooked(hooks) if hooks else _NOTHING
        if wanted is not None:
            self._feed(machine.Prepared(wanted.inject, wanted.jump))

    async def _review(self, command: machine.Review) -> None:
        self.context.message = command.message
        hooks = self._chain.after_model
        wanted = await self._hooked(hooks) if hooks else _NOTHING
        if wanted is not None:
            self._feed(machine.Reviewed(wanted.inject, wanted.jump))

    async def _hooked(self, hooks: Sequence[Callable[[RunContext], Awaitable[Step | None]]]) -> Step | None:
        try:
            return await self._hooks(hooks)
        except Blocked as blocked:
            self._feed(machine.Blocked(blocked.reason, blocked.message))
            return None

    async def _after_agent(self) -> None:
        for hook in self._chain.after_agent:
            try:
                with anyio.fail_after(HOOK_SECONDS):
                    await hook(self.context)
            except Exception as error:  # noqa: BLE001 (it cannot change how the run ended)
                self._warn(f"after_agent: {type(error).__name__}: {error}", error)
            except anyio.get_cancelled_exc_class() as error:  # asyncio's own, which goes past a shield
                self._cancelled = self._cancelled or error

    def _warn(self, text: str, error: Exception | None = None) -> None:
        self.emit(events.Warned(agent=self.agent.name, run=self.run, text=text, error=error))

    async def _warned(self, command: machine.Warn) -> None:
        self._warn(command.text)

    # -- the model ---------------------------------------------------------------------------------------------------

    async def _call_model(self, command: machine.CallModel) -> None:
        self.journal.round = self.state.iteration
        if self._eager is not None:
            self._eager.drop()
        if self._watch is not None:
            self.emit(
                events.IterationStarted(
                    agent=self.agent.name, run=self.run, number=self.state.iteration, final=command.final
                )
            )
        await checkpoint()  # a model and tools that never wait cannot keep others from running, or from cancelling
        prompt = await self._prompt(final=command.final)
        try:
            reply = await self._ask(prompt)
        except Blocked as blocked:
            self._feed(machine.Blocked(blocked.reason, blocked.message))
        except StreamError as error:
            self._failed(error, error.response.message)
        except PalaverError as error:
            self._failed(error, self._partial())
        else:
            if self._chain.withholds:
                for event in events.deltas(self.agent.name, self.run, reply.response.message):
                    self.emit(event)
            self._answered(reply)
        self._answer = None

    def _failed(self, error: Exception, partial: AssistantMessage | None) -> None:
        self._answer = None
        if self._eager is not None:
            self._eager.drop()
        broke = partial is not None and bool(partial.content)
        if partial is not None:
            self._spent(self.agent.model.name, partial.usage)
        self._feed(machine.ModelFailed(error, anyio.current_time(), partial, broke))

    def _answered(self, reply: Reply) -> None:
        message = reply.response.message
        usage = message.usage
        context = 0 if usage is None else usage.total - (usage.output or 0) - (usage.reasoning or 0)
        self.journal.seconds = reply.seconds
        if reply.losses and self._watch is not None:
            new = tuple([loss for loss in reply.losses if loss not in self._told])
            if new:
                self._told.update(new)
                self.emit(events.Lost(agent=self.agent.name, run=self.run, model=reply.model, losses=new))
        message = self.agent.received(message)
        self._feed(machine.Answered(message, anyio.current_time(), *self._spending.take(), context))

    async def _prompt(self, *, final: bool) -> Prompt:
        agent = self.agent
        said = agent.system if agent.system is not None else await self._instructions()
        tools = self._toolbox.definitions
        if final and tools:
            tools = ()
            said = (*said, system(notes.final_answer_instruction))
        return Prompt(
            messages=self._carry.view(self.journal.path),
            system=said,
            tools=tools,
            settings=agent.settings,
            provider=agent.provider,
        )

    async def _instructions(self) -> tuple[SystemMessage, ...]:
        """Instructions that a function gives, anew for each call of the model."""
        made: Any = self.agent.instructions
        made = made(self.context)
        if isawaitable(made):
            made = await made
        sections = [str(made or ""), *(each.instructions for each in self._chain.all)]
        text = "\n\n".join(filter(None, sections))
        return (system(text),) if text else ()

    async def _ask_model(self, prompt: Prompt) -> Reply:
        async with self._carry.session.ask(prompt, stream=self.agent.stream, on_notice=self._noticed) as answer:
            self._answer = answer
            shows = self._watch is not None and not self._chain.withholds
            hears = self._eager.hears() if self._eager is not None and prompt.tools else None
            if shows or hears is not None:
                async for event in answer:
                    if hears is not None:
                        hears(event)
                    if self._watch is None or not shows:
                        continue
                    if type(event) is TextDelta:
                        self.emit(events.TextDelta(agent=self.agent.name, run=self.run, text=event.text))
                    elif type(event) is ReasoningDelta:
                        self.emit(events.ReasoningDelta(agent=self.agent.name, run=self.run, text=event.text))
                    else:
                        continue
                    await self._watch.room()
            reply = await answer.finish()
        self._spent(reply.model, reply.response.message.usage)
        return reply

    def _spent(self, model: str, usage: Usage | None) -> None:
        """Count an answer; one that does not say what it used costs nobody knows what."""
        if usage is None:
            self._spending.cost = None
        else:
            self._spending.add({model: usage}, self.agent.price(model, usage))

    def _noticed(self, notice: Notice) -> None:
        for noticed in self._chain.noticed:
            noticed(notice, self.context)
        self.emit(
            events.Retrying(
                agent=self.agent.name,
                run=self.run,
                model=notice.model,
                error=notice.error,
                attempt=notice.attempt,
                wait=notice.wait,
                fallback=notice.kind == "fallback",
            )
        )

    def _partial(self) -> AssistantMessage | None:
        """What came of the answer under way."""
        answer, self._answer = self._answer, None
        so_far = None if answer is None else answer.so_far
        return None if so_far is None else so_far.message

    async def _read_output(self, command: machine.ReadOutput) -> None:
        try:
            value = self.agent.read_output(command.message)
        except PalaverError as error:
            self._feed(machine.OutputRefused(str(error)))
        else:
            self._feed(machine.OutputRead(value))

    # -- tools -------------------------------------------------------------------------------------------------------

    async def _plan(self, command: machine.Plan) -> None:
        calls = machine.client_calls(command.message)
        chosen = [(index, calls[index]) for index in command.indexes]
        known, self._known = self._known, Recorded()
        if not known.asked:
            self._decisions = {}  # they are of the calls that were asked, and of no later ones with the same ids
        planned = await plan(chosen, self._toolbox, self._policy, begun=command.begun, known=known)
        asked = {each.call.id for each in planned if each.verdict == "ask"}
        new = bool(asked) and not asked <= known.pending.keys()
        self._feed(machine.Planned(planned, approvals.pending_record(planned) if new else None))

    async def _gate(self, call: ToolCall) -> Rule:
        """The policy, where middleware has rules of its own."""
        tool = self._toolbox.find(call.name)
        assert tool is not None  # noqa: S101 (a policy is asked about tools that are there)
        return await self._judge(call, tool)

    async def _judge(self, call: ToolCall, tool: AgentTool) -> Rule:
        return await self._chain.judge(call, tool, self.context, self.agent.policy)

    async def _approve(self, command: machine.Ask) -> None:
        requests = tuple([_request(each) for each in command.calls if each.verdict == "ask"])
        decisions = {
            each.call.id: self._decisions[each.call.id] for each in requests if each.call.id in self._decisions
        }
        left = tuple([each for each in requests if each.call.id not in decisions])
        if left:
            self.emit(events.ApprovalNeeded(agent=self.agent.name, run=self.run, requests=left))
            if self._decide is not None:
                given: Any = self._decide(left)
                given = await given if isawaitable(given) else given
                approvals.checked_decisions(given, left)
                decisions |= given
        calls = tuple([self._resolved(each, decisions) for each in command.calls])
        self._feed(machine.Decided(calls, approvals.decided_record(decisions) if decisions else None))

    def _resolved(self, planned: PlannedCall, decisions: Mapping[str, Decision]) -> PlannedCall:
        decision = decisions.get(planned.call.id)
        if planned.verdict != "ask" or decision is None:
            return planned
        self.emit(events.ApprovalGiven(agent=self.agent.name, run=self.run, call=planned.call, decision=decision))
        return approvals.resolved(planned, decision, self._tool(planned).check)

    async def _run_calls(self, command: machine.Run) -> None:
        if len(command.calls) == 1:
            self._ran(command.calls[0], await self._run_call(command.calls[0]))
            return
        send, receive = create_memory_object_stream[None](math.inf)

        async def run(planned: PlannedCall) -> None:
            self._ran(planned, await self._run_call(planned))
            send.send_nowait(None)

        with send, receive:
            async with anyio.create_task_group() as group:
                for planned in command.calls:
                    group.start_soon(run, planned)
                for _ in command.calls:
                    await receive.receive()
                    await self._flush()

    def _ran(self, planned: PlannedCall, called: Called) -> None:
        if self._watch is not None:
            self.emit(
                events.ToolFinished(
                    agent=self.agent.name,
                    run=self.run,
                    call=planned.call,
                    message=called.message,
                    outcome=called.outcome,
                    seconds=called.seconds,
                )
            )
        self._feed(machine.Ran(planned.index, called.message, called.records, *self._spending.take()))

    async def _run_call(self, planned: PlannedCall) -> Called:
        early = None if self._eager is None else await self._eager.take(planned.call)
        return early if early is not None else await self._run_at(planned, self._asked_at())

    async def _run_early(self, planned: PlannedCall) -> Called:
        return await self._run_at(planned, len(self.journal.path))

    async def _run_at(self, planned: PlannedCall, place: int) -> Called:
        """Run a call of the message at a place of the conversation."""
        tool = self._tool(planned)
        path = self.journal.path
        context = ToolContext(
            call=planned.call,
            agent=self.agent.name,
            run=self.run,
            thread=self.journal.thread.id,
            path=path,
            values=self.values,
            emit=partial(self._progress, planned.call),
            show=self.emit,
            idempotency_key=idempotency_key(self.journal.thread.id, place, planned.index),
            deps=self.context.deps,
            host=self.context,
        )
        if self._watch is not None:
            self.emit(events.ToolStarted(agent=self.agent.name, run=self.run, call=planned.call, tool=tool.name))
        request = ToolRequest(tool=tool, arguments=planned.arguments, context=context)
        readable = READ_RESULT in self._toolbox
        return await call_tool(planned, request, self._call, self.agent.result_limit, readable=readable)

    def _tool(self, planned: PlannedCall) -> AgentTool:
        tool = self._toolbox.find(planned.tool or "")
        assert tool is not None  # noqa: S101 (planned calls have one)
        return tool

    def _asked_at(self) -> int:
        """The place of the calling message in the conversation: the same in every process that runs its calls."""
        path = self.journal.path
        place = len(path) - 1
        while place >= 0 and not isinstance(path[place].message, AssistantMessage):
            place -= 1
        return place

    def _progress(self, call: ToolCall, value: Any) -> None:
        self.emit(events.ToolProgress(agent=self.agent.name, run=self.run, call=call, value=value))

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _finished(self, command: machine.Finish) -> None:
        self._finish = command

    def _ended(self, seconds: float) -> Run[Any]:
        finish = self._finish or machine.Finish("failed", reason="the run was never finished")
        path = self.journal.path
        pending = tuple([_request(each) for each in self.state.planned if each.verdict == "ask"])
        run = Run(
            id=self.run,
            agent=self.agent.name,
            thread=self.journal.thread,
            branch=self.journal.branch,
            path=path,
            start=self.start,
            outcome=finish.outcome,
            reason=finish.reason,
            error=finish.error,
            usage=self._spending.total,
            usage_by_model=dict(self._spending.usage),
            cost=self._spending.cost if self._spending.usage else None,
            iterations=self.state.iteration,
            seconds=seconds,
            pending=pending if finish.outcome == "waiting" else (),
            values=own(self.values),
            carry=self._carry,
        )
        return structs.replace(run, output=self.state.output if self.agent.reads_output else run.text)


_NOTHING: Final = Step()


def _alone(error: Exception) -> Exception:
    """The one exception that a group of tasks ended with."""
    while isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        if len(group.exceptions) != 1:
            return group
        error = group.exceptions[0]
    return error


async def _run_tool(request: ToolRequest) -> Output:
    return await request.tool.run(request.arguments, request.context)


def _request(planned: PlannedCall) -> ApprovalRequest:
    return ApprovalRequest(
        call=planned.call,
        tool=planned.tool or planned.call.name,
        reason=planned.text,
        choices=tuple(planned.choices),  # type: ignore[arg-type]
    )
