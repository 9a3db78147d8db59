"""The address that a server listens on: ``palaver serve`` and ``palaver mcp``.

The socket is bound before anything else starts, so that a taken port or an unknown host interrupts nothing.

Stability: experimental.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from palaver.cli.terminal import bad_input


def bind(host: str, port: int, backlog: int, check: Callable[[str], None] | None = None) -> socket.socket:
    """Return a socket that listens at ``port`` of ``host``, with a queue of ``backlog`` connections.

    ``check`` gets the numeric address first, and may raise. Raises ``click.ClickException`` for a port that is taken or
    forbidden, and for a host that is unknown.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if check is not None:
            check(str(address[0]))
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(backlog)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        bad_input(place(host, port), (error.strerror or str(error)).lower())
    except UnicodeError:  # from the codec for host names
        bad_input(place(host, port), "not a host name")
    return listener


def place(host: str, port: int) -> str:
    """Return ``host:port`` as a URL has it: an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
