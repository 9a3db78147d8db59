"""Errors as HTTP responses: one shape, ``{"error": {"code", "message"}}``, and a status.

- ``code`` is the ``error_code`` of a ``PalaverError``, or one of ``rate_limit``, ``too_large``, ``method``, ``host``,
  ``origin``, ``forbidden``, ``media_type``, ``timed_out`` and ``internal``. An error of a turn also has its ``run``.
- ``decision`` says that decisions do not fit the calls that wait, and that nothing was decided.
- Any other exception becomes ``internal`` without its text, which goes to the log.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.serve.workers.dispatcher import WorkerFailedError
from palaver.swarm.call import LOGGER

STATUSES: Final = {
    "authentication": 502,
    "busy": 429,
    "closed": 503,
    "decision": 409,
    "decode": 400,
    "overloaded": 503,
    "provider": 502,
    "rate_limit": 503,
    "stream": 502,
    "timed_out": 504,
    "transport": 502,
    "unavailable": 503,
}
"""The status of each code that is not 500. ``rate_limit`` and ``authentication`` are the provider's errors here."""
_RETRY_STATUSES: Final = frozenset((429, 503))
_RETRY_SECONDS: Final = 1


class Refused(Exception):  # noqa: N818 (a refusal is not always an error of ours)
    """A request is refused with a status and a reason."""

    def __init__(
        self, status: int, code: str, message: str, *, retry_after: int | None = None, run: str | None = None
    ) -> None:
        """Refuse with a message. ``retry_after`` is in seconds."""
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after, self.run = status, code, message, retry_after, run

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body of the response."""
        body: dict[str, Any] = {"error": {"code": self.code, "message": self.message}}
        return body if self.run is None else {**body, "run": self.run}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return {**headers, "www-authenticate": "Bearer"} if self.status == 401 else headers  # noqa: PLR2004 (HTTP's)

    def response(self) -> Response:
        """Return the refusal as a response."""
        return as_json(self.body, status=self.status, headers=self.headers)


def refusal(error: Exception, run: str | None = None) -> Refused:
    """Return the refusal that reports an error to a client."""
    match error:
        case Refused():
            error.run = error.run or run
            return error
        case TimeoutError():
            return Refused(504, "timed_out", "no answer yet; send the request again with the same run", run=run)
        case PalaverError() if not isinstance(error, WorkerFailedError):
            status = STATUSES.get(error.error_code, 500)
            seconds = getattr(error, "retry_after", None) or (_RETRY_SECONDS if status in _RETRY_STATUSES else None)
            return Refused(
                status, error.error_code, str(error), retry_after=seconds and max(1, round(seconds)), run=run
            )
        case _:
            LOGGER.error("a request failed", exc_info=error)
            return Refused(500, "internal", "internal error; see the server's log", run=run)


def as_json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as a JSON response."""
    return Response(jsontext.encode(value), status, headers=headers, media_type="application/json")
