"""Check bodies against the official SDKs' own types: a second opinion beside the provider rules.

- `accepts_request(wire, body)` and `accepts_response(wire, body)` return nothing, or raise
  `MismatchError` with the paths where the types of the wire's official client do not fit.
- Unknown keys are allowed everywhere, and only the types of known ones are checked. Unions of the
  SDKs are closed lists: a block type younger than the SDK does not fit.
- openai, anthropic, google-genai, cohere and ollama are checked through pydantic, in strict mode
  where their types allow it; bedrock through botocore's service model (its validator for requests,
  its response parser and then the validator for replies).

Variants deviate from their wire's home SDK; `VARIANTS_APART` names where recorded traffic does.
"""

import base64
import binascii
import inspect
import json
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Union, get_type_hints

import botocore.parsers
import botocore.session
import botocore.validate
import ollama
from anthropic.types import Message, message_create_params
from anthropic.types.beta import BetaMessage, message_create_params as beta_message_create_params
from cohere.v2.client import V2Client
from cohere.v2.types import V2ChatResponse
from google.genai import types as genai
from ollama._types import ChatRequest
from openai.types.chat import ChatCompletion, completion_create_params
from openai.types.responses import Response, response_create_params
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from palaver.testing.tables import row

Body = dict[str, Any]

# Wire, variant (as `rules.variant_of` names it) and direction of recorded traffic that the home SDK's types do not
# describe, and the part that they do not know.
VARIANTS_APART = {
    (
        "openai_chat",
        "mistral",
        "request",
    ): "untyped tools, tool_choice any, document_url, thinking",
    (
        "openai_chat",
        "mistral",
        "response",
    ): "tool calls without type, content as a list with thinking",
    ("openai_chat", "huggingface", "request"): "explicit nulls: name, tool_calls, image_url",
    ("openai_chat", "openrouter", "request"): "gateway tools: openrouter:web_search",
    ("openai_chat", "openrouter", "response"): "service_tier standard, file annotations",
    ("openai_chat", "groq", "response"): "service_tier on_demand",
    ("openai_chat", "snowflake", "response"): "finish_reason and service_tier are empty strings",
}


class MismatchError(AssertionError):
    """The SDK's types do not describe the body."""


def accepts_request(wire: str, body: Body) -> None:
    """Raise `MismatchError` when the wire's SDK has no type for this request."""
    row(REQUESTS, wire, "REQUESTS in tests/sdk_shapes.py")(body)


def accepts_response(wire: str, body: Body) -> None:
    """Raise `MismatchError` when the wire's SDK has no type for this reply."""
    row(RESPONSES, wire, "RESPONSES in tests/sdk_shapes.py")(body)


# --- pydantic ---------------------------------------------------------------------------------


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return TypeAdapter(kind)
    return TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True))


# A field that the SDK requires since a version younger than the recordings.
_YOUNG_FIELDS = {"cache_write_tokens"}


def _is_told(error: Any) -> bool:
    match error["type"]:
        case "extra_forbidden":
            return False
        case "missing":
            return error["loc"][-1] not in _YOUNG_FIELDS
        case "datetime_parsing" | "datetime_type":
            # Google sends nanoseconds, which pydantic reads in lax mode only.
            return not isinstance(error["input"], str)
        case _:
            return True


def _report(errors: list[Any]) -> None:
    """Raise unless every error is one of those that `_is_told` leaves out."""
    told = [error for error in errors if _is_told(error)]
    if told:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in told[:8]]
        raise MismatchError("\n".join(lines))


def _consume(value: object) -> None:
    """Walk a validated value: pydantic checks an `Iterable` field only while it is iterated."""
    if isinstance(value, dict):
        for item in value.values():
            _consume(item)
    elif isinstance(value, list | tuple) or type(value).__name__ == "ValidatorIterator":
        for item in value:
            _consume(item)


def _fits(kind: Any, value: object) -> None:
    try:
        _consume(_adapter(kind).validate_python(value, strict=True))
    except ValidationError as error:
        _report(error.errors())


def _fits_json(kind: Any, value: object) -> None:
    """Check in JSON mode, where base64 text is bytes and dates are text."""
    try:
        with warnings.catch_warnings():
            # google-genai warns of a value that is newer than its list, and accepts it.
            warnings.simplefilter("ignore", UserWarning)
            _adapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        _report(error.errors())
    except AttributeError as error:
        # google-genai's enums assume that a value is a string.
        raise MismatchError(str(error)) from error


def _first_fit(*checks: Callable[[], None]) -> None:
    """Accept what any of the checks accepts; report the first one's mismatch."""
    first: MismatchError | None = None
    for check in checks:
        try:
            check()
        except MismatchError as mismatch:
            first = first or mismatch
        else:
            return
    if first:
        raise first


# --- one pair for each wire -------------------------------------------------------------------


def _chat_request(body: Body) -> None:
    _fits(completion_create_params.CompletionCreateParams, body)


def _chat_response(body: Body) -> None:
    _fits(ChatCompletion, body)


def _responses_request(body: Body) -> None:
    _fits(response_create_params.ResponseCreateParams, body)


def _responses_response(body: Body) -> None:
    _fits(Response, body)


def _anthropic_request(body: Body) -> None:
    _first_fit(
        lambda: _fits(beta_message_create_params.MessageCreateParams, body),
        lambda: _fits(message_create_params.MessageCreateParams, body),
    )


def _anthropic_response(body: Body) -> None:
    # Dates are text in JSON, so these models are read in JSON mode.
    _first_fit(lambda: _fits_json(BetaMessage, body), lambda: _fits_json(Message, body))


_GOOGLE_FIELDS: dict[str, Any] = {
    "contents": list[genai.Content],
    "systemInstruction": genai.Content,
    "tools": Union[list[genai.Tool], genai.Tool],  # noqa: UP007 - a list in a union of models
    "toolConfig": genai.ToolConfig,
    "generationConfig": genai.GenerationConfig,
    "safetySettings": list[genai.SafetySetting],
    "cachedContent": str,
}


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def _google_request(body: Body) -> None:
    for name, value in body.items():
        if _camel(name) in _GOOGLE_FIELDS:
            _fits_json(_GOOGLE_FIELDS[_camel(name)], value)


def _google_response(body: Body) -> None:
    _fits_json(genai.GenerateContentResponse, body)


@cache
def _cohere_fields() -> dict[str, Any]:
    hints = get_type_hints(V2Client.chat)
    return {name: kind for name, kind in hints.items() if name not in {"return", "request_options"}}


def _cohere_request(body: Body) -> None:
    for name, kind in _cohere_fields().items():
        if name in body:
            _fits(kind, body[name])
    for name in ("model", "messages"):
        if name not in body:
            raise MismatchError(f"{name}: Field required")


def _cohere_response(body: Body) -> None:
    _fits(V2ChatResponse, body)


def _ollama_request(body: Body) -> None:
    # The request's own type takes any mapping as a message.
    _fits_json(ChatRequest, body)
    _fits_json(list[ollama.Message], _with_images_wrapped(body.get("messages")))


def _with_images_wrapped(messages: Any) -> Any:
    """Return messages with each image as the SDK's model holds it; on the wire it is its base64."""
    if not isinstance(messages, list):
        return messages
    return [
        {**message, "images": [{"value": image} for image in message["images"]]}
        if isinstance(message, dict) and isinstance(message.get("images"), list)
        else message
        for message in messages
    ]


def _ollama_response(body: Body) -> None:
    _fits_json(ollama.ChatResponse, body)


# --- bedrock ----------------------------------------------------------------------------------

_UNKNOWN = object()


@cache
def _converse() -> Any:
    model = botocore.session.get_session().get_service_model("bedrock-runtime")
    return model.operation_model("Converse")


def _known(value: Any, shape: Any) -> Any:
    """Return the parts of a JSON value that the service model knows, binary fields decoded.

    A union whose only key is unknown is `_UNKNOWN`, and left out of its list.
    """
    if shape.type_name == "structure" and isinstance(value, dict):
        if getattr(shape, "is_document_type", False):
            return value
        members = {key: _known(item, shape.members[key]) for key, item in value.items() if key in shape.members}
        members = {key: item for key, item in members.items() if item is not _UNKNOWN}
        return _UNKNOWN if value and not members and shape.is_tagged_union else members
    if shape.type_name == "list" and isinstance(value, list):
        items = [_known(item, shape.member) for item in value]
        return [item for item in items if item is not _UNKNOWN]
    if shape.type_name == "map" and isinstance(value, dict):
        return {key: _known(item, shape.value) for key, item in value.items()}
    if shape.type_name == "blob" and isinstance(value, str):
        return _decoded(value)
    return value


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise MismatchError(f"not base64: {error}") from error


def _validate(value: Any, shape: Any) -> None:
    report = botocore.validate.ParamValidator().validate(value, shape)
    if report.has_errors():
        raise MismatchError(report.generate_report())


def _bedrock_request(body: Body) -> None:
    shape = _converse().input_shape
    _validate({"modelId": "m", **_known(body, shape)}, shape)


def _bedrock_response(body: Body) -> None:
    shape = _converse().output_shape
    parser = botocore.parsers.create_parser("rest-json")
    reply = {"status_code": 200, "headers": {}, "body": json.dumps(body).encode()}
    parser.parse(reply, shape)
    _validate(_known(body, shape), shape)


REQUESTS: dict[str, Callable[[Body], None]] = {
    "openai_chat": _chat_request,
    "openai_responses": _responses_request,
    "anthropic_messages": _anthropic_request,
    "google_generate": _google_request,
    "bedrock_converse": _bedrock_request,
    "cohere_chat": _cohere_request,
    "ollama_chat": _ollama_request,
}
RESPONSES: dict[str, Callable[[Body], None]] = {
    "openai_chat": _chat_response,
    "openai_responses": _responses_response,
    "anthropic_messages": _anthropic_response,
    "google_generate": _google_response,
    "bedrock_converse": _bedrock_response,
    "cohere_chat": _cohere_response,
    "ollama_chat": _ollama_response,
}
