"""How clients and turns may be called by those who come from outside, and how names are joined.

Rules:

- 1 to 128 ASCII letters, digits and ``. _ ~ : @ + -``, so that a name fits an address, a subject and a thread's id.
- No client is called ``shared``.
- A thread is called ``<realm>/<client>``. In both, ``/`` is written ``%2F`` and ``%`` is written ``%25``, so that no
  two clients share a thread by their names.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

from palaver.core.errors import DecodeError
from palaver.swarm.events import SHARED

_NAME: Final = re.compile(r"[A-Za-z0-9._~:@+-]{1,128}")


def joined(*names: str) -> str:
    """Join names by ``/``, with ``%`` and ``/`` in them escaped: different names give different texts."""
    return "/".join([name.replace("%", "%25").replace("/", "%2F") for name in names])


def client_thread(realm: str, client: str) -> str:
    """The id of the thread of a client. ``SHARED`` is the client of what belongs to all."""
    return joined(realm, client)


def name_of_agent(name: object) -> str:
    """Give the name of an agent back. Raises ``TypeError`` for what is no text."""
    if not isinstance(name, str):
        raise TypeError(f"agent: the name of an agent is expected, not {type(name).__name__}")
    return name


def checked_run(run: object) -> str | None:
    """Give the name of a turn back. Raises ``TypeError`` for what is neither a text nor ``None``."""
    if run is not None and not isinstance(run, str):
        raise TypeError(f"run: the name of a turn is a text, not {type(run).__name__}")
    return run


def checked_client_id(client: object) -> str:
    """Give the id of a client back. Raises ``TypeError`` for what is no text."""
    if not isinstance(client, str):
        raise TypeError(f"client: the id of a client is a text, not {type(client).__name__}")
    return client


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
