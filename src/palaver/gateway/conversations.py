"""The conversations that were translated last, so that a request that continues one costs what is new in it.

Agents send the whole conversation each turn. A ``RequestReader`` of the client's wire reads only what is new in it,
and a session of a model encodes only what is new.

Rules:

- A conversation is found by its model, by who asks, and by its body: the one that shares the longest beginning with the
  new body is continued, when all but its last messages are in that.
- What is sent is what would be sent without a conversation; only the time differs.
- A conversation that is in use is nobody else's: a second request that continues it begins anew.
- ``limit`` bounds the memory that all of them take, by ``cost_of``; the conversation that was used longest ago goes
  first.
- A conversation belongs to one ``Model``, the very object: after a reload, the models are others.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING, Final, final

from msgspec import structs

from palaver import wires
from palaver.gateway.recent_bodies import RecentBodies
from palaver.models import http
from palaver.models.http import Sender

if TYPE_CHECKING:
    from palaver.core.messages import Message
    from palaver.core.request import Request
    from palaver.gateway.record import Record
    from palaver.models import Model
    from palaver.models.endpoint import HttpCall
    from palaver.models.http import HttpResponse, Timeouts
    from palaver.wires._engine.list_memory import RequestReader

LIMIT: Final = 256 * 1024 * 1024
"""Bytes of memory."""
_LAST: Final = 4
"""How many of the last messages may differ: a client may move its cache marks."""


def cost_of(body: bytes) -> int:
    """Return about how many bytes a conversation takes: measured as 7 kB, and four times its body."""
    return 8192 + 4 * len(body)


def settled_in(reader: RequestReader, body: bytes) -> int:
    """Return how many bytes of a body that was read a later one of its conversation has to share."""
    last = reader.last_item(_LAST)
    return body.rfind(last) if last else len(body) // 2


def same_beginning(before: Sequence[object], now: Sequence[object]) -> int:
    """Return with how many objects two sequences begin that are the same ones."""
    return next((place for place, same in enumerate(map(is_, before, now)) if not same), min(len(before), len(now)))


@final
class Step:
    """A step that makes a message of each message. What it was given before, it makes the same object of again."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._given: Sequence[Message] = ()
        self._made: Sequence[Message] = ()
        self._by: object = None

    def __call__(self, given: tuple[Message, ...], made: tuple[Message, ...], by: object = None) -> tuple[Message, ...]:
        """Return ``made``, with the objects of the last time while ``given`` are those.

        ``by`` is what decides beside.
        """
        if by == self._by and len(given) == len(made):
            same = same_beginning(self._given, given)
            made = (*self._made[:same], *made[same:])
        self._given, self._made, self._by = given, made, by
        return made


@final
class Conversation(Sender):
    """A session with a model, and what it was asked last. It sends for the model, and notes that on ``record``."""

    def __init__(self, model: Model, wire: str) -> None:
        """Begin. ``wire`` is the client's."""
        self.body = b""
        self.model = model  # as long as it is here, no other model has its ``id``
        self.record: Record | None = None
        self.settled = 0
        """How many bytes of the body a later one has to share."""
        self.messages: Sequence[Message] = ()
        """Those of the body."""
        self.opened = Step()
        self.fitted = Step()
        self.restored: dict[int, tuple[Message, object, Message]] = {}
        """Of each place: a message, what the memory of reasoning has of it, and what was made of both."""
        self._reader = wires.get(wire).request_reader()
        self._http = model.http
        self.session = structs.replace(model, http=self).session()

    def request(self, body: bytes) -> Request:
        """Read a body of the client. Raises ``DecodeError``."""
        self.body = body
        request = self._reader.read(body)
        self.messages = request.messages
        self.settled = settled_in(self._reader, body)
        return request

    async def send(self, call: HttpCall, timeouts: Timeouts, /) -> HttpResponse:
        """Send, recording the body and each piece of the answer. Raises as ``Http.send`` does."""
        record = self.record
        if record is not None:
            record.sent = b"".join(call.chunks)
            record.forget_received()
        response = await http.send(self._http, call, timeouts)
        if record is not None:
            response.tap = record.note_received
        return response


class Conversations:
    """The last conversations."""

    def __init__(self, limit: int = LIMIT) -> None:
        """Remember nothing yet."""
        self._recent = RecentBodies[Conversation](limit, cost_of)

    def take(self, model: Model, wire: str, body: bytes, scope: str = "") -> Conversation:
        """Return the conversation that a body of a wire continues, or a new one. ``scope`` is who asks."""
        found = self._recent.take((id(model), wire, scope), body)
        return found if found is not None and found.model is model else Conversation(model, wire)

    def give_back(self, model: Model, wire: str, conversation: Conversation, scope: str = "") -> None:
        """Remember a conversation whose answer is over."""
        conversation.record = None
        self._recent.give_back((id(model), wire, scope), conversation.body, conversation.settled, conversation)
