"""The wires: every provider format that Palaver reads and writes.

``get(name)`` finds one, ``names()`` lists them. A vendor that speaks a wire with a variant is found by
``get("openai_chat", variant="mistral")``, or ``get("openai_chat:mistral")``.

The table names each wire and the module that holds it, as ``WIRE``, and its variants, as ``WITH_VARIANTS``. A module is
imported at the first use of its wire, so that a program loads only the wires it uses.

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
ALIASES: Final = {
    "openai": "openai_chat",
    "chat": "openai_chat",
    "responses": "openai_responses",
    "anthropic": "anthropic_messages",
    "google": "google_generate",
    "gemini": "google_generate",
    "bedrock": "bedrock_converse",
    "cohere": "cohere_chat",
    "ollama": "ollama_chat",
}
"""Short names, and the wires that they stand for."""
_NO_VARIANTS: Final[Mapping[str, Wire]] = {}
_found: Final[dict[tuple[str, str | None], Wire]] = {}
"""The wires that were asked for."""


def names() -> tuple[str, ...]:
    """Names of all wires."""
    return tuple(_WIRES)


def full_name(name: str) -> str:
    """Return the full name of a wire for ``name``, which may be an alias, or have a variant or hyphens.

    A name that is unknown is returned as it is.
    """
    base, colon, variant = name.partition(":")
    plain = base.replace("-", "_")
    known = ALIASES.get(plain, plain)
    return f"{known}{colon}{variant}" if known in _WIRES else name


def variants(name: str) -> tuple[str, ...]:
    """Names of the variants of a wire."""
    name = full_name(name)
    return tuple(_with_variant(name)) if name in _WIRES else ()


def get(name: str, variant: str | None = None) -> Wire:
    """Find a wire, with a variant where one is given.

    ``name`` is a name of ``names()`` or ``ALIASES``, and may hold a variant: ``openai_chat:mistral``. ``variant`` is
    one of ``variants(name)``. Raises ``UnknownNameError`` listing those that exist.
    """
    hashable = type(name) is str and (variant is None or type(variant) is str)
    if hashable and (known := _found.get((name, variant))) is not None:
        return known
    check_arguments("wires.get", get, locals(), UnknownNameError)
    found = _found[name, variant] = _find(name, variant)
    return found


def _find(name: str, variant: str | None) -> Wire:
    base, _, suffix = full_name(name).partition(":")
    if base not in _WIRES:
        raise UnknownNameError.among(f"no wire {name!r}", _WIRES, base, aliases=ALIASES)
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
