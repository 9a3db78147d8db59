"""What every route reads and writes: the body of a request, an error in the client's shape, values of headers.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import anyio
import msgspec
from msgspec import json
from starlette.responses import Response

from palaver.core.errors import PalaverError
from palaver.gateway.client_api import ApiError, api_error, status_kind
from palaver.serve.http.errors import Refused

if TYPE_CHECKING:
    from starlette.requests import Request

    from palaver.gateway.client_api import ClientApi
    from palaver.gateway.config import Listen

_PLAINLY: Final = "send it as plain JSON"
_GZIP: Final = b"\x1f\x8b"
_HALF_PAIR: Final = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F])")
"""The first half of a pair without its second one; the decoder takes a second half alone."""
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F)))


def field_value(text: str) -> bytes:
    """Return a text as the value of a header; what no header may hold is percent-encoded."""
    return (
        text
        if text.isascii() and text.isprintable()
        else quote(text.encode("utf-8", "surrogateescape"), safe=_PRINTABLE)
    ).encode("ascii")


def joined(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers with names in lower case, in which those of one name are one (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for name, text in fields:
        lower = name.lower()
        found[lower] = f"{found[lower]}, {text}" if lower in found else text
    return found


async def read_body(request: Request, listen: Listen) -> bytes:
    """Return the body of a request. Raises ``Refused`` for one that is too large, too slow or compressed."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in {"", "identity"}:
        raise Refused(415, "encoded", f"the body has the encoding {encoding[:40]!r}: {_PLAINLY}")
    pieces, size = list[bytes](), 0
    with anyio.move_on_after(listen.body_seconds) as timeout:
        async for piece in request.stream():
            size += len(piece)
            if size > listen.max_body:
                raise Refused(413, "too_large", f"a request of more than {listen.max_body:,} bytes")
            pieces.append(piece)
    if timeout.cancelled_caught:
        raise Refused(408, "timed_out", f"the body took more than {listen.body_seconds:g} seconds")
    return b"".join(pieces)


def body_fault(body: bytes, error: Exception) -> str:
    """Return what is wrong with a body that is no JSON, where that can be said better than its decoder did."""
    if not body.strip():
        return "the body is empty"
    if body.startswith(_GZIP):
        return f"the body is compressed with gzip: {_PLAINLY}"
    half = _HALF_PAIR.search(body) if isinstance(error, msgspec.DecodeError) else None
    if half is not None:
        shown = half[1].decode("ascii")
        return f"{shown} stands alone, and is half of a surrogate pair: such a text cannot be written as UTF-8"
    return str(error)


def refusal(api: ClientApi, error: Refused | PalaverError) -> Response:
    """Return the answer to a request that is refused, in the shape of its API."""
    if isinstance(error, PalaverError):
        return error_response(api, api_error(error))
    return error_response(api, ApiError(error.status, status_kind(error.status), error.message))


def error_response(api: ClientApi, error: ApiError, more: Mapping[str, str] = {}) -> Response:
    """Return an error as the client's own provider writes it, with ``more`` headers."""
    body, headers = api.write_error(error)
    own = {**headers, **more}
    if error.retry_after is not None:
        own["retry-after"] = f"{error.retry_after:.15g}"
    if not error.retry:
        own["x-should-retry"] = "false"
    return Response(json.encode(body), error.status, own, "application/json")
