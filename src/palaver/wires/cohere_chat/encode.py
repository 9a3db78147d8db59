"""Write Cohere v2 chat bodies.

The wire cannot express these (docs/spec/wires.md#7): an error flag on results, media in results and in answers,
documents and recordings, cache marks, reasoning and citations from elsewhere, the developer role, the choice of a named
tool, free-text calls, refusals, more than one answer. Beside calls there is no text: it becomes ``tool_plan``. Unknown
fields are refused, so nothing but Cohere's own leftovers is written beside what this module names.

Source: docs/spec/wires.md#7; https://docs.cohere.com/v2/reference/chat.
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, UnsetType

from palaver.core import jsontext
from palaver.core.messages import AssistantMessage, SystemMessage, ToolMessage
from palaver.core.parts import AnyPart, Image, Json, MalformedToolCall, Opaque, Reasoning, Text, ToolCall, Url
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.capabilities import MediaRule, WireCapabilities
from palaver.wires._engine.fit import are_alike, join_neighbors, lose_fields
from palaver.wires._engine.json_fields import native, notes
from palaver.wires._engine.schemas import COHERE, fit_output
from palaver.wires._engine.tools import write_tool
from palaver.wires.cohere_chat.decode import DOCUMENT, is_plan, stands_in
from palaver.wires.cohere_chat.shapes import (
    FINISH,
    FINISH_WORD,
    NEAR_WORD,
    SETTINGS,
    WIRE,
    write_output_format,
    write_thinking,
    write_usage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import Message
    from palaver.core.pairs import Placed
    from palaver.core.request import OutputFormat, Request, Response, Settings
    from palaver.wires._engine.encode_state import Context

__all__ = ["CAPABILITIES", "LIST", "head", "hoists", "response", "turn"]

LIST: Final = "messages"

_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})

CAPABILITIES: Final = WireCapabilities(
    ranges={
        "max_tokens": (1, inf),
        "temperature": (0, inf),
        "top_p": (0.01, 0.99),
        "top_k": (0, 500),
        "frequency_penalty": (0, 1),
        "presence_penalty": (0, 1),
    },
    stops=5,
    developer=False,
    error_flag=False,
    custom_calls=False,
    own_blocks=frozenset({"opaque block"}),
    refusal=False,
    interleaving=False,
    silent_answers=False,
    media={"image": MediaRule(frozenset({"inline", "url"}), types=_IMAGES)},
    tool_name=re.compile(r"(?s).+"),
    proofs=frozenset(),
)

"""So many stop sequences are taken."""


def hoists(_message: SystemMessage, _context: Context) -> bool:
    """System messages stand among the others."""
    return False


# -- the head --------------------------------------------------------------------------------------


def head(request: Request, _system: Sequence[SystemMessage], context: Context) -> dict[str, Any]:
    """Write model, settings and tools."""
    rest, stored = native(request, WIRE), notes(request, WIRE)
    settings = request.settings
    fields: dict[str, Any] = {} if request.model is None else {"model": request.model}
    if settings.stream is not None:
        fields["stream"] = settings.stream
    for name, key in SETTINGS.items():
        if (value := getattr(settings, name)) is not None:
            fields[key] = value
    if settings.stop is not None:
        fields["stop_sequences"] = list(settings.stop)
    if settings.output is not None:
        field = "schema" if "schema" in stored else "json_schema"
        fields["response_format"] = _output(settings.output, field, context)
    budget = thinking.fit_effort(settings, context).reasoning_tokens
    if budget is not None:
        fields["thinking"] = json_fields.with_note(write_thinking(budget), stored, "thinking")
    if settings.parallel_tool_calls is not None:
        context.lose("dropped", "parallel_tool_calls", "the wire has no such setting")
    tools = [
        written for tool in request.tools if (written := write_tool(tool, context, needs_parameters=True)) is not None
    ]
    if tools:
        fields["tools"] = tools
    _put_choice(fields, settings, context)
    for wire, key, _ in json_fields.foreign(request, WIRE):
        context.lose("dropped", key, f"a field of {wire}")
    return {**fields, **rest, **fields}  # an edited value replaces a null


def _output(output: OutputFormat, field: str, context: Context) -> dict[str, Any]:
    for key in ("name", "description", "strict"):
        if getattr(output, key) is not None:
            context.lose("dropped", f"output {key}", "the wire has no such field")
    return write_output_format(fit_output(output, COHERE, context), field)


def _put_choice(fields: dict[str, Any], settings: Settings, context: Context) -> None:
    """Write ``tool_choice``; ``auto`` is the provider's default."""
    choice = settings.tool_choice
    if choice is None:
        return
    if choice.names and choice.mode != "none":
        context.lose("converted", "tool_choice", "no tool can be named; the model may choose among all")
    if choice.mode == "none":
        fields["tool_choice"] = "NONE"
    elif choice.mode == "required" and (fields.get("tools") or context.own):
        fields["tool_choice"] = "REQUIRED"
    elif choice.mode == "required":
        context.lose("dropped", "tool_choice", "there is no tool to choose")


