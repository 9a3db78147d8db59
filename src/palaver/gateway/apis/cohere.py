"""Cohere's Chat, version 2.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from palaver.gateway.client_api import ApiError, Call, ClientApi, Listing, Lookup

_OVERFLOW: Final = "too many tokens"


def write_error(error: ApiError) -> tuple[Any, Mapping[str, str]]:
    """https://docs.cohere.com/reference/errors."""
    return {"message": error.in_words(_OVERFLOW)}, {}


def write_model(name: str) -> Any:
    """https://docs.cohere.com/reference/get-model."""
    return {"name": name, "endpoints": ["chat"], "finetuned": False}


def write_models(names: Sequence[str]) -> Any:
    """https://docs.cohere.com/reference/list-models."""
    return {"models": [write_model(each) for each in names]}


API: Final = ClientApi(
    wire="cohere_chat",
    provider_name="cohere",
    answer_id="",
    calls=(Call("/v2/chat"),),
    output_bounds=("max_tokens",),
    request_headers=("x-client-name",),
    write_error=write_error,
    overflow=_OVERFLOW,
    below=re.compile("/v2/"),
    listings=(Listing("/v1/models", write_models, header="x-fern-language"),),
    lookups=(Lookup("/v1/models/{model:path}", write_model, header="x-fern-language"),),
    page="https://docs.cohere.com/reference/chat",
)
