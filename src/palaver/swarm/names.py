"""How clients and turns may be called by those who come from outside.

Rules:

- 1 to 128 ASCII letters, digits and ``. _ ~ : @ + -``, so that a name fits an address, a subject and a thread's id.
- No client is called ``shared``.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

from palaver.core.errors import DecodeError
from palaver.swarm.events import SHARED

_NAME: Final = re.compile(r"[A-Za-z0-9._~:@+-]{1,128}")


def is_name(text: str) -> bool:
    """Whether something may be called that."""
    return _NAME.fullmatch(text) is not None


def checked(name: str, path: str) -> str:
    """Give a name back. Raises ``DecodeError``, naming the place, for one that may not be."""
    if not is_name(name):
        reason = "1 to 128 ASCII letters, digits and . _ ~ : @ + - are expected"
        raise DecodeError(reason, path=path, source="request")
    return name


def checked_client(name: str) -> str:
    """Give the name of a client back. Raises ``DecodeError`` for one that may not be."""
    if name == SHARED:
        raise DecodeError(f"no client may be called {SHARED!r}", path="client", source="request")
    return checked(name, "client")
