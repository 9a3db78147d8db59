"""When an answer was made, carried from wire to wire.

Rules:

- The field ``created`` or ``created_at`` of an answer holds seconds since 1970, or an ISO time.
- An answer that has no ``sent_at`` gets this time as its own where the target says a time (``Speech.says_time``).

Stability: experimental.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from palaver.core import jsontext

if TYPE_CHECKING:
    from palaver.core.request import Response

__all__ = ["FIELDS", "dated", "iso"]

FIELDS: Final = ("created", "created_at")


def dated(response: Response) -> Response:
    """The answer with the time when it was made, where its provider said one and the message has none."""
    message = response.message
    if message.sent_at is not None or response.provider_json is UNSET:
        return response
    for raw in jsontext.fields(response.provider_json).values():
        if jsontext.kind(raw) != "an object":
            continue
        held = jsontext.fields(raw)
        for key in FIELDS:
            time = _milliseconds(jsontext.value(held[key])) if key in held else None
            if time is not None:
                return response.replace(message=message.replace(sent_at=time), origin=response.origin)
    return response


def _milliseconds(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return None
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    return int(value * 1000) if isinstance(value, int | float) and 0 < value < _LATEST else None


_LAST: Final = 253_402_300_799
_LATEST: Final = 1e11
"""Seconds beyond any calendar."""


def iso(milliseconds: int) -> str:
    """Write a time as ISO 8601, in whole seconds of UTC; one before 1970 or after 9999 as the nearest within."""
    return datetime.fromtimestamp(min(max(milliseconds // 1000, 0), _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
