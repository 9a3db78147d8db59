"""The wires: every provider format that Palaver reads and writes.

``get(name)`` finds one, ``names()`` lists them. A vendor that speaks a wire with a variant is found by
``get("openai_chat", variant="mistral")``, or ``get("openai_chat:mistral")``.

The table names each wire and the module that holds it, as ``WIRE``, and its variants, as ``WITH_VARIANTS``. A module is
imported when its wire is asked for first, so that a program pays for the wires it speaks.

Stability: experimental.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from palaver.core.errors import UnknownNameError
from palaver.core.type_checks import check_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.wires._engine.wire import Wire

_WIRES: Final = {
    "openai_chat": "palaver.wires.openai_chat",
    "openai_responses": "palaver.wires.openai_responses",
    "anthropic_messages": "palaver.wires.anthropic_messages",
    "google_generate": "palaver.wires.google_generate",
    "bedrock_converse": "palaver.wires.bedrock_converse",
    "cohere_chat": "palaver.wires.cohere_chat",
    "ollama_chat": "palaver.wires.ollama_chat",
}
_NO_VARIANTS: Final[Mapping[str, Wire]] = {}


def names() -> tuple[str, ...]:
    """Names of all wires."""
    return tuple(_WIRES)


def variants(name: str) -> tuple[str, ...]:
    """Names of the variants of a wire."""
    return tuple(_with_variant(name)) if name in _WIRES else ()


def get(name: str, variant: str | None = None) -> Wire:
    """Find a wire, with a variant where one is given. Raises ``UnknownNameError`` listing those that exist."""
    check_arguments("wires.get", get, locals(), UnknownNameError)
    base, _, suffix = name.partition(":")
    if base not in _WIRES:
        raise UnknownNameError.among(f"no wire {name!r}", _WIRES, base)
    chosen = variant or suffix
    if not chosen:
        wire: Wire = import_module(_WIRES[base]).WIRE
        return wire
    table = _with_variant(base)
    if chosen not in table:
        raise UnknownNameError.among(f"{base} has no variant {chosen!r}", table, chosen)
    return table[chosen]


def _with_variant(name: str) -> Mapping[str, Wire]:
    found: Mapping[str, Wire] = getattr(import_module(_WIRES[name]), "WITH_VARIANTS", _NO_VARIANTS)
    return found
