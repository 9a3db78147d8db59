"""What a file looks like that no reader takes: for the error that says so.

A row is a name and the keys that an object has beside others; the first that fits counts. Nothing is read by it.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from palaver.core import jsontext
from palaver.core.errors import PalaverError, excerpt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EVENTS: Final = ("RUN_", "TEXT_MESSAGE_", "TOOL_CALL_", "STEP_", "STATE_", "MESSAGES_SNAPSHOT")
_ROWS: Final = (
    (frozenset(("role", "message")), "a transcript of Cursor"),
    (
        frozenset(("sessionID", "role", "id")),
        "a message of opencode out of its storage; `opencode export` writes sessions",
    ),
    (
        frozenset(("sessionID", "messageID", "type")),
        "a part of opencode out of its storage; `opencode export` writes sessions",
    ),
    (frozenset(("observations", "name")), "a trace of Langfuse"),
    (frozenset(("traceId", "observations")), "a trace of Langfuse"),
    (frozenset(("projectId", "timestamp", "input")), "a trace of Langfuse"),
)


def of(body: bytes) -> str:
    """Describe a file: its outline, and what it looks like where that is known. It shows keys only, no text."""
    value = _value(body)
    if value is not None:
        return _described(value)
    first, _, rest = body.lstrip().partition(b"\n")
    line = _value(first)
    if line is None or not rest.strip():
        return "no JSON"
    return f"lines of JSON, the first {_described(line)}"


def is_lines(body: bytes) -> bool:
    """Whether a file is lines of JSON."""
    first, _, rest = body.lstrip().partition(b"\n")
    return bool(rest.strip()) and _value(first) is not None


def _value(data: bytes) -> Any:
    try:
        return jsontext.value(data.strip())
    except PalaverError:
        return None


def _described(value: Any) -> str:
    first: object = value
    if isinstance(value, list) and value:
        first = cast("Sequence[object]", value)[0]
    like = _like(cast("Mapping[str, Any]", first)) if isinstance(first, dict) else None
    return _outline(value) + ("" if like is None else f"; it looks like {like}")


def _outline(value: Any) -> str:
    if isinstance(value, dict):
        keys = ", ".join(cast("dict[str, Any]", value))
        return f"an object with {excerpt(keys, 60)}" if keys else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(cast('Sequence[Any]', value))}"
    return jsontext.kind(jsontext.encode(value))


def _like(record: Mapping[str, Any]) -> str | None:
    kind = record.get("type")
    if isinstance(kind, str) and kind.startswith(_EVENTS):
        return "events of AG-UI, which palaver reads one to a line or as an event stream"
    return next((name for keys, name in _ROWS if keys <= record.keys()), None)
