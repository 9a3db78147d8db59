"""The key that a client sends, and requests without it.

Rules:

- A key is looked for in each place that the client's API names (``KeyPlace``, ``key_parameter``). The first text that
  has the form of a virtual key counts.
- Only the SHA-256 of a key leaves this module. Headers that may hold a key are taken from the request, so neither a
  model's server nor the log gets them.
- A signature (AWS Signature Version 4) is not checked: its secret is not known here. The virtual key is the access key
  id, which the header holds in clear; it counts as a bearer token.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from msgspec import Struct

from palaver.gateway.apis import APIS
from palaver.gateway.http_io import joined
from palaver.gateway.keys import secret_hash

if TYPE_CHECKING:
    from palaver.gateway.client_api import ClientApi, KeyPlace

_SECRET_HEADERS: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", *(place.header for api in APIS for place in api.keys)}
)


class Credential(Struct, frozen=True):
    """What a client sent as its key: the SHA-256 of it, or ``None`` where it has not the form of a virtual key."""

    hash: bytes | None


def find_credential(api: ClientApi, headers: Mapping[str, str], query: str) -> Credential | None:
    """Return the key of a request; ``None`` where there is none. ``headers`` are found by names in lower case."""
    found: Credential | None = None
    for text in _texts(api, headers, query):
        found = Credential(secret_hash(text))
        if found.hash is not None:
            return found
    return found


def without_credentials(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers that hold no key, with names in lower case; those of one name are one (RFC 9110, 5.3)."""
    return joined((name, text) for name, text in headers if name.lower() not in _SECRET_HEADERS)


def _texts(api: ClientApi, headers: Mapping[str, str], query: str) -> Iterator[str]:
    for place in api.keys:
        text = _after_prefix(place, headers.get(place.header, ""))
        if text:
            yield text
    if api.key_parameter is not None:
        for name, text in parse_qsl(query):
            if name == api.key_parameter:
                yield text


def _after_prefix(place: KeyPlace, text: str) -> str:
    """Return the key in a header; the name of a scheme is read in upper or lower case."""
    if text[: len(place.prefix)].lower() != place.prefix.lower():
        return ""
    rest = text[len(place.prefix) :]
    return (rest.partition(place.end)[0] if place.end else rest).strip()
