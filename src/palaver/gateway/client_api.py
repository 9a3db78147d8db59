"""An API that clients speak to the gateway, as a row of data.

Rules:

- A row says at which paths a wire is asked, how a request names its model and asks for a stream, in which headers a key
  comes, which headers belong to the wire, and how errors and lists of models are written. No other module knows an API.
- A key may come in any header that the clients of a wire use, or in the query.
- An error has the shape, the status and the words that the provider's own server would give it, so that clients retry,
  wait, compact and stop as they would there: ``ErrorKind`` is what it means, and each API has its words for that. The
  words of another provider are never handed on.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, structs

from palaver.core.errors import (
    AuthenticationError,
    CapabilityError,
    ContextOverflowError,
    DecodeError,
    LossError,
    MessageError,
    OverloadedError,
    PalaverError,
    ProviderError,
    RateLimitError,
    StreamError,
    TimedOutError,
    TransportError,
    UnavailableError,
    UnknownNameError,
)
from palaver.core.events import Failed
from palaver.models.failures import classify, inner_failure

ErrorKind: TypeAlias = Literal[
    "invalid",
    "overflow",
    "authentication",
    "forbidden",
    "not_found",
    "no_path",
    "too_large",
    "rate_limit",
    "quota",
    "overloaded",
    "timeout",
    "server",
]
"""``overflow``: the prompt is longer than the model's window. ``quota``: no money or no allowance is left."""


class ApiError(Struct, frozen=True):
    """What went wrong, before it is written for a client. ``retry_after`` is in seconds."""

    status: int
    kind: ErrorKind
    message: str
    retry_after: float | None = None
    code: str | None = None
    """The word of whoever refused; of a provider, only where ``wire`` is one of the client's own provider."""
    retry: bool = True
    """Whether a client may ask again by itself."""
    wire: str | None = None
    """The wire of the provider that refused; ``None``: the gateway."""
    field: str | None = None
    """The field of the request that is refused."""

    def in_words(self, phrase: str) -> str:
        """Return the message, with the phrase by which programs know a prompt that is too long."""
        if self.kind != "overflow" or phrase.lower() in self.message.lower():
            return self.message
        return f"{phrase}: {self.message}"


_REFUSALS: Final[Mapping[ErrorKind, int]] = {
    "authentication": 401,
    "forbidden": 403,
    "rate_limit": 429,
    "overloaded": 503,
}
_SOON: Final = 60.0
"""A client that waits longer than this many seconds does not ask again by itself."""


class RefusedError(PalaverError):
    """The gateway itself refuses a request. ``retry_after`` is in seconds, ``code`` a word for programs."""

    error_code = "refused"

    def __init__(
        self, kind: ErrorKind, reason: str, *, retry_after: float | None = None, code: str | None = None
    ) -> None:
        """Refuse a request with the status of ``kind``. ``reason`` is what the client reads."""
        super().__init__(reason)
        self.kind: ErrorKind = kind
        self.retry_after = retry_after
        self.code = code

    @property
    def answer(self) -> ApiError:
        """What the client gets."""
        soon = self.retry_after is None or self.retry_after <= _SOON
        return ApiError(_REFUSALS[self.kind], self.kind, str(self), self.retry_after, self.code, retry=soon)


class Call(Struct, frozen=True):
    """One way to ask for an answer.

    ``path`` is a pattern of Starlette; with ``{model}`` in it the path names the model. ``stream`` says whether the
    answer is streamed; ``None``: the body does.
    """

    path: str
    stream: bool | None = None

    @property
    def names_model(self) -> bool:
        """Whether the path names the model."""
        return "{model" in self.path


class KeyPlace(Struct, frozen=True):
    """A header that holds a key, behind ``prefix``, up to the text ``end`` where there is one."""

    header: str
    prefix: str = ""
    end: str = ""


BEARER: Final = KeyPlace("authorization", "Bearer ")


class Listing(Struct, frozen=True):
    """Where an API lists its models. ``write`` makes the body from their names.

    Several APIs may list at one path: ``header`` is one that only clients of this API send.
    """

    path: str
    write: Callable[[Sequence[str]], Any]
    header: str | None = None


class ReasoningForm(Struct, frozen=True, kw_only=True):
    """How messages of a wire hold reasoning, and what proves where it comes from.

    ``proof`` is the field of ``Reasoning`` for the proof beside a text, ``alone`` that of reasoning without a text.
    ``None``: the wire has no such field.
    """

    proof: Literal["signature", "encrypted"] | None = None
    alone: Literal["signature", "encrypted"] | None = None
    call_field: str | None = None
    """The field of a tool call that proves the reasoning before it."""
    provider: Mapping[str, Mapping[str, str]] = {}
    """What the codec needs on the part, where reasoning may stand in several fields."""


