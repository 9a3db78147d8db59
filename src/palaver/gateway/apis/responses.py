"""OpenAI's Responses, also at the paths of Azure.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.gateway.apis.chat_completions import write_error
from palaver.gateway.client_api import BEARER, Additions, Call, ClientApi, KeyPlace, ReasoningForm

API: Final = ClientApi(
    wire="openai_responses",
    provider_name="openai",
    calls=(Call("/v1/responses"), Call("/responses"), Call("/openai/v1/responses"), Call("/openai/responses")),
    keys=(BEARER, KeyPlace("api-key")),
    output_bounds=("max_output_tokens",),
    request_headers=("openai-", "session_id", "originator"),
    response_headers=("openai-", "x-request-id", "x-ratelimit-"),
    write_error=write_error,
    reasoning=ReasoningForm(proof="encrypted", alone="encrypted"),
    additions=Additions(
        # Nothing is stored there, so reasoning comes back encrypted:
        # https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items
        always={"openai_responses": {"store": False}},
        reasons={"openai_responses": {"include": ["reasoning.encrypted_content"]}},
        thinking={"openai_responses": {"reasoning": {"summary": "auto"}}},
    ),
    page="https://platform.openai.com/docs/api-reference/responses",
)
