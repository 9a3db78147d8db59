"""Anthropic's Messages, also at the paths of Vertex.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from palaver.gateway.client_api import (
    BEARER,
    Additions,
    ApiError,
    Call,
    ClientApi,
    Count,
    ErrorKind,
    KeyPlace,
    Listing,
    Lookup,
    ReasoningForm,
    ServerTool,
)

_TYPES: Final[Mapping[ErrorKind, str]] = {
    "invalid": "invalid_request_error",
    "overflow": "invalid_request_error",
    "authentication": "authentication_error",
    "forbidden": "permission_error",
    "not_found": "not_found_error",
    "no_path": "not_found_error",
    "too_large": "request_too_large",
    "rate_limit": "rate_limit_error",
    "quota": "billing_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
    "server": "api_error",
}
_OVERFLOW: Final = "prompt is too long"
_VERTEX: Final = "/v1/projects/{project}/locations/{location}/publishers/anthropic/models/{model:path}"


def write_error(error: ApiError) -> tuple[Any, Mapping[str, str]]:
    """https://platform.claude.com/docs/en/api/errors."""
    return {"type": "error", "error": {"type": _TYPES[error.kind], "message": error.in_words(_OVERFLOW)}}, {}


def write_model(name: str) -> Any:
    """https://platform.claude.com/docs/en/api/models/retrieve."""
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def write_count(count: int) -> Any:
    """https://platform.claude.com/docs/en/api/messages/count_tokens."""
    return {"input_tokens": count}


def write_models(names: Sequence[str]) -> Any:
    """https://platform.claude.com/docs/en/api/models/list."""
    made = [write_model(each) for each in names]
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
    return {"data": made, "has_more": False, **ends}


API: Final = ClientApi(
    wire="anthropic_messages",
    provider_name="anthropic",
    answer_id="msg_",
    calls=(
        Call("/v1/messages"),
        Call(f"{_VERTEX}:rawPredict", stream=False),
        Call(f"{_VERTEX}:streamRawPredict", stream=True),
    ),
    keys=(KeyPlace("x-api-key"), BEARER),
    output_bounds=("max_tokens",),
    host_fields=("anthropic_version",),  # https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai
    request_headers=("anthropic-",),
    response_headers=("anthropic-", "request-id"),
    session_fields=("metadata.user_id",),
    idle_event=b'event: ping\ndata: {"type": "ping"}\n\n',
    write_error=write_error,
    overflow=_OVERFLOW,
    stream_codes=_TYPES,
    below=re.compile(r"/v1/messages(?:/|$)|/publishers/anthropic/"),
    listings=(Listing("/v1/models", write_models, header="anthropic-version"),),
    reasoning=ReasoningForm(proof="signature", alone="encrypted"),
    additions=Additions(
        # Newer models answer without the text of their thinking, unless it is asked for:
        # https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking
        thinking={"@anthropic_messages": {"thinking": {"display": "summarized"}}},
        max_tokens=True,
    ),
    server_tools={
        # https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool
        "web search": ServerTool(re.compile(r"web_search_\d+"), {"type": "web_search_20250305", "name": "web_search"}),
        "running code": ServerTool(re.compile(r"code_execution_\d+")),  # it needs a beta header besides
    },
    server_fields={"mcp_servers": ""},
    lookups=(Lookup("/v1/models/{model:path}", write_model, header="anthropic-version"),),
    counts=(Count("/v1/messages/count_tokens", write_count),),
    page="https://platform.claude.com/docs/en/api/messages",
)
