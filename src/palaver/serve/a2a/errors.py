"""Translate errors of turns to A2A, and errors of A2A to Palaver's.

- A failed turn is a failed task. A turn that was refused because too many wait is a rejected task. The status has the
  reason; the metadata has the ``error_code`` and whether a retry may help.
- The same table reads them back. Any other server's error is a ``ProviderError`` with its text.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final, TypeGuard

import httpx

from palaver.core.errors import (
    AuthenticationError,
    OverloadedError,
    PalaverError,
    ProviderError,
    RateLimitError,
    TimedOutError,
    TransportError,
)
from palaver.serve.a2a.parts import to_text
from palaver.serve.a2a.sdk import (
    A2A_ERROR_REASONS,
    A2AClientError,
    A2AClientTimeoutError,
    A2AError,
    AgentCardResolutionError,
    MessageToDict,
    TaskState,
    TaskStatus,
)
from palaver.serve.workers.dispatcher import WorkerFailedError

WIRE: Final = "a2a"
CODE: Final = "palaver.error_code"
RETRYABLE: Final = "palaver.retryable"

_REJECTED: Final = frozenset(("busy", "rate_limit", "overloaded"))
_BY_CODE: Final[dict[str, type[ProviderError]]] = {
    "busy": OverloadedError,
    "closed": OverloadedError,
    "overloaded": OverloadedError,
    "unavailable": OverloadedError,
    "rate_limit": RateLimitError,
}
_BY_STATUS: Final[dict[int, type[ProviderError]]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    429: RateLimitError,
    503: OverloadedError,
}


def state_of(error: Exception) -> TaskState:
    """Return the task state for an error of a turn."""
    rejected = isinstance(error, PalaverError) and error.error_code in _REJECTED
    return TaskState.TASK_STATE_REJECTED if rejected else TaskState.TASK_STATE_FAILED


def reason_of(error: Exception) -> str:
    """Return the text of an error for the remote side. An unexpected error does not show its text."""
    return str(error) if _is_ours(error) else "internal error; see the server's log"


def metadata_of(error: Exception) -> dict[str, Any]:
    """Return the metadata of an error."""
    if not _is_ours(error):
        return {CODE: "internal", RETRYABLE: False}
    return {CODE: error.error_code, RETRYABLE: error.retryable}


def _is_ours(error: Exception) -> TypeGuard[PalaverError]:
    return isinstance(error, PalaverError) and not isinstance(error, WorkerFailedError)


def from_task(state: TaskState, status: TaskStatus, metadata: dict[str, Any]) -> ProviderError:
    """Return the error of a failed task."""
    reason = to_text(status.message.parts).text or TaskState.Name(state).removeprefix("TASK_STATE_").lower()
    code = metadata.get(CODE)
    code = code if isinstance(code, str) else TaskState.Name(state)
    if state == TaskState.TASK_STATE_AUTH_REQUIRED:
        return AuthenticationError(WIRE, reason, code=code)
    return _BY_CODE.get(code, ProviderError)(WIRE, reason, code=code)


def from_sdk(error: Exception) -> PalaverError:
    """Return the Palaver error for an error of the SDK."""
    cause = error.__cause__
    if isinstance(cause, httpx.HTTPStatusError):
        status = cause.response.status_code
        kind = _BY_STATUS.get(status, OverloadedError if status >= 500 else ProviderError)  # noqa: PLR2004 (HTTP's)
        return kind(WIRE, str(error), status=status)
    match error:
        case PalaverError():
            return error
        case A2AClientTimeoutError() | httpx.TimeoutException():
            return TimedOutError(f"{WIRE}: {str(error) or 'no answer in time'}", phase="idle")
        case AgentCardResolutionError() | A2AClientError() | httpx.HTTPError():
            return TransportError(f"{WIRE}: {error}")
        case A2AError():
            return ProviderError(WIRE, str(error), code=A2A_ERROR_REASONS.get(type(error)))
        case _:
            return ProviderError(WIRE, f"{type(error).__name__}: {error}")


def to_dict(metadata: Any) -> dict[str, Any]:
    """Return metadata as a dict."""
    return dict(MessageToDict(metadata))
