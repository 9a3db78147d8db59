"""A remote A2A agent as an agent of a swarm, in the place of a model.

- Its card is read at the first question, and again after a network error.
- A conversation has a context at the remote agent, and a task when the agent asked for more. Both are stored in the
  client's thread, so that it continues after a restart. A task that ended or is unknown is dropped, and the next
  message starts a new one.
- The parts under ``a2a`` of the client's payload are sent along (``palaver.serve.a2a.parts``). Parts of the answer that
  text cannot carry are in the event ``a2a``, with a receipt.
- A turn that ends early cancels the remote task. A task that was cancelled remotely is an empty answer. A stream that
  ends while the task is still in progress is an error.
- Errors are ``ProviderError`` and ``TransportError``, as a model's. An answer of more than ``LIMIT`` bytes is one of
  them; with ``http`` the caller's client sets its own limits.

Runs on asyncio only: the SDK knows no other event loop.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Final, Unpack

import anyio
import httpx

from palaver.core.errors import PalaverError, TransportError
from palaver.serve.a2a import errors
from palaver.serve.a2a.parts import KEY, UserInput, parts_of, to_text
from palaver.serve.a2a.sdk import (
    A2ACardResolver,
    AgentCard,
    CancelTaskRequest,
    Client,
    ClientCallContext,
    ClientConfig,
    ClientFactory,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    TaskNotFoundError,
    TaskState,
    TaskStatus,
    UnsupportedOperationError,
)
from palaver.stream.frames import LIMIT, LimitedBytes
from palaver.swarm.agent import AgentOptions, SwarmAgent
from palaver.swarm.call import LOGGER, CallContext
from palaver.swarm.events import delta_input
from palaver.swarm.names import joined
from palaver.threads.ids import uuid7

TIMEOUT: Final = 300.0
"""The number of seconds without a byte after which the remote agent counts as gone."""
_CANCEL_TIMEOUT: Final = 5.0
_BINDINGS: Final = ("JSONRPC", "HTTP+JSON")
_INPUT_REQUIRED: Final = TaskState.TASK_STATE_INPUT_REQUIRED
_FAILED_STATES: Final = frozenset(
    (TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_REJECTED, TaskState.TASK_STATE_AUTH_REQUIRED)
)
_IN_PROGRESS: Final = frozenset((TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING))


def a2a_agent(
    url: str,
    *,
    name: str,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,  # of the network, not of the turn
    http: httpx.AsyncClient | None = None,
    **options: Unpack[AgentOptions],
) -> SwarmAgent:
    """Make a swarm agent from the A2A agent at ``url``.

    ``token`` is a bearer token. ``http`` is a client to use, which outlives the swarm. ``options`` are those of
    ``SwarmAgent``. Raises ``MessageError`` as ``SwarmAgent`` does.
    """
    shown = {**(headers or {}), **({} if token is None else {"authorization": f"Bearer {token}"})}
    return SwarmAgent(name, operator=RemoteAgent(url, headers=shown, timeout=timeout, http=http), **options)


class RemoteAgent:
    """An ``operator`` that asks an A2A agent for the answer of a turn."""

    def __init__(self, url: str, *, headers: Mapping[str, str], timeout: float, http: httpx.AsyncClient | None) -> None:
        """Prepare; nothing is sent yet."""
        self._url, self._headers, self._timeout, self._http = url, dict(headers), timeout, http
        self._card: AgentCard | None = None

    async def __call__(self, call_context: CallContext, text: str) -> str:
        """Return the agent's answer. Raises ``PalaverError``."""
        try:
            async with self._connected() as client:
                return await self._ask(client, call_context, text)
        except PalaverError:
            raise
        except Exception as error:
            self._card = None
            raise errors.from_sdk(error) from error

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Client]:
        if self._http is not None:
            yield await self._client(self._http)
            return
        headers = {"accept-encoding": "identity"}
        hooks = {"response": [_limit]}
        async with httpx.AsyncClient(timeout=self._timeout, headers=headers, event_hooks=hooks) as http:
            yield await self._client(http)

    async def _client(self, http: httpx.AsyncClient) -> Client:
        if self._card is None:
            shown = {"headers": self._headers}
            self._card = await A2ACardResolver(http, self._url).get_agent_card(http_kwargs=shown)
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=list(_BINDINGS))
        return ClientFactory(config).create(self._card)

    async def _ask(self, client: Client, call_context: CallContext, text: str) -> str:
        records = call_context.session.records
        stored: Mapping[str, str] = records.get(KEY, call_context.agent, {})
        message = Message(
            role=Role.ROLE_USER,
            message_id=_name(call_context, text),
            context_id=stored.get("context", ""),
            task_id=stored.get("task", ""),
            parts=parts_of(text, call_context.payload),
        )
        partial = _PartialAnswer()
        swarm = call_context.session.swarm
        unchecked = delta_input(swarm, swarm.agents[call_context.agent])
        context = ClientCallContext(service_parameters=self._headers)
        try:
            async for response in client.send_message(SendMessageRequest(message=message), context=context):
                for piece in partial.update(response):
                    call_context.session.publish_event(
                        "agent", "delta", call_context.agent, input=unchecked, output={"text": piece}
                    )
        except anyio.get_cancelled_exc_class():
            await _cancel(client, partial.task, context)
            raise
        except (TaskNotFoundError, UnsupportedOperationError):
            if "task" in stored:
                await records.put(KEY, call_context.agent, {"context": stored["context"]})
            raise
        now = partial.position
        if now != stored:
            await records.put(KEY, call_context.agent, now)
        answer = partial.answer()
        if answer.losses:
            call_context.session.publish(KEY, {"parts": list(answer.preserved), "losses": answer.receipt})
        return answer.text