class Additions(Struct, frozen=True, kw_only=True):
    """What a request that came in another wire gets on its way to this one: fields as ``Request.provider`` has them."""

    always: Mapping[str, Mapping[str, Any]] = {}
    reasons: Mapping[str, Mapping[str, Any]] = {}
    """For a model that reasons."""
    thinking: Mapping[str, Mapping[str, Any]] = {}
    """Where the client asked for thinking, so that its text comes back."""
    max_tokens: bool = False
    """The wire demands a limit: that of the catalogue, where the client named none."""


class Lookup(Struct, frozen=True):
    """Where an API shows one model, which the path or the body names. ``header`` is as in ``Listing``."""

    path: str
    write: Callable[[str], Any]
    header: str | None = None
    method: Literal["GET", "POST"] = "GET"


class ServerTool(Struct, frozen=True):
    """A tool that the provider runs itself: what it is called, and the definition with the provider's defaults.

    ``written`` is ``None`` where a definition is not enough.
    """

    names: re.Pattern[str]
    written: Mapping[str, Any] | None = None


class Count(Struct, frozen=True):
    """Where an API counts the tokens of a request. ``write`` makes the body of the answer.

    ``inside`` are the fields that enclose the request, the outermost first, where they are there.
    """

    path: str
    write: Callable[[int], Any]
    inside: tuple[str, ...] = ()


class ClientApi(Struct, frozen=True, kw_only=True):
    """One API. ``page`` is where its facts were read."""

    wire: str
    provider_name: str
    """The provider whose models a client means by a name without a provider."""
    calls: tuple[Call, ...]
    answer_id: str | None = None
    """How ids of answers begin; ``None`` where answers have none."""
    stream_type: str = "text/event-stream"
    events_parameter: tuple[str, str] | None = None
    """A parameter of the query and its value, without which a stream is one JSON list (``listed_stream``)."""
    streams_by_default: bool = False
    """Whether a body without the field ``stream`` asks for one."""
    keys: tuple[KeyPlace, ...] = (BEARER,)
    key_parameter: str | None = None
    """The parameter of the query that may hold the key."""
    output_bounds: tuple[str, ...] = ()
    """The fields of a request that bound the tokens of its answer; ``a.b`` is the field ``b`` of the object ``a``."""
    choice_counts: tuple[str, ...] = ()
    """The fields, as above, that say how many answers are wanted of one request."""
    usage_field: str | None = None
    """The field of a request, as in ``output_bounds``, that asks a stream for usage; ``None``: each stream tells it."""
    echoes: tuple[str, ...] = ()
    """The fields of a request that its answer repeats."""
    own_only: tuple[str, ...] = ()
    """The fields that, where they are true, ask for what only the provider's own server does."""
    request_headers: tuple[str, ...] = ()
    """The headers of requests that belong to the wire, or how their names begin (``openai-``)."""
    response_headers: tuple[str, ...] = ()
    """Those of answers."""
    host_fields: tuple[str, ...] = ()
    """The fields of requests that only other hosts of the wire take, such as Vertex."""
    session_headers: tuple[str, ...] = ()
    """The headers in which clients name their session, the surest first."""
    session_fields: tuple[str, ...] = ()
    """The same, as paths of fields of the body."""
    event_end: re.Pattern[bytes] | None = re.compile(rb"(?:\n|\r(?!\n))(?:\r\n|\n|\r)\Z")
    """How the bytes between two events of a stream end; ``None`` where that cannot be seen."""
    idle_event: bytes | None = b": keep-alive\n\n"
    """An event that clients pass over, sent into a stream in which nothing comes; ``None`` where there is none.
    https://html.spec.whatwg.org/multipage/server-sent-events.html#authoring-notes"""
    write_error: Callable[[ApiError], tuple[Any, Mapping[str, str]]]
    """Returns the body, and headers of its own."""
    overflow: str = ""
    """The phrase by which clients know a prompt that is too long, where they know it by no word."""
    stream_codes: Mapping[ErrorKind, str] = {}
    """The word for an error inside of a stream."""
    below: re.Pattern[str] | None = None
    """The paths of the API, also those that it does not have."""
    listings: tuple[Listing, ...] = ()
    unmissed: frozenset[str] = frozenset()
    """Fields of its answers that no client of another API misses: they repeat the request, or tell of the server."""
    reasoning: ReasoningForm = ReasoningForm()
    additions: Additions = Additions()
    server_tools: Mapping[str, ServerTool] = {}
    """The tools that the provider runs itself, by what they are for: a search of the web, running code."""
    server_fields: Mapping[str, str] = {}
    """The fields of a request that are such tools, and what they are for, where that is known."""
    lookups: tuple[Lookup, ...] = ()
    counts: tuple[Count, ...] = ()
    fixed: Mapping[str, Any] = {}
    """Paths that are always answered alike, with their bodies."""
    page: str = ""

    def lists(self, query: Mapping[str, str]) -> bool:
        """Whether a client with this query wants a stream as a list."""
        return self.events_parameter is not None and query.get(self.events_parameter[0]) != self.events_parameter[1]

    def ends_event(self, end: bytes) -> bool:
        """Whether a stream whose ``last_bytes`` these are is between two events."""
        return self.event_end is not None and self.event_end.search(end) is not None


