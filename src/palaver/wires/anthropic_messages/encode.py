"""Write Messages bodies.

The wire has no audio, video, free-text calls, developer role, tool names on results, arguments other than objects,
alternatives, log probabilities, or reasoning of other wires. ``fit`` handles the parts among these first, and
``repairs`` applies the provider's rules on order and number.

- ``max_tokens`` is required. A request without it gets ``DEFAULT_MAX_TOKENS`` plus the budget for reasoning.
- One user message holds the results of a turn, before any other content. User messages are not joined with each other:
  the server joins them (docs/spec/wires.md#4.3.2, docs/adr/0030-where-neighbours-are-joined.md).
- Content is a list of blocks.

Source: docs/spec/wires.md#4.1 to #4.4, #4.6; anthropic-sdk-python ``types``.
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext
from palaver.core.messages import SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import File, Image, Text, ToolCall
from palaver.wires._engine.cache_marks import Marking
from palaver.wires._engine.capabilities import IdRule, MediaKind, MediaRule, MetadataRule, WireCapabilities
from palaver.wires._engine.json_fields import native, notes
from palaver.wires.anthropic_messages.encode_head import DEFAULT_MAX_TOKENS, head
from palaver.wires.anthropic_messages.encode_parts import block, is_plain
from palaver.wires.anthropic_messages.repairs import MARK, MOST_MARKS, repair
from palaver.wires.anthropic_messages.shapes import (
    FINISH,
    FINISH_WORD,
    IMAGE_TYPES,
    NEAR_WORD,
    PDF,
    TEXT_TYPES,
    WIRE,
    write_usage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import Message
    from palaver.core.pairs import Placed
    from palaver.core.request import Response
    from palaver.wires._engine.encode_state import Context


__all__ = ["CAPABILITIES", "DEFAULT_MAX_TOKENS", "LIST", "head", "hoists", "response", "turn"]

LIST: Final = "messages"

_IMAGES: Final = MediaRule(frozenset({"inline", "url", "file_id"}), IMAGE_TYPES)
_MEDIA: Final[dict[MediaKind, MediaRule]] = {
    "image": _IMAGES,
    "file": MediaRule(_IMAGES.sources, TEXT_TYPES | {PDF}),
}

MARKING: Final = Marking(
    wire=WIRE,
    name=MARK,
    value=Raw(b'{"type":"ephemeral"}'),
    carriers=(Text, Image, File, ToolCall),
    results="message",
    tools="field",
    automatic=True,
    most=MOST_MARKS,
)
"""https://platform.claude.com/docs/en/build-with-claude/prompt-caching: a field of blocks, tools and the request."""

CAPABILITIES: Final = WireCapabilities(
    ranges={"top_p": (0, 1), "top_k": (0, inf)},  # https://docs.anthropic.com/en/api/messages
    usage_passes=True,
    needs_usage=True,
    needed_counters=(("input",), ("output", "reasoning")),
    marking=(MARKING,),
    developer=False,
    blank_text=False,
    blank_proofs=frozenset(),
    blank_result=True,
    media=_MEDIA,
    result_media=_MEDIA,
    custom_calls=False,
    object_arguments=True,
    refusal=False,
    call_id=IdRule(re.compile(r"[a-zA-Z0-9_-]{1,64}"), prefix="toolu_"),
    tool_name=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    answers_run=True,
    first_user=True,
    blank_end=False,
    metadata=MetadataRule(field="metadata", key=re.compile("user_id"), value=re.compile(r"(?s).{1,256}"), most=1),
)


def hoists(message: SystemMessage, context: Context) -> bool:
    """Leading system messages go into ``system``; unedited, only those that came from there."""
    return not (context.own and "place" in notes(message, WIRE))


# -- messages --------------------------------------------------------------------------------------


def turn(messages: Sequence[Placed], context: Context) -> list[dict[str, Any]]:
    """Write one turn; neighbouring results are sent together."""
    placed = messages if context.own else repair(messages, context)
    written: list[dict[str, Any]] = []
    before: Message | None = None
    for item in placed:
        if before is not None and _joins(item.message, before):
            written[-1]["content"] += _blocks(item.message, item.index, context)
        else:
            written.append(_message(item.message, item.index, context))
        before = item.message
    return written


def _joins(message: Message, before: Message) -> bool:
    """Whether a message goes into the wire message of the one before it."""
    if not isinstance(message, _USERS) or not isinstance(before, _USERS):
        return False
    joined = notes(message, WIRE).get("joined")
    if joined is None:
        return isinstance(message, ToolMessage) and isinstance(before, ToolMessage)
    return joined == jsontext.TRUE


_USERS: Final = (UserMessage, ToolMessage)


def _message(message: Message, index: int, context: Context) -> dict[str, Any]:
    role, around = message.role, native(message, WIRE)
    if isinstance(message, ToolMessage):
        role, around = "user", jsontext.fields(notes(message, WIRE).get("message", jsontext.EMPTY_OBJECT))
    return {"role": role, "content": _blocks(message, index, context), **around}


def _blocks(message: Message, index: int, context: Context) -> list[Any]:
    if isinstance(message, ToolMessage):
        return [_result(message, index, context)]
    return [block(part, index, context) for part in message.content]


def _result(message: ToolMessage, index: int, context: Context) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    match message.content:
        case ():
            pass
        case (Text(text),) if is_plain(message.content) and not text.strip():
            fields["content"] = text  # a block may not be blank
        case found:
            fields["content"] = [block(part, index, context) for part in found]
    if message.is_error:
        fields["is_error"] = True
    return {**fields, **native(message, WIRE)}


# -- responses -------------------------------------------------------------------------------------


def response(response: Response, context: Context) -> dict[str, Any]:
    """Write a response body; a foreign one gets the fields that the official client requires."""
    rest = native(response, WIRE)
    message = response.message
    fields: dict[str, Any] = {}
    if message.response_id is not None or not context.own:
        fields["id"] = "msg_0" if message.response_id is None else message.response_id
    fields |= _ENVELOPE
    if message.model is not None or not context.own:
        fields["model"] = message.model or ""
    fields["content"] = [block(part, 0, context) for part in message.content]
    word = context.finish_word(message, FINISH.get, FINISH_WORD, near=NEAR_WORD)
    if word is not UNSET:
        fields["stop_reason"] = word
    if not context.own:
        fields["stop_sequence"] = None
        fields["usage"] = {"input_tokens": 0, "output_tokens": 0}
        if response.alternatives:
            context.lose("dropped", "alternatives", "the wire has one answer")
    if message.usage is not None:
        fields["usage"] = write_usage(message.usage)
    return {**fields, **rest}


_ENVELOPE: Final = {"type": "message", "role": "assistant"}


# -- clouds ----------------------------------------------------------------------------------------


_UNNAMED: Final = structs.replace(
    CAPABILITIES, names_model=False, marking=(structs.replace(MARKING, automatic=False),), metadata=None
)

VARIANTS: Final[dict[str, WireCapabilities]] = {"bedrock": _UNNAMED, "vertex": _UNNAMED}
