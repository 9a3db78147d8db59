"""Write Responses bodies.

The wire cannot express these: reasoning of other wires, an error flag on results, audio and video, images in answers,
stop sequences, seeds and penalties, a budget of reasoning tokens, several answers. ``fit`` handles most of them first.

- Reasoning and the items that it led to are sent together (docs/spec/wires.md#3.3.2). Reasoning that cannot be sent
  (nothing follows it, or the provider could not read it) is dropped, and its items lose their ids. A call that the
  provider ran itself is nothing without its id, and is dropped too.
- Texts of the assistant from one item are written into one item. Adjacent texts from elsewhere become one.
- A message whose content is one text holds a string, unless it is an item with fields of its own. ``type`` stands on
  messages of the assistant that are no such string.

Source: docs/spec/wires.md#3.1 to #3.4, #3.6, #3.7.
"""

from __future__ import annotations

import re
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import UNSET, Raw

from palaver.core import jsontext
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import (
    AnyPart,
    Image,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.wires._engine.capabilities import IdRule, MediaKind, MediaRule, MetadataRule, WireCapabilities
from palaver.wires._engine.fit import are_alike, join_neighbors
from palaver.wires._engine.json_fields import native, notes as notes_of
from palaver.wires.openai_responses import calls, parts
from palaver.wires.openai_responses.decode import finish, reasoning_text
from palaver.wires.openai_responses.encode_head import head, hoists
from palaver.wires.openai_responses.shapes import (
    CONTINUES,
    ELSEWHERE,
    FINISH_WORD,
    NEAR_WORD,
    WIRE,
    merged,
    write_usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.pairs import Placed
    from palaver.core.request import Response
    from palaver.wires._engine.encode_state import Context

__all__ = ["CAPABILITIES", "LIST", "head", "hoists", "response", "turn"]

LIST: str = "input"

_DOCUMENTS: Final = frozenset(
    {
        "application/json",
        "application/msword",
        "application/pdf",
        "application/rtf",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/xml",
        "text/css",
        "text/csv",
        "text/html",
        "text/javascript",
        "text/markdown",
        "text/plain",
        "text/rtf",
        "text/x-python",
        "text/xml",
    }
)
"""https://platform.openai.com/docs/guides/pdf-files, the list of accepted file types."""

_MEDIA: Final[dict[MediaKind, MediaRule]] = {
    "image": MediaRule(
        frozenset({"inline", "url", "file_id"}),
        frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"}),
    ),
    "file": MediaRule(frozenset({"inline", "url", "file_id"}), _DOCUMENTS, refuses=("audio/", "video/")),
}

CAPABILITIES: Final = WireCapabilities(
    needed_counters=(("input", "cache_read", "cache_write"), ("output", "reasoning")),
    proofs=frozenset({"encrypted"}),
    has_time=True,
    ranges={  # the least bound: https://github.com/vectorize-io/hindsight/issues/58; docs/spec/wires.md#3.3.9
        "max_tokens": (16, inf),
        "temperature": (0, 2),
        "top_p": (0, 1),
    },
    cache_key="prompt_cache_key",
    error_flag=False,
    media=_MEDIA,
    result_media=_MEDIA,
    answer_media={"image": MediaRule(frozenset({"inline"}))},
    call_id=IdRule(re.compile(r"[^\ud800-\udfff]{1,64}")),
    continues=CONTINUES,
    elsewhere=ELSEWHERE,
    metadata=MetadataRule(field="metadata", key=re.compile(r"(?s).{1,64}"), value=re.compile(r"(?s).{0,512}"), most=16),
)


# -- turns -----------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A part, the position of its message, what it keeps for this wire, and whether its message begins with it."""

    at: int
    part: AnyPart
    stored: Fields
    notes: Fields
    first: bool


def turn(messages: Sequence[Placed], context: Context) -> list[Any]:
    """Write each message as its items; neighbours that are alike become one."""
    written: list[Any] = []
    alike: list[bool] = []
    kinds: dict[str, str] = {}
    results = {item.message.tool_call_id: item.message for item in messages if isinstance(item.message, ToolMessage)}
    for open_item, group in groupby(messages, lambda item: isinstance(item.message, AssistantMessage)):
        if not open_item:
            before: Message | None = None
            for item in group:
                items = _message(item.message, kinds, context)
                alike += [are_alike(before, item.message, context), *[False] * (len(items) - 1)]
                written += items
                before = item.message
            continue
        pieces = [piece for item in group for piece in _pieces(item.index, item.message)]
        if not context.own:
            pieces = _join_reasoning(_without_media(pieces, context), context)
            _name_results(pieces, results, kinds, context)
        items = answer(pieces, context)
        written += items
        alike += [False] * len(items)
    return join_neighbors(written, alike, "input_text")


def _pieces(index: int, message: Message) -> list[Piece]:
    return [piece(index, part, first=not position) for position, part in enumerate(message.content)]


def piece(at: int, part: AnyPart, *, first: bool) -> Piece:
    """Make the piece of a part."""
    return Piece(at, part, native(part, WIRE), notes_of(part, WIRE), first)


def _message(message: Message, kinds: dict[str, str], context: Context) -> list[Any]:
    if isinstance(message, ToolMessage):
        found = calls.item_type(notes_of(message, WIRE)) or "function_call_output"
        kind = found if context.own else kinds.get(message.tool_call_id or "", found)
        return [calls.write_output(message, kind, context)]
    items: list[Any] = []
    content = message.content
    if "items" in notes_of(message, WIRE):
        items = [part.raw_json for part in content if isinstance(part, Opaque)]
        content = tuple(part for part in content if not isinstance(part, Opaque))
        if items and not content:
            return items
    fields = {"role": message.role, "content": calls.write_content(content, context)}
    return [*items, {**fields, **native(message, WIRE)}]


def _without_media(pieces: list[Piece], context: Context) -> list[Piece]:
    """Leave out what an answer cannot hold here: images that no tool of the provider made."""
    preserved: list[Piece] = []
    for piece in pieces:
        if isinstance(piece.part, Media) and "field" not in piece.notes:
            what = type(piece.part).__name__.lower()
            context.lose("dropped", what, "the wire takes no images from the assistant", piece.at)
        else:
            preserved.append(piece)
    return preserved


# -- reasoning and what it led to ------------------------------------------------------------------


def _join_reasoning(pieces: list[Piece], context: Context) -> list[Piece]:
    """Keep reasoning and what it led to together, or send neither as such (docs/spec/wires.md#3.3.2, #3.3.3)."""
    while len(preserved := _separate(pieces, context)) < len(pieces):
        pieces = preserved  # what was left out may have been all that followed something else
    return preserved


def _separate(pieces: list[Piece], context: Context) -> list[Piece]:
    stored = context.native.get("store") != Raw(b"false")
    end = max((at for at, p in enumerate(pieces, 1) if not isinstance(p.part, Reasoning)), default=0)
    preserved: list[Piece] = []
    sent: list[Raw] = []
    for position, piece in enumerate(pieces):
        if isinstance(piece.part, Reasoning):
            why = "nothing follows it" if position >= end else _unreadable(piece, stored=stored)
            if why is not None:
                context.lose("dropped", "reasoning", why, piece.at)
                continue
            if "id" in piece.stored:
                sent.append(piece.stored["id"])
        elif "reasoning" in piece.notes and piece.notes["reasoning"] not in sent:
            if isinstance(piece.part, ToolCall) and piece.part.provider_executed:
                context.lose("dropped", "server tool call", "its reasoning is not sent", piece.at)
                continue
            context.lose("dropped", "item id", "its reasoning is not sent", piece.at)
            _forget_id(piece)
        preserved.append(piece)
    return preserved


def _unreadable(piece: Piece, *, stored: bool) -> str | None:
    part = piece.part
    if isinstance(part, Reasoning) and part.encrypted:
        return None
    if piece.stored.get("id", jsontext.NULL) == jsontext.NULL:
        return "it has neither an id nor encrypted content"
    is_open = "content" in piece.notes  # open models read their own text
    return None if stored or is_open else "not stored, and without encrypted content"


def _forget_id(piece: Piece) -> None:
    piece.stored.pop("id", None)
    if "item" in piece.notes:
        item = jsontext.fields(piece.notes["item"])
        item.pop("id", None)
        piece.notes["item"] = jsontext.raw(item)


def _name_results(
    pieces: list[Piece],
    results: dict[str | None, ToolMessage],
    kinds: dict[str, str],
    context: Context,
) -> None:
    """Choose the item of each result; a native pair that cannot be expressed becomes a plain one."""
    for piece in pieces:
        call = piece.part
        if not isinstance(call, ToolCall) or call.provider_executed:
            continue
        kind = calls.item_type(piece.notes)
        kinds[call.id] = "custom_tool_call_output" if call.custom else "function_call_output"
        if kind not in calls.NATIVE:
            continue
        output = calls.NATIVE[kind].output or "function_call_output"
        result = results.get(call.id)
        if result is None or calls.spelled(result, output, context) is not None:
            kinds[call.id] = output
        else:
            context.lose("converted", kind, "its result fits a function call only", piece.at)
            piece.stored.clear()
            piece.notes.clear()


# -- messages of the assistant ---------------------------------------------------------------------


class _MessageItem(NamedTuple):
    """A message of the assistant that is being put together. ``item`` are its fields, ``None`` when they are ours."""

    item: Fields | None
    content: list[Piece]


def answer(pieces: Iterable[Piece], context: Context) -> list[Any]:
    """Write the parts of assistant messages as items."""
    items: list[Any] = []
    last: Any = None
    for each in pieces:
        part, notes = each.part, each.notes
        open_item = last if isinstance(last, _MessageItem) and not each.first else None
        if "field" in notes and isinstance(part, (ServerToolResult, Image)):
            item = cast("dict[str, Any]", last) if isinstance(last, dict) else None
            if not calls.write_result(part, notes, item):
                context.lose("dropped", "server tool result", "its call is not sent", each.at)
            continue
        if is_message_part(part, notes):
            beside = notes.get("item")
            bare = beside is None and "joined" not in notes
            if open_item is not None and ("joined" in notes or (bare and open_item.item is None)):
                open_item.content.append(each)
                continue
            last = _MessageItem(None if beside is None else jsontext.fields(beside), [each])
        else:
            last = _item(each, context)
        items.append(last)
    return [_message_item(item, context) if isinstance(item, _MessageItem) else item for item in items]


def is_message_part(part: AnyPart, notes: Fields) -> bool:
    """Whether a part with these notes stands in a message."""
    if isinstance(part, (Text, Refusal, Media)):
        return True
    return isinstance(part, Opaque) and ("item" in notes or "joined" in notes)


def _item(piece: Piece, context: Context) -> Any:
    match piece.part:
        case (ToolCall() | MalformedToolCall()) as part:
            return calls.write_call(part, piece.stored, piece.notes)
        case Reasoning() as part:
            return _reasoning(part, piece.stored, piece.notes)
        case Opaque(raw_json=raw):
            return raw
        case ServerToolResult(output_json=output):
            return output
        case part:
            return parts.write(part, piece.stored, piece.notes, "output_text", context)


def _message_item(open_item: _MessageItem, context: Context) -> dict[str, Any]:
    item, content = open_item.item, open_item.content
    if not item and len(content) == 1 and _is_string(content[0], context):
        return {"role": "assistant", "content": cast("Text", content[0].part).text}
    written = [parts.write(each.part, each.stored, each.notes, "output_text", context) for each in content]
    return {"type": "message", "role": "assistant", "content": written, **(item or {})}


def _is_string(piece: Piece, context: Context) -> bool:
    """Whether a string says all that a part of the assistant does."""
    part = piece.part
    if not isinstance(part, Text) or part.citations or piece.stored:
        return False
    return not (context.own and "type" in piece.notes)


def _reasoning(part: Reasoning, stored: Fields, notes: Fields) -> dict[str, Any]:
    """Write a reasoning item, with its texts as they were while their meaning is unchanged."""
    fields: dict[str, Any] = {"type": "reasoning", "summary": []}
    summary, content = notes.get("summary"), notes.get("content")
    text = ("" if content is None else reasoning_text(content, "content")) or (
        "" if summary is None else reasoning_text(summary, "summary")
    )
    known = summary is not None or content is not None
    if known and text == part.text:
        fields |= {"summary": summary or []}
        fields |= {} if content is None else {"content": content}
    elif part.text:
        fields["summary"] = [{"type": "summary_text", "text": part.text}]
    if part.encrypted is not None:
        fields["encrypted_content"] = part.encrypted
    return merged(fields, stored)


# -- responses -------------------------------------------------------------------------------------


def response(response: Response, context: Context) -> dict[str, Any]:
    """Write a response body; a foreign one gets the fields that the official client requires."""
    rest = native(response, WIRE)
    message = response.message
    pieces = _pieces(0, message)
    if not context.own:
        pieces = _without_media(pieces, context)
    output = [spelled_out(item) for item in answer(pieces, context)]
    made: dict[str, Any] = {}
    if not context.own:
        output = [completed(item, position, message.response_id) for position, item in enumerate(output)]
        made = _defaults(message, context)
        if output and is_cut(message):
            cut_off(output[-1])
        for _ in response.alternatives:
            context.lose("dropped", "alternative", "the wire gives one answer")
    fields: dict[str, Any] = {} if context.own else {"status": made["status"]}
    if message.response_id is not None:
        fields["id"] = message.response_id
    if message.model is not None:
        fields["model"] = message.model
    if context.own and message.finish_reason_raw is not UNSET:
        fields["status"] = message.finish_reason_raw
    fields["output"] = output
    if message.usage is not None:
        fields["usage"] = write_usage(message.usage)
    if not context.own and "incomplete_details" in rest:
        details = rest["incomplete_details"]
        if finish("incomplete", details, ()) != (message.finish_reason or "stop"):
            del rest["incomplete_details"]
    return {**made, **merged(fields, rest)}


def is_cut(message: AssistantMessage) -> bool:
    """Whether an answer is incomplete."""
    reason = message.finish_reason
    return reason is not None and FINISH_WORD.get(reason, _INCOMPLETE)[0] == _INCOMPLETE[0] and not _refuses(message)


def cut_off(item: Any) -> None:
    """Say in the last item of an answer that is incomplete that it is so, too, where it is a message."""
    if isinstance(item, dict) and cast("dict[str, Any]", item).get("type") == "message":
        item["status"] = "incomplete"


def _refuses(message: AssistantMessage) -> bool:
    """Whether a refusal stands in the answer, and says why it ended."""
    return message.finish_reason == "refusal" and any(isinstance(part, Refusal) for part in message.content)


_INCOMPLETE: Final = ("incomplete", None)


def _defaults(message: AssistantMessage, context: Context) -> dict[str, Any]:
    """Fields that the official client requires (openai.types.responses.Response)."""
    reason = message.finish_reason or "stop"
    if _refuses(message):
        reason = "stop"
    elif reason not in FINISH_WORD:
        why = f"{reason!r} has no equivalent; “incomplete” was sent"
        context.lose("approximated", "finish_reason", why, 0)
    status, why_incomplete = FINISH_WORD.get(reason) or NEAR_WORD.get(reason, _INCOMPLETE)
    raw = message.finish_reason_raw
    if isinstance(raw, str) and finish(raw, None, message.content) == reason:
        status = raw
    return {
        "id": UNKNOWN_ID,
        "object": "response",
        "created_at": (message.sent_at or 0) // 1000,
        "model": "",
        "status": status,
        "error": None,
        "incomplete_details": None if why_incomplete is None else {"reason": why_incomplete},
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": None,
        "top_p": None,
    }


UNKNOWN_ID: Final = "resp_0"
"""The id of a response whose model gave none."""
_IDS: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
_DONE: Final = ("message", "function_call")
"""Items that have a status."""


def spelled_out(item: Any) -> Any:
    """Write an item as an answer has it: with its type, and content as a list."""
    if not isinstance(item, dict):
        return item
    fields: dict[str, Any] = {"type": "message", **cast("dict[str, Any]", item)}
    if isinstance(fields.get("content"), str):
        fields["content"] = [{"type": "output_text", "text": fields["content"], "annotations": []}]
    return fields


def completed(item: Any, position: int, response_id: str | None) -> Any:
    """Add what only items of a response must have: an id, which derives from that of the response, and a status."""
    if not isinstance(item, dict):
        return item
    fields = cast("dict[str, Any]", item)
    kind = fields["type"]
    if not isinstance(kind, str) or kind not in _IDS:
        return fields
    own = [] if response_id is None else [response_id.removeprefix("resp_")]
    made = {"id": "_".join([_IDS[kind], *own, str(position)]), **({"status": "completed"} if kind in _DONE else {})}
    return fields if made.keys() <= fields.keys() else {**made, **fields}
