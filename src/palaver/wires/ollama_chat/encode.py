"""Write Ollama chat bodies.

The wire cannot express these (docs/spec/wires.md#8): an error flag on results, image URLs and other media, tool choice,
cache marks, citations, signatures, parallel flags, arguments that are not an object. Order of parts is lost: content,
images, thinking and calls stand in fields of their own.

Source: docs/spec/wires.md#8; ollama/ollama ``api/types.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, UnsetType

from palaver.core import jsontext
from palaver.core.messages import AssistantMessage, SystemMessage, ToolMessage
from palaver.core.parts import AnyPart, Image, Inline, Json, MalformedToolCall, Reasoning, Text, ToolCall
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.capabilities import MediaRule, WireCapabilities
from palaver.wires._engine.fit import are_alike, join_neighbors
from palaver.wires._engine.json_fields import native, notes
from palaver.wires._engine.metadata import iso
from palaver.wires._engine.tools import write_tool
from palaver.wires.ollama_chat.shapes import FINISH, FINISH_WORD, OPTIONS, WIRE, write_format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import Message
    from palaver.core.pairs import Placed
    from palaver.core.request import Request, Response
    from palaver.wires._engine.encode_state import Context

__all__ = ["CAPABILITIES", "LIST", "head", "hoists", "response", "turn"]

LIST: Final = "messages"

CAPABILITIES: Final = WireCapabilities(
    developer=False,
    error_flag=False,
    custom_calls=False,
    own_blocks=frozenset(),
    part_fields=False,
    object_arguments=True,
    refusal=False,
    interleaving=False,
    media={"image": MediaRule(frozenset({"inline"}))},
    empty=True,
    has_time=True,
    proofs=frozenset(),
)


def hoists(_message: SystemMessage, _context: Context) -> bool:
    """System messages stand among the others."""
    return False


# -- the head --------------------------------------------------------------------------------------


def head(request: Request, _system: Sequence[SystemMessage], context: Context) -> dict[str, Any]:
    """Write model, options and tools."""
    rest = native(request, WIRE)
    settings = request.settings
    fields: dict[str, Any] = {} if request.model is None else {"model": request.model}
    if settings.stream is not None:
        fields["stream"] = settings.stream
    options: dict[str, Any] = {
        key: value for name, key in OPTIONS.items() if (value := getattr(settings, name)) is not None
    }
    if settings.stop is not None:
        options["stop"] = list(settings.stop)
    preserved = rest.pop("options", None)
    if preserved is not None and jsontext.kind(preserved) == "an object":
        options = {**options, **jsontext.fields(preserved), **options}
        fields["options"] = options
    elif options:
        fields["options"] = options
    elif preserved is not None:
        fields["options"] = preserved
    if settings.output is not None:
        written = write_format(settings.output)
        if written is not None:
            fields["format"] = written
        for key in ("name", "description", "strict"):
            if getattr(settings.output, key) is not None:
                context.lose("dropped", f"output {key}", "the wire's format has no such field")
    thought = thinking.fit_effort(settings, context)
    if thought.effort is not None:
        fields["think"] = thought.effort
    elif thought.reasoning_tokens is not None:
        fields["think"] = thinking.write_switch(thought.reasoning_tokens)
    tools = _tools(request, context)
    if tools:
        fields["tools"] = tools
    for wire, key, _ in json_fields.foreign(request, WIRE):
        context.lose("dropped", key, f"a field of {wire}")
    return {**fields, **rest, **fields}


def _tools(request: Request, context: Context) -> list[Any]:
    """Write the tools, unless none of them may be called."""
    tools = [written for tool in request.tools if (written := write_tool(tool, context)) is not None]
    choice = request.settings.tool_choice
    none = choice is not None and choice.mode == "none"
    if none and tools:
        context.lose("converted", "tool_choice", "the wire has no “none”; the tools were left out")
    elif choice is not None and not none:
        context.lose("dropped", "tool_choice", "the wire has no such setting")
    if request.settings.parallel_tool_calls is not None:
        context.lose("dropped", "parallel_tool_calls", "the wire has no such setting")
    return [] if none else tools


# -- messages --------------------------------------------------------------------------------------


def turn(messages: Sequence[Placed], context: Context) -> list[dict[str, Any]]:
    """Write each message as one; neighbours that are alike become one.

    One with images stays apart: only the message shows which text they belong to.
    """
    written: list[dict[str, Any]] = []
    alike: list[bool] = []
    before: Message | None = None
    for item in messages:
        fields = _message(item.message, context)
        pictured = "images" in fields or (written and "images" in written[-1])
        alike.append(not pictured and are_alike(before, item.message, context))
        written.append(fields)
        before = item.message
    return join_neighbors(written, alike, "text", lists=False)


def _message(message: Message, context: Context) -> dict[str, Any]:
    if isinstance(message, AssistantMessage):
        return _answer(message, context)
    fields: dict[str, Any] = {"role": message.role, **_content(message.content)}
    if isinstance(message, ToolMessage):
        stored = notes(message, WIRE)
        if message.tool_call_id is not None and "id" not in stored:
            fields["tool_call_id"] = message.tool_call_id
        if message.tool_name is not None and "name" not in stored:
            fields["tool_name"] = message.tool_name
    return {**fields, **native(message, WIRE), **fields}


def _content(parts: Sequence[AnyPart]) -> dict[str, Any]:
    """Write text and images, each in its field; several texts become one, parted by a blank line."""
    texts = [
        part.text if isinstance(part, Text) else _json_text(part) for part in parts if isinstance(part, (Text, Json))
    ]
    images = [part.source.data for part in parts if isinstance(part, Image) and isinstance(part.source, Inline)]
    fields: dict[str, Any] = {"content": "\n\n".join(texts)} if texts else {}
    return {**fields, "images": images} if images else fields


def _json_text(part: Json) -> str:
    return bytes(part.value_json).decode()


def _answer(message: AssistantMessage, context: Context) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": "assistant", **_content(message.content)}
    reasoning = [part.text for part in message.content if isinstance(part, Reasoning)]
    if reasoning:
        fields["thinking"] = "\n\n".join(reasoning)
    calls = [call(part, context) for part in message.content if isinstance(part, (ToolCall, MalformedToolCall))]
    if calls:
        fields["tool_calls"] = calls
    return {**fields, **native(message, WIRE), **fields}


def call(part: ToolCall | MalformedToolCall, context: Context) -> dict[str, Any]:
    """Write one call."""
    rest, stored = native(part, WIRE), notes(part, WIRE)
    fields: dict[str, Any] = {} if "id" in stored else {"id": part.id}
    text = part.arguments_json if isinstance(part, ToolCall) else part.raw
    inner: dict[str, Any] = {"name": part.name}
    if context.own and "arguments" in stored:
        inner["arguments"] = text
    elif text:
        inner["arguments"] = Raw(text.encode())
    inner.update(jsontext.fields(rest.pop("function", jsontext.EMPTY_OBJECT)))
    return {**fields, "function": inner, **rest}


# -- responses -------------------------------------------------------------------------------------


def response(response: Response, context: Context) -> dict[str, Any]:
    """Write a response body; a foreign one gets the fields that the official client requires."""
    rest = native(response, WIRE)
    message = response.message
    written = {**_answer(message, context), "role": role(message)}
    fields: dict[str, Any] = {} if message.model is None else {"model": message.model}
    if not context.own:
        made = NO_TIME if message.sent_at is None else iso(message.sent_at)
        fields |= {"model": message.model or "", "created_at": made, "done": True}
        written = {"role": "assistant", "content": "", **written}
    fields["message"] = written
    word = context.finish_word(message, FINISH.get, FINISH_WORD)
    if not isinstance(word, UnsetType):
        fields["done_reason"] = word
    if message.usage is not None:
        fields |= _counts(message, context)
    if message.response_id is not None:
        context.lose("dropped", "response_id", "an answer here has none", 0)
    for number, _ in enumerate(response.alternatives, 1):
        context.lose("dropped", "alternative", f"choice {number}: the wire has one answer")
    return {**fields, **rest, **fields}


def role(message: AssistantMessage) -> object:
    """Return the role of an answer."""
    return notes(message, WIRE).get("role", "assistant")


NO_TIME: Final = "1970-01-01T00:00:00Z"
"""What stands in ``created_at``, which clients require, in an answer that names no time."""


def _counts(message: AssistantMessage, context: Context) -> dict[str, Any]:
    usage = message.usage
    assert usage is not None  # noqa: S101 (asked by the caller)
    if context.own and isinstance(usage.raw_json, Raw):
        return dict(jsontext.fields(usage.raw_json))
    counts = {
        "prompt_eval_count": (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0),
        "eval_count": (usage.output or 0) + (usage.reasoning or 0),
    }
    return {key: count for key, count in counts.items() if count}
