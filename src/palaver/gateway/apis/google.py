"""Google's generateContent, of the Gemini API and of Vertex.

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

_STATUSES: Final[Mapping[ErrorKind, str]] = {
    "invalid": "INVALID_ARGUMENT",
    "overflow": "INVALID_ARGUMENT",
    "authentication": "UNAUTHENTICATED",
    "forbidden": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "no_path": "NOT_FOUND",
    "too_large": "INVALID_ARGUMENT",
    "rate_limit": "RESOURCE_EXHAUSTED",
    "quota": "RESOURCE_EXHAUSTED",
    "overloaded": "UNAVAILABLE",
    "timeout": "DEADLINE_EXCEEDED",
    "server": "INTERNAL",
}
_OVERFLOW: Final = "The input token count exceeds the maximum number of tokens allowed"
_MODELS: Final = (
    "/v1beta/models/{model:path}",
    "/v1/models/{model:path}",
    "/{version}/projects/{project}/locations/{location}/publishers/google/models/{model:path}",
)


def write_error(error: ApiError) -> tuple[Any, Mapping[str, str]]:
    """https://ai.google.dev/gemini-api/docs/troubleshooting and https://google.aip.dev/193."""
    message = error.in_words(_OVERFLOW)
    return {"error": {"code": error.status, "message": message, "status": _STATUSES[error.kind]}}, {}


def write_model(name: str) -> Any:
    """https://ai.google.dev/api/models#method:-models.get."""
    methods = ["generateContent", "countTokens"]
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}


def write_count(count: int) -> Any:
    """https://ai.google.dev/api/tokens."""
    return {"totalTokens": count}


def write_models(names: Sequence[str]) -> Any:
    """https://ai.google.dev/api/models#method:-models.list."""
    return {"models": [write_model(each) for each in names]}


API: Final = ClientApi(
    wire="google_generate",
    provider_name="google",
    answer_id="",
    calls=tuple(
        Call(f"{path}:{method}", stream=stream)
        for path in _MODELS
        for method, stream in (("generateContent", False), ("streamGenerateContent", True))
    ),
    events_parameter=("alt", "sse"),
    keys=(KeyPlace("x-goog-api-key"), BEARER),
    key_parameter="key",
    output_bounds=("generationConfig.maxOutputTokens",),
    choice_counts=("generationConfig.candidateCount",),
    request_headers=("x-goog-api-client", "x-server-timeout"),
    idle_event=None,  # Google's own clients take a comment for a piece of an answer (google-genai 3.4)
    unmissed=frozenset({"createTime"}),
    write_error=write_error,
    overflow=_OVERFLOW,
    stream_codes=_STATUSES,
    below=re.compile(r"/v1beta/|/publishers/google/"),
    listings=(Listing("/v1beta/models", write_models), Listing("/v1/models", write_models, header="x-goog-api-key")),
    reasoning=ReasoningForm(proof="signature", alone="signature", call_field="thoughtSignature"),
    additions=Additions(
        thinking={"google_generate": {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}}
    ),
    server_tools={  # https://ai.google.dev/gemini-api/docs/google-search, …/code-execution
        "web search": ServerTool(re.compile("googleSearch|google_search|googleSearchRetrieval"), {"googleSearch": {}}),
        "running code": ServerTool(re.compile("codeExecution|code_execution"), {"codeExecution": {}}),
    },
    lookups=(
        Lookup("/v1beta/models/{model:path}", write_model),
        Lookup("/v1/models/{model:path}", write_model, header="x-goog-api-key"),
    ),
    counts=tuple(Count(f"{path}:countTokens", write_count, inside=("generateContentRequest",)) for path in _MODELS),
    page="https://ai.google.dev/api/generate-content",
)
