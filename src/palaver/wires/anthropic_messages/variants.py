"""Clouds that serve the Messages wire, as rows of a table (docs/spec/wires.md#4).

Rules:

- The body is that of the wire, but that the address names the model. Which version of the API is spoken, and that the
  body says so, is data of the endpoint.
- Their documents list no ``metadata`` among the fields of a body, so none is sent.
- They refuse the cache mark at the top level, and take those on blocks (UKGovernmentBEIS/inspect_ai#3851).

Source: https://platform.claude.com/docs/en/build-with-claude/claude-on-amazon-bedrock;
https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from palaver.wires._engine.capabilities import WireCapabilities
from palaver.wires.anthropic_messages.encode import MARKING, SPEECH

_UNNAMED: Final = structs.replace(
    SPEECH, names_model=False, marking=(structs.replace(MARKING, automatic=False),), metadata=None
)

VARIANTS: Final[dict[str, WireCapabilities]] = {"bedrock": _UNNAMED, "vertex": _UNNAMED}
