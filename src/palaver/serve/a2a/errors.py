"""Errors of turns as A2A tells them, and errors of A2A as turns raise them.

Rules:

- A turn that failed is a task that failed; one that was refused because too much waits is a task that was rejected.
  Its status says the reason, and its metadata the ``error_code``, and whether asking again may help.
- What comes back is read by the same table; a server that is none of ours is a ``ProviderError`` by what it says.

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
from palaver.serve.a2a.parts import said
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
    """The state of a task whose turn ended so."""
    rejected = isinstance(error, PalaverError) and error.error_code in _REJECTED
    return TaskState.TASK_STATE_REJECTED if rejected else TaskState.TASK_STATE_FAILED


def reason_of(error: Exception) -> str:
    """What the other side is told; of an error that is none of ours, nothing but that."""
    return str(error) if _is_ours(error) else "the server failed; its log says why"


def metadata_of(error: Exception) -> dict[str, Any]:
    """What stands beside it."""
    if not _is_ours(error):
        return {CODE: "internal", RETRYABLE: False}
    return {CODE: error.error_code, RETRYABLE: error.retryable}


def _is_ours(error: Exception) -> TypeGuard[PalaverError]:
    return isinstance(error, PalaverError) and not isinstance(error, WorkerFailedError)


def ended(state: TaskState, status: TaskStatus, metadata: dict[str, Any]) -> ProviderError:
    """The error of a task that came to nothing."""
    reason = said(status.message.parts).text or TaskState.Name(state).removeprefix("TASK_STATE_").lower()
    code = metadata.get(CODE)
    code = code if isinstance(code, str) else TaskState.Name(state)
    if state == TaskState.TASK_STATE_AUTH_REQUIRED:
        return AuthenticationError(WIRE, reason, code=code)
    return _BY_CODE.get(code, ProviderError)(WIRE, reason, code=code)


def raised(error: Exception) -> PalaverError:
    """What an error of the SDK is here."""
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


def told(metadata: Any) -> dict[str, Any]:
    """Metadata as a mapping."""
    return dict(MessageToDict(metadata))
