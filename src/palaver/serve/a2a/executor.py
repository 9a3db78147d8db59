"""Run a swarm under the SDK's server: one task for one message, whose turn a dispatcher answers.

- The client is the A2A context, prefixed with the user when tokens belong to users. A message's id names its turn, so a
  message that is sent twice is answered once.
- A task is working while its turn is in progress. Its answer is one artifact, with the agent and the receipt in its
  metadata. Streamed text extends the artifact; an answer that differs from it replaces the artifact.
- A turn whose calls wait for decisions is a task that requires input; the next message of the task decides them, or
  goes on without them (``palaver.serve.a2a.decisions``).
- Cancelling a task cancels its turn when the turn starts or is in progress. A turn that others cancelled is a cancelled
  task.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

from palaver.core.errors import DecodeError, SwarmError
from palaver.serve.a2a import errors
from palaver.serve.a2a.access import client_of, context_of
from palaver.serve.a2a.decisions import decisions_of, waiting_message, waiting_turn
from palaver.serve.a2a.parts import UserInput, to_text
from palaver.serve.a2a.sdk import (
    AgentExecutor,
    ContentTypeNotSupportedError,
    EventQueue,
    InvalidParamsError,
    Message,
    Part,
    RequestContext,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TaskUpdater,
)
from palaver.serve.workers import PendingTurn
from palaver.swarm.bus import Where
from palaver.swarm.call import LOGGER
from palaver.swarm.events import Event, for_client, is_public
from palaver.swarm.names import is_name
from palaver.threads.ids import uuid7
from palaver.turn.approvals import DecisionError

if TYPE_CHECKING:
    from palaver.serve.http.access import UserDecisions
    from palaver.serve.workers import Dispatcher
    from palaver.swarm.bus import Subscription

ARTIFACT: Final = "answer"
AGENT: Final = "palaver.agent"
RECEIPT: Final = "palaver.losses"
_GRACE: Final = 1.0


class _TaskState:
    """The state of a task in progress."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.ended = anyio.Event()
        self.cancelled = False
        self.agent: str | None = None


class Executor(AgentExecutor):
    """Answers tasks with a dispatcher, which is open already."""

    def __init__(self, dispatcher: Dispatcher, swarm: str | None) -> None:
        """Use a dispatcher. ``swarm`` names the swarm, when several share a bus."""
        self._dispatcher, self._swarm = dispatcher, swarm
        self._tasks: dict[str, _TaskState] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer a task. Raises errors of A2A for an unusable message."""
        message = context.message
        known = context.current_task
        task, context_id = context.task_id or "", context_of(context)
        if message is None:
            raise InvalidParamsError("there is no message")
        client = _client_of(context)
        user_input = to_text(message.parts)
        if not user_input.text.strip():
            raise ContentTypeNotSupportedError("the message has no part that text can carry")
        if known is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(Task(id=task, context_id=context_id, status=status, history=[message]))
        state = self._tasks[task] = _TaskState()
        try:
            updater = TaskUpdater(event_queue, task, context_id)
            wanted: UserDecisions | str = _named(message)
            if known is not None:
                waiting = await self._pending(client, waiting_turn(known))
                try:
                    wanted = decisions_of(message, user_input.text, waiting) or wanted
                except DecodeError as error:
                    await self._refused(waiting, error, updater)
                    return
            await self._answer(client, wanted, user_input, state, updater)
        finally:
            state.started.set()
            state.ended.set()
            del self._tasks[task]

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel a task's turn."""
        task, context_id = context.task_id or "", context_of(context)
        state = self._tasks.get(task)
        if state is not None:
            state.cancelled = True
            await state.started.wait()
            if not state.ended.is_set():
                await self._dispatcher.cancel(_client_of(context))
        await TaskUpdater(event_queue, task, context_id).cancel()

    async def _answer(
        self,
        client: str,
        wanted: UserDecisions | str,
        user_input: UserInput,
        state: _TaskState,
        updater: TaskUpdater,
    ) -> None:
        """Take decisions, or the message of the turn ``wanted``, and report what comes of it."""
        await updater.start_work()
        run = wanted if isinstance(wanted, str) else wanted.run
        where = Where(client=client, run=run, swarm=self._swarm, test=is_public)
        error: Exception | None = None
        answer = ""
        artifact = _AnswerArtifact(updater)
        async with self._dispatcher.bus.subscribe(where) as events, anyio.create_task_group() as tasks:
            tasks.start_soon(_follow, events, state, artifact)
            try:
                if isinstance(wanted, str):
                    answer = await self._dispatcher.ask(client, user_input.text, payload=user_input.payload, run=wanted)
                else:
                    answer = await self._dispatcher.decide(client, wanted.decisions, run=run)
                with anyio.move_on_after(_GRACE):
                    await state.ended.wait()
            except Exception as raised:  # noqa: BLE001 (it is the outcome of the task)
                error = raised
            events.close()
        waiting = PendingTurn(run)
        if isinstance(error, DecisionError) or (error is None and not answer and not state.cancelled):
            waiting = await self._pending(client, run)
        if error is not None:
            await self._refused(waiting, error, updater)
        elif waiting.requests:
            await updater.requires_input(waiting_message(waiting))
        elif state.cancelled:
            return  # `cancel` has updated the task
        elif not answer:
            await updater.cancel()
        else:
            metadata: dict[str, Any] = {} if state.agent is None else {AGENT: state.agent}
            if user_input.losses and isinstance(wanted, str):  # of decisions, the data were read
                metadata[RECEIPT] = user_input.receipt
            await artifact.end(answer, metadata)
            await updater.complete()

    async def _pending(self, client: str, run: str | None) -> PendingTurn:
        """Return the turn ``run`` with the calls of it that wait; without any where the dispatcher cannot say."""
        try:
            waiting = PendingTurn() if run is None else await self._dispatcher.pending(client)
        except SwarmError:
            waiting = PendingTurn()
        return waiting if waiting.run == run else PendingTurn(run)

    async def _refused(self, waiting: PendingTurn, error: Exception, updater: TaskUpdater) -> None:
        """Report an error: of a turn that failed, or of decisions, which leave the calls as they are ``waiting``."""
        if waiting.requests:
            await updater.requires_input(waiting_message(waiting, str(error)))
        else:
            await _failed(updater, error)


