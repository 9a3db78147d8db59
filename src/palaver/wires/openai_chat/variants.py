"""Vendors that speak Chat Completions with a variant, as rows of a table (docs/spec/wires.md#2.9).

Rules:

- A row changes ``WireCapabilities`` and the few words that differ. The codec reads rows; it never asks for a name or
  a URL.
- Reasoning that a vendor wrote goes back in the field that the vendor reads. The base wire has no such field: reasoning
  that was read from one goes back where it stood, any other is dropped with a loss.
- A row has what a vendor is known to refuse; the rest is as on the base wire. ``compatible`` is a server
  of which nothing is known: it gets what every vendor takes.

Stability: experimental.
"""

from __future__ import annotations

import re
from math import inf
from typing import Final, Literal

from msgspec import Raw, Struct, structs

from palaver.core.parts import Json, Text
from palaver.wires._engine.cache_marks import Marking
from palaver.wires._engine.capabilities import IdRule, MediaRule, MetadataRule, WireCapabilities
from palaver.wires.openai_chat.shapes import AUDIO_WORDS, DETAILS, REASONING, WIRE

_IMAGE: Final = MediaRule(
    frozenset({"inline", "url"}), frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
)
_AUDIO: Final = MediaRule(frozenset({"inline"}), frozenset(AUDIO_WORDS), needs_type=True)
_FILE: Final = MediaRule(frozenset({"inline", "file_id"}), needs_type="inline")
_LINKED: Final = MediaRule(frozenset({"inline", "url"}))

_MARKS: Final = Marking(
    wire=WIRE,
    name="cache_control",
    value=Raw(b'{"type":"ephemeral"}'),
    carriers=(Text, Json),
    models=re.compile(r"^(anthropic|google)/"),
)
"""https://openrouter.ai/docs/features/prompt-caching: on text parts; other models keep prefixes by themselves."""

_SHARED: Final = frozenset({"logit_bias", "logprobs", "n", "stream_options", "top_logprobs", "user"})
"""Fields of a request that servers took over from OpenAI, but for those whose documents do not name them."""
_OPENAI: Final = _SHARED | {
    "audio",
    "function_call",
    "functions",
    "metadata",
    "modalities",
    "prediction",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "store",
    "verbosity",
    "web_search_options",
}
"""https://platform.openai.com/docs/api-reference/chat/create"""

CAPABILITIES: Final = WireCapabilities(
    needed_counters=(("input", "cache_read", "cache_write"), ("output", "reasoning")),
    own_blocks=frozenset({"opaque block"}),
    cache_key="prompt_cache_key",
    answer_fields=frozenset({"name"}),
    request_fields=_OPENAI,
    says=frozenset({"audio"}),
    choices=True,
    has_time=True,
    ranges={
        "max_tokens": (1, inf),
        "temperature": (0, 2),
        "top_p": (0, 1),
        "frequency_penalty": (-2, 2),
        "presence_penalty": (-2, 2),
    },
    stops=4,  # https://platform.openai.com/docs/api-reference/chat/create
    error_flag=False,
    interleaving=False,
    media={"image": _IMAGE, "audio": _AUDIO, "file": _FILE},
    answer_media={"audio": MediaRule(frozenset({"inline"}))},
    call_id=IdRule(re.compile(r"(?s).{1,40}")),
    metadata=MetadataRule(
        field="metadata",
        key=re.compile(r"(?s).{1,64}"),
        value=re.compile(r"(?s).{0,512}"),
        most=16,
        needs="store",  # https://github.com/QwenLM/qwen-code/issues/243: refused where the answer is not stored
    ),
)
"""The base wire: OpenAI's own."""

_PLAIN: Final = structs.replace(
    CAPABILITIES,
    request_fields=_SHARED,
    stops=None,
    developer=False,
    custom_calls=False,
    answer_media={},
    says=frozenset(),
    cache_key=None,
    metadata=None,
)
_TEXT_ONLY: Final = structs.replace(_PLAIN, media={})
_IMAGES: Final = structs.replace(_PLAIN, media={"image": _IMAGE})


