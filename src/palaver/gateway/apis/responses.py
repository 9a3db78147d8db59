"""OpenAI's Responses, also at the paths of Azure.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.gateway.apis.chat_completions import write_error
from palaver.gateway.client_api import BEARER, Call, ClientApi, KeyPlace

API: Final = ClientApi(
    wire="openai_responses",
    provider_name="openai",
    calls=(Call("/v1/responses"), Call("/responses"), Call("/openai/v1/responses"), Call("/openai/responses")),
    keys=(BEARER, KeyPlace("api-key")),
    request_headers=("openai-", "session_id", "originator"),
    response_headers=("openai-", "x-request-id", "x-ratelimit-"),
    session_headers=("session_id",),
    session_fields=("prompt_cache_key", "user"),
    write_error=write_error,
    page="https://platform.openai.com/docs/api-reference/responses",
)
