"""Write Gemini bodies.

The wire has no developer role, system messages only at the beginning, no error flag on results (the key ``error``
instead), no plain text results (``{"output": …}``), no refusals, strict tools, cache marks, or reasoning and server
tools of other wires. ``fit`` handles most of these first. The URL holds the model and whether to stream.

A request that is sent back as it was read gets its contents by the hints on its messages. Others follow these rules:

- Function responses stand alone in one content, in the order of the calls, without ids that we made up.
- The first call of a step that Gemini did not make gets the documented stand-in for a signature, unless the model is
  older than Gemini 3. A step is the model's output between two user contents. Thoughts without a signature are dropped.
- A content of calls follows the user's directly: after another content of the model it is joined to that. A content
  without parts gets an empty text.
- For models older than Gemini 3, media of results go into a user content, and tools that Google ran are left out. An
  unknown model counts as newer.

Source: docs/spec/wires.md#5.1 to #5.5; https://ai.google.dev/api/generate-content;
https://ai.google.dev/gemini-api/docs/thought-signatures.
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Raw, Struct, UnsetType, structs

from palaver.core import jsontext
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from palaver.core.pairs import Placed
from palaver.core.parts import AnyPart, Json, Reasoning, ServerToolResult, Text, ToolCall
from palaver.wires._engine import json_fields
from palaver.wires._engine.capabilities import MediaRule, MetadataRule, WireCapabilities
from palaver.wires._engine.json_fields import hint, is_hint, native
from palaver.wires.google_generate import field_names
from palaver.wires.google_generate.parts import (
    write_function_response,
    write_part,
    write_plain,
)
from palaver.wires.google_generate.settings import write_settings, write_tools
from palaver.wires.google_generate.shapes import (
    FINISH,
    FINISH_WORD,
    STAND_IN,
    WIRE,
    generation,
    is_older,
    tells_error,
    write_usage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.request import Request, Response
    from palaver.wires._engine.encode_state import Context


# -- contents of a turn ----------------------------------------------------------------------------


_Kind: TypeAlias = "type[AssistantMessage | ToolMessage | UserMessage]"
_EMPTY_SIGNATURE: Final = Raw(b'""')


class _Content(Struct):
    """A content that is being written: whose it is, what it had beside its parts, and its parts.

    ``answers`` are the places of the calls that the parts answer, where they are function responses.
    """

    kind: _Kind
    rest: Fields
    index: int
    parts: list[Any]
    answers: list[int] = []


class Turn:
    """Writes the messages of one turn, in order; then ``contents`` gives what they became."""

    def __init__(self, context: Context) -> None:
        """Begin a turn."""
        self._context = context
        self._own = context.own
        self._model = None if context.request is None else context.request.model
        self._older = is_older(self._model)
        self._contents: list[_Content] = []
        self._late: list[Any] = []
        self._names: dict[str, str] = {}
        self._places: dict[str, int] = {}
        self._unsent: set[str] = set()
        self._called = False  # in this step

    def write(self, item: Placed) -> None:
        """Write one message."""
        message = item.message
        rest = native(message, WIRE)
        if isinstance(message, AssistantMessage):
            self._answer(message, rest, item.index)
            return
        self._called = False
        if isinstance(message, ToolMessage):
            self._begin(ToolMessage, rest, item.index)
            content = self._contents[-1]
            content.parts.append(self._result(message, rest, item.index))
            content.answers.append(self._place_of(message.tool_call_id))
        else:
            self._attach(item.index)
            self._begin(UserMessage, rest, item.index)
            self._contents[-1].parts += [write_plain(part) for part in message.content]

    def contents(self) -> list[dict[str, Any]]:
        """Return the contents of the turn."""
        if self._contents:
            self._attach(self._contents[-1].index)
        return [self._written(content) for content in self._contents]

    def _written(self, content: _Content) -> dict[str, Any]:
        if not content.parts and not self._own:
            self._context.lose("converted", "message", "had no parts; an empty text was added", content.index)
            content.parts.append({"text": ""})
        if self._unsent and not self._own and content.answers:
            order = sorted(range(len(content.parts)), key=content.answers.__getitem__)
            content.parts = [content.parts[place] for place in order]
        role = "model" if content.kind is AssistantMessage else "user"
        return write_content(content.parts, content.rest, role, own=self._own)

    def _begin(self, kind: _Kind, rest: Fields, index: int, *, joins: bool = False) -> None:
        """Begin a content, or continue the one before, where the message is joined to it."""
        before = self._contents
        if self._own:
            if not before or "@@joined" not in rest:
                before.append(_Content(kind, rest, index, []))
            return
        if not before or before[-1].kind is not kind or not (joins or kind is ToolMessage):
            before.append(_Content(kind, rest, index, []))
            return
        last = before[-1]
        last.rest = {**rest, **last.rest}
        while len(before) > 1 and before[-2].kind is kind:
            last = before.pop()
            before[-1].parts += last.parts
            before[-1].rest = {**last.rest, **before[-1].rest}

    # -- the model --

    def _answer(self, message: AssistantMessage, rest: Fields, index: int) -> None:
        for key in jsontext.value(rest.pop("@@cited", _NO_NAMES)):
            del rest[key]
            if not self._own:
                self._context.lose("dropped", key, "only answers have it", index)
        calls = [part for part in message.content if isinstance(part, ToolCall) and not part.provider_executed]
        self._begin(AssistantMessage, rest, index, joins=bool(calls))
        first = calls[0] if calls and not self._called else None
        self._called = self._called or bool(calls)
        for position, part in enumerate(message.content):
            stored = native(part, WIRE)
            began = stored.pop("@@content", None)
            if began is not None:
                self._contents.append(_Content(AssistantMessage, jsontext.fields(began), index, []))
            if self._own or self._fits(part, stored, index, position):
                if isinstance(part, ToolCall):
                    self._call(part, stored)
                    if part is first and not self._own:
                        self._sign(stored, index, position)
                self._contents[-1].parts.append(write_part(part, stored))

    def _call(self, part: ToolCall, stored: Fields) -> None:
        self._names[part.id] = part.name
        self._places.setdefault(part.id, len(self._places))
        if "@@id" in stored:
            self._unsent.add(part.id)

    def _fits(self, part: AnyPart, stored: Fields, index: int, position: int) -> bool:
        """Whether a part may be sent back; what may not is on the receipt."""
        if isinstance(part, Reasoning):
            if not part.signature:
                why = "a thought without a signature is not sent back"
                self._context.lose("dropped", "reasoning", why, index, position)
            return bool(part.signature)
        if isinstance(part, (ToolCall, ServerToolResult)) and (
            is_hint(stored, "part", "toolCall") or is_hint(stored, "part", "toolResponse")
        ):
            if self._older or "@@id" in stored:
                why = "taken back only with its id, and by Gemini 3 or later"
                self._context.lose("dropped", "server tool", why, index, position)
                return False
        elif field_names.raw(stored, "thoughtSignature") == _EMPTY_SIGNATURE:
            field_names.take(stored, "thoughtSignature", field_names.pull)
            self._context.lose("dropped", "thoughtSignature", "empty", index, position)
        return True

    def _sign(self, stored: Fields, index: int, position: int) -> None:
        if field_names.raw(stored, "thoughtSignature") is not None or self._older:
            return
        if "@@thoughtSignature" in stored and generation(self._model) is None:
            return
        stored["thoughtSignature"] = hint(STAND_IN)
        why = "no signature of Gemini; sent with the documented stand-in"
        self._context.lose("converted", "tool call", why, index, position)

    # -- results --

    def _result(self, message: ToolMessage, rest: Fields, index: int) -> dict[str, Any]:
        values = [part for part in message.content if isinstance(part, (Text, Json))]
        media = [write_plain(part) for part in message.content if not isinstance(part, (Text, Json))]
        if media and self._older and not self._own:
            why = "not taken in a tool result; sent in a user message"
            self._context.lose("converted", "media", why, index)
            self._late += [{"text": f"[Attached to the result of {message.tool_name}]"}, *media]
            media = []
        response = self._response(values, message, index)
        stored = native(values[0], WIRE) if values and isinstance(values[0], Json) else {}
        found = rest.pop("@@id", None)
        call_id: Raw | str | None = message.tool_call_id
        if found is not None:
            call_id = None if found == NULL else found
        elif call_id in self._unsent:
            call_id = None
        name = message.tool_name
        if not self._own:
            name = self._names.get(message.tool_call_id or "", name or "unknown")
        return write_function_response(response, media, name, call_id, stored)

    def _place_of(self, call_id: str | None) -> int:
        """Where a call stands among the calls of the turn; without ids, results are matched by order."""
        return len(self._places) if call_id is None else self._places.get(call_id, len(self._places))

    def _response(self, values: list[Text | Json], message: ToolMessage, index: int) -> object:
        """Write what a function gave as the object that the wire asks for."""
        found = [part.text if isinstance(part, Text) else part.value_json for part in values]
        plain = found[0] if len(found) == 1 else found
        if isinstance(plain, Raw) and jsontext.kind(plain) == "an object":
            if self._own or not message.is_error or tells_error(plain):
                return plain
        elif not found and not message.is_error:
            return {}
        if message.is_error:
            self._context.lose("converted", "is_error", "sent under the key “error”", index)
            return {"error": plain if found else ""}
        self._context.lose("converted", "tool result", "no object; sent as {“output”: …}", index)
        return {"output": plain}

    def _attach(self, index: int) -> None:
        """Send the media of results that the model does not take there."""
        if self._late:
            self._contents.append(_Content(UserMessage, {}, index, self._late))
            self._late = []


_NO_NAMES: Final = Raw(b"[]")


def write_content(parts: list[Any], rest: Fields, role: str | None, *, own: bool = True) -> dict[str, Any]:
    """Write a content; by hints where role or parts were absent or of another form."""
    fields: dict[str, Any] = {}
    if own and len(parts) == 1 and is_hint(rest, "parts", "object"):
        fields["parts"] = parts[0]
    elif parts or rest.get("@@parts") != NULL:
        fields["parts"] = parts
    found = rest.get("@@role")
    if found is None:
        if role is not None:
            fields["role"] = role
    elif found != NULL:
        fields["role"] = found
    return field_names.spelled(fields, rest)


__all__ = ["CAPABILITIES", "LIST", "head", "hoists", "response", "turn"]

LIST: Final = "contents"

_SCHEMES: Final = frozenset({"http", "https", "gs"})
_ANY: Final = MediaRule(frozenset({"inline", "url", "file_id"}), needs_type=True, schemes=_SCHEMES)

CAPABILITIES: Final = WireCapabilities(
    ranges={"max_tokens": (1, inf), "temperature": (0, 2), "top_p": (0, 1), "top_k": (1, inf)},
    stops=5,  # https://ai.google.dev/api/generate-content#generationconfig
    proofs=frozenset({"signature"}),
    names_model=False,
    lenient_base64=True,
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
    """Write a turn: the answer, the results of its calls, and the user's content."""
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