class Variant(Struct, frozen=True, kw_only=True):
    """One vendor: its capabilities, and the words that differ."""

    capabilities: WireCapabilities = _PLAIN
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    required: Literal["required", "any", "auto"] = "required"
    """The word for "must call a tool"; ``auto`` where there is none."""
    none_keeps_tools: bool = True
    """``tool_choice: "none"`` works while tools are declared; else the tools are left out."""
    reasoning: str | None = None
    """The field in which reasoning goes back, whatever its name; ``thinking`` is a part of the content."""
    reads: tuple[str, ...] | None = None
    """Fields of an answer that are read as reasoning, in this order; any other stays a field of the message.

    ``None``: the one in which it goes back, and the details where the vendor has them. A vendor of which neither is
    known is read like the base wire: all of ``shapes.REASONING``.
    """
    refuses: frozenset[str] = frozenset()
    """Fields of the body that the vendor answers with an error; they are left out, each with a loss."""
    details: bool = False
    """``reasoning_details`` go back as they came."""
    reasoning_with_calls: bool = False
    """Reasoning goes back on messages with tool calls and only there, ``""`` where there is none."""
    user_after_tool: bool = True
    """A user message may follow a tool message directly."""
    document: Literal["file", "document_url"] = "file"


_EITHER: Final = ("reasoning_content", "reasoning")
"""Servers changed the name (docs/spec/wires.md#2.9)."""

BASE: Final = Variant(capabilities=CAPABILITIES, max_tokens="max_completion_tokens")

VARIANTS: Final[dict[str, Variant]] = {
    "compatible": Variant(),
    "groq": Variant(
        capabilities=structs.replace(
            _IMAGES, stops=4, request_fields=_SHARED - {"n"}
        ),  # https://console.groq.com/docs/api-reference
        max_tokens="max_completion_tokens",
        reasoning="reasoning",
        refuses=frozenset({"logprobs", "logit_bias", "top_logprobs"}),  # https://console.groq.com/docs/openai
    ),
    "deepseek": Variant(  # https://api-docs.deepseek.com/api/create-chat-completion
        capabilities=structs.replace(_TEXT_ONLY, request_fields=_SHARED - {"logit_bias", "n", "user"}),
        reasoning="reasoning_content",
        reasoning_with_calls=True,
    ),
    "openrouter": Variant(
        capabilities=structs.replace(
            _PLAIN, media={"image": _IMAGE, "audio": _AUDIO, "file": _LINKED, "video": _LINKED}, marking=(_MARKS,)
        ),
        reasoning="reasoning",
        details=True,
    ),
    "mistral": Variant(
        capabilities=structs.replace(
            _PLAIN,
            request_fields=frozenset({"n"}),  # https://docs.mistral.ai/api/endpoint/chat: others are an error
            media={"image": _IMAGE, "audio": _AUDIO, "file": _LINKED},
            call_id=IdRule(re.compile(r"[a-zA-Z0-9]{9}"), prefix="", digits=9),
            last_user=True,
            blank_text=False,
        ),
        required="any",
        none_keeps_tools=False,
        reasoning="thinking",
        user_after_tool=False,
        document="document_url",
    ),
    "xai": Variant(capabilities=_IMAGES, reads=("reasoning_content",)),
    "cerebras": Variant(
        capabilities=_TEXT_ONLY,
        max_tokens="max_completion_tokens",
        reasoning="reasoning",  # below: https://inference-docs.cerebras.ai/resources/openai
        refuses=frozenset({"frequency_penalty", "presence_penalty", "logit_bias"}),
    ),
    "zai": Variant(capabilities=_IMAGES, reasoning="reasoning_content"),
    "huggingface": Variant(capabilities=_IMAGES),
    "moonshot": Variant(capabilities=_IMAGES, reasoning="reasoning_content", reads=_EITHER, required="auto"),
    "ollama": Variant(
        capabilities=structs.replace(_PLAIN, media={"image": MediaRule(frozenset({"inline"}))}, object_arguments=True),
        reasoning="reasoning",
    ),
    "vllm": Variant(
        capabilities=structs.replace(_PLAIN, media={"image": _IMAGE, "audio": _AUDIO, "video": _LINKED}),
        reasoning="reasoning_content",
        reads=_EITHER,
    ),
}


def row(name: str | None) -> Variant:
    """The row of a variant; the base wire's for ``None``."""
    return BASE if name is None else VARIANTS[name]


def reasoning_fields(name: str | None) -> tuple[str, ...]:
    """Fields of an answer that are read as reasoning, under a variant or under none."""
    variant = row(name)
    if variant.reads is not None:
        return variant.reads
    if variant.reasoning is None:
        return REASONING
    named = () if variant.reasoning == "thinking" else (variant.reasoning,)
    return (DETAILS, *named) if variant.details else named