_LONGEST_END: Final = 4


def last_bytes(before: bytes, data: bytes) -> bytes:
    """Return the last bytes of a stream, of which those before ``data`` are known."""
    return data[-_LONGEST_END:] if len(data) >= _LONGEST_END else (before + data)[-_LONGEST_END:]


_KINDS: Final[tuple[tuple[type[PalaverError], int, ErrorKind], ...]] = (
    (AuthenticationError, 401, "authentication"),
    (RateLimitError, 429, "rate_limit"),
    (ContextOverflowError, 400, "overflow"),
    (OverloadedError, 503, "overloaded"),
    (TimedOutError, 504, "timeout"),
    (TransportError, 502, "server"),
    (UnknownNameError, 404, "not_found"),
    (UnavailableError, 503, "overloaded"),
    (DecodeError, 400, "invalid"),
    (MessageError, 400, "invalid"),
    (CapabilityError, 400, "invalid"),
    (LossError, 400, "invalid"),
    (ProviderError, 502, "server"),
    (StreamError, 502, "server"),
)
_STATUS_KINDS: Final[dict[int, ErrorKind]] = {
    400: "invalid",
    401: "authentication",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    421: "forbidden",
    422: "invalid",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


ERROR_STATUSES: Final = range(400, 600)
"""Any other status is no refusal to a client: after some no body follows, and the next answer would begin in it."""


def status_kind(status: int) -> ErrorKind:
    """Return the kind of error that a status stands for."""
    return _STATUS_KINDS.get(status, "invalid" if status < 500 else "server")  # noqa: PLR2004 (the server failed)


def is_unsigned(error: PalaverError) -> bool:
    """Whether a model was not asked, since the gateway has no key for its provider."""
    return isinstance(error, AuthenticationError) and error.status is None and error.code is None


def api_error(error: PalaverError) -> ApiError:
    """Return what a client is told about an error. The provider's own status is kept, where it is one of an error."""
    if isinstance(error, RefusedError):
        return error.answer
    status, kind = _kind_of(error)
    if not isinstance(error, ProviderError):
        field = error.path or None if isinstance(error, DecodeError) else None
        return ApiError(status, kind, _sayable(str(error)), field=field)
    if is_unsigned(error):
        return ApiError(status, kind, f"the gateway has no key for {error.wire or 'the provider'}")
    if kind != "overflow":
        status = error.status if error.status is not None and error.status in ERROR_STATUSES else status
        kind = _STATUS_KINDS.get(status, kind if status < 500 else "server")  # noqa: PLR2004 (the provider failed)
    if kind in _PASSING and _is_quota(error):
        kind = "quota"
    return ApiError(status, kind, _sayable(str(error)), error.retry_after, error.code, wire=error.wire)


def _sayable(text: str) -> str:
    """Return the text of an error, which may quote half a surrogate."""
    return text.encode("utf-8", "replace").decode()


_PASSING: Final = frozenset({"rate_limit", "invalid", "forbidden"})
"""Kinds that a missing allowance looks like by its status alone."""


def _is_quota(error: ProviderError) -> bool:
    return classify(error.status, (error.code,) if error.code else (), error.message) == "quota"


def stream_failure(error: PalaverError, api: ClientApi) -> Failed:
    """Return an error in the middle of a stream, with the word that the client's API has for it."""
    if isinstance(error, StreamError):
        if error.kind != "provider":
            return Failed(error.kind, error.reason)
        message = error.reason
        error = inner_failure(ProviderError(error.wire, message, code=error.code, body=error.body))
    else:
        message = str(error)
    found = structs.replace(api_error(error), message=_sayable(message))
    return Failed("provider", found.in_words(api.overflow), api.stream_codes.get(found.kind))


def _kind_of(error: PalaverError) -> tuple[int, ErrorKind]:
    for known, status, kind in _KINDS:
        if isinstance(error, known):
            return status, kind
    return 500, "server"
