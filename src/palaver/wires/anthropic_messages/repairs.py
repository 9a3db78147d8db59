"""Apply the provider's rules on order and number to one turn.

``fit`` has fitted the parts and ``encoder`` has completed the pairs of calls and results. These rules remain. Each
repair is a loss, and a second repair changes nothing.

- Dropped: thinking without a proof or at the end of a last assistant message; blank text; blocks in a role that does
  not hold them; references to undeclared tools; documents by URL other than PDF; server calls and results without their
  other half, unless the turn was paused or only tool results follow (router-for-me/CLIProxyAPI#5321). A message that
  has no blocks left is dropped too.
- A system message keeps its place when it ends a turn after a user message or a server result. Elsewhere it becomes
  user text.
- A request has at most four cache marks, and none on thinking. The first four stay, in the order of the body: top
  level, tools, ``system``, messages. A longer conversation thus keeps the marks and the bytes of its beginning.
- ``TurnState`` carries what a turn means for later turns and for the head of the request.

Source: docs/spec/wires.md#1.5, #4.3.5 to #4.3.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.jsontext import Fields
from palaver.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from palaver.core.pairs import Placed
from palaver.core.parts import (
    AnyPart,
    File,
    Opaque,
    Reasoning,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
)
from palaver.core.tools import ProviderTool, Tool
from palaver.core.value import Value
from palaver.wires._engine.fit import fitting_name, lose_fields, system_as_user
from palaver.wires._engine.json_fields import native
from palaver.wires.anthropic_messages.shapes import PDF, WIRE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import Message
    from palaver.core.request import Request
    from palaver.wires._engine.encode_state import Context


# -- cache marks -----------------------------------------------------------------------------------


MARK: Final = "cache_control"
MOST_MARKS: Final = 4
TOO_MANY: Final = f"more than {MOST_MARKS} marks are refused"

_NAME: Final = b'"cache_control"'
_V = TypeVar("_V", bound=Value)


def as_fields(item: Raw | dict[str, Any]) -> dict[str, Any]:
    """Return a written object as a dict."""
    return item if isinstance(item, dict) else jsontext.fields(item)


def is_marked(item: Raw | dict[str, Any]) -> bool:
    """Whether a written object bears a mark."""
    if not isinstance(item, dict) and (_NAME not in bytes(item) or jsontext.kind(item) != "an object"):
        return False
    return as_fields(item).get(MARK) not in (None, jsontext.NULL)


def head_marks(context: Context) -> int:
    """Count the marks that the head spends."""
    request = context.request
    if request is None:
        return 0
    count = int(_bears(request))
    for tool in request.tools:
        count += is_marked(tool.raw_json) if isinstance(tool, ProviderTool) and tool.wire == WIRE else _bears(tool)
    return count + sum(_bears(part) for message in context.system for part in message.content)


def _bears(value: Value) -> bool:
    """Whether a value bears a mark of ours."""
    if isinstance(value, Opaque):
        return value.wire == WIRE and is_marked(value.raw_json)
    stored = value.provider_json
    if stored is UNSET or _NAME not in bytes(stored):
        return False
    return is_marked(jsontext.fields(stored).get(WIRE, jsontext.EMPTY_OBJECT))


def _bare(value: _V) -> _V:
    """Take the mark off."""
    if isinstance(value, Opaque):
        return structs.replace(value, raw_json=_without(value.raw_json))
    if value.provider_json is UNSET:
        return value
    stored: Fields = jsontext.fields(value.provider_json)
    return structs.replace(value, provider_json=jsontext.raw({**stored, WIRE: _without(stored[WIRE])}))


def _without(raw: Raw) -> Raw:
    return jsontext.raw({key: item for key, item in jsontext.fields(raw).items() if key != MARK})


def limit_marks(message: Message, left: int, index: int, context: Context) -> tuple[Message, int]:
    """Take off marks beyond those that are ``left``, and any on thinking; give how many are left then."""
    content: list[AnyPart] = list(message.content)
    changed = False
    for position, part in enumerate(content):
        if not _bears(part):
            continue
        if not isinstance(part, Reasoning) and left > 0:
            left -= 1
            continue
        content[position] = _bare(part)
        changed = True
        why = "not taken on thinking" if isinstance(part, Reasoning) else TOO_MANY
        context.lose("dropped", MARK, why, index)
    if changed:
        message = message.replace(content=tuple(content))
    if _bears(message):  # on the result that a tool message is
        if left > 0:
            return message, left - 1
        context.lose("dropped", MARK, TOO_MANY, index)
        message = _bare(message)
    return message, left


STAND_IN: Final = "(No content.)"


class TurnState(NamedTuple):
    """How the conversation stands after a turn.

    ``looping``: the model has called tools since the last text of the user; ``proven``: the loop begins with thinking;
    ``answered``: the turn ends in tool results. ``marks`` are left for the messages behind it, ``open_calls`` are
    server calls without a result, ``noted``: the turn ends with a system message.
    """

    looping: bool = False
    proven: bool = False
    answered: bool = False
    marks: int = MOST_MARKS
    open_calls: frozenset[str] = frozenset()
    noted: bool = False

    @property
    def unproven(self) -> bool:
        """Whether an open tool loop does not begin with thinking (docs/spec/wires.md#4.3.4)."""
        return self.looping and self.answered and not self.proven


def declares(request: Request) -> bool:
    """Whether a request brings tools that the model may call here."""
    functions = any(isinstance(tool, Tool) for tool in request.tools)
    return functions or "mcp_servers" in native(request, WIRE) or bool(_provider_tools(request))


def repair(messages: Sequence[Placed], context: Context) -> list[Placed]:
    """Repair one turn of fitted messages with whole pairs."""
    before = context.state
    if not isinstance(before, TurnState):
        before = TurnState(marks=max(0, MOST_MARKS - head_marks(context)))
    placed = _drop_empty([Placed(item.index, _allowed(item, context), item.note) for item in messages])
    paused = not _behind(messages)
    placed, open_calls = _pair_server_calls(placed, before.open_calls, context, paused=paused)
    placed = _trim_last_answer(_drop_empty(placed), context)
    placed = _ensure_answer(_drop_empty(placed), before, context)
    placed = _place_notes(placed, context)
    marks = before.marks
    for position, item in enumerate(placed):
        message, marks = limit_marks(item.message, marks, item.index, context)
        if message is not item.message:
            placed[position] = Placed(item.index, message, item.note)
    context.leave(_next_state(before, placed)._replace(marks=marks, open_calls=open_calls))
    return placed


def _next_state(before: TurnState, placed: Sequence[Placed]) -> TurnState:
    looping, proven, answered = before.looping, before.proven, before.answered
    behind = _behind(placed)
    first = next((item.message for item in placed if isinstance(item.message, AssistantMessage)), None)
    if first is not None:  # else nothing of the answer was left, and the turn before goes on
        answered = any(isinstance(message, ToolMessage) for message in behind)
        if not looping:
            looping, proven = True, isinstance(first.content[0], Reasoning)
    if not answered and any(isinstance(message, UserMessage) for message in behind):
        looping = proven = False
    noted = isinstance(placed[-1].message, SystemMessage) if placed else before.noted
    return TurnState(looping, proven, answered, noted=noted)


# -- parts that may not stand where they are ---------------------------------------------------------


def _allowed(item: Placed, context: Context) -> Message:
    message, index = item.message, item.index
    preserved: list[AnyPart] = []
    for part in message.content:
        why = _refusal(part, message, context)
        if why is None:
            preserved.append(part)
        else:
            what = _WORDS.get(type(part), "block")
            context.lose("dropped", what, why, index)
    return message if len(preserved) == len(message.content) else message.replace(content=tuple(preserved))


_WORDS: Final[dict[type, str]] = {
    Reasoning: "reasoning",
    Text: "text",
    File: "file",
    ToolCall: "server tool call",
    ServerToolResult: "server tool result",
    Opaque: "opaque block",
}


def _refusal(part: AnyPart, message: Message, context: Context) -> str | None:
    """Why a part may not stand in a message; ``None`` when it may."""
    match part:
        case Text(text):
            alone = isinstance(message, ToolMessage) and len(message.content) == 1
            return None if alone or text.strip() else "blank, which the wire refuses"
        case Reasoning(_, signature, encrypted):
            return None if signature or encrypted else "no proof, without which it is refused"
        case File(Url(), str(media_type)) if media_type != PDF:
            return f"a document by URL is a PDF, not {media_type}"
        case ToolCall(name="advisor", provider_executed=True) | ServerToolResult(tool_name="advisor"):
            return None if _declares_advisor(context) else "the advisor tool is not declared"
        case ServerToolResult(tool_name="tool_search", output_json=raw):
            return _undeclared(jsontext.value(raw), context)
        case Opaque(raw_json=raw):
            return _refusal_of_block(jsontext.value(raw), message, context)
        case _:
            return None


def _refusal_of_block(block: object, message: Message, context: Context) -> str | None:
    match block:
        case {"type": str(kind)}:
            if kind.endswith("_tool_result") or not isinstance(message, _HOLDERS.get(kind, object)):
                return f"not taken in a {message.role} message"
            return _undeclared(block, context)
        case _:
            return "not a content block"


_HOLDERS: Final[dict[str, Any]] = {
    **dict.fromkeys(("image", "document", "search_result"), (UserMessage, ToolMessage)),
    **dict.fromkeys(("tool_addition", "tool_removal"), SystemMessage),
    **dict.fromkeys(("compaction", "fallback"), AssistantMessage),
    **dict.fromkeys(
        ("thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use", "tool_result"), ()
    ),
    "container_upload": (UserMessage, AssistantMessage),
    "tool_reference": ToolMessage,
}
"""Which messages hold a block of a type; types that are not listed may stand anywhere.

A block that is opaque although its type has parts of its own came from a role that does not hold it: none does.
"""


def is_new(raw: Raw) -> bool:
    """Whether a block is of a type that has no rule yet."""
    match jsontext.value(raw):
        case {"type": str(kind)}:
            return kind not in _HOLDERS
        case _:
            return False


def _undeclared(block: Any, context: Context) -> str | None:
    """Why a block is refused that refers to a tool which the request does not declare."""
    match block:
        case {"type": "tool_reference", "tool_name": str(name)}:
            names = [name]
        case {"type": "tool_addition" | "tool_removal", "tool": {"type": "tool_reference", "name": str(name)}}:
            names = [name]
        case {"type": "tool_search_tool_result", "content": {"tool_references": [*found]}}:
            tables = [cast("dict[str, Any]", each) for each in found if isinstance(each, dict)]
            names = [str(each["tool_name"]) for each in tables if "tool_name" in each]
        case _:
            return None
    declared = _declared_names(context)
    unknown = next((name for name in names if declared is not None and name not in declared), None)
    return None if unknown is None else f"names {unknown!r}, a tool that is not declared"


def _declared_names(context: Context) -> set[str] | None:
    """Names of the declared tools; ``None`` when a set of tools is declared whose names are not known."""
    request = context.request
    if request is None or "mcp_servers" in native(request, WIRE):
        return None
    tables = _provider_tools(request)
    if any("toolset" in str(table.get("type")) for table in tables):
        return None
    names = {fitting_name(tool.name, context) for tool in request.tools if isinstance(tool, Tool)}
    return names | {str(table.get("name")) for table in tables}


def _provider_tools(request: Request) -> list[dict[str, Any]]:
    found = [tool.raw for tool in request.tools if isinstance(tool, ProviderTool) and tool.wire == WIRE]
    return [table for table in found if isinstance(table, dict)]


def _declares_advisor(context: Context) -> bool:
    request = context.request
    return request is None or any(str(table.get("type")).startswith("advisor_") for table in _provider_tools(request))


# -- server calls and their results ------------------------------------------------------------------


def _pair_server_calls(
    placed: list[Placed], waiting: frozenset[str], context: Context, *, paused: bool
) -> tuple[list[Placed], frozenset[str]]:
    """Drop server calls and results that miss their other half; give the calls that may still be answered."""
    calls: dict[str, None] = {}
    answered: set[str] = set()
    orphans: set[int] = set()
    for item in placed:
        for part in item.message.content:
            if isinstance(part, ToolCall) and part.provider_executed:
                calls[part.id] = None
            elif isinstance(part, ServerToolResult):
                known = part.tool_call_id in calls or part.tool_call_id in waiting
                (answered.add(part.tool_call_id) if known else orphans.add(id(part)))
    if not calls and not orphans:
        return placed, waiting - answered
    open_calls: set[str] = set(calls) - answered
    if open_calls and not (paused or _waits_for_results(placed)):
        orphans |= {id(part) for item in placed for part in item.message.content if _calls_one_of(part, open_calls)}
        open_calls = set()
    for position, item in enumerate(placed):
        preserved = tuple([part for part in item.message.content if id(part) not in orphans])
        for part in item.message.content:
            if id(part) in orphans:
                context.lose("dropped", _WORDS[type(part)], "its other half is missing", item.index)
        if len(preserved) != len(item.message.content):
            placed[position] = Placed(item.index, item.message.replace(content=preserved), item.note)
    return placed, (waiting - answered) | open_calls


def _calls_one_of(part: AnyPart, names: set[str]) -> bool:
    return isinstance(part, ToolCall) and part.provider_executed and part.id in names


def _waits_for_results(placed: Sequence[Placed]) -> bool:
    """Whether only tool results follow."""
    behind = _behind(placed)
    results = any(isinstance(message, ToolMessage) for message in behind)
    return results and not any(isinstance(message, UserMessage) for message in behind)


def _behind(placed: Sequence[Placed]) -> list[Message]:
    """The messages behind the last of the assistant."""
    answers = [position for position, item in enumerate(placed) if isinstance(item.message, AssistantMessage)]
    return [item.message for item in placed[answers[-1] + 1 if answers else 0 :]]


# -- messages --------------------------------------------------------------------------------------


def _trim_last_answer(placed: list[Placed], context: Context) -> list[Placed]:
    """Let a last assistant message end neither in thinking nor in white space (docs/spec/wires.md#4.3.6)."""
    placed = list(placed)
    while placed and isinstance(placed[-1].message, AssistantMessage):
        index, message, note = placed.pop()
        content = list(message.content)
        while content and isinstance(content[-1], Reasoning):
            content.pop()
            context.lose("dropped", "reasoning", "may not end a last assistant message", index)
        last = content[-1] if content else None
        if isinstance(last, Text) and last.text != last.text.rstrip():
            context.lose("converted", "text", "white space at the end of a last assistant message", index)
            content[-1] = last.replace(text=last.text.rstrip())
        if content:
            return [*placed, Placed(index, message.replace(content=tuple(content)), note)]
    return placed


def _drop_empty(placed: Sequence[Placed]) -> list[Placed]:
    """Leave out messages without content."""
    return [item for item in placed if item.message.content or isinstance(item.message, ToolMessage)]


def _ensure_answer(placed: list[Placed], before: TurnState, context: Context) -> list[Placed]:
    """Let an answer follow on a system message or an open server call, even if nothing of it is left."""
    needed = placed and (before.noted or before.open_calls)
    if not needed or any(isinstance(item.message, AssistantMessage) for item in placed):
        return placed
    index = placed[0].index
    context.lose("converted", "assistant message", "nothing of it can be sent; a fixed text was sent", index)
    return [Placed(index, trusted.AssistantMessage(content=(trusted.Text(STAND_IN),))), *placed]


def _place_notes(placed: list[Placed], context: Context) -> list[Placed]:
    """Let system messages stand only where the provider takes them (docs/spec/wires.md#4.3.9)."""
    end = len(placed)
    while end and isinstance(placed[end - 1].message, SystemMessage):
        end -= 1
    stays = end > 0 and _precedes_note(placed[end - 1].message)
    out: list[Placed] = []
    for position, item in enumerate(placed):
        if not isinstance(item.message, SystemMessage) or (stays and position >= end):
            out.append(item)
            continue
        context.lose("converted", "system message", "not taken at this place; sent as user text", item.index)
        lose_fields(native(item.message, WIRE), "a field of a system message", context, item.index)
        for part in item.message.content:
            if isinstance(part, Opaque):
                context.lose("dropped", "opaque block", "not taken in a user message", item.index)
        user_message = system_as_user(item.message)
        if user_message is not None:
            out.append(Placed(item.index, user_message, item.note))
    return out


def _precedes_note(message: Message) -> bool:
    if isinstance(message, AssistantMessage):
        return isinstance(message.content[-1], ServerToolResult)
    return True
