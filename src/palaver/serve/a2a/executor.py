"""A swarm as the SDK's server calls it: one task for one message, whose turn is answered at a desk.

Rules:

- The context of A2A is the client, below the user where tokens belong to users; a message's id names its turn: a
  message that is sent twice is answered once.
- A task is working while its turn is, and its answer is one artifact, with the agent and the receipts in its metadata.
  As an agent speaks, the artifact grows; when the answer is another than what was spoken, it replaces the artifact.
- Cancelling a task cancels its turn, once the turn is under way: one that waits behind another is cancelled as it
  begins. A turn that was cancelled by others is a task that was cancelled.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

from palaver.core.errors import DecodeError
from palaver.serve.a2a import errors
from palaver.serve.a2a.access import client_of
from palaver.serve.a2a.parts import UserInput, said
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
from palaver.swarm.bus import Where
from palaver.swarm.call_context import LOGGER
from palaver.swarm.events import Event, for_client, is_public
from palaver.swarm.names import is_name
from palaver.threads.ids import uuid7

if TYPE_CHECKING:
    from palaver.serve.workers import Dispatcher
    from palaver.swarm.bus import Subscription

ARTIFACT: Final = "answer"
AGENT: Final = "palaver.agent"
RECEIPT: Final = "palaver.losses"
_GRACE: Final = 1.0


class _Running:
    """A task under way."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.ended = anyio.Event()
        self.cancelled = False
        self.agent: str | None = None


class Executor(AgentExecutor):
    """Answers tasks at a desk, which is entered already."""

    def __init__(self, dispatcher: Dispatcher, swarm: str | None) -> None:
        """Use a desk; ``swarm`` names the one whose events are listened to, where several share a bus."""
        self._dispatcher, self._swarm = dispatcher, swarm
        self._running: dict[str, _Running] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer a task. Raises errors of A2A for a message that cannot be one of ours."""
        message = context.message
        task, place = context.task_id or "", context.context_id or ""
        if message is None:
            raise InvalidParamsError("there is no message")
        client = _client_of(context)
        heard = _heard(message)
        if context.current_task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(Task(id=task, context_id=place, status=status, history=[message]))
        running = self._running[task] = _Running()
        try:
            await self._answer(client, message, heard, running, TaskUpdater(event_queue, task, place))
        finally:
            running.begun.set()
            running.ended.set()
            del self._running[task]

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel a task's turn."""
        task, place = context.task_id or "", context.context_id or ""
        running = self._running.get(task)
        if running is not None:
            running.cancelled = True
            await running.begun.wait()
            if not running.ended.is_set():
                await self._dispatcher.cancel(_client_of(context))
        await TaskUpdater(event_queue, task, place).cancel()

    async def _answer(
        self, client: str, message: Message, heard: UserInput, running: _Running, updater: TaskUpdater
    ) -> None:
        await updater.start_work()
        run = message.message_id if is_name(message.message_id) else uuid7()
        where = Where(client=client, run=run, swarm=self._swarm, test=is_public)
        error: Exception | None = None
        answer = ""
        speech = _Speech(updater)
        async with self._dispatcher.bus.subscribe(where) as events, anyio.create_task_group() as tasks:
            tasks.start_soon(_hear, events, running, speech)
            try:
                answer = await self._dispatcher.ask(client, heard.text, payload=heard.payload, run=run)
                with anyio.move_on_after(_GRACE):
                    await running.ended.wait()
            except Exception as raised:  # noqa: BLE001 (it is what the task came to)
                error = raised
            events.close()
        if error is not None:
            await _failed(updater, error)
        elif running.cancelled:
            return  # `cancel` says so
        elif not answer:
            await updater.cancel()
        else:
            metadata: dict[str, Any] = {} if running.agent is None else {AGENT: running.agent}
            if heard.losses:
                metadata[RECEIPT] = heard.receipt
            await speech.end(answer, metadata)
            await updater.complete()


class _Speech:
    """The artifact of an answer, as it grows: what was said last is held back, for it may be the end."""

    def __init__(self, updater: TaskUpdater) -> None:
        self._updater = updater
        self._spoken: list[str] = []
        self._told = 0

    async def say(self, text: str) -> None:
        if not text:
            return
        await self._tell(last=False)
        self._spoken.append(text)

    async def end(self, answer: str, metadata: dict[str, Any]) -> None:
        if "".join(self._spoken) != answer:
            self._spoken, self._told = [answer], 0
        await self._tell(last=True, metadata=metadata)

    async def _tell(self, *, last: bool, metadata: dict[str, Any] | None = None) -> None:
        if self._told < len(self._spoken):
            parts = [Part(text=self._spoken[-1])]
            first = self._told == 0
            self._told = len(self._spoken)
            await self._updater.add_artifact(
                parts, ARTIFACT, ARTIFACT, metadata=metadata, append=not first, last_chunk=last
            )


async def _hear(events: Subscription, running: _Running, speech: _Speech) -> None:
    async for event in events:
        running.begun.set()
        await _learn(for_client(event), running, speech)


async def _learn(event: Event, running: _Running, speech: _Speech) -> None:
    match event.source, event.type:
        case "agent", "delta":
            await speech.say(str(event.output.get("text", "")))
        case "swarm", "get-agent-name":
            active = event.output.get("activeAgent")
            running.agent = active if isinstance(active, str) else None
        case "execution", "commit-execution-end" if event.agent is None:
            running.ended.set()
        case _:
            pass


def _client_of(context: RequestContext) -> str:
    try:
        return client_of(context)
    except DecodeError as error:
        raise InvalidParamsError(f"contextId: {error.reason}") from error


def _heard(message: Message) -> UserInput:
    heard = said(message.parts)
    if not heard.text.strip():
        raise ContentTypeNotSupportedError("the message has no part that could be said")
    return heard


async def _failed(updater: TaskUpdater, error: Exception) -> None:
    LOGGER.warning("the task %s came to nothing", updater.task_id, exc_info=error)
    reason = Message(role=Role.ROLE_AGENT, message_id=uuid7(), parts=[Part(text=errors.reason_of(error))])
    await updater.update_status(errors.state_of(error), reason, metadata=errors.metadata_of(error))
