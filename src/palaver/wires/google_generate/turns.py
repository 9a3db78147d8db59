"""Write the contents of a turn.

A request that goes back as it was gets the contents it had, by the hints on its messages. For any other, the rules are
these (docs/spec/wires.md#5.2):

- Function responses stand alone in one content, in the order of the calls; ids that we made up are not sent. A result
  that is an object goes as it is, any other as ``{"output": …}``, an error as ``{"error": …}``.
- The first call of a step that Gemini did not make gets the documented stand-in for a signature, unless the model is
  known to be older than Gemini 3. A step is what the model said between two contents of the user. A thought without a
  signature is not sent back.
- A content of calls stands right behind the user's: one behind another content of the model is joined to that.
- A content without parts gets an empty text, which the provider takes.
- To a model known to be older than Gemini 3, media of results go in a content of the user, and tools that Google ran
  are left out. A model whose name tells nothing is taken for a newer one.

Source: docs/spec/wires.md#5.2; https://ai.google.dev/gemini-api/docs/thought-signatures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Raw, Struct

from palaver.core import jsontext
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
from palaver.core.parts import AnyPart, Json, Reasoning, ServerToolResult, Text, ToolCall
from palaver.wires._engine.json_fields import hint, is_hint, native
from palaver.wires.google_generate import field_names
from palaver.wires.google_generate.parts import (
    write_function_response,
    write_part,
    write_plain,
)
from palaver.wires.google_generate.shapes import (
    STAND_IN,
    WIRE,
    generation,
    is_older,
    tells_error,
)

if TYPE_CHECKING:
    from palaver.core.pairs import Placed
    from palaver.wires._engine.encode_state import Context

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
        """Give the contents of the turn."""
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
        """Begin a content, or go on with the one before, where the message was or must be joined to it."""
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
            held = native(part, WIRE)
            began = held.pop("@@content", None)
            if began is not None:
                self._contents.append(_Content(AssistantMessage, jsontext.fields(began), index, []))
            if self._own or self._fits(part, held, index, position):
                if isinstance(part, ToolCall):
                    self._call(part, held)
                    if part is first and not self._own:
                        self._sign(held, index, position)
                self._contents[-1].parts.append(write_part(part, held))

    def _call(self, part: ToolCall, held: Fields) -> None:
        self._names[part.id] = part.name
        self._places.setdefault(part.id, len(self._places))
        if "@@id" in held:
            self._unsent.add(part.id)

    def _fits(self, part: AnyPart, held: Fields, index: int, position: int) -> bool:
        """Whether a part may be sent back; what may not is on the receipt."""
        if isinstance(part, Reasoning):
            if not part.signature:
                why = "a thought without a signature is not sent back"
                self._context.lose("dropped", "reasoning", why, index, position)
            return bool(part.signature)
        if isinstance(part, (ToolCall, ServerToolResult)) and (
            is_hint(held, "part", "toolCall") or is_hint(held, "part", "toolResponse")
        ):
            if self._older or "@@id" in held:
                why = "taken back only with its id, and by Gemini 3 or later"
                self._context.lose("dropped", "server tool", why, index, position)
                return False
        elif field_names.raw(held, "thoughtSignature") == _EMPTY_SIGNATURE:
            field_names.take(held, "thoughtSignature", field_names.pull)
            self._context.lose("dropped", "thoughtSignature", "empty", index, position)
        return True

    def _sign(self, held: Fields, index: int, position: int) -> None:
        if field_names.raw(held, "thoughtSignature") is not None or self._older:
            return
        if "@@thoughtSignature" in held and generation(self._model) is None:
            return
        held["thoughtSignature"] = hint(STAND_IN)
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
        held = native(values[0], WIRE) if values and isinstance(values[0], Json) else {}
        found = rest.pop("@@id", None)
        call_id: Raw | str | None = message.tool_call_id
        if found is not None:
            call_id = None if found == NULL else found
        elif call_id in self._unsent:
            call_id = None
        name = message.tool_name
        if not self._own:
            name = self._names.get(message.tool_call_id or "", name or "unknown")
        return write_function_response(response, media, name, call_id, held)

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
            self._context.lose("converted", "is_error", "told by the key “error”", index)
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
    """Write a content; hints tell where role or parts were not there, or of another form."""
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
