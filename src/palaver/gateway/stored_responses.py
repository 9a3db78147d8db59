"""``previous_response_id``, ``conversation`` and ``store`` of the Responses API, for every model.

Rules:

- An answer of a model of another wire gets an id of its own, and is stored, unless the client says ``store: false``.
  With ``keep = "all"`` answers of OpenAI's own models are stored, too.
- A response that is known here, or a conversation, is replaced by its items before a model is asked, whatever the
  model's wire. An id that is unknown here goes to a model of the Responses wire as it is; else it is an error.
- It is stored before the client sees the end of the answer.

Stability: experimental.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

import anyio
import msgspec
from msgspec import Raw, Struct, json, structs

from palaver.core.errors import DecodeError, NotFoundError, StoreError
from palaver.gateway.component import Component
from palaver.gateway.response_table import ResponseTable, input_items
from palaver.store.store import to_thread

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.gateway.client_response import ClientResponse
    from palaver.gateway.database import Database
    from palaver.gateway.keys import Caller
    from palaver.gateway.record import ClientRequest, Record

WIRE: Final = "openai_responses"
_OBJECT: Final = b'"object":"response"'
_ID: Final = re.compile(rb'"id":"[^"\\]*","object":"response","created_at":\d+,')
"""How an answer begins that was written for a model of another wire."""
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})
_DELETED: Final = 3600.0
"""Seconds between two times that old responses are deleted."""
_LOGGER: Final = logging.getLogger("palaver.gateway")
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"


class ResponseOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section ``[responses]``: which responses are stored, and for how many days."""

    keep: Literal["translated", "all"] = "translated"
    days: float = 30


class _Head(Struct):
    """What is read of a request."""

    previous_response_id: str | None = None
    conversation: Raw = Raw(b"null")
    store: bool | None = None
    input: Raw = Raw(b"null")


class _Event(Struct):
    type: str
    response: Raw = Raw(b"")


class _Response(Struct):
    id: str


class _Pending(NamedTuple):
    """A request whose answer will be stored."""

    own_input: list[Raw]
    previous: str | None
    conversation: str | None
    wanted: bool
    resolved: bool


