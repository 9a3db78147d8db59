"""The configuration of a gateway: a TOML file, read into data.

    [listen]
    port = 4000

    [models]                          # what clients ask for, and what is asked instead, in order
    "fast" = "groq/llama-3.3-70b-versatile"
    "claude-*" = ["anthropic/*", "openai/gpt-5.5"]
    "own" = { model = "local/qwen3", url = "http://127.0.0.1:8000/v1", wire = "openai_chat:vllm" }

Rules:

- A name on the left is exact, or a pattern in which ``*`` stands for any text. An exact name wins, then the pattern
  with the most letters. ``*`` on the right stands for what the client asked for, without its provider.
- A name that no line knows is taken as it is when it has a provider (``openai/gpt-…``). Without one, the provider whose
  API the client speaks is meant. ``only_listed`` refuses both.

Stability: experimental.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palaver.core.errors import DecodeError
from palaver.gateway.log.options import LogOptions
from palaver.gateway.stored_responses import ResponseOptions


class Listen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the gateway listens."""

    host: str = "127.0.0.1"
    port: int = 4000


class Target(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model to ask. The fields are those of ``palaver.model``; ``key`` names the variable that holds the key."""

    model: str
    wire: str | None = None
    url: str | None = None
    key: str | None = None


class GatewayConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration. Every field has a default."""

    listen: Listen = Listen()
    models: dict[str, str | Target | list[str | Target]] = {}
    only_listed: bool = False
    database: str | None = None
    """The path of an SQLite file, or ``postgresql://…``. Without it, ``gateway.db`` in the user's data folder."""
    log: LogOptions | None = None
    """How exchanges are logged. Without it, they are not."""
    responses: ResponseOptions | None = None
    """Which responses of the Responses API are stored for models of other wires. Without it, none."""


def read_config(file: str | Path) -> GatewayConfig:
    """Read the configuration in a ``file``. Raises ``DecodeError`` that names the file and the place."""
    path = Path(file)
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        return msgspec.convert(found, GatewayConfig)
    except OSError as error:
        raise DecodeError((error.strerror or str(error)).lower(), source=str(path)) from None
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, of a field
        raise DecodeError(str(error), source=str(path)) from None
