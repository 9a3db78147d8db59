"""Secrets of a request, and how they are masked.

Rules:

- Secret are the values of headers with a telling name (key, token, cookie), all headers of credentials, and query
  parameters that may hold a key.
- A secret is masked in all spellings: plain, percent-encoded, base64 at any offset, hex, JSON-escaped, with as many
  bytes as it had. Values under eight characters are not masked, since they would match words.
- ``without_secrets`` masks an error in place with its causes: texts and bytes, and the beginning of a secret where a
  text was cut.

Stability: experimental.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, quote, quote_plus, urlencode, urlsplit, urlunsplit

_SECRET_NAME: Final = re.compile(r"auth|key|token|secret|cookie|signature|credential|password", re.IGNORECASE)
_SECRET_PARAMETERS: Final = re.compile(r"key|token|secret|signature|^sig$|^code$|password|^x-amz-", re.IGNORECASE)
_PUBLIC: Final = frozenset({"x-amz-date", "x-goog-user-project"})
"""Headers of credentials that are no secret."""
_MIN_SECRET: Final = 8
_MASK: Final = b"REDACTED"


def bare_path(url: str) -> str:
    """Path and query of an address, without what may hold a key."""
    parts = urlsplit(url)
    query = [(name, text) for name, text in parse_qsl(parts.query, True) if not _SECRET_PARAMETERS.search(name)]  # noqa: FBT003 (keep blanks)
    return f"{parts.path or '/'}?{urlencode(query)}" if query else parts.path or "/"


def bare_url(url: str) -> str:
    """An address that may be kept: without user, password, and what may hold a key. ``url`` is the whole address."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    path, _, query = bare_path(url).partition("?")
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path if parts.path else "", query, ""))


def shown_url(url: str) -> str:
    """An address as it may be shown: without user and password, and with secret values of its query masked."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "…"
    fields = [field.partition("=") for field in parts.query.split("&")] if parts.query else []
    query = "&".join(
        f"{name}=…" if _SECRET_PARAMETERS.search(name) else f"{name}{eq}{text}" for name, eq, text in fields
    )
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))


def shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as they may be shown: those that may be secret are masked."""
    return {name: "…" if _SECRET_NAME.search(name) else text for name, text in headers.items()}


def secrets_of(url: str, headers: Mapping[str, str], *, shown: bool = False) -> Iterator[str]:
    """What is secret of a request: in its query, and in its headers. ``shown`` says that they are of credentials."""
    for name, text in parse_qsl(urlsplit(url).query):
        if _SECRET_PARAMETERS.search(name):
            yield text
    for name, text in headers.items():
        if name.lower() not in _PUBLIC and (shown or _SECRET_NAME.search(name)):
            yield from _secret_parts(text)


def _secret_parts(text: str) -> Iterator[str]:
    """The parts of a header that are secret each on its own."""
    if text.upper().startswith("AWS4-"):
        yield from re.findall(r"(?:Credential|Signature)=([^/,\s]+)", text)
        return
    for word in re.split(r"[;,\s]+", text):
        yield word
        yield word.partition("=")[2]
    if text.lower().startswith("basic "):
        try:
            told = b64decode(text[6:]).decode()
        except ValueError:
            return
        yield told
        yield told.partition(":")[2]


class Masker:
    """Masks secrets in bytes: as many bytes as there were."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Spell each secret in every way in which it may stand somewhere."""
        masks: dict[bytes, bytes] = {}
        for secret in secrets:
            if len(secret) >= _MIN_SECRET:
                value = secret.encode("utf-8", "surrogatepass")
                cover = (_MASK * len(value))[: len(value)]
                for way, same in zip(_spellings(value), _spellings(cover), strict=True):
                    masks[way] = same if len(same) == len(way) else (_MASK * len(way))[: len(way)]
        self._masks = masks
        longest = sorted(masks, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, longest))) if longest else None

    def __call__(self, data: bytes) -> bytes:
        """The same bytes, secrets masked."""
        return data if self._pattern is None else self._pattern.sub(lambda found: self._masks[found[0]], data)


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with the ``secrets`` masked."""
    known = [secret for secret in dict.fromkeys(secrets) if len(secret) >= _MIN_SECRET]
    found: str = _mask_value(text, Masker(known), known)
    return found


def without_secrets(error: BaseException, secrets: Iterable[str]) -> None:
    """Mask the secrets in an error, and in those that led to it. What a model said is left as it is."""
    known = [secret for secret in dict.fromkeys(secrets) if len(secret) >= _MIN_SECRET]
    mask = Masker(known)
    waiting: list[BaseException | None] = [error]
    seen = set[int]()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.args = tuple(_mask_value(held, mask, known) for held in each.args)
        for name, held in [*vars(each).items()]:
            if isinstance(held, str | bytes):
                setattr(each, name, _mask_value(held, mask, known))
        waiting += [each.__cause__, each.__context__]


def _mask_value(held: Any, mask: Masker, secrets: Sequence[str]) -> Any:
    if isinstance(held, bytes):
        return mask(held)
    if not isinstance(held, str):
        return held
    text = mask(held.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    if text.endswith("…"):
        for secret in secrets:
            cut = next((n for n in range(len(secret), 3, -1) if text.endswith(f"{secret[:n]}…")), 0)
            text = f"{text[: -cut - 1]}{'*' * cut}…" if cut else text
    return text


def _spellings(value: bytes) -> Iterator[bytes]:
    text = value.decode("utf-8", "replace")
    yield value
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield encoded.encode()
        yield re.sub("%..", lambda found: found[0].lower(), encoded).encode()
    for written in (json.dumps(text), json.dumps(text, ensure_ascii=False), json.dumps(text).replace("/", "\\/")):
        yield written[1:-1].encode("utf-8", "surrogatepass")
    yield value.hex().encode()
    yield value.hex().upper().encode()
    for alphabet in (b64encode, urlsafe_b64encode):
        for before in range(3):  # bytes that stand in front of it in a group of three
            group = alphabet(b"\0" * before + value)
            yield group[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
