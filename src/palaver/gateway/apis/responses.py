"""OpenAI's Responses, also at the paths of Azure.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Any, Final

from palaver.gateway.apis.chat_completions import BELOW, STREAM_CODES, write_error
from palaver.gateway.client_api import BEARER, Additions, Call, ClientApi, Count, KeyPlace, ReasoningForm, ServerTool


def write_count(count: int) -> Any:
    """https://platform.openai.com/docs/api-reference/responses/input-tokens."""
    return {"object": "response.input_tokens", "input_tokens": count}


_PATHS: Final = ("/v1/responses", "/responses", "/openai/v1/responses", "/openai/responses")
_REPEATED: Final = frozenset(
    {
        "background",
        "completed_at",
        "created_at",
        "frequency_penalty",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "parallel_tool_calls",
        "presence_penalty",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
"""https://platform.openai.com/docs/api-reference/responses/object"""
API: Final = ClientApi(
    wire="openai_responses",
    provider_name="openai",
    answer_id="resp_",
    calls=tuple(Call(path) for path in _PATHS),
    keys=(BEARER, KeyPlace("api-key")),
    output_bounds=("max_output_tokens",),
    echoes=(
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "reasoning",
        "safety_identifier",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    ),
    own_only=("background",),
    request_headers=("openai-", "session_id", "originator"),
    response_headers=("openai-", "x-request-id", "x-ratelimit-"),
    session_headers=("session_id",),
    session_fields=("prompt_cache_key", "user"),
    unmissed=_REPEATED,
    write_error=write_error,
    stream_codes=STREAM_CODES,
    below=re.compile(rf"{BELOW}/(?:responses|conversations)(?:/|$)"),
    reasoning=ReasoningForm(proof="encrypted", alone="encrypted"),
    additions=Additions(
        # Nothing is stored there, so reasoning comes back encrypted:
        # https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items
        always={"openai_responses": {"store": False}},
        reasons={"openai_responses": {"include": ["reasoning.encrypted_content"]}},
        thinking={"openai_responses": {"reasoning": {"summary": "auto"}}},
    ),
    server_tools={  # https://platform.openai.com/docs/guides/tools-web-search, …/tools-code-interpreter
        "web search": ServerTool(re.compile(r"web_search(?:_preview)?(?:_[\d_]+)?"), {"type": "web_search"}),
        "running code": ServerTool(
            re.compile("code_interpreter"), {"type": "code_interpreter", "container": {"type": "auto"}}
        ),
    },
    counts=tuple(Count(f"{path}/input_tokens", write_count) for path in _PATHS),
    page="https://platform.openai.com/docs/api-reference/responses",
)
