"""Amazon Bedrock's Converse.

A client sends its key as a bearer token (``AWS_BEARER_TOKEN_BEDROCK``), which AWS's own clients do over TLS only. One
that signs its requests instead (Signature Version 4) has the key as its access key id; the signature is not checked.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from palaver.gateway.client_api import BEARER, ApiError, Call, ClientApi, Count, ErrorKind, KeyPlace, ReasoningForm

_TYPES: Final[Mapping[ErrorKind, str]] = {
    "invalid": "ValidationException",
    "overflow": "ValidationException",
    "authentication": "UnrecognizedClientException",
    "forbidden": "AccessDeniedException",
    "not_found": "ResourceNotFoundException",
    "no_path": "UnknownOperationException",
    "too_large": "ValidationException",
    "rate_limit": "ThrottlingException",
    "quota": "ThrottlingException",
    "overloaded": "ServiceUnavailableException",
    "timeout": "ModelTimeoutException",
    "server": "InternalServerException",
}
_IN_STREAMS: Final[Mapping[ErrorKind, str]] = {
    "invalid": "validationException",
    "overflow": "validationException",
    "too_large": "validationException",
    "rate_limit": "throttlingException",
    "quota": "throttlingException",
    "overloaded": "serviceUnavailableException",
    "server": "internalServerException",
}
"""https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html"""
_OVERFLOW: Final = "Input is too long for requested model"


def write_error(error: ApiError) -> tuple[Any, Mapping[str, str]]:
    """https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html#API_runtime_Converse_Errors."""
    return {"message": error.in_words(_OVERFLOW)}, {"x-amzn-errortype": _TYPES[error.kind]}


def write_count(count: int) -> Any:
    """https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CountTokens.html."""
    return {"inputTokens": count}


API: Final = ClientApi(
    wire="bedrock_converse",
    provider_name="bedrock",
    calls=(
        Call("/model/{model:path}/converse", stream=False),
        Call("/model/{model:path}/converse-stream", stream=True),
    ),
    stream_type="application/vnd.amazon.eventstream",
    keys=(BEARER, KeyPlace("authorization", "AWS4-HMAC-SHA256 Credential=", end="/")),
    output_bounds=("inferenceConfig.maxTokens",),
    response_headers=("x-amzn-",),
    event_end=None,
    idle_event=None,
    write_error=write_error,
    overflow=_OVERFLOW,
    stream_codes=_IN_STREAMS,
    below=re.compile("/model/"),
    reasoning=ReasoningForm(proof="signature", alone="encrypted"),
    counts=(Count("/model/{model:path}/count-tokens", write_count, inside=("input", "converse")),),
    page="https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
)