# -- messages --------------------------------------------------------------------------------------


def turn(messages: Sequence[Placed], context: Context) -> list[dict[str, Any]]:
    """Write each message as one; neighbours that are alike become one."""
    written: list[dict[str, Any]] = []
    alike: list[bool] = []
    before: Message | None = None
    for item in messages:
        written.append(_message(item.message, context, item.index))
        alike.append(are_alike(before, item.message, context))
        before = item.message
    return join_neighbors(written, alike, "text")


def _message(message: Message, context: Context, index: int) -> dict[str, Any]:
    if isinstance(message, AssistantMessage):
        return {"role": "assistant", **_answer(message, context, index)}
    fields: dict[str, Any] = {"role": message.role}
    if isinstance(message, ToolMessage) and message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    parts: Sequence[AnyPart] = message.content
    if not isinstance(message, ToolMessage) and not context.own:
        parts = [fitted for part in parts if (fitted := _outside(part, context, index)) is not None]
    fields["content"] = _content(parts)
    return {**fields, **native(message, WIRE), **fields}


def _outside(part: AnyPart, context: Context, index: int) -> AnyPart | None:
    """A part of a message that is no tool result, which cannot hold documents: the text of one stays."""
    if isinstance(part, Opaque):
        if jsontext.kind(part.raw_json) != "an object" or jsontext.fields(part.raw_json).get("type") != DOCUMENT:
            return part
        context.lose("dropped", "document", "only tool results hold one", index)
        return None
    if not stands_in(part, DOCUMENT):
        return part
    lose_fields(native(part, WIRE), "a field of a document, which only tool results hold", context, index)
    return json_fields.without(part, WIRE)


def _content(parts: Sequence[AnyPart]) -> object:
    """Write parts in the plainest form that holds them."""
    match list(parts):
        case []:
            return ""
        case [Text() | Json() as only] if not native(only, WIRE) and not stands_in(only, DOCUMENT):
            return _string(only)
        case found:
            return [content_part(part) for part in found]


def _string(part: Text | Json) -> str:
    return part.text if isinstance(part, Text) else bytes(part.value_json).decode()


def _answer(message: AssistantMessage, context: Context, index: int, *, response: bool = False) -> dict[str, Any]:
    """Write the content of an assistant message, of a request or a response."""
    calls = [call(part) for part in message.content if isinstance(part, (ToolCall, MalformedToolCall))]
    parts: list[AnyPart] = [part for part in message.content if not isinstance(part, (ToolCall, MalformedToolCall))]
    plan = [part for part in parts if isinstance(part, Text) and is_plan(part)]
    if plan:
        parts = [part for part in parts if not is_plan(part)]
    if not context.own:
        plan, parts = _planned(plan, parts, context, index, called=bool(calls))
    fields: dict[str, Any] = {}
    if parts:
        fields["content"] = [content_part(part) for part in parts] if response else _content(parts)
    if plan:
        fields["tool_plan"] = "\n\n".join(part.text for part in plan if part.text)
    if calls:
        fields["tool_calls"] = calls
    citations = [cited.raw_json for part in (*parts, *plan) if isinstance(part, Text) for cited in part.citations]
    if citations:
        fields["citations"] = citations
    return {**fields, **native(message, WIRE), **fields}


