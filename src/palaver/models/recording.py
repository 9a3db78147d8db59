"""Recordings: exchanges with a provider, in one file of JSON that holds no secret.

::

    {"recording": 1, "model": {...}, "exchanges": [
      {"request":  {"method": "POST", "path": "/v1/messages", "headers": {...}, "body": "..."},
       "response": {"status": 200, "headers": {...}, "chunks": ["event: message_start...", {"base64": "..."}]}}]}

Rules:

- Exchanges stand in the order in which they were sent. Bytes are text where they are UTF-8, else base64; the chunks
  are those that arrived, each as it was cut, behind what HTTP did to them (compression, chunked transfer).
- ``broken`` says that the answer broke off behind its last chunk.
- Of headers only those of ``HEADERS`` are kept; from the query, what may hold a key is cut out. Secrets are masked
  (``masking``); chunks stay as they were cut. A masked frame of an AWS event stream fails its checksum.
- ``model`` is how the model was asked (name, endpoint, settings), so that a recording can be played without knowing it.

Stability: experimental.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct, structs

from palaver.core.errors import DecodeError
from palaver.core.request import Settings
from palaver.models.catalogue import Capabilities, Missing
from palaver.models.redaction import Masker

FilePath: TypeAlias = "str | PathLike[str]"

HEADERS: Final = frozenset(
    {
        "accept",
        "content-type",
        "anthropic-version",
        "anthropic-beta",
        "openai-beta",
        "request-id",
        "x-request-id",
        "x-amzn-requestid",
        "x-amzn-errortype",
        "apim-request-id",
        "retry-after",
        "retry-after-ms",
    }
)
"""Headers that a recording keeps, of requests and answers."""


class Exchange(Struct, frozen=True, kw_only=True):
    """One request, and what came back."""

    method: str
    path: str
    request_headers: Mapping[str, str] = {}
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}
    chunks: tuple[bytes, ...] = ()
    broken: bool = False


class RecordedModel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the model was asked. ``url`` and ``stream_url`` are without the host."""

    name: str
    id: str
    provider_name: str
    wire: str
    url: str
    stream_url: str | None = None
    names_model: bool = True
    stream_field: bool = True
    headers: dict[str, str] = {}
    provider: dict[str, dict[str, Any]] = {}
    stream_provider: dict[str, dict[str, Any]] = {}
    capabilities: Capabilities = Capabilities()
    settings: Settings = Settings()
    missing: Missing = "drop"
    metadata: tuple[str, ...] = ()


class Recording(Struct, frozen=True, kw_only=True):
    """Exchanges in order, and the model that was asked, where one was."""

    exchanges: tuple[Exchange, ...] = ()
    model: RecordedModel | None = None

    @classmethod
    def read(cls, file: FilePath) -> Recording:
        """Read a file. Raises ``DecodeError`` naming it when it holds no recording, and ``OSError``."""
        try:
            return _decode_file(Path(file).read_bytes())
        except (msgspec.MsgspecError, UnicodeError, ValueError) as error:
            raise DecodeError(str(error), source=Path(file).name) from None

    def write(self, file: FilePath, secrets: Iterable[str] = ()) -> None:
        """Write a file, whole or not at all, with the secrets masked. Raises ``OSError``."""
        target = Path(file)
        unfinished = target.with_name(f"{target.name}.new")
        unfinished.write_bytes(self.encode(secrets))
        unfinished.replace(target)

    def encode(self, secrets: Iterable[str] = ()) -> bytes:
        """The bytes of a file, with the secrets masked."""
        mask = Masker(secrets)
        exchanges = [_encode_exchange(mask_exchange(exchange, mask)) for exchange in self.exchanges]
        model = {} if self.model is None else {"model": self.model}
        plain = msgspec.json.encode({"recording": 1, **model, "exchanges": exchanges}, order="deterministic")
        return msgspec.json.format(mask(plain), indent=1) + b"\n"


# -- the file --


class _Base64(Struct):
    base64: str


_Bytes: TypeAlias = "str | _Base64"


class _Request(Struct, kw_only=True):
    method: str
    path: str
    headers: dict[str, str] = {}
    body: _Bytes = ""


class _Response(Struct, kw_only=True, omit_defaults=True):
    status: int
    headers: dict[str, str] = {}
    chunks: list[_Bytes] = []
    broken: bool = False


class _Exchange(Struct, kw_only=True):
    request: _Request
    response: _Response


class _File(Struct, kw_only=True):
    recording: int
    exchanges: list[_Exchange]
    model: RecordedModel | None = None


def _decode_file(data: bytes) -> Recording:
    file = msgspec.json.decode(data, type=_File)
    if file.recording != 1:
        raise ValueError(f"recording version {file.recording}; this version of Palaver reads version 1")
    exchanges = [
        Exchange(
            method=each.request.method,
            path=each.request.path,
            request_headers=each.request.headers,
            body=_bytes(each.request.body),
            status=each.response.status,
            headers=each.response.headers,
            chunks=tuple(map(_bytes, each.response.chunks)),
            broken=each.response.broken,
        )
        for each in file.exchanges
    ]
    return Recording(exchanges=tuple(exchanges), model=file.model)


def _encode_exchange(exchange: Exchange) -> _Exchange:
    return _Exchange(
        request=_Request(
            method=exchange.method,
            path=exchange.path,
            headers=dict(exchange.request_headers),
            body=_text(exchange.body),
        ),
        response=_Response(
            status=exchange.status,
            headers=dict(exchange.headers),
            chunks=[_text(chunk) for chunk in exchange.chunks],
            broken=exchange.broken,
        ),
    )


def _text(data: bytes) -> _Bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _Base64(b64encode(data).decode())


def _bytes(held: _Bytes) -> bytes:
    return held.encode() if isinstance(held, str) else b64decode(held.base64, validate=True)


def recorded_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that a recording keeps."""
    return {name.lower(): text for name, text in headers.items() if name.lower() in HEADERS}


def mask_exchange(exchange: Exchange, mask: Masker) -> Exchange:
    """An exchange with secrets masked, its chunks cut where they were, also where one was cut in two."""

    def text(held: str) -> str:
        return mask(held.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    whole = mask(b"".join(exchange.chunks))
    ends = accumulate(map(len, exchange.chunks), initial=0)
    return structs.replace(
        exchange,
        path=text(exchange.path),
        request_headers={name: text(held) for name, held in exchange.request_headers.items()},
        body=mask(exchange.body),
        headers={name: text(held) for name, held in exchange.headers.items()},
        chunks=tuple(whole[start:end] for start, end in pairwise(ends)),
    )
