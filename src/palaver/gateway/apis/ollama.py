"""Ollama's chat, which streams unless it is asked not to.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from palaver.gateway.client_api import ApiError, Call, ClientApi, Listing, Lookup

_OVERFLOW: Final = "the input length exceeds the context length"


def write_error(error: ApiError) -> tuple[Any, Mapping[str, str]]:
    """https://docs.ollama.com/api/errors."""
    return {"error": error.in_words(_OVERFLOW)}, {}


def write_model(name: str) -> Any:
    """https://docs.ollama.com/api-reference/show-model-details."""
    about: dict[str, Any] = {"details": {}, "model_info": {"general.basename": name}}
    return {"modelfile": "", "parameters": "", "template": "", **about, "capabilities": ["completion", "tools"]}


def write_models(names: Sequence[str]) -> Any:
    """https://docs.ollama.com/api/tags."""
    about: dict[str, Any] = {"modified_at": "1970-01-01T00:00:00Z", "size": 0, "digest": "", "details": {}}
    return {"models": [{"name": each, "model": each, **about} for each in names]}


API: Final = ClientApi(
    wire="ollama_chat",
    provider_name="ollama",
    calls=(Call("/api/chat"),),
    stream_type="application/x-ndjson",
    streams_by_default=True,
    output_bounds=("options.num_predict",),
    event_end=re.compile(rb"\n\Z"),
    idle_event=None,
    write_error=write_error,
    overflow=_OVERFLOW,
    below=re.compile("/api/"),
    listings=(Listing("/api/tags", write_models),),
    lookups=(Lookup("/api/show", write_model, method="POST"),),
    fixed={"/api/version": {"version": "0.12.0"}},  # clients ask whether it is new enough for tools
    page="https://docs.ollama.com/api/chat",
)
