"""Which session a request belongs to, by what clients send.

Rules:

- A row of ``ClientApi`` names the headers and the fields that hold a session, the surest first. Some programs put more
  into such a field; as a whole it still stands for one session.
- Else the session is known by how it opens: its system text and its first user message, which each later request of it
  repeats.

Stability: experimental.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.core.errors import PalaverError
from palaver.core.messages import UserMessage

if TYPE_CHECKING:
    from palaver.core.request import Request
    from palaver.gateway.record import ClientRequest

_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LONGEST: Final = 512
"""The most characters of an id; a longer one is represented by its hash."""


def session_of(request: ClientRequest) -> str | None:
    """Return the id of the session; ``None`` for a request that cannot be read."""
    api = request.api
    for name in api.session_headers:
        if text := request.headers.get(name):
            return _bounded(text)
    try:
        if api.session_fields and (found := _in_body(request.body, api.session_fields)):
            return _bounded(found)
        return _opening(request.decoded)
    except PalaverError:
        return None


def _in_body(body: bytes, paths: tuple[str, ...]) -> str | None:
    try:
        fields = _FIELDS.decode(body)
        for path in paths:
            first, _, rest = path.partition(".")
            value: Any = msgspec.json.decode(fields[first]) if first in fields else None
            for name in rest.split(".") if rest else ():
                value = value.get(name) if isinstance(value, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            if isinstance(value, str) and value:
                return value
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    return None


def _opening(request: Request) -> str | None:
    first = next((each.text for each in request.messages if isinstance(each, UserMessage)), None)
    if first is None:
        return None
    system = [each.text for each in request.messages if each.role in {"system", "developer"}]
    return _hashed("\0".join([*system, first]))


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST else _hashed(text)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
