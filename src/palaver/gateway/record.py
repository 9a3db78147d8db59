"""The record of an exchange: filled while the exchange goes on, and handed to every component when it has ended.

Rules:

- Bytes are recorded as they went over the line, of both sides. Where both sides speak one wire, they are the same
  objects, and cost nothing.
- What only some readers need (the decoded request and answer) is decoded on first use.

Stability: experimental.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct, field

from palaver import wires
from palaver.core.errors import PalaverError, ProviderError, StreamError, TimedOutError
from palaver.core.usage import Usage
from palaver.gateway.session import session_of
from palaver.threads.ids import now_ms, uuid7

if TYPE_CHECKING:
    from palaver.core.request import Loss, Request, Response
    from palaver.gateway.client_api import ClientApi
    from palaver.gateway.keys import Caller
    from palaver.models.language_model import Notice

MAX_ANSWER: Final = 64 * 1024 * 1024
MOST_TOKENS: Final = 10**9
"""No request has, and no answer says more."""
Outcome: TypeAlias = Literal["answered", "refused", "failed", "cancelled"]
"""``answered``: the client got a whole answer. ``refused``: the gateway itself or the provider refused the request.
``failed``: no answer, or it broke off. ``cancelled``: the client went away."""


class ClientRequest(Struct, frozen=True, kw_only=True, dict=True):
    """A request as it came. ``headers`` are in lower case; they and ``query`` are without the key.

    ``model`` is the name that the client asked for.
    """

    api: ClientApi
    model: str
    stream: bool
    body: bytes
    headers: Mapping[str, str] = {}
    query: str = ""
    listed: bool = False
    """Whether a stream is wanted as a JSON list (``listed_stream``)."""
    counts: bool = False
    """Whether only the tokens are to be counted: there is no answer then."""

    @cached_property
    def decoded(self) -> Request:
        """The request as a value. Raises ``DecodeError``."""
        return wires.get(self.api.wire).decode_request(self.body)

    @cached_property
    def session(self) -> str | None:
        """The id of the client's session (``palaver.gateway.session``), found on first use."""
        return session_of(self)


class Attempt(Struct, frozen=True):
    """A model that was asked; ``error`` is why it did not answer. ``retries`` counts what was sent again."""

    model: str
    wire: str
    error: PalaverError | None = None
    retries: int = 0
    target: str | None = None
    """What the configuration calls it."""


class Record(Struct, kw_only=True, eq=False):
    """One exchange. Times are Unix milliseconds, durations seconds.

    ``route`` is the name or the pattern of the configuration that led to the models, and ``target`` what stands there
    for the one that was asked last; ``None`` where the configuration names none.
    ``model`` and ``wire`` (with its variant) are those of the model that answered, or of the last one that was asked.
    ``sent`` is the body that it got, ``received`` the pieces of its answer, and ``returned`` those that the client got.
    ``caller`` is whose key the client sent.
    """

    request: ClientRequest
    caller: Caller | None = None
    own_body: bytes | None = None
    """The client's own bytes, where a component has put another body into ``request``."""
    id: str = field(default_factory=uuid7)
    at: int = field(default_factory=now_ms)
    began: float = field(default_factory=time.perf_counter)
    outcome: Outcome = "failed"
    status: int = 0
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    route: str | None = None
    target: str | None = None
    model: str | None = None
    wire: str | None = None
    retries: int = 0
    """What was sent again to the model of the current attempt."""
    unanswered: list[str] = field(default_factory=list[str])
    """The models that got the request, did not answer in time, and were asked again."""
    translated: bool = False
    sent: bytes = b""
    received: list[bytes] = field(default_factory=list[bytes])
    returned: list[bytes] = field(default_factory=list[bytes])
    losses: tuple[Loss, ...] = ()
    error: PalaverError | None = None
    first_seconds: float | None = None
    seconds: float | None = None
    answer: Response | None = None
    """The answer, where it was decoded on its way."""
    max_answer: int = MAX_ANSWER
    """The most bytes of ``received``."""
    _read: bool = False
    _size: int = 0

    @property
    def session(self) -> str | None:
        """The id of the client's session."""
        return self.request.session

    def note_retry(self, notice: Notice) -> None:
        """Count a retry: an ``on_notice`` of ``with_retries``."""
        self.retries += notice.kind == "retry"
        if is_unanswered(notice.error):
            self.unanswered.append(notice.model)

    def note_received(self, data: bytes | None) -> None:
        """Add a piece of the model's answer: a ``HttpResponse.tap``. Raises ``ProviderError`` when that is too long."""
        if data:
            self._size += len(data)
            if self._size > self.max_answer:
                raise ProviderError(self.wire or "", f"an answer of more than {self.max_answer:,} bytes")
            self.received.append(data)

    def forget_received(self) -> None:
        """Forget what a model answered, before another one is asked."""
        self.received.clear()
        self._size = 0

    def response(self) -> Response | None:
        """Return the answer as a value, as far as it came; ``None`` where there is none that can be read."""
        if self.answer is None and not self._read and self.wire is not None and not self.translated:
            self._read = True
            self.answer = decode_answer(self.wire, b"".join(self.received), stream=self.request.stream)
        return self.answer


def is_unanswered(error: Exception | None) -> bool:
    """Whether a model got the request whole, and may have begun with an answer that nobody saw."""
    return isinstance(error, TimedOutError) and error.phase in {"first_token", "idle"}


def sound(usage: Usage | None) -> Usage | None:
    """Return counters that an answer can have had, each from 0 to ``MOST_TOKENS``: a provider can say anything."""
    if usage is None:
        return None
    counts = (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning)
    if all(each is None or 0 <= each <= MOST_TOKENS for each in counts):
        return usage
    given, read, written, output, reasoning = [
        None if each is None else min(max(each, 0), MOST_TOKENS) for each in counts
    ]
    return Usage(input=given, cache_read=read, cache_write=written, output=output, reasoning=reasoning)


def decode_answer(wire: str, data: bytes, *, stream: bool) -> Response | None:
    """Decode the bytes of an answer as far as they came; ``None`` for what cannot be read.

    A server may stream where no stream was asked for, and the other way round.
    """
    found = _decoded(wire, data, stream=stream)
    if found is not None and not _is_empty(found):
        return found
    other = _decoded(wire, data, stream=not stream)
    return found if other is None or _is_empty(other) else other


def _is_empty(answer: Response) -> bool:
    return not answer.message.content and (answer.usage is None or not answer.usage.total)


def _decoded(wire: str, data: bytes, *, stream: bool) -> Response | None:
    codec = wires.get(wire)
    try:
        if not stream:
            return codec.decode_response(data)
        decoder = codec.stream_decoder()
        decoder.feed(data)
        return decoder.finish()
    except StreamError as error:
        return error.response
    except PalaverError:
        return None
