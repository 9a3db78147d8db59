"""The APIs that the gateway speaks, one module each. A module exports ``API``; this table joins them.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from palaver.gateway.apis import anthropic, bedrock, chat_completions, cohere, google, ollama, responses

if TYPE_CHECKING:
    from palaver.gateway.client_api import ClientApi

APIS: Final[tuple[ClientApi, ...]] = (
    chat_completions.API,
    responses.API,
    anthropic.API,
    google.API,
    bedrock.API,
    cohere.API,
    ollama.API,
)
API_OF: Final = {api.wire: api for api in APIS}
"""The row of each wire."""
