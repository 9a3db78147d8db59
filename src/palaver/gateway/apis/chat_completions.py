"""OpenAI's Chat Completions, as many servers speak it, also at the paths of Azure.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from palaver.gateway.client_api import (
    BEARER,
    ApiError,
    Call,
    ClientApi,
    ErrorKind,
    KeyPlace,
    Listing,
    Lookup,
    ReasoningForm,
)

_TYPES: Final[Mapping[ErrorKind, tuple[str, str | None]]] = {
    "invalid": ("invalid_request_error", None),
    "overflow": ("invalid_request_error", "context_length_exceeded"),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "forbidden": ("invalid_request_error", "permission_denied"),
    "not_found": ("invalid_request_error", "model_not_found"),
    "no_path": ("invalid_request_error", None),
    "too_large": ("invalid_request_error", "request_too_large"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "quota": ("insufficient_quota", "insufficient_quota"),
    "overloaded": ("server_error", "server_is_overloaded"),
    "timeout": ("server_error", "timeout"),
    "server": ("server_error", None),
}

_OWN: Final = frozenset({None, "openai_chat", "openai_responses"})
"""Whose words are those of OpenAI: its own wires', and the gateway's."""
STREAM_CODES: Final[Mapping[ErrorKind, str]] = {kind: code or name for kind, (name, code) in _TYPES.items()}
BELOW: Final = r"(?:/openai)?(?:/v1)?"


def write_error(error: ApiError) -> tuple[Any, Mapping[str, str]]:
    """https://platform.openai.com/docs/guides/error-codes."""
    kind, code = _TYPES[error.kind]
    own = error.code if error.wire in _OWN and error.kind != "overflow" else None
    return {"error": {"message": error.message, "type": kind, "param": error.field, "code": own or code}}, {}


def write_model(name: str) -> Any:
    """https://platform.openai.com/docs/api-reference/models/retrieve."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "palaver"}


def write_models(names: Sequence[str]) -> Any:
    """https://platform.openai.com/docs/api-reference/models/list."""
    return {"object": "list", "data": [write_model(each) for each in names]}


API: Final = ClientApi(
    wire="openai_chat",
    provider_name="openai",
    answer_id="chatcmpl-",
    calls=(
        Call("/v1/chat/completions"),
        Call("/chat/completions"),
        Call("/openai/v1/chat/completions"),
        Call("/openai/deployments/{model:path}/chat/completions"),
    ),
    keys=(BEARER, KeyPlace("api-key")),
    output_bounds=("max_completion_tokens", "max_tokens"),
    choice_counts=("n",),
    usage_field="stream_options.include_usage",
    request_headers=("openai-",),
    response_headers=("openai-", "x-request-id", "x-ratelimit-"),
    session_headers=("session_id",),
    session_fields=("prompt_cache_key", "user"),
    unmissed=frozenset({"service_tier", "system_fingerprint"}),
    write_error=write_error,
    stream_codes=STREAM_CODES,
    below=re.compile(rf"{BELOW}/chat/|/openai/"),
    listings=(Listing("/v1/models", write_models), Listing("/models", write_models)),
    # The name of DeepSeek's API, which vLLM took over: the API itself has none.
    reasoning=ReasoningForm(provider={"@openai_chat": {"field": "reasoning_content"}}),
    server_fields={"web_search_options": "web search", "plugins": ""},  # https://openrouter.ai/docs/features/web-search
    lookups=(Lookup("/v1/models/{model:path}", write_model), Lookup("/models/{model:path}", write_model)),
    page="https://platform.openai.com/docs/api-reference/chat",
)
