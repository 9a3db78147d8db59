"""Validators of provider rules: would the provider take this body?

`check_request(wire, body, variant)` and `check_response(wire, body)` return violations, an empty
list for a body that the provider accepts as far as its own shape tells. One module a wire holds
that wire's rules and, in its docstring, where recorded traffic corrected them. They depend on
nothing but the standard library, so that they can judge the codecs.

`variant=None` means the wire's home provider (OpenAI for its two wires) or, where model families
differ (Bedrock, Google, Anthropic), what holds for a family that is not known. A variant nobody
wrote rules for has the rules that all variants share; `variant_of` finds the variant of a recorded
address.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final, Protocol

from palaver.testing.rules import (
    anthropic_messages,
    bedrock_converse,
    cohere_chat,
    google_generate,
    ollama_chat,
    openai_chat,
    openai_responses,
)
from palaver.testing.rules.variants import variant_of
from palaver.testing.rules.violation import Body, Violation
from palaver.testing.tables import row

__all__ = [
    "WIRES",
    "Body",
    "Violation",
    "WireRules",
    "check_request",
    "check_response",
    "variant_of",
]


class WireRules(Protocol):
    """What each wire's module offers.

    Stability: experimental.
    """

    def check_request(self, body: Body, variant: str | None = None) -> list[Violation]:
        """Return what the provider would refuse in a request."""
        ...

    def check_response(self, body: Body) -> list[Violation]:
        """Return where a reply is not what the provider sends."""
        ...


WIRES: dict[str, WireRules] = {
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "anthropic_messages": anthropic_messages,
    "google_generate": google_generate,
    "bedrock_converse": bedrock_converse,
    "cohere_chat": cohere_chat,
    "ollama_chat": ollama_chat,
}


_PLACE: Final = "WIRES in src/palaver/testing/rules/__init__.py"


def check_request(wire: str, body: Body, variant: str | None = None) -> list[Violation]:
    """Return what the provider would refuse in a request; `KeyError` for an unknown wire.

    Stability: experimental.
    """
    return row(WIRES, wire, _PLACE).check_request(body, variant)


def check_response(wire: str, body: Body) -> list[Violation]:
    """Return where a reply is not what the provider sends; `KeyError` for an unknown wire.

    Stability: experimental.
    """
    return row(WIRES, wire, _PLACE).check_response(body)