class _AnswerArtifact:
    """The growing artifact of an answer. The last piece is held back, because it may be the final one."""

    def __init__(self, updater: TaskUpdater) -> None:
        self._updater = updater
        self._pieces: list[str] = []
        self._sent = 0

    async def add_text(self, text: str) -> None:
        if not text:
            return
        await self._send_piece(last=False)
        self._pieces.append(text)

    async def end(self, answer: str, metadata: dict[str, Any]) -> None:
        if "".join(self._pieces) != answer:
            self._pieces, self._sent = [answer], 0
        await self._send_piece(last=True, metadata=metadata)

    async def _send_piece(self, *, last: bool, metadata: dict[str, Any] | None = None) -> None:
        if self._sent < len(self._pieces):
            parts = [Part(text=self._pieces[-1])]
            first = self._sent == 0
            self._sent = len(self._pieces)
            await self._updater.add_artifact(
                parts, ARTIFACT, ARTIFACT, metadata=metadata, append=not first, last_chunk=last
            )


async def _follow(events: Subscription, state: _TaskState, artifact: _AnswerArtifact) -> None:
    async for event in events:
        state.started.set()
        await _on_event(for_client(event), state, artifact)


async def _on_event(event: Event, state: _TaskState, artifact: _AnswerArtifact) -> None:
    match event.source, event.type:
        case "agent", "delta":
            await artifact.add_text(str(event.output.get("text", "")))
        case "swarm", "get-agent-name":
            active = event.output.get("activeAgent")
            state.agent = active if isinstance(active, str) else None
        case "execution", "commit-execution-end" if event.agent is None:
            state.ended.set()
        case _:
            pass


def _client_of(context: RequestContext) -> str:
    try:
        return client_of(context)
    except DecodeError as error:
        raise InvalidParamsError(f"contextId: {error.reason}") from error


def _named(message: Message) -> str:
    """Return the name of the turn of a message."""
    return message.message_id if is_name(message.message_id) else uuid7()


async def _failed(updater: TaskUpdater, error: Exception) -> None:
    LOGGER.warning("the task %s failed", updater.task_id, exc_info=error)
    reason = Message(role=Role.ROLE_AGENT, message_id=uuid7(), parts=[Part(text=errors.reason_of(error))])
    await updater.update_status(errors.state_of(error), reason, metadata=errors.metadata_of(error))
