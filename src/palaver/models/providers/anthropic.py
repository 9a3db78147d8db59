"""Anthropic: the Messages wire.

Stability: experimental.
"""

from typing import Final

from palaver.models.providers.row import Provider, key_in, speaking

ROWS: Final = (
    Provider(
        name="anthropic",
        base="https://api.anthropic.com",
        endpoints=(speaking("anthropic", "anthropic_messages"),),
        keys=("ANTHROPIC_API_KEY",),
        bases=("ANTHROPIC_BASE_URL",),
        credentials=key_in("x-api-key"),
        page="https://docs.anthropic.com/en/api/overview",
    ),
)
