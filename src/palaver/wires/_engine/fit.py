"""Fit a message to a wire that did not make it: the hand-over matrix, asked of ``WireCapabilities`` and written once.

Rules (docs/spec/wires.md#9):

- Pure: a message goes in, the same or a changed copy comes out, and what could not be carried goes on the receipt.
- Nothing foreign is sent: reasoning, opaque blocks, server tools, file ids and ``provider`` fields of another wire are
  dropped, each with a loss. Citations are dropped, their text stays.
- A medium that a tool result cannot hold moves to a user message behind the results; one that the wire cannot express
  at all is dropped.
- A malformed call is never sent as a call: it becomes user text (C23, MSG-10). A call whose arguments
  are no JSON is sent with arguments that carry the raw text; one whose arguments are no object is wrapped where
  the wire takes objects only.
- Half a character (a lone surrogate) is U+FFFD in every text, argument and value (CBF-14).
- A message without remaining content is left out.

Join neighbouring messages of one role: one list of texts, as chat templates that want alternating roles need it
(docs/spec/codebuff.md#2.2, CBF-11; docs/adr/0030-where-neighbours-are-joined.md):

- Two neighbors are alike when role, agent, tags (lifetimes are tags) and provider fields are equal. All others stay
  apart, unless the wire demands alternation. Results of tools never join.
- Texts of users stay parts of their own, where the wire has parts. Texts of system messages are joined by a blank line.
- Formats that keep each message apart switch it off (``Options.join_neighbors``).
- A request that goes back to its wire, edited or not, or that grew from one, keeps the boundaries it had.

Stability: experimental.
"""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, Raw, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.jsontext import sayable, sayable_json
from palaver.core.messages import (
    BOOKKEEPING,
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.pairs import REPAIR, Placed, result_as_user
from palaver.core.parts import (
    AnyPart,
    Image,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.wires._engine import json_fields
from palaver.wires._engine.cache_marks import carried, put, taken
from palaver.wires._engine.media import kind_of, medium, plain, refusal_of, typed, with_detail
from palaver.wires._engine.model_rules import fit_to_model, takes_later_system
from palaver.wires._engine.vendors import fit_fields, is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.request import OutputFormat, Request, Settings
    from palaver.wires._engine.capabilities import MediaKind, MediaRule
    from palaver.wires._engine.encode_state import Context


ERROR_PREFIX: Final = "Error: "
TOOL_CALL_ERROR: Final = "TOOL_CALL_ERROR"
HALVES: Final = "lone surrogates; U+FFFD in their place"
"""Why a text was changed that UTF-8 cannot express."""
_BLANK_RESULT: Final = "(no output)"
_MOVED_RESULT: Final = "(The result is attached below.)"
_LOST_RESULT: Final = "(The result held nothing that can be sent here.)"


def fit(item: Placed, context: Context, *, leading: bool) -> list[Placed]:
    """Fit one message. ``leading`` says that only system messages stand before it."""
    index = item.index
    context.kept.pop(index, None)
    message = carried(item.message, context)
    _list_foreign_fields(message, context, index, None)
    match message:
        case RescueMarker() | FlushMarker():
            return []
        case SystemMessage() | DeveloperMessage():
            fitted = _system(message, context, index, leading=leading)
        case UserMessage():
            stood: list[int] = []
            content = _parts(enumerate(message.content), context, index, context.capabilities.media, stood)
            _keep(stood, context, index)
            fitted = [message.replace(content=content)]
        case AssistantMessage():
            fitted = _assistant(message, context, index)
        case ToolMessage():
            fitted = _tool(message, context, index)
    return [
        Placed(index, each, note=position > 0)
        for position, each in enumerate(fitted)
        if each.content or isinstance(each, ToolMessage) or _keeps_more(each, message, context, index)
    ]


def _keeps_more(fitted: Message, given: Message, context: Context, index: int) -> bool:
    """Whether a field of the wire gives a message without content a meaning; otherwise its other fields are losses."""
    if fitted.provider_json is UNSET or not isinstance(fitted, type(given)):
        return False
    rest = json_fields.native(fitted, context.wire)
    if isinstance(fitted, AssistantMessage) and not context.capabilities.says.isdisjoint(rest):
        return True
    lose_fields(rest, "the message has no other content, and is left out", context, index)
    return False


def lose_fields(fields: Fields, why: str, context: Context, index: int | None, part: int | None = None) -> None:
    """Name the fields of a message or part that have no place; empty fields are no loss."""
    for key, raw in fields.items():
        for path, _ in () if is_blank(raw) else json_fields.fields_of(key, raw):
            context.lose("dropped", path, why, index, part)


def _list_foreign_fields(
    value: Message | AnyPart | OutputFormat, context: Context, index: int | None, part: int | None
) -> None:
    if value.provider_json is not UNSET:
        for wire, key, _ in json_fields.foreign(value, context.wire):
            context.lose("dropped", key, f"a field of {wire}", index, part)
    if value.extra is not UNSET:
        for key in jsontext.fields(value.extra.json):
            context.lose("dropped", key, "a field that a newer version wrote", index, part)


# -- one role at a time ----------------------------------------------------------------------------


def _system(message: SystemMessage | DeveloperMessage, context: Context, index: int, *, leading: bool) -> list[Message]:
    if not message.content:  # a record of a runtime, for example; its fields for the wire are named by ``_keeps_more``
        return [message]
    content = _parts(enumerate(message.content), context, index, {})
    capabilities = context.capabilities
    if not leading and not (capabilities.later_system and takes_later_system(context)):
        context.lose("converted", "system message", "only leading ones are taken; sent as user text", index)
        lose_fields(json_fields.native(message, context.wire), "a field of a system message", context, index)
        result_as_user = system_as_user(message.replace(content=content))
        return [] if result_as_user is None else [result_as_user]
    if isinstance(message, DeveloperMessage) and not capabilities.developer:
        context.lose("converted", "developer message", "the wire has no such role; sent as system", index)
        texts = cast("tuple[Text | Opaque, ...]", content)
        return [
            trusted.SystemMessage(
                content=texts,
                id=message.id,
                tags=message.tags,
                agent=message.agent,
                provider_json=message.provider_json,
            )
        ]
    return [message.replace(content=content)]


def system_as_user(message: SystemMessage | DeveloperMessage) -> UserMessage | None:
    """A system message, as user text; ``None`` when it holds no text."""
    texts = [part for part in message.content if isinstance(part, Text)]
    if not texts:
        return None
    content = (trusted.Text("[System]"), *texts)
    source = message.source or REPAIR
    return trusted.UserMessage(content=content, id=message.id, source=source, tags=message.tags, agent=message.agent)


def _assistant(message: AssistantMessage, context: Context, index: int) -> list[Message]:
    message, given = fit_fields(message, context, index)
    stood: list[int] = []
    content = _parts(zip(given, message.content, strict=True), context, index, context.capabilities.answer_media, stood)
    if not context.capabilities.interleaving and _text_behind_call(content):
        context.lose("converted", "order of parts", "all text comes before all calls", index)
        order = sorted(range(len(content)), key=lambda at: isinstance(content[at], ToolCall))
        content, stood = tuple([content[at] for at in order]), [stood[at] for at in order]
    _keep(stood, context, index)
    if (
        content
        and not context.capabilities.silent_answers
        and all(isinstance(each, Text) and not each.text for each in content)
    ):
        context.lose("dropped", "assistant message", "holds neither text nor a call", index)
        content = ()  # here and not in the writer, where the message would begin a turn and part its neighbours
    fitted: list[Message] = [message.replace(content=content)]
    malformed = [part for part in message.content if isinstance(part, MalformedToolCall)]
    if malformed:
        notes = tuple(trusted.Text(_malformed_note(part)) for part in malformed)
        fitted.append(trusted.UserMessage(content=notes, tags=(TOOL_CALL_ERROR,), source=REPAIR))
    return fitted


def _text_behind_call(content: Sequence[AnyPart]) -> bool:
    called = False
    for part in content:
        if isinstance(part, ToolCall):
            called = True
        elif called:
            return True
    return False


def _malformed_note(part: MalformedToolCall) -> str:
    name = f" of {part.name}" if part.name else ""
    return sayable(f"[The tool call{name} could not be read: {part.reason}. It was: {part.raw}]")


def _tool(message: ToolMessage, context: Context, index: int) -> list[Message]:
    capabilities = context.capabilities
    if message.tool_call_id is None:
        context.lose("converted", "tool result", "answers no call; sent as user text", index)
        return [
            result_as_user(
                message.replace(content=_parts(enumerate(message.content), context, index, capabilities.media))
            )
        ]
    stays: list[tuple[int, AnyPart]] = []
    moves: list[tuple[int, AnyPart]] = []
    for position, part in enumerate(message.content):
        kind = kind_of(part)
        movable = kind in capabilities.media and not _holds(part, capabilities.result_media.get(kind))
        (moves if movable else stays).append((position, part))
    blank = capabilities.blank_result and len(message.content) == 1 and _is_blank(message.content[0])
    stood: list[int] = []
    content = message.content if blank else _parts(stays, context, index, capabilities.result_media, stood)
    moved = [
        (position, part) for position, part in moves if _parts([(position, part)], context, index, capabilities.media)
    ]
    if not content and not all(_is_blank(part) for part in message.content):
        content = (trusted.Text(_MOVED_RESULT if moved else _LOST_RESULT),)
        context.lose("converted", "tool result", "nothing of it can be sent there; a fixed text was sent", index)
    if message.is_error and not capabilities.error_flag:
        context.lose("converted", "is_error", "the wire has no such flag; the text begins with “Error: ”", index)
        content = _prefixed(content)
    _keep([0] * (len(content) - len(stood)) + stood, context, index)
    fitted: list[Message] = [message.replace(content=content)]
    for position, _ in moved:
        context.lose("converted", "media", "not taken in a tool result; sent in a user message", index, position)
    if moved:
        head = trusted.Text(f"[Attached to the result of tool call {message.tool_call_id}]")
        extra = _parts(moved, context, index, capabilities.media)
        fitted.append(trusted.UserMessage(content=cast("tuple[Text, ...]", (head, *extra)), source=REPAIR))
    return fitted


def _is_blank(part: AnyPart) -> bool:
    """Whether a part is a blank text and nothing beside it."""
    return isinstance(part, Text) and not part.text.strip() and part == trusted.Text(part.text)


def _holds(part: AnyPart, rule: MediaRule | None) -> bool:
    media = cast("Media", part)
    return rule is not None and not refusal_of(typed(plain(media, lenient=False)), rule)


def _prefixed(content: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
    match content:
        case (Text() as first, *others):
            if first.text.startswith(ERROR_PREFIX):
                return content
            return (first.replace(text=ERROR_PREFIX + first.text), *others)
        case _:
            return (trusted.Text(ERROR_PREFIX.rstrip()), *content)


# -- one part at a time ----------------------------------------------------------------------------


def _keep(stood: Sequence[int], context: Context, index: int) -> None:
    """Remember where the parts of a fitted message stood, if not where they stand."""
    if any(at != place for place, at in enumerate(stood)):
        context.kept[index] = stood


def _parts(
    content: Iterable[tuple[int, AnyPart]],
    context: Context,
    index: int,
    media: dict[MediaKind, MediaRule],
    stood: list[int] | None = None,
) -> tuple[AnyPart, ...]:
    """Fit parts, each with its position in the message; ``stood`` gets the positions of those that stay."""
    preserved: list[AnyPart] = []
    for position, part in content:
        if context.known and part in context.known:
            preserved.append(part)
            if stood is not None:
                stood.append(position)
            continue
        bare, mark = taken(part, context)
        if bare is not None:
            bare = with_detail(bare, context.wire) if isinstance(bare, Image) else bare
            _list_foreign_fields(bare, context, index, position)
            fitted = _part(bare, context, index, position, media)
            if fitted is not None:
                preserved.append(fitted)
                if not context.capabilities.part_fields and not isinstance(fitted, (ToolCall, MalformedToolCall)):
                    lose_fields(json_fields.native(bare, context.wire), "a field of a part", context, index, position)
        if mark is not None:
            put(preserved, mark, context, index, position)
        if stood is not None:
            stood += [position] * (len(preserved) - len(stood))
    return tuple(preserved)


def _part(
    part: AnyPart, context: Context, index: int, position: int, media: dict[MediaKind, MediaRule]
) -> AnyPart | None:
    match part:
        case Text():
            return _text(part, context, index, position)
        case Json():
            return _json(part, context, index, position)
        case Reasoning():
            return _reasoning(part, context, index, position)
        case ToolCall():
            return _call(part, context, index, position)
        case MalformedToolCall():
            context.lose(
                "converted",
                "malformed tool call",
                "never sent as a call; sent as user text",
                index,
                position,
            )
            return None
        case ServerToolResult() | Opaque():
            what = "server tool result" if isinstance(part, ServerToolResult) else "opaque block"
            if part.wire == context.wire and what in context.capabilities.own_blocks:
                return part
            why = "the wire has no such part" if part.wire == context.wire else f"belongs to {part.wire}"
            context.lose("dropped", what, why, index, position)
            return None
        case Refusal():
            if not part.text:
                context.lose("dropped", "refusal", "it is empty", index, position)
                return None
            if context.capabilities.refusal:
                return _refusal_text(part, context, index, position)
            context.lose("converted", "refusal", "the wire has no such part; sent as text", index, position)
            return _text(trusted.Text(part.text), context, index, position)
        case _:
            return medium(part, context, index, position, media)


def _refusal_text(part: Refusal, context: Context, index: int, position: int) -> Refusal:
    clean = sayable(part.text)
    if clean == part.text:
        return part
    context.lose("converted", "refusal", HALVES, index, position)
    return part.replace(text=clean)


def _text(part: Text, context: Context, index: int, position: int) -> Text | None:
    own = tuple(each for each in part.citations if each.wire == context.wire and _is_object(each.raw_json))
    if len(own) < len(part.citations):
        context.lose(
            "dropped",
            "citations",
            "mean something on their own wire only; the text stays",
            index,
            position,
        )
        part = part.replace(citations=own)
    if not context.capabilities.blank_text and not part.text.strip() and not _proves(part, context):
        context.lose("dropped", "text", "blank, which the wire refuses", index, position)
        return None
    clean = sayable(part.text)
    if clean != part.text:
        context.lose("converted", "text", HALVES, index, position)
        part = part.replace(text=clean)
    return part


def _json(part: Json, context: Context, index: int, position: int) -> Json:
    written = bytes(part.value_json).decode()
    clean = sayable_json(written)
    if clean == written:
        return part
    context.lose("converted", "json", HALVES, index, position)
    return structs.replace(part, value_json=Raw(clean.encode()))


def _is_object(raw: Raw | UnsetType) -> bool:
    return raw is not UNSET and jsontext.kind(raw) == "an object"


def _proves(part: Text, context: Context) -> bool:
    """Whether a blank text must stay, for what stands beside it."""
    proofs = context.capabilities.blank_proofs
    stored = json_fields.notes(part, context.wire)
    if proofs is None:
        return bool(stored) or bool(json_fields.native(part, context.wire))
    return not proofs.isdisjoint(stored)


def _reasoning(part: Reasoning, context: Context, index: int, position: int) -> AnyPart | None:
    if part.wire == context.wire:
        for proof in ("signature", "encrypted"):
            if getattr(part, proof) is not None and proof not in context.capabilities.proofs:
                context.lose("dropped", f"reasoning {proof}", "the wire has no such proof", index, position)
        return part
    if context.options.reasoning_as_text and part.text.strip():
        context.lose("converted", "reasoning", "sent as plain text, as asked", index, position)
        return _text(trusted.Text(part.text), context, index, position)
    origin = part.wire or "no wire"
    context.lose("dropped", "reasoning", f"bound to {origin}", index, position)
    return None


def _call(part: ToolCall, context: Context, index: int, position: int) -> ToolCall | None:
    capabilities = context.capabilities
    if part.provider_executed and not json_fields.keeps(part, context.wire):
        context.lose("dropped", "server tool call", "the provider that ran it is another", index, position)
        return None
    if part.custom and not _is_string(part.arguments_json):
        part = structs.replace(part, arguments_json=jsontext.encode(part.arguments_json).decode())
    clean = sayable_json(part.arguments_json)
    if clean != part.arguments_json:
        context.lose("converted", "arguments", HALVES, index, position)
        part = part.replace(arguments_json=clean)
    broken = bool(part.arguments_json.strip()) and not jsontext.is_json(part.arguments_json)
    if part.provider_executed and not (broken and capabilities.object_arguments):
        return part
    if part.custom and not capabilities.custom_calls:
        context.lose("converted", "custom tool call", 'sent as {"input": text}', index, position)
        part = structs.replace(part, custom=False, arguments_json=f'{{"input":{part.arguments_json}}}')
    name = fitting_name(part.name, context)
    if name != part.name:
        context.lose(
            "converted",
            "tool name",
            f"{part.name!r} is not taken; sent as {name!r}",
            index,
            position,
        )
        part = part.replace(name=name)
    text = part.arguments_json
    if not text.strip():
        return part if not capabilities.object_arguments else part.replace(arguments_json="{}")
    if broken:
        context.lose("converted", "arguments", "not JSON; sent inside a JSON object", index, position)
        return part.replace(arguments_json=jsontext.encode({"INVALID_JSON": text}).decode())
    if capabilities.object_arguments and not part.custom and jsontext.kind(text.encode()) != "an object":
        context.lose("converted", "arguments", "not an object; wrapped in one", index, position)
        return part.replace(arguments_json=f'{{"value":{text}}}')
    return part


def _is_string(text: str) -> bool:
    """Whether free text is written as it should be, as one JSON string."""
    return jsontext.kind(text.encode("utf-8", "replace")) == "a string" and jsontext.is_json(text)


def fitting_name(name: str, context: Context) -> str:
    """Spell a tool name as the wire takes it: every other character becomes ``_``."""
    pattern = context.capabilities.tool_name
    if pattern.fullmatch(name):
        return name
    spelled = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64] or "_"
    return spelled if pattern.fullmatch(spelled) else f"_{spelled}"[:64]


def declared_name(name: str, context: Context) -> str:
    """Spell the name of a tool that a request declares; the name of a request that goes back as it was stays."""
    spelled = name if context.own else fitting_name(name, context)
    if spelled != name:
        context.lose("converted", "tool name", f"{name!r} is not taken; sent as {spelled!r}")
    return spelled


def fit_settings(settings: Settings, context: Context) -> Settings:
    """Bring settings into what the wire and the model take, and list what the form of the answer keeps for others."""
    if settings.output is not None:
        _list_foreign_fields(settings.output, context, None, None)
    settings = fit_to_model(settings, context)
    changed: dict[str, Any] = {}
    for name, (least, most) in context.capabilities.ranges.items():
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            changed[name] = least if value < least else most
            beyond = f"below {least}" if isinf(most) else f"not within {least} to {most}"
            context.lose("approximated", name, f"{value} is {beyond}; {changed[name]} was sent")
    most_stops = context.capabilities.stops
    if settings.stop is not None and most_stops is not None and len(settings.stop) > most_stops:
        why = f"{len(settings.stop)} sequences, of which the first {most_stops} were sent"
        context.lose("approximated", "stop", why)
        changed["stop"] = settings.stop[:most_stops]
    return structs.replace(settings, **changed) if changed else settings


def blank_result() -> Text:
    """Stand-in for a tool result without content, where the wire refuses an empty one."""
    return trusted.Text(_BLANK_RESULT)


# -- neighbors -------------------------------------------------------------------------------------


BLANK_LINE: Final = "\n\n"
_JOINED: Final = (UserMessage, SystemMessage, DeveloperMessage)


def are_alike(before: Message | None, message: Message, context: Context) -> bool:
    """Whether a message joins the one before it."""
    if not context.options.join_neighbors:
        return False
    if before is None or type(before) is not type(message) or not isinstance(message, _JOINED):
        return False
    if context.request is not None and _came_from(context.request) == context.wire:
        return False
    if any(isinstance(part, Opaque) for each in (before, message) for part in each.content):
        return False
    made_here = REPAIR in {before.source, message.source}  # such a note has no caller whose boundary could be lost
    if not made_here and (before.tags != message.tags or before.agent != message.agent):
        return False
    return before.provider_json == message.provider_json or _fields(before) == _fields(message)


def _came_from(request: Request) -> str | None:
    """The wire that a request was decoded from, also where it was edited since."""
    origin = request.origin if request.original is None else request.original.wire
    return None if origin is None else origin.partition(":")[0]


def _fields(message: Message) -> Mapping[str, Any]:
    if message.provider_json is UNSET:
        return {}
    return {key: value for key, value in message.provider.items() if not key.startswith(BOOKKEEPING)}


def join_neighbors(written: list[Any], alike: Sequence[bool], kind: str, *, lists: bool = True) -> list[Any]:
    """Join wire messages with those before them, where ``alike`` says so and the contents can be joined.

    ``kind`` is the type of a text part, ``lists`` says that content may be a list.
    """
    if True not in alike:
        return written
    runs: list[list[Any]] = []
    for fields, goes_on in zip(written, alike, strict=True):
        if goes_on and _holds_content(fields) and _holds_content(runs[-1][-1]):
            runs[-1].append(fields)
        else:
            runs.append([fields])
    return [run[0] if len(run) == 1 else _one(run, kind, lists=lists) for run in runs]


def _holds_content(fields: dict[str, Any]) -> bool:
    return isinstance(fields.get("content"), (str, list))


def _one(run: list[dict[str, Any]], kind: str, *, lists: bool) -> dict[str, Any]:
    contents = [fields["content"] for fields in run]
    if all(isinstance(each, str) for each in contents) and (run[0]["role"] != "user" or not lists):
        return {**run[0], "content": BLANK_LINE.join(contents)}
    parts = ([{"type": kind, "text": each}] if isinstance(each, str) else each for each in contents)
    return {**run[0], "content": [part for each in parts for part in each]}
