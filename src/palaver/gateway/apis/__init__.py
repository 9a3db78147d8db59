"""The APIs that the gateway speaks, one module each. A module exports ``API``; this table joins them.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from palaver.gateway.apis import anthropic, bedrock, chat_completions, cohere, google, ollama, responses

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def api_at(path: str, headers: Mapping[str, str]) -> ClientApi:
    """Return the API of a path that there is not: of the client that sends such headers, else the one it lies below."""
    sent = (api for api in APIS for each in api.listings if each.header and each.header in headers)
    below = (api for api in APIS if api.below is not None and api.below.search(path))
    return next(sent, None) or next(below, APIS[0])
