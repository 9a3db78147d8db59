"""Read Responses bodies.

Consecutive items of the model form one assistant message; any other item is a message of its own. Unknown items, and
items with a meaning for the provider only, are ``Opaque`` at their place. Fields of the body, of an item, a part or a
tool without a neutral place stay under ``provider["openai_responses"]``.

Notes (``provider["@openai_responses"]``):

- ``item`` on the first part of a message of the assistant: the fields of that item. ``{}`` where it has none, and the
  item before it would take the part in. ``joined`` on the parts that share the item of the part before.
- ``items`` on a message: its opaque parts are items, which the application put there.
- ``reasoning`` on an item with an id: the id of the reasoning item that led to it (docs/spec/wires.md#3.3.2).
- ``summary`` and ``content`` of reasoning: the texts of a summary that is not one plain text, and those of an open
  model, which reads them again.
- ``field``: ``instructions`` on a system message that stood there; on a result of a tool of the provider, the field of
  the call; ``type`` and ``call_id`` of calls and results (``calls``); ``type``, ``field`` and ``filename`` of parts
  (``parts``).
- ``strict`` of a function: ``default``, where the provider's holds. ``tool_choice`` of a request (``shapes``).

Source: docs/spec/wires.md#3.1 to #3.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, Raw, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, ProviderError
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import (
    DeveloperMessage,
    FinishReason,
    Message,
    SystemMessage,
    UserMessage,
)
from palaver.core.parts import (
    AnyPart,
    MalformedToolCall,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.core.request import OutputFormat, Request, Response, Settings
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import provider, word
from palaver.wires._engine.list_memory import ListMemory
from palaver.wires._engine.shapes import Shape, Union
from palaver.wires.openai_responses import calls, parts
from palaver.wires.openai_responses.shapes import (
    FINISH,
    INCOMPLETE,
    WIRE,
    optional,
    peek,
    read_output_format,
    read_usage,
    take_tool_choice,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EMPTY_LIST: Final = Raw(b"[]")


# -- requests --------------------------------------------------------------------------------------


def request(body: bytes, memory: ListMemory | None = None) -> Request:
    """Read a request body. Raises ``DecodeError``. With a ``memory``, only what is new is read."""
    rest = jsontext.fields(body)
    raw_tools = optional(json_fields.take_items, rest, "tools")
    tools = tuple(json_fields.each(raw_tools or [], "tools", _tool))
    instructions = optional(json_fields.take_text, rest, "instructions")
    messages = _input(rest, memory)
    if instructions is not None:
        messages = [
            trusted.SystemMessage(content=(trusted.Text(instructions),), provider_json=_INSTRUCTIONS),
            *messages,
        ]
    notes: Fields = {}
    return trusted.Request(
        messages=tuple(messages),
        model=optional(json_fields.take_text, rest, "model"),
        tools=tools,
        settings=_settings(rest, notes, tools),
        origin=WIRE,
        provider_json=provider(WIRE, rest, notes),
    )


resume = request
"""Read a request of a conversation that grows."""


_INSTRUCTIONS: Final = provider(WIRE, {}, {"field": word("instructions")})


def _input(rest: Fields, memory: ListMemory | None) -> list[Message]:
    raw = rest.pop("input", None)
    if raw is None or raw == NULL:
        return []
    try:
        if jsontext.kind(raw) == "an array":
            return Items(raw).read(jsontext.rows(raw)).messages if memory is None else Items(raw).read_new(memory)
        return [trusted.UserMessage(content=tuple(parts.content(raw, list)))]
    except DecodeError as error:
        raise error.within("input") from None


def _settings(rest: Fields, notes: Fields, tools: Sequence[AnyTool]) -> Settings:
    return trusted.Settings(
        max_tokens=optional(json_fields.take_int, rest, "max_output_tokens"),
        temperature=optional(json_fields.take_number, rest, "temperature"),
        top_p=optional(json_fields.take_number, rest, "top_p"),
        tool_choice=take_tool_choice(rest, notes, tools),
        parallel_tool_calls=optional(json_fields.take_bool, rest, "parallel_tool_calls"),
        output=_inner(rest, "text", _format),
        effort=_inner(rest, "reasoning", lambda inner: optional(json_fields.take_text, inner, "effort")),
        stream=optional(json_fields.take_bool, rest, "stream"),
    )


def _inner(rest: Fields, key: str, take: Callable[[Fields], Any]) -> Any:
    """Take one field out of an inner object; what remains of the object stays where it stood."""
    raw = rest.get(key)
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    inner = jsontext.fields(raw)
    found = take(inner)
    if found is not None:
        del rest[key]
        if inner:
            rest[key] = jsontext.raw(inner)
    return found


def _format(inner: Fields) -> OutputFormat | None:
    raw = inner.get("format")
    found = None if raw is None else read_output_format(raw)
    if found is not None:
        del inner["format"]
    return found


def _tool(raw: Raw) -> AnyTool:
    rest = jsontext.fields(raw)
    kind = peek(rest, "type")
    if kind not in ("function", "custom"):
        return trusted.ProviderTool(WIRE, jsontext.own(raw))
    del rest["type"]
    parameters: Raw | UnsetType = UNSET
    notes: Fields = {}
    if kind == "function":
        schema = rest.pop("parameters", NULL)
        parameters = UNSET if schema == NULL else jsontext.own(schema)
        if "strict" not in rest:
            notes["strict"] = word("default")
    return trusted.Tool(
        json_fields.need_text(rest, "name"),
        optional(json_fields.take_text, rest, "description"),
        parameters,
        optional(json_fields.take_bool, rest, "strict") if kind == "function" else None,
        kind == "custom",
        provider_json=provider(WIRE, rest, notes),
    )


# -- items -----------------------------------------------------------------------------------------

_ROLES: Final[dict[str, type[SystemMessage | DeveloperMessage | UserMessage]]] = {
    "system": SystemMessage,
    "developer": DeveloperMessage,
    "user": UserMessage,
}

_ASIDE: Final[dict[str, type[DeveloperMessage | UserMessage]]] = {
    "additional_tools": DeveloperMessage,
    "configuration_update": DeveloperMessage,
    "compaction_trigger": UserMessage,
    "mcp_approval_response": UserMessage,
}
"""Items that mean something to the provider only, and that the application puts there."""


class Items:
    """Reads the items of ``source`` into messages; those of an answer (``answer=True``) into parts only."""

    def __init__(self, source: Raw, *, answer: bool = False) -> None:
        """Start empty."""
        self.messages: list[Message] = []
        self.parts: list[AnyPart] = []
        self.reasoning: Raw | None = None
        """The id of the reasoning that came last."""
        self.bare = False
        """The last item is a message of the assistant that has no fields of its own."""
        self._source = source
        self._answer = answer
        self._index = 0
        self._one: Raw | None = None
        self._served: set[str] = set()

    def one(self, raw: Raw, index: int) -> list[AnyPart]:
        """Read one item of an answer that comes item by item; ``index`` is its number."""
        self._one, self._index, self.parts = raw, index, []
        self._item(jsontext.fields(raw))
        return self.parts

    def read(self, rows: list[Fields]) -> Items:
        """Read all items, given split; an error names the item."""
        for index, rest in enumerate(rows):
            self._index = index
            try:
                self._item(rest)
            except DecodeError as error:
                raise error.within(f"[{index}]") from None
        if not self._answer:
            self._close()
        return self

    def read_new(self, memory: ListMemory) -> list[Message]:
        """Read what is new in a list that grows."""
        found = jsontext.items(self._source)
        start, self.messages = memory.resume(found)
        for index in range(start, len(found)):
            if not self.parts and not self._served:
                memory.note(index)
            self._index = index
            try:
                self._item(jsontext.fields(found[index]))
            except DecodeError as error:
                raise error.within(f"[{index}]") from None
        self._close()
        return list(self.messages)

    def _raw(self) -> Raw:
        """Return the item as it stood."""
        return jsontext.own(jsontext.items(self._source)[self._index] if self._one is None else self._one)

    def _store_item(self) -> None:
        self.parts.append(trusted.Opaque(WIRE, self._raw()))

    def _close(self) -> None:
        if self.parts:
            self.messages.append(trusted.AssistantMessage(content=cast("tuple[Text, ...]", tuple(self.parts))))
        self.parts = []
        self.reasoning = None
        self.bare = False

    def _other(self, message: Message) -> None:
        self._close()
        self.messages.append(message)

    def _item(self, rest: Fields) -> None:
        kind = json_fields.take_text(rest, "type")
        if kind == "message" or kind is None:
            self._message(rest, kind)
            return
        self.bare = False
        if kind == "reasoning":
            self.parts.append(_reasoning(rest))
            self.reasoning = rest.get("id")
        elif kind == "function_call":
            self.parts.append(calls.read_function(rest, self._led_by(rest)))
        elif kind == "custom_tool_call":
            self.parts.append(calls.read_custom(rest, self._led_by(rest)))
        elif kind in calls.NATIVE:
            self._native(kind, rest)
        elif kind in calls.OUTPUTS:
            self._output(kind, rest)
        elif kind in _ASIDE and not self._answer:
            part = trusted.Opaque(WIRE, self._raw())
            self._other(_ASIDE[kind](content=(part,), provider_json=_ITEMS))
        else:
            self._store_item()

    def _led_by(self, rest: Fields) -> Fields:
        """Note which reasoning an item with an id needs."""
        if self.reasoning is None or "id" not in rest or self.reasoning == NULL:
            return {}
        return {"reasoning": self.reasoning}

    def _native(self, kind: str, rest: Fields) -> None:
        found = calls.read_native(kind, rest, self._led_by(rest), f"{kind}_{self._index}")
        if found is None:
            self._store_item()
            return
        first = found[0]
        if kind == "shell_call" and isinstance(first, ToolCall) and first.provider_executed:
            self._served.add(first.id)
        self.parts += found

    def _output(self, kind: str, rest: Fields) -> None:
        """Read a result: one that the provider made belongs to the answer, any other answers it."""
        call_id = peek(rest, "call_id") or peek(rest, "id") or ""
        served = kind == "program_output"
        if kind == "shell_call_output":
            served = call_id in self._served
        elif kind == "tool_search_output":
            served = peek(rest, "execution") != "client"
        if self._answer or served:
            self.parts.append(ServerToolResult(call_id, self._raw(), WIRE))
        else:
            self._other(calls.read_output(kind, rest))

    # -- messages --

    def _message(self, rest: Fields, kind: str | None) -> None:
        if kind is None and "role" not in rest:
            self.bare = False
            self._store_item()
            return
        role = json_fields.need_text(rest, "role")
        cls = _ROLES.get(role)
        if role == "assistant":
            self._assistant_message(rest)
        elif cls is None or self._answer:
            self.bare = False
            self._store_item()
        else:
            content = calls.read_content(_need(rest, "content"), "content")
            self._other(cls(content=content, provider_json=provider(WIRE, rest)))

    def _assistant_message(self, rest: Fields) -> None:
        """Read a message of the assistant; its fields stay with the first part."""
        raw = _need(rest, "content")
        notes = self.beside(rest)
        try:
            found = parts.content(raw, lambda raw: parts.read(raw, "output_text", notes)) or [trusted.Text("")]
        except DecodeError as error:
            raise error.within("content") from None
        if notes and found[0].provider_json is UNSET:
            found = [structs.replace(found[0], provider_json=provider(WIRE, {}, notes)), *found[1:]]
        self.parts += found

    def beside(self, rest: Fields) -> Fields:
        """Return the notes of the first part of a message: the message's own fields, which remain of it."""
        notes = self._led_by(rest)
        if rest or self.bare:
            notes = {**notes, "item": jsontext.raw(rest)}
        self.bare = not rest
        return notes


