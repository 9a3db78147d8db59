"""How a front says no: one shape, ``{"error": {"code", "message"}}``, and a status of HTTP.

Rules:

- ``code`` is the ``error_code`` of a ``PalaverError``, or one of ``rate_limit``, ``too_large``, ``method``,
  ``host``, ``origin``, ``forbidden``, ``media_type``, ``timed_out`` and ``internal``, which say themselves what they
  mean. Where a turn is concerned, ``run`` stands beside.
- What is no ``PalaverError`` is told as ``internal``, without its text, and logged with it.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.serve.workers.dispatcher import WorkerFailedError
from palaver.swarm.call_context import LOGGER

STATUSES: Final = {
    "authentication": 502,
    "busy": 429,
    "closed": 503,
    "decode": 400,
    "overloaded": 503,
    "provider": 502,
    "rate_limit": 503,
    "stream": 502,
    "timed_out": 504,
    "transport": 502,
    "unavailable": 503,
}
"""The status of each code that is not 500. ``rate_limit`` and ``authentication`` are the provider's words here."""
_AGAIN: Final = frozenset((429, 503))
_SOON: Final = 1


class Refused(Exception):  # noqa: N818 (not every refusal is an error of ours)
    """A request is answered with a status and a reason."""

    def __init__(
        self, status: int, code: str, message: str, *, retry_after: int | None = None, run: str | None = None
    ) -> None:
        """Say why; ``retry_after`` is in seconds."""
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after, self.run = status, code, message, retry_after, run

    @property
    def told(self) -> dict[str, Any]:
        """What the client is told, as JSON."""
        told: dict[str, Any] = {"error": {"code": self.code, "message": self.message}}
        return told if self.run is None else {**told, "run": self.run}

    @property
    def headers(self) -> dict[str, str]:
        """What belongs beside the body."""
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return {**headers, "www-authenticate": "Bearer"} if self.status == 401 else headers  # noqa: PLR2004 (HTTP's)

    def response(self) -> Response:
        """As an answer."""
        return as_json(self.told, status=self.status, headers=self.headers)


def refusal(error: Exception, run: str | None = None) -> Refused:
    """What a client is told of an error."""
    match error:
        case Refused():
            error.run = error.run or run
            return error
        case TimeoutError():
            return Refused(504, "timed_out", "no answer yet; ask again by the same run", run=run)
        case PalaverError() if not isinstance(error, WorkerFailedError):
            status = STATUSES.get(error.error_code, 500)
            after = getattr(error, "retry_after", None) or (_SOON if status in _AGAIN else None)
            return Refused(status, error.error_code, str(error), retry_after=after and max(1, round(after)), run=run)
        case _:
            LOGGER.error("a request failed", exc_info=error)
            return Refused(500, "internal", "the server failed; its log says why", run=run)


def as_json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as an answer."""
    return Response(jsontext.encode(value), status, headers=headers, media_type="application/json")
