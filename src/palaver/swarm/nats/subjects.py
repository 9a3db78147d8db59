"""The subjects of events: ``palaver.events.<client>.<source>``, where either may be any text.

Rules:

- A token keeps ASCII letters, digits, ``-`` and ``_``; every other byte of its UTF-8 is ``=`` and two hexadecimal
  digits, and empty text is ``=``. So different texts have different tokens, without a dot, a blank or a wildcard.
- What would be longer than 200 characters is ``==`` and its SHA-256; a subject is no longer than a server takes.

Stability: experimental.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

from palaver.swarm.bus import Where

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_LONGEST: Final = 200


@lru_cache(maxsize=4096)
def token(text: str) -> str:
    """One token of a subject for any text. Raises ``UnicodeEncodeError`` for lone surrogates."""
    data = text.encode()
    if not data:
        return "="
    written = "".join([chr(byte) if byte in _PLAIN else f"={byte:02x}" for byte in data])
    return written if len(written) <= _LONGEST else f"=={hashlib.sha256(data).hexdigest()}"


def subject(prefix: str, client: str, source: str) -> str:
    """The subject of an event."""
    return f"{prefix}.{token(client)}.{token(source)}"


def pattern(prefix: str, where: Where) -> str:
    """The subjects among which every wanted event is."""
    client = "*" if where.client is None else token(where.client)
    source = "*" if where.source is None else token(where.source)
    return f"{prefix}.{client}.{source}"
