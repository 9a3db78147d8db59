"""The file of ``palaver serve --tokens``: TOML, a line for each client, ``ann = "the token of ann"``.

Stability: experimental.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from palaver.cli.failure import bad_input
from palaver.core.errors import DecodeError
from palaver.swarm.names import checked_client


def read(file: str) -> Mapping[str, str]:
    """Read tokens by their clients. Raises ``click.ClickException``, which never shows a token."""
    try:
        found = tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        bad_input(file, (error.strerror or str(error)).lower())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        bad_input(file, 'lines of CLIENT = "token" are expected, in TOML')
    owners: dict[str, str] = {}
    for client, token in found.items():
        try:
            checked_client(client)
        except DecodeError as error:
            bad_input(file, f"{client!r}: {error.reason}")
        if not isinstance(token, str) or not token.strip():
            bad_input(file, f"{client}: a token is a text that is not empty")
        if token in owners:
            bad_input(file, f"{owners[token]} and {client} have the same token: each reads the other")
        owners[token] = client
    if not found:
        bad_input(file, "it holds no token")
    return found
