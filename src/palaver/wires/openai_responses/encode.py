"""Write Responses bodies.

The wire cannot express these: reasoning of other wires, an error flag on results, audio and video, images in answers,
stop sequences, seeds and penalties, a budget of reasoning tokens, several answers. ``fit`` handles most of them first.

- Reasoning and the items that it led to are sent together (docs/spec/wires.md#3.3.2). Reasoning that cannot be sent
  (nothing follows it, or the provider could not read it) is dropped, and its items lose their ids. A call that the
  provider ran itself is nothing without its id, and is dropped too.
- Texts of the assistant from one item are written into one item. Adjacent texts from elsewhere become one.

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
from palaver.wires._engine.json_fields import native, visible
from palaver.wires._engine.neighbors import are_alike, join_neighbors
from palaver.wires.openai_responses import calls, parts
from palaver.wires.openai_responses.decode import finish, reasoning_text
from palaver.wires.openai_responses.encode_head import head, hoists
from palaver.wires.openai_responses.shapes import (
    CONTINUES,
    ELSEWHERE,
    FINISH_WORD,
    WIRE,
    peek,
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
    extra: Fields
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
    return [Piece(index, part, native(part, WIRE), position == 0) for position, part in enumerate(message.content)]


def _message(message: Message, kinds: dict[str, str], context: Context) -> list[Any]:
    extra = native(message, WIRE)
    if isinstance(message, ToolMessage):
        found = calls.item_type(extra) or "function_call_output"
        kind = found if context.own else kinds.get(message.tool_call_id or "", found)
        return [calls.write_output(message, extra, kind, context)]
    items: list[Any] = []
    content = message.content
    if "@@item" in extra:
        items = [part.raw_json for part in content if isinstance(part, Opaque)]
        content = tuple(part for part in content if not isinstance(part, Opaque))
        if items and not content:
            return items
    fields: dict[str, Any] = {"type": "message"} if "@@type" in extra else {}
    fields["role"] = message.role
    fields["content"] = calls.write_content(content, extra, "content", context, "input_text", none="")
    return [*items, {**fields, **visible(extra)}]


def _without_media(pieces: list[Piece], context: Context) -> list[Piece]:
    """Leave out what an answer cannot hold here: images that no tool of the provider made."""
    preserved: list[Piece] = []
    for piece in pieces:
        if isinstance(piece.part, Media) and "@@field" not in piece.extra:
            what = type(piece.part).__name__.lower()
            context.lose("dropped", what, "the wire takes none from the assistant", piece.at)
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
            if "id" in piece.extra:
                sent.append(piece.extra["id"])
        elif "@@reasoning" in piece.extra and piece.extra["@@reasoning"] not in sent:
            if isinstance(piece.part, ToolCall) and piece.part.provider_executed:
                context.lose("dropped", "server tool call", "its reasoning is not sent", piece.at)
                continue
            context.lose("dropped", "item id", "its reasoning is not sent", piece.at)
            _forget_id(piece.extra)
        preserved.append(piece)
    return preserved


def _unreadable(piece: Piece, *, stored: bool) -> str | None:
    part = piece.part
    if isinstance(part, Reasoning) and part.encrypted:
        return None
    if piece.extra.get("id", jsontext.NULL) == jsontext.NULL:
        return "it has neither an id nor encrypted content"
    is_open = "@@content" in piece.extra  # open models read their own text
    return None if stored or is_open else "not stored, and without encrypted content"


def _forget_id(extra: Fields) -> None:
    extra.pop("id", None)
    if "item" in extra:
        item = jsontext.fields(extra["item"])
        item.pop("id", None)
        extra["item"] = jsontext.raw(item)


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
        kind = calls.item_type(piece.extra)
        kinds[call.id] = "custom_tool_call_output" if call.custom else "function_call_output"
        if kind not in calls.NATIVE:
            continue
        output = calls.NATIVE[kind].output or "function_call_output"
        result = results.get(call.id)
        if result is None or calls.spelled(result, native(result, WIRE), output, context) is not None:
            kinds[call.id] = output
        else:
            context.lose("converted", kind, "its result fits a function call only", piece.at)
            piece.extra.clear()


# -- messages of the assistant ---------------------------------------------------------------------


class _MessageItem(NamedTuple):
    """A message of the assistant that is being put together. ``item`` are its fields, ``None`` when they are ours."""

    item: Fields | None
    content: list[tuple[AnyPart, Fields]]


def answer(pieces: Iterable[Piece], context: Context) -> list[Any]:
    """Write the parts of assistant messages as items."""
    items: list[Any] = []
    last: Any = None
    for piece in pieces:
        part, extra = piece.part, piece.extra
        open_item = last if isinstance(last, _MessageItem) and not piece.first else None
        if "@@field" in extra and isinstance(part, (ServerToolResult, Image)):
            item = cast("dict[str, Any]", last) if isinstance(last, dict) else None
            if not calls.write_result(part, extra, item):
                context.lose("dropped", "server tool result", "its call is not sent", piece.at)
            continue
        if is_message_part(part, extra):
            beside = extra.pop("item", extra.pop("@@item", None))
            bare = beside is None and "@@joined" not in extra
            if open_item is not None and ("@@joined" in extra or (bare and open_item.item is None)):
                open_item.content.append((part, extra))
                continue
            last = _MessageItem(None if beside is None else jsontext.fields(beside), [(part, extra)])
        else:
            last = _item(part, extra, context)
        items.append(last)
    return [_message_item(item, context) if isinstance(item, _MessageItem) else item for item in items]


def is_message_part(part: AnyPart, extra: Fields) -> bool:
    """Whether a part stands in a message."""
    if isinstance(part, (Text, Refusal, Media)):
        return True
    return isinstance(part, Opaque) and not extra.keys().isdisjoint(("item", "@@item", "@@joined"))


def _item(part: AnyPart, extra: Fields, context: Context) -> Any:
    match part:
        case ToolCall() | MalformedToolCall():
            return calls.write_call(part, extra)
        case Reasoning():
            return _reasoning(part, extra)
        case Opaque():
            return part.raw_json
        case ServerToolResult():
            return part.output_json
        case _:
            return parts.write(part, extra, "output_text", context)


def _message_item(open_item: _MessageItem, context: Context) -> dict[str, Any]:
    item = open_item.item
    if item is None:
        match open_item.content:
            case [(Text() as only, extra)] if not extra and not only.citations:
                return {"role": "assistant", "content": only.text}
            case _:
                item = {}
    fields: dict[str, Any] = {} if "@@type" in item else {"type": "message"}
    fields["role"] = "assistant"
    fields["content"] = _message_content(open_item, item, context)
    return {**fields, **visible(item)}


def _message_content(open_item: _MessageItem, item: Fields, context: Context) -> object:
    match open_item.content:
        case [(Text() as only, extra)] if not visible(extra) and not only.citations:
            form = peek(item, "@@content")
            if form == "string":
                return only.text
            if form is not None and not only.text:
                return [] if form == "list" else None
        case _:
            pass
    return [parts.write(part, extra, "output_text", context) for part, extra in open_item.content]


def _reasoning(part: Reasoning, extra: Fields) -> dict[str, Any]:
    """Write a reasoning item, with its texts as they were while their meaning is unchanged."""
    fields: dict[str, Any] = {"type": "reasoning"}
    summary, content = extra.get("@@summary"), extra.get("@@content")
    text = ("" if content is None else reasoning_text(content, "content")) or (
        "" if summary is None else reasoning_text(summary, "summary")
    )
    if text == part.text:
        fields["summary"] = [] if summary is None else summary
        if content is not None:
            fields["content"] = content
    else:
        fields["summary"] = [{"type": "summary_text", "text": part.text}]
    if part.encrypted is not None:
        fields["encrypted_content"] = part.encrypted
    return {**fields, **visible(extra)}


# -- responses -------------------------------------------------------------------------------------


def response(response: Response, context: Context) -> dict[str, Any]:
    """Write a response body; a foreign one gets the fields that the official client requires."""
    rest = native(response, WIRE)
    message = response.message
    pieces = _pieces(0, message)
    if not context.own:
        pieces = _without_media(pieces, context)
    output = answer(pieces, context)
    fields: dict[str, Any] = {}
    if not context.own:
        output = [completed(item, position) for position, item in enumerate(output)]
        fields |= _defaults(message, context)
        for _ in response.alternatives:
            context.lose("dropped", "alternative", "the wire gives one answer")
    if message.response_id is not None:
        fields["id"] = message.response_id
    if message.model is not None:
        fields["model"] = message.model
    if context.own and message.finish_reason_raw is not UNSET:
        fields["status"] = message.finish_reason_raw
    form = peek(rest, "@@output")
    if output or form is None:
        fields["output"] = output
    elif form == "null":
        fields["output"] = None
    if message.usage is not None:
        fields["usage"] = write_usage(message.usage)
    found = visible(rest)
    if not context.own and found.keys() & {"incomplete_details"}:
        details = found["incomplete_details"]
        if finish("incomplete", details, ()) != (message.finish_reason or "stop"):
            del found["incomplete_details"]
    return {**fields, **found}


def _defaults(message: AssistantMessage, context: Context) -> dict[str, Any]:
    """Fields that the official client requires (openai.types.responses.Response)."""
    reason = message.finish_reason or "stop"
    if reason not in FINISH_WORD:
        why = f"{reason!r} has no word here; “incomplete” was sent"
        context.lose("approximated", "finish_reason", why, 0)
    status, why_incomplete = FINISH_WORD.get(reason, ("incomplete", None))
    raw = message.finish_reason_raw
    if isinstance(raw, str) and finish(raw, None, message.content) == reason:
        status = raw
    return {
        "id": "resp_0",
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


_IDS: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
_DONE: Final = ("message", "function_call")
"""Items that have a status."""


def completed(item: Any, position: int) -> Any:
    """Add what only items of a response must have: an id and a status."""
    if not isinstance(item, dict):
        return item
    fields: dict[str, Any] = {"type": "message", **cast("dict[str, Any]", item)}
    kind = fields["type"]
    if not isinstance(kind, str) or kind not in _IDS:
        return fields
    if isinstance(fields.get("content"), str):
        fields["content"] = [{"type": "output_text", "text": fields["content"], "annotations": []}]
    made = {"id": f"{_IDS[kind]}_{position}"}
    return {**made, **({"status": "completed"} if kind in _DONE else {}), **fields}
