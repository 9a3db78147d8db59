"""Read and check a client's message: ``{"text", "payload"?, "run"?}``.

Any other field is an error that names its place. The text may not be empty: no model sees a payload. A body is read
up to the limit and no further. Names of clients and runs follow ``palaver.swarm.names``.

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
    """A message of a client. ``run`` names its turn: a second message with the same run gets the same answer."""

    text: str
    payload: Any = None
    run: str = msgspec.field(default_factory=uuid7)


_DECODER: Final = msgspec.json.Decoder(UserInput)


def parse_input(data: bytes | str) -> UserInput:
    """Decode a message. Raises ``DecodeError``."""
    try:
        message = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        if (field := _field_with_lone_surrogate(data)) is not None:
            raise DecodeError("it has a lone surrogate", path=field, source="request") from error
        raise DecodeError(str(error), source="request") from error
    checked(message.run, "run")
    if not message.text.strip():
        raise DecodeError("the text is empty", path="text", source="request")
    return message


def _field_with_lone_surrogate(data: bytes | str) -> str | None:
    r"""Return the field with a lone surrogate such as ``\ud800``, which msgspec reports as the end of the input."""
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
    """Read a body. Raises ``Refused`` when it is too long or too slow."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.body:
        raise too_large(limits)
    body = bytearray()
    with anyio.move_on_after(limits.io_timeout) as timeout:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.body:
                raise too_large(limits)
    if timeout.cancelled_caught:
        raise Refused(408, "timed_out", f"the body took more than {limits.io_timeout:g} seconds")
    return bytes(body)


def too_large(limits: Limits) -> Refused:
    """Return the refusal of a message that is too long."""
    return Refused(413, "too_large", f"a message may have at most {limits.body:,} bytes")
