"""What a client says, read and checked.

Rules:

- Clients and runs are called as ``palaver.swarm.names`` says.
- A message is ``{"text", "payload"?, "run"?}``. Whatever else is in it is an error, and says where.
  An empty text says nothing, but beside a payload.
- A body is read as far as it may be long, and no further.

Stability: experimental.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import anyio
import msgspec
from msgspec import Struct
from starlette.requests import Request

from palaver.core.errors import DecodeError
from palaver.serve.http.access import Limits
from palaver.serve.http.errors import Refused
from palaver.swarm.names import checked
from palaver.threads.ids import uuid7


class UserInput(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A message of a client. ``run`` names its turn; said again by the same name, it is answered once."""

    text: str
    payload: Any = None
    run: str = msgspec.field(default_factory=uuid7)


_SAID: Final = msgspec.json.Decoder(UserInput)


def said(data: bytes | str) -> UserInput:
    """Read a message. Raises ``DecodeError``."""
    try:
        made = _SAID.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        if (field := _with_half_a_character(data)) is not None:
            raise DecodeError("it holds half of a surrogate pair", path=field, source="request") from error
        raise DecodeError(str(error), source="request") from error
    checked(made.run, "run")
    if made.payload is None and not made.text.strip():
        raise DecodeError("an empty text says nothing", path="text", source="request")
    return made


def _with_half_a_character(data: bytes | str) -> str | None:
    r"""The field with an escape such as a lone ``\ud800``, which msgspec reports as an end of the input."""
    try:
        found = json.loads(data)
        fields = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    except (ValueError, RecursionError):
        return None
    for name, value in fields.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return name.encode("utf-8", "replace").decode()
    return None


async def body_of(request: Request, limits: Limits) -> bytes:
    """Read a body. Raises ``Refused`` for one that is too long, or too slow."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.body:
        raise too_large(limits)
    body = bytearray()
    with anyio.move_on_after(limits.patience) as patience:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.body:
                raise too_large(limits)
    if patience.cancelled_caught:
        raise Refused(408, "timed_out", f"the body took more than {limits.patience:g} seconds")
    return bytes(body)


def too_large(limits: Limits) -> Refused:
    """The refusal of a message that is too long."""
    return Refused(413, "too_large", f"a message has at most {limits.body:,} bytes")
