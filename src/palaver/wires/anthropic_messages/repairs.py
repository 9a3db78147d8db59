"""Meet the provider's rules on order and number, turn by turn.

``handover`` has fitted the parts and ``encoder`` made the pairs whole; what is left are rules that a table cannot say.
Every repair is on the receipt, and doing it twice does nothing new.

- Dropped: thinking without a proof, and thinking at the end of a last assistant message; blank text; blocks that stand
  in a role which does not hold them; references to tools that are not declared; a document by URL that is no PDF;
  server calls and results without their other half, unless the turn was paused or only tool results follow
  (docs/spec/wires.md#1.5, #4.3.5, #4.3.10, #4.3.11; router-for-me/CLIProxyAPI#5321).
- A message left without blocks is dropped.
- A system message stays where it is when it ends a turn behind a user message or a server result; elsewhere it becomes
  user text (docs/spec/wires.md#4.3.9).
- What a turn leaves behind for those after it, and for the head, is its ``Standing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import Raw

from palaver.core import jsontext, trusted
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
from palaver.wires._engine.fit import fitting_name, lose_fields, system_as_user
from palaver.wires._engine.json_fields import native
from palaver.wires.anthropic_messages.marks import MOST_MARKS, head_marks, thinned
from palaver.wires.anthropic_messages.shapes import PDF, WIRE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import Message
    from palaver.core.request import Request
    from palaver.wires._engine.encode_state import Context

STAND_IN: Final = "(No content.)"


class Standing(NamedTuple):
    """How the conversation stands after a turn.

    ``looping``: the model has called tools since the last text of the user; ``proven``: the loop begins with thinking;
    ``answered``: the turn ends in tool results. ``marks`` are left for the messages behind it, ``open_calls`` are
    server calls without a result, ``noted`` tells that the turn ends in a system message.
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


def repaired(messages: Sequence[Placed], context: Context) -> list[Placed]:
    """Repair one turn of fitted messages with whole pairs."""
    before = context.state
    if not isinstance(before, Standing):
        before = Standing(marks=max(0, MOST_MARKS - head_marks(context)))
    placed = _filled([Placed(item.index, _allowed(item, context), item.note) for item in messages])
    paused = not _behind(messages)
    placed, open_calls = _paired(placed, before.open_calls, context, paused=paused)
    placed = _ended(_filled(placed), context)
    placed = _answered(_filled(placed), before, context)
    placed = _noted(placed, context)
    marks = before.marks
    for position, item in enumerate(placed):
        message, marks = thinned(item.message, marks, item.index, context)
        if message is not item.message:
            placed[position] = Placed(item.index, message, item.note)
    context.leave(_standing(before, placed)._replace(marks=marks, open_calls=open_calls))
    return placed


def _standing(before: Standing, placed: Sequence[Placed]) -> Standing:
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
    return Standing(looping, proven, answered, noted=noted)


# -- parts that may not stand where they are ---------------------------------------------------------


def _allowed(item: Placed, context: Context) -> Message:
    message, index = item.message, item.index
    kept: list[AnyPart] = []
    for part in message.content:
        why = _refusal(part, message, context)
        if why is None:
            kept.append(part)
        else:
            what = _WORDS.get(type(part), "block")
            context.lose("dropped", what, why, index)
    return message if len(kept) == len(message.content) else message.replace(content=tuple(kept))


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
            return "no block of content"


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
    declared = _declared(context)
    unknown = next((name for name in names if declared is not None and name not in declared), None)
    return None if unknown is None else f"names {unknown!r}, a tool that is not declared"


def _declared(context: Context) -> set[str] | None:
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


def _paired(
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
    if open_calls and not (paused or _waits(placed)):
        orphans |= {id(part) for item in placed for part in item.message.content if _calls_one_of(part, open_calls)}
        open_calls = set()
    for position, item in enumerate(placed):
        kept = tuple([part for part in item.message.content if id(part) not in orphans])
        for part in item.message.content:
            if id(part) in orphans:
                context.lose("dropped", _WORDS[type(part)], "its other half is missing", item.index)
        if len(kept) != len(item.message.content):
            placed[position] = Placed(item.index, item.message.replace(content=kept), item.note)
    return placed, (waiting - answered) | open_calls


def _calls_one_of(part: AnyPart, names: set[str]) -> bool:
    return isinstance(part, ToolCall) and part.provider_executed and part.id in names


def _waits(placed: Sequence[Placed]) -> bool:
    """Whether only tool results follow."""
    behind = _behind(placed)
    results = any(isinstance(message, ToolMessage) for message in behind)
    return results and not any(isinstance(message, UserMessage) for message in behind)


def _behind(placed: Sequence[Placed]) -> list[Message]:
    """The messages behind the last of the assistant."""
    answers = [position for position, item in enumerate(placed) if isinstance(item.message, AssistantMessage)]
    return [item.message for item in placed[answers[-1] + 1 if answers else 0 :]]


# -- messages --------------------------------------------------------------------------------------


def _ended(placed: list[Placed], context: Context) -> list[Placed]:
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


def _filled(placed: Sequence[Placed]) -> list[Placed]:
    """Leave out messages without content."""
    return [item for item in placed if item.message.content or isinstance(item.message, ToolMessage)]


def _answered(placed: list[Placed], before: Standing, context: Context) -> list[Placed]:
    """Let an answer follow on a system message or an open server call, even if nothing of it is left."""
    needed = placed and (before.noted or before.open_calls)
    if not needed or any(isinstance(item.message, AssistantMessage) for item in placed):
        return placed
    index = placed[0].index
    context.lose("converted", "assistant message", "nothing of it may be sent; a fixed text stands for it", index)
    return [Placed(index, trusted.AssistantMessage(content=(trusted.Text(STAND_IN),))), *placed]


def _noted(placed: list[Placed], context: Context) -> list[Placed]:
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
        told = system_as_user(item.message)
        if told is not None:
            out.append(Placed(item.index, told, item.note))
    return out


def _precedes_note(message: Message) -> bool:
    if isinstance(message, AssistantMessage):
        return isinstance(message.content[-1], ServerToolResult)
    return True
