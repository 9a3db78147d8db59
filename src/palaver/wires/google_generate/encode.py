"""Write Gemini bodies.

The wire has no developer role, system messages only at the beginning, no error flag on results (the key ``error``
instead), no plain text results (``{"output": …}``), no refusals, strict tools, cache marks, or reasoning and server
tools of other wires. ``fit`` handles most of these first. The URL holds the model and whether to stream.

A request that is sent back as it was read gets its contents by the notes on its messages. Others follow these rules:

- Function responses stand alone in one content, in the order of the calls, without ids that we made up.
- The first call of a step that Gemini did not make gets the documented stand-in for a signature, unless the model is
  older than Gemini 3. A step is the model's output between two user contents. Thoughts without a signature are dropped.
- A content of calls follows the user's directly: after another content of the model it is joined to that.
- Empty texts are left out, unless they carry a signature or another field: the Gemini API takes them, but Vertex AI
  does not (``Unable to submit request because it has an empty text parameter``). A content without parts gets the text
  ``.`` (docs/spec/wires.md#5.2.10).
- For models older than Gemini 3, media of results go into a user content, and tools that Google ran are left out. An
  unknown model counts as newer.

Source: docs/spec/wires.md#5.1 to #5.5; https://ai.google.dev/api/generate-content;
https://ai.google.dev/gemini-api/docs/thought-signatures.
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from msgspec import Raw, Struct, UnsetType, structs

from palaver.core import jsontext
from palaver.core.jsontext import FALSE, NULL, TRUE, Fields
from palaver.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import AnyPart, Json, Reasoning, Text, ToolCall
from palaver.wires._engine import json_fields
from palaver.wires._engine.capabilities import MediaRule, MetadataRule, WireCapabilities
from palaver.wires._engine.json_fields import native, word
from palaver.wires.google_generate.field_names import joined
from palaver.wires.google_generate.parts import (
    loses_name,
    write_function_response,
    write_part,
    write_plain,
)
from palaver.wires.google_generate.settings import write_settings, write_tools
from palaver.wires.google_generate.shapes import (
    FINISH,
    FINISH_WORD,
    NEAR_WORD,
    STAND_IN,
    WIRE,
    generation,
    is_older,
    tells_error,
    write_usage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import Message
    from palaver.core.pairs import Placed
    from palaver.core.request import Request, Response
    from palaver.wires._engine.encode_state import Context


# -- contents of a turn ----------------------------------------------------------------------------


_Kind: TypeAlias = "type[AssistantMessage | ToolMessage | UserMessage]"
_NO_TEXT: Final = {"text": ""}
_PLACEHOLDER: Final = "."
_EMPTY_SIGNATURE: Final = Raw(b'""')


class _Content(Struct):
    """A content that is being written: whose it is, what it had beside its parts, and its parts.

    ``answers`` are the places of the calls that the parts answer, where they are function responses.
    """

    kind: _Kind
    rest: Fields
    notes: Fields
    index: int
    parts: list[Any]
    answers: list[int] = []


class Turn:
    """Writes the messages of one turn, in order; then ``contents`` gives what they became."""

    def __init__(self, context: Context) -> None:
        """Begin a turn."""
        self._context = context
        self._own = context.own
        self._model = context.model
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
        if isinstance(message, AssistantMessage):
            self._answer(message, item.index)
            return
        self._called = False
        for position, part in enumerate(message.content):
            self._name(part, item.index, position)
        if isinstance(message, ToolMessage):
            self._begin(ToolMessage, message, item.index)
            content = self._contents[-1]
            content.parts.append(self._result(message, item.index))
            content.answers.append(self._place_of(message.tool_call_id))
        else:
            self._attach(item.index)
            self._begin(UserMessage, message, item.index)
            self._contents[-1].parts += [
                written
                for position, part in enumerate(message.content)
                if self._says(written := write_plain(part), item.index, position)
            ]

    def contents(self) -> list[dict[str, Any]]:
        """Return the contents of the turn."""
        if self._contents:
            self._attach(self._contents[-1].index)
        return [self._written(content) for content in self._contents]

    def _written(self, content: _Content) -> dict[str, Any]:
        if not content.parts and not self._own:
            self._context.lose("converted", "message", "had no parts; a fixed text was sent", content.index)
            content.parts.append({"text": _PLACEHOLDER})
        if self._unsent and not self._own and content.answers:
            order = sorted(range(len(content.parts)), key=content.answers.__getitem__)
            content.parts = [content.parts[place] for place in order]
        role = "model" if content.kind is AssistantMessage else "user"
        return write_content(content.parts, content.rest, content.notes.get("role", role))

    def _begin(self, kind: _Kind, message: Message, index: int, *, joins: bool = False) -> None:
        """Begin a content, or continue the one before, where the message is joined to it."""
        before = self._contents
        rest, notes = native(message, WIRE), json_fields.notes(message, WIRE)
        results = kind is ToolMessage and bool(before) and before[-1].kind is ToolMessage
        if self._own:
            if before and notes.get("joined", TRUE if results else FALSE) == TRUE:
                before[-1].kind = kind
            else:
                before.append(_Content(kind, rest, notes, index, []))
            return
        if not before or before[-1].kind is not kind or not (joins or results):
            before.append(_Content(kind, rest, notes, index, []))
            return
        last = before[-1]
        last.rest, last.notes = {**rest, **last.rest}, {**notes, **last.notes}
        while len(before) > 1 and before[-2].kind is kind:
            last = before.pop()
            before[-1].parts += last.parts
            before[-1].rest = {**last.rest, **before[-1].rest}

    # -- the model --

    def _answer(self, message: AssistantMessage, index: int) -> None:
        calls = [part for part in message.content if isinstance(part, ToolCall) and not part.provider_executed]
        self._begin(AssistantMessage, message, index, joins=bool(calls))
        self._uncite(message, index)
        first = calls[0] if calls and not self._called else None
        self._called = self._called or bool(calls)
        for position, part in enumerate(message.content):
            self._name(part, index, position)
            stored, notes = native(part, WIRE), json_fields.notes(part, WIRE)
            if "content" in notes:
                began = jsontext.fields(notes["content"])
                self._contents.append(_Content(AssistantMessage, began, {}, index, []))
            if self._own or self._fits(part, stored, notes, index, position):
                if isinstance(part, ToolCall):
                    self._call(part, notes)
                    if part is first and not self._own:
                        self._sign(stored, notes, index, position)
                written = write_part(part, stored)
                if self._says(written, index, position):
                    self._contents[-1].parts.append(written)

    def _name(self, part: AnyPart, index: int, position: int) -> None:
        if loses_name(part):
            self._context.lose("dropped", "file name", "the Gemini API refuses it", index, position)

    def _uncite(self, message: AssistantMessage, index: int) -> None:
        """Leave out what only answers have."""
        for key in _cited(json_fields.notes(message, WIRE)):
            self._contents[-1].rest.pop(key, None)
            if not self._own:
                self._context.lose("dropped", key, "only answers have it", index)

    def _call(self, part: ToolCall, notes: Fields) -> None:
        self._names[part.id] = part.name
        self._places.setdefault(part.id, len(self._places))
        if "id" in notes:
            self._unsent.add(part.id)

    def _fits(self, part: AnyPart, stored: Fields, notes: Fields, index: int, position: int) -> bool:
        """Whether a part may be sent back; what may not is on the receipt."""
        if isinstance(part, Reasoning):
            if not part.signature:
                why = "a thought without a signature is not sent back"
                self._context.lose("dropped", "reasoning", why, index, position)
            return bool(part.signature)
        if notes.get("part") in _SERVER_TOOLS:
            if self._older or "id" in notes:
                why = "taken back only with its id, and by Gemini 3 or later"
                self._context.lose("dropped", "server tool", why, index, position)
                return False
        elif stored.get("thoughtSignature") == _EMPTY_SIGNATURE:
            del stored["thoughtSignature"]
            self._context.lose("dropped", "thoughtSignature", "empty", index, position)
        return True

    def _says(self, written: dict[str, Any], index: int, position: int) -> bool:
        """Whether a part is more than an empty text, which is on the receipt."""
        if self._own or written != _NO_TEXT:
            return True
        self._context.lose("dropped", "text", "empty, which Vertex AI refuses", index, position)
        return False

    def _sign(self, stored: Fields, notes: Fields, index: int, position: int) -> None:
        if stored.get("thoughtSignature", NULL) != NULL or self._older:
            return
        if "unsigned" in notes and generation(self._model) is None:
            return
        stored["thoughtSignature"] = word(STAND_IN)
        why = "no signature of Gemini; sent with the documented stand-in"
        self._context.lose("converted", "tool call", why, index, position)

    # -- results --

    def _result(self, message: ToolMessage, index: int) -> dict[str, Any]:
        values = [part for part in message.content if isinstance(part, (Text, Json))]
        media = [write_plain(part) for part in message.content if not isinstance(part, (Text, Json))]
        if media and self._older and not self._own:
            why = "not taken in a tool result; sent in a user message"
            self._context.lose("converted", "media", why, index)
            self._late += [{"text": f"[Attached to the result of {message.tool_name}]"}, *media]
            media = []
        response = self._response(values, message, index)
        stored = native(values[0], WIRE) if values and isinstance(values[0], Json) else {}
        found = json_fields.notes(message, WIRE).get("id")
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
        self._context.lose("converted", "tool result", "not an object; sent as {“output”: …}", index)
        return {"output": plain}

    def _attach(self, index: int) -> None:
        """Send the media of results that the model does not take there."""
        if self._late:
            self._contents.append(_Content(UserMessage, {}, {}, index, self._late))
            self._late = []


_NO_NAMES: Final = Raw(b"[]")


_SERVER_TOOLS: Final = (word("toolCall"), word("toolResponse"))


def write_content(parts: list[Any], rest: Fields, role: Raw | str | None) -> dict[str, Any]:
    """Write a content; the system instruction has no role."""
    return joined({"parts": parts} if role is None else {"parts": parts, "role": role}, rest)


__all__ = ["CAPABILITIES", "LIST", "head", "hoists", "response", "turn"]

LIST: Final = "contents"

_SCHEMES: Final = frozenset({"http", "https", "gs"})
_ANY: Final = MediaRule(frozenset({"inline", "url", "file_id"}), needs_type=True, schemes=_SCHEMES)

CAPABILITIES: Final = WireCapabilities(
    ranges={"max_tokens": (1, inf), "temperature": (0, 2), "top_p": (0, 1), "top_k": (1, inf)},
    stops=5,  # https://ai.google.dev/api/generate-content#generationconfig
    proofs=frozenset({"signature"}),
    choices=True,
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
    if "model" in json_fields.notes(request, WIRE) and request.model is not None:
        fields["model"] = request.model
    instruction = _instruction(system, context) if system else {}
    tools = write_tools(request.tools, context)
    if tools:
        fields["tools"] = tools
    fields |= write_settings(request, rest, context)
    if not context.own and rest.get("cachedContent", NULL) != NULL:
        for key in ("tools", "toolConfig"):
            if fields.pop(key, None) is not None:
                context.lose("dropped", key, "the cached content holds its own (docs/spec/wires.md#5.2.9)")
        if instruction:
            instruction = {}
            context.lose("dropped", "system message", "the cached content holds its own (docs/spec/wires.md#5.2.9)")
    for wire, key, _ in json_fields.foreign(request, WIRE):
        context.lose("dropped", key, f"a field of {wire}")
    return {**instruction, **joined(fields, rest)}


def _instruction(system: Sequence[SystemMessage], context: Context) -> dict[str, Any]:
    rest = native(system[0], WIRE)
    for message in system[1:]:
        rest = {**native(message, WIRE), **rest}
    parts = [write_plain(part) for message in system for part in message.content]
    if not context.own and _NO_TEXT in parts:
        context.lose("dropped", "system message", "an empty text, which Vertex AI refuses")
        parts = [part for part in parts if part != _NO_TEXT]
        if not parts:
            return {}
    return {"systemInstruction": write_content(parts, rest, None)}


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
    fields: dict[str, Any] = {}
    if "candidates" not in json_fields.notes(response, WIRE) or message.content or response.alternatives:
        answers = (message, *response.alternatives)
        fields["candidates"] = [_candidate(each, index, context) for index, each in enumerate(answers)]
    if message.usage is not None:
        fields["usageMetadata"] = write_usage(message.usage, own=context.own)
    if message.model is not None:
        fields["modelVersion"] = message.model
    if message.response_id is not None:
        fields["responseId"] = message.response_id
    return joined(fields, rest)


def _cited(notes: Fields) -> list[str]:
    """The names of the fields of a message that stood beside its content."""
    found: object = jsontext.value(notes.get("cited", _NO_NAMES))
    return [each for each in cast("list[object]", found) if isinstance(each, str)] if isinstance(found, list) else []


def _candidate(message: AssistantMessage, index: int, context: Context) -> dict[str, Any]:
    rest, notes = native(message, WIRE), json_fields.notes(message, WIRE)
    beside = jsontext.fields(notes.get("candidate", jsontext.EMPTY_OBJECT))
    for key in _cited(notes):
        if key in rest:
            beside[key] = rest.pop(key)
    parts = [write_part(part, native(part, WIRE)) for part in message.content]
    fields: dict[str, Any] = {"content": write_content(parts, rest, notes.get("role", "model"))}
    reason = _finish_word(message, context)
    if reason is not None:
        fields["finishReason"] = reason
    if not context.own:
        fields["index"] = index
    return joined(fields, beside)


def _finish_word(message: AssistantMessage, context: Context) -> str | None:
    raw = None if isinstance(message.finish_reason_raw, UnsetType) else message.finish_reason_raw
    reason = message.finish_reason
    if context.own or reason is None:
        return raw if context.own else None
    if raw in FINISH and reason in (FINISH[raw], "tool_calls"):
        return raw
    if reason in FINISH_WORD:
        return FINISH_WORD[reason]
    word = NEAR_WORD.get(reason, "OTHER")
    context.lose("approximated", "finish_reason", f"{reason!r} has no equivalent; “{word}” was sent", 0)
    return word
