"""The driver: carries out what the machine commands. What a run awaits, it awaits here or in its two halves.

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
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio import CancelScope, create_memory_object_stream
from msgspec import Struct, structs

from palaver.agent import machine, protocol
from palaver.agent.prompt import Carry, Prompts
from palaver.agent.protocol import State
from palaver.core.errors import PalaverError
from palaver.core.messages import Message
from palaver.store.stored_thread import StoredThread
from palaver.threads.thread import MAIN
from palaver.turn import approvals, calls, events, middleware
from palaver.turn.approvals import Decide, Decision, Recorded
from palaver.turn.calls import Answered, PlannedCall
from palaver.turn.events import Observer, Observing, Watch
from palaver.turn.journal import AnyThread, Journal
from palaver.turn.limits import Spending
from palaver.turn.middleware import Blocked, Hook, RunContext, Step, hook_time, run_hooks
from palaver.turn.model_call import ModelCalls
from palaver.turn.notes import deferred_record
from palaver.turn.run import Run, own
from palaver.turn.tool_calls import ToolCalls
from palaver.turn.tracing import Correlation

if TYPE_CHECKING:
    from palaver.agent.agent import Agent


_SIMPLE: Final = (protocol.Append, protocol.Warn)


class RunOptions(Struct, frozen=True, kw_only=True):
    """What a run is given besides its prompt: the keywords of ``Agent.stream``, which describes them.

    ``thread``, ``branch`` and ``previous`` say where the run writes; ``deps`` and ``values`` are for its tools and
    middleware; ``decide`` and ``decisions`` settle calls that wait; ``on_event`` looks on.
    """

    thread: AnyThread | None = None
    branch: str = MAIN
    previous: Run[Any] | None = None
    deps: Any = None
    values: dict[str, Any] | None = None
    decide: Decide | None = None
    decisions: Mapping[str, Decision] | None = None
    on_event: Observer | None = None


class RunStart(Struct, frozen=True, kw_only=True):
    """Where a run begins: its id and first event, and what there is from before."""

    run: str
    event: protocol.Begun | protocol.Resumed
    carry: Carry
    """What the runs of one conversation share in this process."""
    known: Recorded
    """What the records say of calls that were left open."""
    closing: bool = False
    """Whether those without a decision are not run, because a prompt follows."""


class Driver:
    """Drives one run, from its first event on."""

    def __init__(
        self, agent: Agent[Any], journal: Journal, start: RunStart, options: RunOptions, watch: Watch | None
    ) -> None:
        """Drive from ``start`` on, and write to ``journal``. ``watch`` gets the events."""
        self.agent, self.journal, self.run = agent, journal, start.run
        self._first, self._carry = start.event, start.carry
        self._chain, self._watch = agent.chain, watch
        self.state = State(
            limits=agent.limits,
            reads_output=agent.reads_output,
            polling=frozenset(agent.polling),
            has_tools=bool(agent.first_definitions),
        )
        self.values: dict[str, Any] = {} if options.values is None else options.values
        self._queue: deque[protocol.Command] = deque()
        self._token = 0
        self._spending = Spending()
        self._finish: protocol.Finish | None = None
        self._inbox: list[Message] = []
        self.result: Run[Any] | None = None
        """The run, when it is over."""
        self.cancel_reason = ""
        self._cancelled: BaseException | None = None
        self.context = self._run_context(options)
        self._tools = self._tool_calls(options.decisions or {}, start)
        self.context.judge, self.context.call_tool = self._tools.judge, self._tools.call
        self._correlation = Correlation(journal.path)
        self._prompts = Prompts(agent, journal, self.context, self._carry)
        self._model = self._model_calls()
        self._does = self._handlers()

    def _run_context(self, options: RunOptions) -> RunContext:
        """What middleware and tools know of the run."""
        agent, journal, carry = self.agent, self.journal, self._carry
        return RunContext(
            agent=agent.name,
            run=self.run,
            thread=journal.thread.id,
            deps=options.deps,
            values=self.values,
            path=lambda: journal.path,
            emit=self.emit,
            model=agent.model.name,
            language_model=agent.model,
            entries=lambda: journal.entries,
            messages=lambda: carry.view(journal.path),
            limits=agent.limits,
            price=agent.price,
            rewrite=self._rewrite,
            carried=carry.own,
            spend=self._spending.add,
            decide=options.decide,
            watch=self._watch,
            store=journal.thread.store if isinstance(journal.thread, StoredThread) else None,
            log=agent.log,
            toolbox=agent.toolbox,
        )

    def _tool_calls(self, decisions: Mapping[str, Decision], start: RunStart) -> ToolCalls:
        agent = self.agent
        return ToolCalls(
            agent.chain,
            agent.toolbox,
            agent.policy,
            self.context,
            self._spending,
            result_limit=agent.result_limit,
            depths=self._carry.depths,
            decisions=decisions,
            known=start.known,
            closing=start.closing,
            early=agent.eager and agent.streams,
        )

    def _model_calls(self) -> ModelCalls:
        agent = self.agent
        return ModelCalls(
            agent.chain,
            self.context,
            self._spending,
            self._carry.session,
            stream=agent.streams,
            received=agent.received,
            refresh=self._prompts.refresh,
            eager=self._tools.eager,
        )

    def _handlers(self) -> Mapping[type[Any], Callable[[Any], Awaitable[None]]]:
        """What carries out each command of the machine."""
        return {
            protocol.Append: self._append,
            protocol.Prepare: self._prepare,
            protocol.CallModel: self._call_model,
            protocol.Review: self._review,
            protocol.ReadOutput: self._read_output,
            protocol.Plan: self._plan,
            protocol.Ask: self._approve,
            protocol.Run: self._run_calls,
            protocol.Warn: self._warned,
            protocol.Finish: self._finished,
        }

    # -- from outside ------------------------------------------------------------------------------------------------

    def steer(self, message: Message) -> None:
        """Say something while the run is under way: it joins at the next boundary of steps."""
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
                async with self._tools.eager or nullcontext():
                    await self._begin(first)
                    await self._loop()
            if scope.cancelled_caught:
                await self._stop(protocol.Interrupted("timed_out", "The time of the run is over."))
        except Exception as error:  # noqa: BLE001 (whatever fails, the thread is left whole)
            await self._stop(protocol.Crashed(_alone(error)))
        except BaseException as error:  # noqa: BLE001 (cancellation; raised again below)
            self._cancelled = error
            ended = f"The program ended ({type(error).__name__})." if isinstance(error, SystemExit) else ""
            await self._stop(protocol.Interrupted(reason=self.cancel_reason or ended))
        self.context.ended = run = self._ended(anyio.current_time() - began)
        with CancelScope(shield=True):
            await self._after_agent()
            await self._said_late()
        self.result = run = structs.replace(run, path=self.journal.path)
        self.emit(events.RunFinished(agent=self.agent.name, run=self.run, result=run))
        if self._cancelled is not None:
            raise self._cancelled
        return run

    async def _begin(self, first: protocol.Event) -> None:
        if self._watch is not None:
            joining = (*first.closing, *first.messages) if isinstance(first, protocol.Begun) else ()
            length = self.journal.start + len(joining)
            self.emit(
                events.RunStarted(agent=self.agent.name, run=self.run, thread=self.journal.thread.id, length=length)
            )
        self._feed(first)
        await self._flush()
        if not self._chain.before_agent:
            return
        following = len(self._queue)
        wanted = await self._hooked(self._chain.before_agent)
        if wanted is None:  # the run is over: what was to follow does not
            for _ in range(following):
                self._queue.popleft()
            return
        if wanted.jump == "end" and self.state.phase == "prepare":
            self._queue.clear()
            self._feed(protocol.Prepared(wanted.inject, "end"))
        elif wanted.inject and self.state.phase == "plan":
            self._feed(protocol.Steered(wanted.inject))  # calls are open
        elif wanted.inject:
            self._queue.appendleft(protocol.Append(wanted.inject))

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _feed(self, event: protocol.Event) -> None:
        if self._inbox:
            said, self._inbox = tuple(self._inbox), []
            self.state, commands = machine.step(self.state, protocol.Steered(said))
            self._queue += commands
        self.state, commands = machine.step(self.state, event)
        self._queue += commands

    async def _loop(self) -> None:
        queue = self._queue
        while queue:
            await self._carry_out(queue[0])

    def _carry_out(self, command: protocol.Command) -> Awaitable[None]:
        """Carry out the first command of the queue. An append leaves it when it is done, so that none is lost."""
        if type(command) is not protocol.Append:
            self._queue.popleft()
        return self._does[type(command)](command)

    async def _stop(self, event: protocol.Event) -> None:
        """End the run from any place: what was to be appended is, then what the event asks for."""
        with CancelScope(shield=True):
            partial = self._model.partial()
            if partial is not None and isinstance(event, protocol.Interrupted | protocol.Crashed):
                event = structs.replace(event, partial=partial)
            try:
                await self._through(self._flush_all)
                self._feed(event)
                await self._through(self._flush_all)
            except Exception as error:  # noqa: BLE001 (the store itself failed; what it has is whole)
                self._queue.clear()
                self._finish = protocol.Finish("failed", error, str(error))

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
            if isinstance(self._queue[0], (*_SIMPLE, protocol.Finish)):
                await self._carry_out(self._queue[0])
            else:
                self._queue.popleft()

    async def _said_late(self) -> None:
        """Keep what was said when the run was over already; the next one hears it."""
        said, self._inbox = tuple(self._inbox), []
        if not said:
            return
        if self.state.outcome == "waiting":
            said = (deferred_record((*self.state.deferred, *said)),)
        self._queue.append(protocol.Append(said))
        try:
            await self._through(self._flush_all)
        except Exception as error:  # noqa: BLE001 (the store failed; the run is over all the same)
            self._queue.clear()
            self._warn(f"the last messages were not stored: {error}", error)

    # -- messages ----------------------------------------------------------------------------------------------------

    async def _append(self, command: protocol.Append) -> None:
        name = self.agent.name
        given = [self._correlation.joining(each) for each in command.messages]
        messages = [each if each.agent is not None else structs.replace(each, agent=name) for each in given]
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

    async def _rewrite(self, kept: int, messages: Sequence[Message]) -> Sequence[Message]:
        """Let the branch go on behind ``kept`` entries with other messages; give what the model is sent now."""
        return self._carry.view(await self.journal.rebase(kept, messages))

    # -- hooks -------------------------------------------------------------------------------------------------------

    async def _prepare(self, command: protocol.Prepare) -> None:  # noqa: ARG002 (a row of the table)
        hooks = self._chain.before_model
        wanted = await self._hooked(hooks) if hooks else _NOTHING
        if wanted is not None:
            self._feed(protocol.Prepared(wanted.inject, wanted.jump))

    async def _review(self, command: protocol.Review) -> None:
        self.context.message = command.message
        hooks = self._chain.after_model
        wanted = await self._hooked(hooks) if hooks else _NOTHING
        if wanted is not None:
            self._feed(protocol.Reviewed(wanted.inject, wanted.jump))

    async def _hooked(self, hooks: Sequence[Hook]) -> Step | None:
        try:
            self.context.iteration, self.context.spent = self.state.iteration, self.state.spent
            wanted = await run_hooks(hooks, self.context)
        except Blocked as blocked:
            self._feed(calls.Blocked(blocked.reason, blocked.message))
            return None
        if wanted.error is None:
            return wanted
        self._feed(protocol.Steered(wanted.inject))
        self._feed(protocol.Crashed(wanted.error))
        return None

    async def _after_agent(self) -> None:
        """Tell the hooks that the run is over; after a cancel they have little time, all of them together."""
        end = math.inf if self._cancelled is None else anyio.current_time() + middleware.GRACE
        for hook in self._chain.after_agent:
            try:
                with hook_time("a hook", end - anyio.current_time()):
                    await hook(self.context)
            except Exception as error:  # noqa: BLE001 (it cannot change how the run ended)
                self._warn(f"after_agent: {type(error).__name__}: {error}", error)
            except anyio.get_cancelled_exc_class() as error:  # asyncio's own, which goes past a shield
                self._cancelled = self._cancelled or error

    def _warn(self, text: str, error: Exception | None = None) -> None:
        self.emit(events.Warned(agent=self.agent.name, run=self.run, text=text, error=error))

    async def _warned(self, command: protocol.Warn) -> None:
        self._warn(command.text)

    # -- model and tools ---------------------------------------------------------------------------------------------

    async def _call_model(self, command: protocol.CallModel) -> None:
        number, build = self.state.iteration, partial(self._prompts.build, final=command.final)
        self.journal.round = number
        event = await self._model.call(number, build, final=command.final)
        if isinstance(event, Answered):
            self.journal.seconds = event.seconds
        self._feed(event)

    async def _read_output(self, command: protocol.ReadOutput) -> None:
        try:
            value = self.agent.read_output(command.message)
        except PalaverError as error:
            self._feed(protocol.OutputRefused(str(error)))
        else:
            self._feed(protocol.OutputRead(value))

    async def _plan(self, command: protocol.Plan) -> None:
        self._feed(await self._tools.plan(command.message, command.indexes, may_have_run=command.may_have_run))

    async def _approve(self, command: protocol.Ask) -> None:
        self._feed(await self._tools.approve(command.calls))

    async def _run_calls(self, command: protocol.Run) -> None:
        if len(command.calls) == 1:
            self._feed(await self._tools.run(command.calls[0]))
            return
        send, receive = create_memory_object_stream[None](math.inf)

        async def run(planned: PlannedCall) -> None:
            self._feed(await self._tools.run(planned))
            send.send_nowait(None)

        with send, receive:
            async with anyio.create_task_group() as group:
                for planned in command.calls:
                    group.start_soon(run, planned)
                for _ in command.calls:
                    await receive.receive()
                    await self._flush()

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _finished(self, command: protocol.Finish) -> None:
        self._finish = command

    def _ended(self, seconds: float) -> Run[Any]:
        finish = self._finish or protocol.Finish("failed", reason="the run did not finish")
        path = self.journal.path
        pending = tuple([approvals.request(each) for each in self.state.planned if each.verdict == "ask"])
        run = Run(
            id=self.run,
            agent=self.agent.name,
            thread=self.journal.thread,
            branch=self.journal.branch,
            path=path,
            start=self.journal.start,
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
