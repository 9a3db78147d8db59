"""What is masked before an exchange is written.

Rules:

- A pattern (RE2, so time is linear) is masked with as many bytes as it matched, so that JSON stays JSON.
- What JSON writes with escapes is read without them, too: messages are made of that. JSON in the text of JSON, as the
  arguments of calls, is read again, up to ``_DEPTH`` times.
- Keys of known kinds are recognised by how they begin. The header of a client's key is never logged, nor are those of
  models: only the headers of ``HEADERS`` are.

Stability: experimental.
"""

from __future__ import annotations

import importlib
import re
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from palaver.core.errors import DecodeError
from palaver.gateway.recent_bodies import RecentBodies, common_prefix

if TYPE_CHECKING:
    from collections.abc import Callable

HEADERS: Final = ("user-agent", "x-request-id", "session_id", "originator", "anthropic-beta", "anthropic-version")
"""The headers of a request that are logged."""
_MASK: Final = b"REDACTED"
_LONGEST: Final = 1 << 16
"""A text that is masked is not longer, where it begins in what a client sent before."""
_MEMORY: Final = 32 << 20
"""Bytes of bodies that were read."""
_DEPTH: Final = 3
_PAIR: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE: Final = re.compile(_PAIR + rb"|\\u[0-9a-fA-F]{4}|\\[bfnrt/\"\\]")
_UNICODE: Final = re.compile(rb"(?:\\u[0-9a-fA-F]{4})+")
_LETTERS: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}
_SHORT: Final = tuple([(b"\\" + each, _LETTERS.get(each, each)) for each in (*_LETTERS, b"/", b'"')])
_KEYS: Final = (
    r"plv-[0-9A-Za-z]{49}",  # of a gateway
    r"sk-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek, …
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",  # AWS, https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
    r"AIza[0-9A-Za-z_-]{35}",  # Google
    r"gh[pousr]_[A-Za-z0-9]{36,}",  # https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats/
    r"github_pat_[A-Za-z0-9_]{60,}",
    r"glpat-[A-Za-z0-9_-]{20,}",
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"(?:gsk|hf|npm|xai|nvapi|pplx)[_-][A-Za-z0-9_-]{30,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\n]*-----END [A-Z ]*PRIVATE KEY-----",
)


class _Found(Protocol):
    def span(self) -> tuple[int, int]: ...


class Redaction:
    """Masks what its patterns find."""

    def __init__(self, patterns: Iterable[str], *, keys: bool = True) -> None:
        """Compile the patterns. Raises ``DecodeError`` for one that RE2 does not read."""
        patterns = [*patterns]
        every = [*patterns, *(_KEYS if keys else ())]
        for place, each in enumerate(every):
            _compile(each, f"log.redact[{place}]")
        self._reads_escapes = bool(patterns)
        self._search: Callable[[bytes], object] | None = None
        self._every: Callable[[bytes], Iterable[_Found]]
        self._clean = RecentBodies[bytes](_MEMORY)
        self._lock = threading.Lock()
        if every:
            pattern = _compile("|".join(f"(?:{each})" for each in every), "log.redact")
            self._search, self._every = pattern.search, pattern.finditer

    def __call__(self, data: bytes) -> bytes:
        """Return the same bytes, masked."""
        if not self._finds(data):
            return data
        made = bytearray(data)
        for start, end in self._spans(data, _DEPTH):
            made[start:end] = _mask(end - start)
        return bytes(made)

    def _finds(self, data: bytes) -> bool:
        """Whether anything is to be masked."""
        if self._search is None:
            return False
        if self._search(data) is not None:
            return True
        if not (self._reads_escapes or b"\\u" in data):  # of other escapes no key has one
            return False
        for _ in range(_DEPTH):
            if b"\\" not in data:
                return False
            data = _unescaped(data)
            if self._search(data) is not None:
                return True
        return False

    def _spans(self, data: bytes, depth: int) -> list[tuple[int, int]]:
        """Return where something is to be masked."""
        found = [each.span() for each in self._every(data)]
        if depth and b"\\" in data:
            plain, places = _unescaped_with_places(data)
            found = [places.widened(*each) for each in found]  # half an escape is none
            found += [places.original(*each) for each in self._spans(plain, depth - 1)]
        return found

    def body(self, data: bytes, client: str) -> bytes:
        """Return the body of a request, masked. What an earlier one of the same client began with is not read again."""
        if self._search is None:
            return data
        with self._lock:
            before = self._clean.take(client, data) or b""
        start = max(common_prefix(data, before) - _LONGEST, 0)
        masked = data if start and not self._finds(data[start:]) else self(data)
        if masked is data:
            with self._lock:
                self._clean.give_back(client, data, 0, data)
        return masked

    def text(self, text: str) -> str:
        """Return the same text, masked."""
        return self(text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")


def _mask(length: int) -> bytes:
    return (_MASK * (length // len(_MASK) + 1))[:length]


def _unescaped(data: bytes) -> bytes:
    """Return text without the escapes of JSON."""
    doubled = b"\\\\" in data
    plain = data.replace(b"\\\\", b"\0") if doubled else data  # a backslash that is left then begins an escape
    for escape, letter in _SHORT:
        if escape in plain:
            plain = plain.replace(escape, letter)
    if b"\\u" in plain:
        plain = _UNICODE.sub(lambda found: _letters(found[0]), plain)
    return plain.replace(b"\0", b"\\") if doubled else plain


class _Places(NamedTuple):
    """Where the escapes of a text begin and end, in turn after 0: in the text, and in what it is without them."""

    escaped: list[int]
    plain: list[int]

    def widened(self, start: int, end: int) -> tuple[int, int]:
        """Return a span of the text that cuts no escape."""
        before, after = bisect_right(self.escaped, start) - 1, bisect_left(self.escaped, end) - 1
        return self.escaped[before] if before % 2 else start, self.escaped[after + 1] if after % 2 else end

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the text that became a span of the plain one."""
        before, after = bisect_right(self.plain, start) - 1, bisect_left(self.plain, end) - 1
        first = self.escaped[before] + (0 if before % 2 else start - self.plain[before])
        return first, self.escaped[after + 1] if after % 2 else self.escaped[after] + end - self.plain[after]


def _unescaped_with_places(data: bytes) -> tuple[bytes, _Places]:
    """Return text without the escapes of JSON."""
    pieces, plain_ends, ends, size, last = list[bytes](), [0], [0], 0, 0
    for found in _ESCAPE.finditer(data):
        letters = _letters(found[0])
        pieces += (data[last : found.start()], letters)
        size += found.start() - last
        plain_ends += (size, size + len(letters))
        size += len(letters)
        last = found.end()
        ends += (found.start(), last)
    pieces.append(data[last:])
    return b"".join(pieces), _Places(ends, plain_ends)


def _letters(escape: bytes) -> bytes:
    if escape[1:2] != b"u":
        return _LETTERS.get(escape[1:], escape[1:])
    units = bytes.fromhex(escape.replace(b"\\u", b"").decode())
    return units.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")


def _compile(pattern: str, place: str) -> Any:
    re2: Any = importlib.import_module("re2")  # it has no types
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern.encode(), options=options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise DecodeError(f"{pattern!r} is no pattern of RE2: {words}", path=place) from None


def logged_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request that are logged."""
    return {name: headers[name] for name in HEADERS if name in headers}
