"""What is masked before an exchange is written.

Rules:

- A pattern (RE2, so time is linear) is masked with as many bytes as it matched, so that JSON stays JSON.
- Keys of known kinds are recognised by how they begin. The header of a client's key is never logged, nor are those of
  models: only the headers of ``HEADERS`` are.

Stability: experimental.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from palaver.core.errors import DecodeError
from palaver.gateway.recent_bodies import common_prefix

if TYPE_CHECKING:
    from collections.abc import Callable

HEADERS: Final = ("user-agent", "x-request-id", "session_id", "originator", "anthropic-beta", "anthropic-version")
"""The headers of a request that are logged."""
_MASK: Final = b"REDACTED"
_LONGEST: Final = 1 << 16
"""A text that is masked is not longer, where it begins in what a client sent before."""
_CLIENTS: Final = 16
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
    def group(self) -> bytes: ...


class Redaction:
    """Masks what its patterns find."""

    def __init__(self, patterns: Iterable[str], *, keys: bool = True) -> None:
        """Compile the patterns. Raises ``DecodeError`` for one that RE2 does not read."""
        every = [*patterns, *(_KEYS if keys else ())]
        for place, each in enumerate(every):
            _compile(each, f"log.redact[{place}]")
        self._search: Callable[[bytes], object] | None = None
        self._clean: OrderedDict[str, bytes] = OrderedDict()
        if every:
            pattern = _compile("|".join(f"(?:{each})" for each in every), "log.redact")
            self._search, self._sub = pattern.search, pattern.sub

    def __call__(self, data: bytes) -> bytes:
        """Return the same bytes, masked."""
        if self._search is None or self._search(data) is None:
            return data
        masked: bytes = self._sub(_masked, data)
        return masked

    def body(self, data: bytes, client: str) -> bytes:
        """Return the body of a request, masked. What the last one of the same client began with is not read again."""
        if self._search is None:
            return data
        before = self._clean.pop(client, b"")
        start = max(common_prefix(data, before) - _LONGEST, 0)
        masked = data if start and self._search(data[start:]) is None else self(data)
        if masked is data:
            self._clean[client] = data
            while len(self._clean) > _CLIENTS:
                self._clean.popitem(last=False)
        return masked

    def text(self, text: str) -> str:
        """Return the same text, masked."""
        return self(text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")


def _masked(found: _Found) -> bytes:
    length = len(found.group())
    return (_MASK * (length // len(_MASK) + 1))[:length]


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
