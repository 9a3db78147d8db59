"""The wires: every provider format that Palaver reads and writes.

``get(name)`` finds one, ``names()`` lists them. A vendor that speaks a wire with an accent is found by
``get("openai_chat", accent="mistral")``, or ``get("openai_chat:mistral")``.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.core.errors import UnknownNameError
from palaver.wires import (
    anthropic_messages,
    bedrock_converse,
    google_generate,
    ollama_chat,
    openai_chat,
    openai_responses,
)
from palaver.wires.wire import Wire

_WIRES: Final[dict[str, Wire]] = {
    "openai_chat": openai_chat.WIRE,
    "openai_responses": openai_responses.WIRE,
    "anthropic_messages": anthropic_messages.WIRE,
    "google_generate": google_generate.WIRE,
    "bedrock_converse": bedrock_converse.WIRE,
    "ollama_chat": ollama_chat.WIRE,
}
_ACCENTS: Final[dict[str, dict[str, Wire]]] = {"openai_chat": openai_chat.ACCENTED}


def names() -> tuple[str, ...]:
    """Names of all wires."""
    return tuple(_WIRES)


def accents(name: str) -> tuple[str, ...]:
    """Names of the accents of a wire."""
    return tuple(_ACCENTS.get(name, {}))


def get(name: str, accent: str | None = None) -> Wire:
    """Find a wire, with an accent where one is given. Raises ``UnknownNameError`` listing those that exist."""
    base, _, spoken = name.partition(":")
    if base not in _WIRES:
        raise UnknownNameError(f"no wire {name!r}; there are {', '.join(_WIRES)}")
    chosen = accent or spoken
    if not chosen:
        return _WIRES[base]
    table = _ACCENTS.get(base, {})
    if chosen not in table:
        raise UnknownNameError(f"{base} has no accent {chosen!r}; there are {', '.join(table) or 'none'}")
    return table[chosen]