def _planned(
    plan: list[Text], parts: list[AnyPart], context: Context, index: int, *, called: bool
) -> tuple[list[Text], list[AnyPart]]:
    """Move text beside calls into the plan, and a plan that nothing follows into the text."""
    if not called:
        if parts or not plan:
            return plan, parts
        context.lose("converted", "tool_plan", "no call follows; sent as text", index)
        return [], list(plan)
    texts = [part for part in parts if isinstance(part, Text)]
    if not texts:
        return plan, parts
    texts_left = [part.replace(citations=()) for part in texts if part.text]
    context.lose(
        "converted" if texts_left else "dropped", "text", "not taken beside tool calls, where “tool_plan” is", index
    )
    if any(part.citations for part in texts):
        context.lose("dropped", "citations", "their text moved to “tool_plan”", index)
    return [*texts_left, *plan], [part for part in parts if not isinstance(part, Text)]


def call(part: ToolCall | MalformedToolCall) -> dict[str, Any]:
    """Write one call."""
    rest = native(part, WIRE)
    fields: dict[str, Any] = {} if "id" in notes(part, WIRE) else {"id": part.id}
    text = part.arguments_json if isinstance(part, ToolCall) else part.raw
    inner = {"name": part.name, "arguments": text, **jsontext.fields(rest.pop("function", jsontext.EMPTY_OBJECT))}
    return {**fields, "type": "function", "function": inner, **rest}


def content_part(part: AnyPart) -> dict[str, Any] | Raw:
    """Write one part of ``content``."""
    rest = native(part, WIRE)
    match part:
        case Text() | Json() if stands_in(part, DOCUMENT):
            data = part.text if isinstance(part, Text) else part.value_json
            document = {"data": data, **jsontext.fields(rest.pop("document", jsontext.EMPTY_OBJECT))}
            return {"type": "document", "document": document, **rest}
        case Text() | Json():
            return {"type": "text", "text": _string(part), **rest}
        case Reasoning():
            return {"type": "thinking", "thinking": part.text, **rest}
        case Image():
            url = part.source.url if isinstance(part.source, Url) else part.data_uri
            inner: dict[str, Any] = {"url": url or ""}
            inner.update(jsontext.fields(rest.pop("image_url", jsontext.EMPTY_OBJECT)))
            return {"type": "image_url", "image_url": inner, **rest}
        case Opaque():
            return part.raw_json
        case _:  # nothing else is held by a message that came from here or was fitted
            return {"type": "text", "text": ""}


# -- responses -------------------------------------------------------------------------------------


def response(response: Response, context: Context) -> dict[str, Any]:
    """Write a response body; a foreign one gets the fields that the official client requires."""
    rest = native(response, WIRE)
    message = response.message
    body: dict[str, Any] = {"role": role(message), **_answer(message, context, 0, response=True)}
    fields: dict[str, Any] = {}
    if message.response_id is not None or not context.own:
        fields["id"] = message.response_id or ""
    word = context.finish_word(message, FINISH.get, FINISH_WORD, near=NEAR_WORD)
    if not isinstance(word, UnsetType):
        fields["finish_reason"] = word
    fields["message"] = body
    if message.usage is not None:
        raw = message.usage.raw_json
        fields["usage"] = raw if context.own and isinstance(raw, Raw) else write_usage(message.usage)
    if message.model is not None:
        context.lose("dropped", "model", "an answer here does not name it", 0)
    for number, _ in enumerate(response.alternatives, 1):
        context.lose("dropped", "alternative", f"choice {number}: the wire has one answer")
    return {**fields, **rest}


def role(message: AssistantMessage) -> object:
    """Return the role of an answer."""
    return notes(message, WIRE).get("role", "assistant")
