"""Events of a run as JSON objects, for ``palaver run --json``.

Rules:

- ``event`` is the name of the event, as words with underscores; its fields follow by their names. Messages, calls and
  usage are in the canonical form. An error is its ``code`` and ``text``; a run is what one would ask it for, without
  its messages, which the events before have told.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct, structs

from palaver.agent.run import Run
from palaver.core import canonical, jsontext
from palaver.core.errors import PalaverError
from palaver.core.value import Record

if TYPE_CHECKING:
    from palaver.agent.events import AgentEvent

_RUN = ("id", "outcome", "reason", "error", "branch", "text", "usage", "cost", "iterations", "seconds", "pending")


def as_json(event: AgentEvent) -> dict[str, Any]:
    """One event."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
    return {"event": name, **{field: _plain(value) for field, value in structs.asdict(event).items()}}


def _plain(value: object) -> Any:
    if isinstance(value, Run):
        run: Run[Any] = _any(value)
        told = {name: _plain(getattr(run, name)) for name in _RUN}
        return {"thread": run.thread.id, "leaf": run.leaf, **told}
    if isinstance(value, Record):
        return Raw(canonical.encode(value))
    if isinstance(value, Exception):
        code = value.error_code if isinstance(value, PalaverError) else type(value).__name__
        return {"code": code, "text": str(value)}
    if isinstance(value, Struct):
        return {field: _plain(each) for field, each in structs.asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in _any(value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_plain(each) for each in _any(value)]
    try:
        jsontext.encode(value)
    except (PalaverError, msgspec.MsgspecError, TypeError):
        return repr(value)
    return value


def _any(value: Any) -> Any:
    """The same; what is in it may be anything."""
    return value