class StoredResponses(Component):
    """Replaces references to responses in requests, and stores answers."""

    _table: ResponseTable

    def __init__(
        self, options: ResponseOptions, database: Callable[[], Database], wires: Callable[[ClientRequest], list[str]]
    ) -> None:
        """Keep the arguments. ``wires`` returns the wires of the models that a request is for."""
        self._options, self._database, self._wires = options, database, wires
        self._pending: dict[str, _Pending] = {}
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Make the tables. Raises ``StoreError``."""
        self._table = await to_thread(lambda: ResponseTable(self._database()))
        tasks = await self._running.enter_async_context(anyio.create_task_group())
        self._running.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._delete_often)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete nothing more."""
        await self._running.aclose()

    async def _delete_often(self) -> None:
        """Delete what is too old, now and from time to time."""
        while True:
            try:
                await to_thread(self._table.delete_before, self._options.days)
            except StoreError as error:
                _LOGGER.warning("old responses cannot be deleted: %s", error)
            await anyio.sleep(_DELETED)

    @property
    def table(self) -> ResponseTable:
        """The table of responses, while the gateway runs."""
        return self._table

    async def admit(self, record: Record) -> None:
        """Replace what a request refers to by its items. Raises ``DecodeError`` for an unknown response."""
        request = record.request
        if request.api.wire != WIRE:
            return
        head = _head(request.body)
        conversation = _conversation_id(head.conversation)
        own, previous = input_items(head.input), head.previous_response_id
        resolved = previous is not None or conversation is not None
        if resolved:
            try:
                items, previous = await to_thread(self._history, previous, conversation, caller_id(record.caller))
            except NotFoundError as error:
                if any(each.partition(":")[0] == WIRE for each in self._wires(request)):
                    return  # the provider may know it
                place = "previous_response_id" if conversation is None else "conversation"
                raise DecodeError(str(error), path=place, source=WIRE) from None
            record.own_body = request.body
            record.request = structs.replace(request, body=_resolved(request.body, [*items, *own]))
        self._pending[record.id] = _Pending(own, previous, conversation, head.store is not False, resolved)

    def _history(self, previous: str | None, conversation: str | None, caller: str) -> tuple[list[Raw], str | None]:
        """Return the items that a request refers to, and the last response of them."""
        if conversation is not None:
            previous = self._table.conversation(conversation, caller).head
        return ([] if previous is None else self._table.history(previous, caller)), previous

    def rewritten(self, record: Record, response: ClientResponse) -> ClientResponse:
        """Give an answer of a model of another wire an id of its own."""
        pending = self._pending.get(record.id)
        if pending is None or not record.translated:
            return response
        own: dict[str, Any] = {
            "id": response_id(record),
            "object": "response",
            "created_at": int(time.time()),
            "store": pending.wanted,
        }
        if pending.conversation is None:
            own["previous_response_id"] = pending.previous
        else:
            own["conversation"] = {"id": pending.conversation}
        return structs.replace(response, body=_with_id(response.body, json.encode(own)[1:-1] + b","))

    async def ended(self, record: Record) -> None:
        """Store an answer."""
        pending = self._pending.pop(record.id, None)
        if pending is None or not pending.wanted or record.outcome != "answered":
            return
        if not (record.translated or pending.resolved or self._options.keep == "all"):
            return
        response = _response(b"".join(record.returned), stream=record.request.stream)
        named = None if response is None else _id_of(response)
        if named is None:
            return
        await to_thread(
            self._table.add,
            named,
            caller_id(record.caller),
            own_input=pending.own_input,
            response=response,
            previous=pending.previous,
            conversation=pending.conversation,
        )


def response_id(record: Record) -> str:
    """Return the id of the response of an exchange."""
    return f"resp_{record.id.replace('-', '')}"


def caller_id(caller: Caller | None) -> str:
    """Return who may read what a caller has stored: those with the same key."""
    return "" if caller is None else caller.key_id


def _head(body: bytes) -> _Head:
    try:
        return json.decode(body, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error), source=WIRE) from None


def _conversation_id(value: Raw) -> str | None:
    try:
        found: Any = json.decode(value, type=str | dict[str, Any] | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error), path="conversation", source=WIRE) from None
    if found is None or isinstance(found, str):
        return found
    return str(found.get("id"))


def _resolved(body: bytes, items: list[Raw]) -> bytes:
    """Return a body with other items as its input, and without what referred to them."""
    fields = json.decode(body, type=dict[str, Raw])
    fields["input"] = Raw(b"[" + b",".join(map(bytes, items)) + b"]")
    for name in ("previous_response_id", "conversation"):
        fields.pop(name, None)
    return json.encode(fields)


async def _with_id(body: AsyncIterator[bytes], own: bytes) -> AsyncGenerator[bytes]:
    """Yield an answer with an id of its own. Events that hold an id are whole in a piece."""
    async for data in body:
        yield _ID.sub(lambda _: own, data) if _OBJECT in data else data


def _response(data: bytes, *, stream: bool) -> bytes | None:
    """Return the response in an answer; ``None`` when it did not come to its end."""
    if not stream:
        return data
    for line in reversed(data.splitlines()):
        text = line[len(_DATA) :].strip() if line.startswith(_DATA) else b""
        if text and text != _DONE:
            try:
                event = json.decode(text, type=_Event)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return None
            return bytes(event.response) if event.type in _ENDS else None
    return None


def _id_of(response: bytes) -> str | None:
    """Return the id of a response; ``None`` for one that nobody could ask for."""
    try:
        named = json.decode(response, type=_Response).id
        named.encode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return named
