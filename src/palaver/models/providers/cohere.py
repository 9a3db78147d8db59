"""Cohere: the v2 chat wire.

Stability: experimental.
"""

from typing import Final

from palaver.models.providers.row import Provider, endpoint_for

ROWS: Final = (
    Provider(
        name="cohere",
        base="https://api.cohere.com",
        endpoints=(endpoint_for("cohere", "cohere_chat"),),
        keys=("CO_API_KEY", "COHERE_API_KEY"),
        bases=("CO_API_URL",),
        page="https://docs.cohere.com/reference/chat",
    ),
)