class _Stream(LimitedBytes, httpx.AsyncByteStream):
    """The bytes of an answer, up to the limit."""


async def _limit(response: httpx.Response) -> None:
    """Limit the size of an answer before it is read."""
    packed = response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}

    def error(reason: str) -> Exception:
        return httpx.ReadError("the answer is compressed, though the request did not allow it" if packed else reason)

    if isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _Stream(response.stream, 0 if packed else LIMIT, error)


def _name(call_context: CallContext, text: str) -> str:
    """Return the id of a message. It is the same when an interrupted turn asks again."""
    if call_context.run is None:
        return uuid7()
    return sha256(
        joined(call_context.session.log.id, call_context.run, call_context.agent, text).encode(errors="replace")
    ).hexdigest()


async def _cancel(client: Client, task: str, context: ClientCallContext) -> None:
    if not task:
        return
    with anyio.move_on_after(_CANCEL_TIMEOUT, shield=True):
        try:
            await client.cancel_task(CancelTaskRequest(id=task), context=context)
        except Exception:  # noqa: BLE001 (the turn is over, and nobody waits for this)
            LOGGER.warning("the task %s was not cancelled", task, exc_info=True)


class _PartialAnswer:
    """The answer as far as it has arrived."""

    def __init__(self) -> None:
        self.task = ""
        self._context = ""
        self._status = TaskStatus()
        self._metadata: dict[str, Any] = {}
        self._artifacts: dict[str, list[Part]] = {}
        self._message: Message | None = None

    def update(self, response: StreamResponse) -> Iterable[str]:
        """Apply a response. Return the new pieces of text."""
        match response.WhichOneof("payload"):
            case "message":
                self._message, self._context = response.message, response.message.context_id
            case "task":
                task = response.task
                self.task, self._context, self._status = task.id, task.context_id, task.status
                self._metadata = errors.to_dict(task.metadata)
                self._artifacts = {each.artifact_id: list(each.parts) for each in task.artifacts}
            case "status_update":
                update = response.status_update
                self.task, self._context, self._status = update.task_id, update.context_id, update.status
                self._metadata |= errors.to_dict(update.metadata)
            case "artifact_update":
                return self._update_artifact(response)
            case _:
                pass
        return ()

    def _update_artifact(self, response: StreamResponse) -> Iterable[str]:
        update = response.artifact_update
        self.task, self._context = update.task_id, update.context_id
        parts = list(update.artifact.parts)
        if update.append:
            self._artifacts.setdefault(update.artifact.artifact_id, []).extend(parts)
        else:
            self._artifacts[update.artifact.artifact_id] = parts
        return [part.text for part in parts if part.text]

    @property
    def position(self) -> dict[str, str]:
        """The context and task in which the conversation continues."""
        needs_input = self._message is None and self._status.state == _INPUT_REQUIRED
        return {"context": self._context, **({"task": self.task} if needs_input else {})}

    def answer(self) -> UserInput:
        """Return the answer. Raises ``ProviderError`` for a failed task, ``TransportError`` for an unfinished one."""
        if self._message is not None:
            return to_text(self._message.parts)
        state = self._status.state
        if state in _FAILED_STATES:
            raise errors.from_task(state, self._status, self._metadata)
        if state in _IN_PROGRESS:
            raise TransportError(f"{errors.WIRE}: the answer is incomplete")
        if state == TaskState.TASK_STATE_CANCELED:
            return UserInput("")
        parts = [part for each in self._artifacts.values() for part in _joined(each)]
        if state == _INPUT_REQUIRED or not parts:
            parts += self._status.message.parts
        return to_text(parts)


def _joined(parts: list[Part]) -> list[Part]:
    """Return the parts of an artifact, with adjacent texts joined."""
    joined: list[Part] = []
    for part in parts:
        if joined and part.WhichOneof("content") == "text" == joined[-1].WhichOneof("content"):
            joined[-1] = Part(text=joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined
