"""The call of an official client that sends a request body, as a table.

Rules:

- The fields of a body are the keyword arguments of the call. A field that the call has no argument for goes where the
  client takes further fields (``extra_body``); where it takes none, it stays an argument, and the client refuses it.
- google-genai takes the settings in one ``config``; boto3 names the model ``modelId`` and takes bytes, not base64.
- What is said by the choice of the method (``stream``, with google-genai, cohere and boto3) is left out.

Source: the signatures of openai 3.52, anthropic 2.11, google-genai 3.4, cohere 7.3, ollama 0.6 and botocore 1.44; a
test holds the table against what is installed.

Stability: experimental.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import Struct


class ClientCall(Struct, frozen=True, kw_only=True):
    """One call of a client.

    ``arguments`` are those that are fields of the body. ``extra`` is the path to where the others go. ``config`` names
    the argument that holds all but ``arguments``; ``flattened`` the field of the body whose fields stand in it as such.
    ``model`` is what the model is called where the body does not name it. ``unsaid`` are fields that the method says.
    ``blobs`` says that bytes are bytes.
    """

    arguments: frozenset[str]
    extra: tuple[str, ...] = ()
    config: str | None = None
    flattened: str | None = None
    model: str = "model"
    unsaid: frozenset[str] = frozenset()
    blobs: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GOOGLE_CONFIG: Final = _words(
    "audioTimestamp audioTranscriptionConfig cachedContent candidateCount enableEnhancedCivicAnswers frequencyPenalty "
    "imageConfig labels logprobs maxOutputTokens mediaResolution modelArmorConfig modelSelectionConfig presencePenalty "
    "responseJsonSchema responseLogprobs responseMimeType responseModalities responseSchema routingConfig "
    "safetySettings seed serviceTier speechConfig stopSequences store systemInstruction temperature thinkingConfig "
    "toolConfig tools topK topP"
)

CALLS: Final[dict[str, ClientCall]] = {
    "openai_chat": ClientCall(
        arguments=_words(
            "messages model audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens "
            "max_tokens metadata modalities n parallel_tool_calls prediction presence_penalty prompt_cache_key "
            "prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store "
            "stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options"
        ),
        extra=("extra_body",),
    ),
    "openai_responses": ClientCall(
        arguments=_words(
            "background context_management conversation include input instructions max_output_tokens max_tool_calls "
            "metadata model parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_retention "
            "reasoning safety_identifier service_tier store stream stream_options temperature text tool_choice tools "
            "top_logprobs top_p truncation user"
        ),
        extra=("extra_body",),
    ),
    "anthropic_messages": ClientCall(
        arguments=_words(
            "max_tokens messages model cache_control container inference_geo metadata output_config service_tier speed "
            "stop_sequences stream system thinking tool_choice tools"
        ),
        extra=("extra_body",),
    ),
    "google_generate": ClientCall(
        arguments=_words("model contents"),
        extra=("config", "httpOptions", "extraBody"),
        config="config",
        flattened="generationConfig",
        unsaid=_words("stream"),
    ),
    "bedrock_converse": ClientCall(
        arguments=_words(
            "modelId messages system inferenceConfig toolConfig guardrailConfig additionalModelRequestFields "
            "promptVariables additionalModelResponseFieldPaths requestMetadata performanceConfig serviceTier "
            "outputConfig"
        ),
        model="modelId",
        unsaid=_words("stream"),
        blobs=True,
    ),
    "cohere_chat": ClientCall(
        arguments=_words(
            "model messages tools strict_tools documents citation_options response_format safety_mode max_tokens "
            "stop_sequences temperature seed frequency_penalty presence_penalty k p logprobs tool_choice thinking "
            "priority"
        ),
        extra=("request_options", "additional_body_parameters"),
        unsaid=_words("stream"),
    ),
    "ollama_chat": ClientCall(
        arguments=_words("model messages tools stream think logprobs top_logprobs format options keep_alive")
    ),
}


def call_arguments(wire: str, fields: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    """The keyword arguments of the call that sends these fields. ``model`` is the request's."""
    call = CALLS[wire]
    made: dict[str, Any] = {}
    if model is not None and call.model in call.arguments:
        made[call.model] = model
    for name, value in fields.items():
        if name in call.unsaid:
            continue
        if name in call.arguments:
            made[name] = _with_bytes(value) if call.blobs and name in _SPOKEN else value
        elif call.config is None:
            _put(made, call.extra, name, value)
        else:
            inner = cast("dict[str, Any]", value) if name == call.flattened else {name: value}
            for key, each in inner.items():
                _put(made, (call.config,) if key in _GOOGLE_CONFIG else call.extra, key, each)
    return made


def _put(made: dict[str, Any], path: tuple[str, ...], name: str, value: Any) -> None:
    for step in path:
        made = made.setdefault(step, {})
    made[name] = value


# -- bytes -----------------------------------------------------------------------------------------

_SPOKEN: Final = frozenset({"messages", "system"})
_FREE: Final = frozenset({"json", "input", "additionalModelRequestFields"})
"""Values of the application and of models, whatever their keys are."""
_BLOBS: Final = frozenset({"bytes", "redactedContent"})


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
