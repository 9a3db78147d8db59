"""An API that clients speak to the gateway, as a row of data.

Rules:

- A row says at which paths a wire is asked, how a request names its model and asks for a stream, in which headers a key
  comes, which headers belong to the wire, and how errors and lists of models are written. No other module knows an API.
- A key may come in any header that the clients of a wire use, or in the query.
- An error has the shape and the status that the provider's own server would give it, so that clients retry, wait and
  stop as they would there.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

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

ErrorKind: TypeAlias = Literal[
    "invalid", "authentication", "forbidden", "not_found", "too_large", "rate_limit", "overloaded", "timeout", "server"
]


class ApiError(Struct, frozen=True):
    """What went wrong, before it is written for a client. ``retry_after`` is in seconds."""

    status: int
    kind: ErrorKind
    message: str
    retry_after: float | None = None
    code: str | None = None
    """The provider's own word for it."""


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
    """A header that holds a key, behind ``prefix``."""

    header: str
    prefix: str = ""


BEARER: Final = KeyPlace("authorization", "Bearer ")


class Listing(Struct, frozen=True):
    """Where an API lists its models. ``write`` makes the body from their names.

    Several APIs may list at one path: ``header`` is one that only clients of this API send.
    """

    path: str
    write: Callable[[Sequence[str]], Any]
    header: str | None = None


class ClientApi(Struct, frozen=True, kw_only=True):
    """One API. ``page`` is where its facts were read."""

    wire: str
    provider_name: str
    """The provider whose models a client means by a name without a provider."""
    calls: tuple[Call, ...]
    stream_type: str = "text/event-stream"
    streams_by_default: bool = False
    """Whether a body without the field ``stream`` asks for one."""
    keys: tuple[KeyPlace, ...] = (BEARER,)
    key_parameter: str | None = None
    """The parameter of the query that may hold the key."""
    request_headers: tuple[str, ...] = ()
    """The headers of requests that belong to the wire, or how their names begin (``openai-``)."""
    response_headers: tuple[str, ...] = ()
    """Those of answers."""
    write_error: Callable[[ApiError], tuple[Any, Mapping[str, str]]]
    """Returns the body, and headers of its own."""
    listings: tuple[Listing, ...] = ()
    page: str = ""


_KINDS: Final[tuple[tuple[type[PalaverError], int, ErrorKind], ...]] = (
    (AuthenticationError, 401, "authentication"),
    (RateLimitError, 429, "rate_limit"),
    (ContextOverflowError, 400, "invalid"),
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
    422: "invalid",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


def api_error(error: PalaverError) -> ApiError:
    """Return what a client is told about an error. The provider's own status is kept, where there is one."""
    status, kind = _kind_of(error)
    if not isinstance(error, ProviderError):
        return ApiError(status, kind, str(error))
    status = error.status or status
    kind = _STATUS_KINDS.get(status, kind if status < 500 else "server")  # noqa: PLR2004 (the provider failed)
    return ApiError(status, kind, str(error), error.retry_after, error.code)


def _kind_of(error: PalaverError) -> tuple[int, ErrorKind]:
    for known, status, kind in _KINDS:
        if isinstance(error, known):
            return status, kind
    return 500, "server"