_ITEMS: Final = provider(WIRE, {}, {"items": jsontext.TRUE})


def _need(rest: Fields, key: str) -> Raw:
    if key not in rest:
        raise DecodeError("missing", path=key)
    return rest.pop(key)


class _Summary(Shape, tag="summary_text", tag_field="type"):
    text: str


_summaries = Union[_Summary](_Summary)


def _reasoning(rest: Fields) -> Reasoning:
    """Read a reasoning item; its text is a view of its lists of texts."""
    summary = _need(rest, "summary")
    encrypted = optional(json_fields.take_text, rest, "encrypted_content")
    content = rest.get("content")
    notes: Fields = {}
    text = ""
    if summary != _EMPTY_LIST:
        text = reasoning_text(summary, "summary")
        if not text or not _is_one(summary):
            notes["summary"] = jsontext.own(summary)
    if content is not None and jsontext.kind(content) == "an array":
        del rest["content"]
        if jsontext.items(content):
            notes["content"] = jsontext.own(content)
            told = reasoning_text(content, "content")
            if told and summary != _EMPTY_LIST:
                notes["summary"] = jsontext.own(summary)
            text = told or text
    return trusted.Reasoning(text, None, encrypted, WIRE, provider_json=provider(WIRE, rest, notes))


def _is_one(summary: Raw) -> bool:
    """Whether a summary is one text without other fields."""
    try:
        found = _summaries.items(summary)
    except DecodeError:
        return False
    return len(found) == 1 and isinstance(found[0], _Summary) and not found[0].rest


