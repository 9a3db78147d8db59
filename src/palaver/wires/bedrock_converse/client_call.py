"""The call of the official client: ``client.converse`` of boto3.

Source: the signature in botocore 1.44, the shape of ``Converse``; a test holds the table against what is installed.

Stability: experimental.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Final, cast

from palaver.wires._engine.client_call import ClientCall, words

# -- bytes -----------------------------------------------------------------------------------------

_SPOKEN: Final = frozenset({"messages", "system"})
_FREE: Final = frozenset({"json", "input", "additionalModelRequestFields"})
"""Values of the application and of models, whatever their keys are."""
_BLOBS: Final = frozenset({"bytes", "redactedContent"})


def _argument(name: str, value: Any) -> Any:
    """The value of an argument: boto3 takes bytes where the body has base64."""
    return _with_bytes(value) if name in _SPOKEN else value


def _with_bytes(value: Any) -> Any:
    match value:
        case list():
            return [_with_bytes(each) for each in cast("list[object]", value)]
        case dict():
            return {key: _blob(key, each) for key, each in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _blob(key: str, value: Any) -> Any:
    if key in _BLOBS and isinstance(value, str):
        return b64decode(value)
    return value if key in _FREE else _with_bytes(value)


CALL: Final = ClientCall(
    arguments=words(
        "modelId messages system inferenceConfig toolConfig guardrailConfig additionalModelRequestFields "
        "promptVariables additionalModelResponseFieldPaths requestMetadata performanceConfig serviceTier outputConfig"
    ),
    model="modelId",
    unsaid=words("stream"),
    convert=_argument,
)
