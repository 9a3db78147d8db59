"""Every provider that ``model("provider/id")`` knows, as one table.

A family of providers is a module that exports ``ROWS``; the table below joins them, in the order in which they are
listed to people.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.core.errors import UnknownNameError
from palaver.models.providers import anthropic, aws, azure, cohere, compatible, google, ollama, openai, vertex
from palaver.models.providers.row import AddressVariable, Provider, endpoint_for, key_in

__all__ = ["PROVIDERS", "AddressVariable", "Provider", "endpoint_for", "find", "key_in", "names"]

PROVIDERS: Final[dict[str, Provider]] = {
    row.name: row
    for row in (
        *openai.ROWS,
        *anthropic.ROWS,
        *google.ROWS,
        *aws.ROWS,
        *vertex.ROWS,
        *azure.ROWS,
        *cohere.ROWS,
        *ollama.ROWS,
        *compatible.ROWS,
    )
}


def names() -> tuple[str, ...]:
    """Names of all providers."""
    return tuple(PROVIDERS)


def find(name: str) -> Provider:
    """The row of a provider. Raises ``UnknownNameError`` listing those that exist."""
    if name not in PROVIDERS:
        raise UnknownNameError.among(f"no provider {name!r}", PROVIDERS, name)
    return PROVIDERS[name]