def reasoning_text(raw: Raw, path: str) -> str:
    """Join the texts of a summary, or of the content of a reasoning item."""
    found = jsontext.value(raw)
    if not isinstance(found, list):
        raise DecodeError(f"expected an array, got {jsontext.kind(raw)}", path=path)
    return "\n\n".join(text for each in cast("list[object]", found) if (text := _block_text(each)) is not None)


def _block_text(block: object) -> str | None:
    match block:
        case {"text": str(text)}:
            return text
        case _:
            return None


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for an error or no response at all.

    A response that failed, stopped early, or still runs in the background is a response.
    """
    rest = jsontext.fields(body)
    if "output" not in rest and peek(rest, "object") != "response":
        raise provider_error(body)
    return answered(rest)


def answered(rest: Fields) -> Response:
    """Read a response, given split."""
    raw_output = rest.pop("output", NULL)
    content: tuple[AnyPart, ...] = ()
    if raw_output != NULL:
        try:
            items = Items(raw_output, answer=True).read(jsontext.rows(raw_output))
        except DecodeError as error:
            raise error.within("output") from None
        content = tuple(items.parts)
    status = optional(json_fields.take_text, rest, "status")
    return trusted.Response(
        message=trusted.AssistantMessage(
            content=cast("tuple[Text, ...]", content),
            model=optional(json_fields.take_text, rest, "model"),
            usage=_usage(rest),
            finish_reason=finish(status, rest.get("incomplete_details"), content),
            finish_reason_raw=UNSET if status is None else status,
            response_id=optional(json_fields.take_text, rest, "id"),
        ),
        origin=WIRE,
        provider_json=provider(WIRE, rest),
    )


def provider_error(body: bytes) -> ProviderError:
    """Return the provider's error for a body that is not a response."""
    table = jsontext.value(body)
    found = table.get("error", table) if isinstance(table, dict) else table  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (JSON)
    inner = cast("dict[str, Any]", found if isinstance(found, dict) else {"message": found})
    message = next(
        (inner[key] for key in ("message", "detail") if isinstance(inner.get(key), str)),
        "no response in the body",
    )
    code = inner.get("code") or inner.get("type")
    return ProviderError(WIRE, message, code=None if code is None else str(code), body=body)


def finish(status: str | None, details: Raw | None, content: tuple[AnyPart, ...]) -> FinishReason:
    """Derive the neutral finish reason (docs/spec/wires.md#3.6)."""
    if status == "incomplete":
        inner = jsontext.fields(details) if details and jsontext.kind(details) == "an object" else {}
        return INCOMPLETE.get(peek(inner, "reason") or "", "other")
    reason = "stop" if status is None else FINISH.get(status, "other")
    if reason != "stop":
        return reason
    for part in content:
        if isinstance(part, MalformedToolCall) or (isinstance(part, ToolCall) and not part.provider_executed):
            return "tool_calls"
    for part in content:
        if isinstance(part, Refusal):
            return "refusal"
        if isinstance(part, ToolCall) and calls.item_type(json_fields.notes(part, WIRE)) == "mcp_approval_request":
            return "pause"
    return "stop"


def _usage(rest: Fields) -> Usage | None:
    raw = rest.get("usage")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    del rest["usage"]
    return read_usage(raw)
