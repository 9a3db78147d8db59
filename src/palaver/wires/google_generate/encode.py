"""Write Gemini bodies.

What this wire cannot say (docs/spec/wires.md#5.5): a developer role and system messages that do not lead, an error
flag on results (the key ``error`` instead), plain text as a result (``{"output": …}``), arguments that are no object,
refusals, strict tools, cache marks, reasoning and server tools of other wires. ``handover`` deals with most of those
before this module is asked; results, thoughts and signatures are the business of ``turns``. The model, and whether to
stream, stand in the address of a request, and not in its body.

Source: docs/spec/wires.md#5.1 to #5.5; https://ai.google.dev/api/generate-content.
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, UnsetType, structs

from palaver.core import jsontext
from palaver.core.jsontext import NULL
from palaver.core.messages import AssistantMessage, SystemMessage
from palaver.core.pairs import Placed
from palaver.wires._engine import json_fields
from palaver.wires._engine.capabilities import MediaRule, MetadataRule, WireCapabilities
from palaver.wires._engine.json_fields import is_hint, native
from palaver.wires.google_generate import field_names
from palaver.wires.google_generate.parts import write_part, write_plain
from palaver.wires.google_generate.settings import write_settings
from palaver.wires.google_generate.shapes import FINISH, FINISH_WORD, WIRE
from palaver.wires.google_generate.tools import write_tools
from palaver.wires.google_generate.turns import Turn, write_content
from palaver.wires.google_generate.usage import write_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.request import Request, Response
    from palaver.wires._engine.encode_state import Context

__all__ = ["LIST", "SPEECH", "head", "hoists", "response", "turn"]

LIST: Final = "contents"

_SCHEMES: Final = frozenset({"http", "https", "gs"})
_ANY: Final = MediaRule(frozenset({"inline", "url", "file_id"}), needs_type=True, schemes=_SCHEMES)

SPEECH: Final = WireCapabilities(
    ranges={"max_tokens": (1, inf), "temperature": (0, 2), "top_p": (0, 1), "top_k": (1, inf)},
    stops=5,  # https://ai.google.dev/api/generate-content#generationconfig
    proofs=frozenset({"signature"}),
    names_model=False,
    loose_base64=True,
    later_system=False,
    head_fields=True,
    developer=False,
    media={"image": _ANY, "audio": _ANY, "video": _ANY, "file": _ANY},
    result_media={
        "image": structs.replace(_ANY, types=frozenset({"image/png", "image/jpeg", "image/webp"})),
        "file": structs.replace(_ANY, types=frozenset({"application/pdf", "text/plain"})),
    },
    answer_media={"image": _ANY, "audio": _ANY, "video": _ANY, "file": _ANY},
    custom_calls=False,
    object_arguments=True,
    refusal=False,
    tool_name=re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}"),
    first_user=True,
    metadata=MetadataRule(  # of Vertex AI only: https://cloud.google.com/vertex-ai/generative-ai/docs/multimodal/add-labels-to-api-calls
        field="labels",
        key=re.compile(r"[^\W\d_A-Z](?:[^\WA-Z]|-){0,62}"),
        value=re.compile(r"(?:[^\WA-Z]|-){0,63}"),
        most=64,
    ),
)


def hoists(_message: SystemMessage, _context: Context) -> bool:
    """Leading system messages are the system instruction."""
    return True


# -- the head --------------------------------------------------------------------------------------


def head(request: Request, system: Sequence[SystemMessage], context: Context) -> dict[str, Any]:
    """Write the system instruction, tools and settings."""
    rest = native(request, WIRE)
    fields: dict[str, Any] = {}
    if "@@model" in rest and request.model is not None:
        fields["model"] = request.model
    instruction = _instruction(system) if system else {}
    tools = write_tools(request.tools, context)
    if tools or is_hint(rest, "tools", "empty"):
        alone = is_hint(rest, "tools", "object") and len(tools) == 1
        fields["tools"] = tools[0] if alone else tools
    fields |= write_settings(request, rest, context)
    if not context.own and rest.get("cachedContent", rest.get("cached_content", NULL)) != NULL:
        for key in ("tools", "toolConfig"):
            if fields.pop(key, None) is not None:
                context.lose("dropped", key, "the cached content holds its own (docs/spec/wires.md#5.2.9)")
        if instruction:
            instruction = {}
            context.lose("dropped", "system message", "the cached content holds its own (docs/spec/wires.md#5.2.9)")
    for wire, key, _ in json_fields.foreign(request, WIRE):
        context.lose("dropped", key, f"a field of {wire}")
    if context.own and is_hint(rest, "contents", "object"):
        placed = [Placed(index, message) for index, message in enumerate(request.messages)]
        fields["contents"] = turn(placed[len(system) :], context)[0]
    return {**instruction, **field_names.spelled(fields, rest)}


def _instruction(system: Sequence[SystemMessage]) -> dict[str, Any]:
    rest = native(system[0], WIRE)
    for message in system[1:]:
        rest = {**native(message, WIRE), **rest}
    key = jsontext.text(rest.pop("@@field")) if "@@field" in rest else "systemInstruction"
    parts = [write_plain(part) for message in system for part in message.content]
    return {key: write_content(parts, rest, None)}


# -- turns -----------------------------------------------------------------------------------------


def turn(messages: Sequence[Placed], context: Context) -> list[dict[str, Any]]:
    """Write a turn: what the model said, what its calls gave, what the user said then."""
    writer = Turn(context)
    for item in messages:
        writer.write(item)
    return writer.contents()


# -- responses -------------------------------------------------------------------------------------


def response(response: Response, context: Context) -> dict[str, Any]:
    """Write a response body."""
    rest = native(response, WIRE)
    message = response.message
    none = rest.pop("@@candidates", None)
    fields: dict[str, Any] = {}
    if none is None or message.content or response.alternatives:
        answers = (message, *response.alternatives)
        fields["candidates"] = [_candidate(each, index, context) for index, each in enumerate(answers)]
    elif none != NULL:
        fields["candidates"] = none
    if message.usage is not None:
        fields["usageMetadata"] = write_usage(message.usage, own=context.own)
    if message.model is not None:
        fields["modelVersion"] = message.model
    if message.response_id is not None:
        fields["responseId"] = message.response_id
    return field_names.spelled(fields, rest)


_NO_NAMES: Final = Raw(b"[]")


def _candidate(message: AssistantMessage, index: int, context: Context) -> dict[str, Any]:
    rest = native(message, WIRE)
    beside = jsontext.fields(rest.pop("@@candidate", jsontext.EMPTY_OBJECT))
    for key in jsontext.value(rest.pop("@@cited", _NO_NAMES)):
        beside[key] = rest.pop(key)
    fields: dict[str, Any] = {}
    if message.content or "@@content" not in rest:
        parts = [write_part(part, native(part, WIRE)) for part in message.content]
        fields["content"] = write_content(parts, rest, "model")
    word = _finish_word(message, context)
    if word is not None:
        fields["finishReason"] = word
    if not context.own:
        fields["index"] = index
    return field_names.spelled(fields, beside)


def _finish_word(message: AssistantMessage, context: Context) -> str | None:
    raw = None if isinstance(message.finish_reason_raw, UnsetType) else message.finish_reason_raw
    reason = message.finish_reason
    if context.own or reason is None:
        return raw if context.own else None
    if raw in FINISH and reason in (FINISH[raw], "tool_calls"):
        return raw
    if reason not in FINISH_WORD:
        context.lose("approximated", "finish_reason", f"{reason!r} has no word here", 0)
    return FINISH_WORD.get(reason, "STOP" if reason == "refusal" else "OTHER")
