"""What the protocols of ``palaver.serve.ui`` share: bodies, results, usage, and what a client is told of an error.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from palaver.core import jsontext
from palaver.core.errors import ConflictError, DecodeError
from palaver.core.parts import Json
from palaver.swarm.call import LOGGER
from palaver.turn.approvals import DecisionError

if TYPE_CHECKING:
    from palaver.core.messages import ToolMessage
    from palaver.serve.ui.turns import Ended

SOURCE: Final = "request"
"""What errors of a request name as their source."""


def json_of(body: bytes) -> dict[str, Any]:
    """Decode ``body``, which is to be a JSON object. Raises ``DecodeError``, also for one that is nested too deeply."""
    if jsontext.is_deep(body):
        raise DecodeError(jsontext.TOO_DEEP.format(jsontext.DEEPEST), source=SOURCE)
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}", source=SOURCE) from None
    if not isinstance(found, dict):
        raise DecodeError("expected a JSON object", source=SOURCE)
    return cast("dict[str, Any]", found)


def list_of(value: object) -> Sequence[Any] | None:
    """Return ``value`` where it is a list, else ``None``."""
    return cast("Sequence[Any]", value) if isinstance(value, list) else None


_TOOL_FAILED: Final = "The tool failed."


def output_of(message: ToolMessage) -> Any:
    """Return the result of a call as JSON: the value of a result that is JSON, else its text."""
    parts = message.content
    if len(parts) == 1 and isinstance(parts[0], Json):
        return parts[0].value
    return message.text


def failure_of(message: ToolMessage) -> str:
    """Return what a client is told of a failed call: the text of a ``ToolError``, and nothing of other exceptions."""
    unexpected = message.metadata.get("error_code") == "tool_execution_failed"
    return _TOOL_FAILED if unexpected else message.text


def usage_of(ended: Ended) -> dict[str, Any]:
    """Return the usage, the model and the cost of a turn, as far as they are known. Counts are in tokens."""
    made: dict[str, Any] = {"outcome": ended.outcome}
    if ended.usage is not None and ended.usage.total:
        read, written = ended.usage.cache_read or 0, ended.usage.cache_write or 0
        made["usage"] = {
            "inputTokens": (ended.usage.input or 0) + read + written,
            "outputTokens": (ended.usage.output or 0) + (ended.usage.reasoning or 0),
            "cachedInputTokens": read,
        }
    if ended.model is not None:
        made["model"] = ended.model
    if ended.cost is not None:
        made["cost"] = ended.cost
    return made


_CONFLICT: Final = "The conversation was continued elsewhere. This answer is not part of it."


def error_text(error: Exception | None, general: str) -> str:
    """Return what a client is told of ``error``, which itself goes to the log.

    That is ``general``, except where another process has written to the conversation, and for decisions that do not
    fit the calls that wait.
    """
    if isinstance(error, DecisionError):
        return str(error)
    if error is not None:
        LOGGER.error("a run failed", exc_info=error)
    return _CONFLICT if isinstance(error, ConflictError) else general
