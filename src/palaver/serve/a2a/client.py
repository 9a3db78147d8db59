"""An A2A agent elsewhere, as an agent of a swarm: asked in the model's place.

Rules:

- Its card is read when it is first asked, and again after an error of the network.
- A client's conversation there has a context, and a task where the agent asked for more; both are kept in the client's
  thread, so that a conversation goes on after a restart. A task that is over there, or not known any more, is
  forgotten: the next message begins another.
- What came with the client's message under ``a2a`` goes along (``palaver.serve.a2a.parts``). What is answered and a
  text cannot carry is told by the event ``a2a``, with its receipt.
- A turn that ends early cancels the task there. A task that was cancelled there is an empty answer; one that is still
  under way when nothing more comes is an error, and what came of it no answer.
- Errors are ``ProviderError`` and ``TransportError`` as a model's are. An answer or stream of more than ``LIMIT`` bytes
  is one of them; a client that was given as ``http`` sets limits of its own.

On asyncio alone: the SDK knows no other event loop.

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
from palaver.serve.a2a.parts import KEY, UserInput, parts_of, said
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
from palaver.swarm.call_context import LOGGER, CallContext
from palaver.swarm.events import delta_input
from palaver.swarm.names import joined
from palaver.threads.ids import uuid7

TIMEOUT: Final = 300.0
"""Seconds without a byte, after which the other side is taken for gone."""
_CANCEL: Final = 5.0
_BINDINGS: Final = ("JSONRPC", "HTTP+JSON")
_ASKS: Final = TaskState.TASK_STATE_INPUT_REQUIRED
_BAD: Final = frozenset(
    (TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_REJECTED, TaskState.TASK_STATE_AUTH_REQUIRED)
)
_UNDER_WAY: Final = frozenset((TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING))


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
    """Make an agent of the A2A agent whose card is below ``url``.

    ``token`` is shown as a bearer's; ``http`` is a client to use, which outlives the swarm. ``options`` are those of
    ``SwarmAgent``. Raises ``MessageError`` as that does.
    """
    shown = {**(headers or {}), **({} if token is None else {"authorization": f"Bearer {token}"})}
    return SwarmAgent(name, operator=Remote(url, headers=shown, timeout=timeout, http=http), **options)


class Remote:
    """Asks an A2A agent for the answer of a turn: an ``operator``."""

    def __init__(self, url: str, *, headers: Mapping[str, str], timeout: float, http: httpx.AsyncClient | None) -> None:
        """Ask nobody yet."""
        self._url, self._headers, self._timeout, self._http = url, dict(headers), timeout, http
        self._card: AgentCard | None = None

    async def __call__(self, place: CallContext, text: str) -> str:
        """Ask. Raises ``PalaverError``."""
        try:
            async with self._connected() as client:
                return await self._asked(client, place, text)
        except PalaverError:
            raise
        except Exception as error:
            self._card = None
            raise errors.raised(error) from error

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

    async def _asked(self, client: Client, place: CallContext, text: str) -> str:
        records = place.session.records
        known: Mapping[str, str] = records.get(KEY, place.agent, {})
        message = Message(
            role=Role.ROLE_USER,
            message_id=_name(place, text),
            context_id=known.get("context", ""),
            task_id=known.get("task", ""),
            parts=parts_of(text, place.payload),
        )
        heard = _Heard()
        swarm = place.session.swarm
        unchecked = delta_input(swarm, swarm.agents[place.agent])
        context = ClientCallContext(service_parameters=self._headers)
        try:
            async for response in client.send_message(SendMessageRequest(message=message), context=context):
                for spoken in heard.take(response):
                    place.session.tell("agent", "delta", place.agent, input=unchecked, output={"text": spoken})
        except anyio.get_cancelled_exc_class():
            await _cancel(client, heard.task, context)
            raise
        except (TaskNotFoundError, UnsupportedOperationError):
            if "task" in known:
                await records.put(KEY, place.agent, {"context": known["context"]})
            raise
        now = heard.place
        if now != known:
            await records.put(KEY, place.agent, now)
        answer = heard.answer()
        if answer.losses:
            place.session.publish(KEY, {"parts": list(answer.kept), "losses": answer.receipt})
        return answer.text


class _Stream(LimitedBytes, httpx.AsyncByteStream):
    """The bytes of an answer, up to the limit."""


async def _limit(response: httpx.Response) -> None:
    """Bound an answer, before any of it is read."""
    packed = response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}

    def error(reason: str) -> Exception:
        return httpx.ReadError("a compressed answer, which nobody asked for" if packed else reason)

    if isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _Stream(response.stream, 0 if packed else LIMIT, error)


def _name(place: CallContext, text: str) -> str:
    """The name of a message: the same when the same is asked again in a turn that broke off."""
    if place.run is None:
        return uuid7()
    return sha256(joined(place.session.log.id, place.run, place.agent, text).encode(errors="replace")).hexdigest()


async def _cancel(client: Client, task: str, context: ClientCallContext) -> None:
    if not task:
        return
    with anyio.move_on_after(_CANCEL, shield=True):
        try:
            await client.cancel_task(CancelTaskRequest(id=task), context=context)
        except Exception:  # noqa: BLE001 (nobody waits for it any more; the turn is over)
            LOGGER.warning("the task %s was not cancelled", task, exc_info=True)


class _Heard:
    """What came of a message, until now."""

    def __init__(self) -> None:
        self.task = ""
        self._context = ""
        self._status = TaskStatus()
        self._metadata: dict[str, Any] = {}
        self._artifacts: dict[str, list[Part]] = {}
        self._message: Message | None = None

    def take(self, response: StreamResponse) -> Iterable[str]:
        """Take in what came; give what was spoken by it."""
        match response.WhichOneof("payload"):
            case "message":
                self._message, self._context = response.message, response.message.context_id
            case "task":
                task = response.task
                self.task, self._context, self._status = task.id, task.context_id, task.status
                self._metadata = errors.told(task.metadata)
                self._artifacts = {each.artifact_id: list(each.parts) for each in task.artifacts}
            case "status_update":
                update = response.status_update
                self.task, self._context, self._status = update.task_id, update.context_id, update.status
                self._metadata |= errors.told(update.metadata)
            case "artifact_update":
                return self._grown(response)
            case _:
                pass
        return ()

    def _grown(self, response: StreamResponse) -> Iterable[str]:
        update = response.artifact_update
        self.task, self._context = update.task_id, update.context_id
        parts = list(update.artifact.parts)
        if update.append:
            self._artifacts.setdefault(update.artifact.artifact_id, []).extend(parts)
        else:
            self._artifacts[update.artifact.artifact_id] = parts
        return [part.text for part in parts if part.text]

    @property
    def place(self) -> dict[str, str]:
        """Where the conversation goes on."""
        asks = self._message is None and self._status.state == _ASKS
        return {"context": self._context, **({"task": self.task} if asks else {})}

    def answer(self) -> UserInput:
        """What was answered. Raises ``ProviderError`` for a task that came to nothing, ``TransportError`` for half."""
        if self._message is not None:
            return said(self._message.parts)
        state = self._status.state
        if state in _BAD:
            raise errors.ended(state, self._status, self._metadata)
        if state in _UNDER_WAY:
            raise TransportError(f"{errors.WIRE}: the answer broke off")
        if state == TaskState.TASK_STATE_CANCELED:
            return UserInput("")
        parts = [part for each in self._artifacts.values() for part in _joined(each)]
        if state == _ASKS or not parts:
            parts += self._status.message.parts
        return said(parts)


def _joined(parts: list[Part]) -> list[Part]:
    """The parts of an artifact; texts that came in pieces are one."""
    joined: list[Part] = []
    for part in parts:
        if joined and part.WhichOneof("content") == "text" == joined[-1].WhichOneof("content"):
            joined[-1] = Part(text=joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined
