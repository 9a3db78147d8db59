"""Write Converse bodies.

The wire cannot express these (docs/spec/wires.md#6.5): media by a URL that is not ``s3://``, the developer role, system
messages behind others, tool choice ``none`` and choices of several names, free-text calls, arguments that are no
object, seeds and penalties, JSON without a schema, refusals; and in a response its id and model. ``fit`` deals
with what is in messages before this module is asked.

Outside its own, unedited request a body meets the service's order (docs/spec/wires.md#6.2):

- runs of one role are one message; an empty message gets the text ``.``; no message begins with a cache point, and
  later cache points than the fourth are left out;
- a document stands beside a text, a fixed one where there is none;
- all results of a turn stand in one user message. The user's content stands there too, except what may not stand beside
  results: documents and videos that did not stand there before, and, where ``Request.model`` names a family that takes
  nothing beside results, everything. That follows in a user message of its own, behind an assistant's ``.``;
- ``toolConfig`` is there when the history holds tool blocks: without tools, those called so far are declared by name.

The model and whether to stream stand in the URL; leaving them out of the body is no loss.

Source: docs/spec/wires.md#6.1 to #6.5.
"""

from __future__ import annotations

import re
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import Raw, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.jsontext import EMPTY_OBJECT, Fields
from palaver.core.messages import AssistantMessage, SystemMessage, ToolMessage
from palaver.core.parts import File, Image, Opaque, Text, ToolCall, Video
from palaver.core.request import ToolChoice
from palaver.core.tools import ProviderTool, Tool
from palaver.wires._engine import json_fields
from palaver.wires._engine.cache_marks import Marking
from palaver.wires._engine.capabilities import IdRule, MediaRule, MetadataRule, WireCapabilities
from palaver.wires._engine.encoder import ABSENT
from palaver.wires._engine.fit import declared_name, fitting_name
from palaver.wires._engine.json_fields import native, notes
from palaver.wires._engine.schemas import BEDROCK, fit_tool
from palaver.wires._engine.tools import lose_parameters
from palaver.wires.bedrock_converse import settings
from palaver.wires.bedrock_converse.encode_parts import Block, blocks, kind_of, plain
from palaver.wires.bedrock_converse.settings import CHOICE, family, put, written_at
from palaver.wires.bedrock_converse.shapes import FINISH, FINISH_WORD, NEAR_WORD, WIRE, WORDS, finish, write_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.core.messages import Message
    from palaver.core.pairs import Placed
    from palaver.core.request import Request, Response
    from palaver.core.tools import AnyTool
    from palaver.wires._engine.capabilities import MediaKind
    from palaver.wires._engine.encode_state import Context

__all__ = ["CAPABILITIES", "LIST", "ending", "head", "hoists", "response", "role", "turn"]

LIST: Final = "messages"

_FILLER: Final = "."
_BESIDE_DOCUMENT: Final = "See the attached document."
_MOST_MARKS: Final = 4
_TOO_MANY: Final = "there are four before it"
_RESULTS_ALONE: Final = frozenset({"meta", "mistral"})
"""Families that take nothing beside tool results (docs/spec/wires.md#6.2.6)."""


def _rule(kind: str) -> MediaRule:
    return MediaRule(frozenset({"inline", "url"}), frozenset(WORDS[kind]), needs_type=True, schemes=frozenset({"s3"}))


_IN_RESULTS: Final[dict[MediaKind, MediaRule]] = {
    "image": _rule("image"),
    "file": _rule("document"),
    "video": _rule("video"),
}

_MARKING: Final = Marking(
    wire=WIRE,
    name="cachePoint",
    value=Raw(b'{"type":"default"}'),
    form="block",
    carriers=(Text, Image, File, Video, ToolCall),
    results="message",
    tools="block",
    most=_MOST_MARKS,
    models=re.compile(r"\banthropic\.|\bclaude-"),
)
_MARKINGS: Final = (_MARKING, structs.replace(_MARKING, tools=None, ttls=False, models=re.compile(r"\bamazon\.nova")))
"""https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html: which models take any, and where."""

CAPABILITIES: Final = WireCapabilities(
    needs_usage=True,
    needed_counters=(("input",), ("output", "reasoning")),
    marking=_MARKINGS,
    names_model=False,
    declares_called=True,
    ranges={"max_tokens": (1, inf), "temperature": (0, 1), "top_p": (0, 1)},
    stops=2500,  # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InferenceConfiguration.html
    later_system=False,
    developer=False,
    blank_text=False,
    blank_proofs=frozenset({"blank", "kind"}),
    blank_result=True,
    media={**_IN_RESULTS, "audio": _rule("audio")},
    result_media=_IN_RESULTS,
    custom_calls=False,
    object_arguments=True,
    refusal=False,
    call_id=IdRule(re.compile(r"[a-zA-Z0-9_.:-]{1,64}"), prefix="tooluse_", unique=True),
    first_user=True,
    blank_end=False,
    elsewhere=frozenset({"promptVariables"}),
    metadata=MetadataRule(
        field="requestMetadata",
        key=re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{1,256}"),
        value=re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{0,256}"),
        most=16,
    ),
)


def hoists(message: SystemMessage, context: Context) -> bool:
    """Leading system messages stand in ``system``, except those found among the messages."""
    return not (context.own and "place" in notes(message, WIRE))


# -- the head --------------------------------------------------------------------------------------


def head(request: Request, system: Sequence[SystemMessage], context: Context) -> dict[str, Any]:
    """Write system, settings and tools."""
    fields: dict[str, Any] = native(request, WIRE)
    stored = notes(request, WIRE)
    settings.write(fields, stored, request.settings, context)
    blocks_of_system = [block for index, message in enumerate(system) for block in blocks(message, context, index)]
    if not context.own:
        blocks_of_system = _limit_marks(blocks_of_system, _marks(context).system, context)
    if blocks_of_system:
        fields["system"] = [block.body for block in blocks_of_system]
    if context.own:
        _put_own_tools(fields, stored, request, context)
        if len(system) == len(request.messages):  # a prompt that the service keeps needs no messages
            fields[LIST] = ABSENT
        return fields
    _put_tools(fields, stored, request, context)
    fields.pop(LIST, None)
    if not request.messages and context.names(CAPABILITIES.elsewhere):
        fields[LIST] = ABSENT
    for wire, key, _ in json_fields.foreign(request, WIRE):
        context.lose("dropped", key, f"a field of {wire}")
    return fields


def _put_own_tools(fields: dict[str, Any], stored: Fields, request: Request, context: Context) -> None:
    if request.tools:
        put(fields, ("toolConfig", "tools"), [_tool(tool, context) for tool in request.tools])
    if request.settings.tool_choice is not None:
        put(fields, CHOICE.path, written_at(CHOICE, request.settings.tool_choice, stored))


def _put_tools(fields: dict[str, Any], stored: Fields, request: Request, context: Context) -> None:
    """Write ``toolConfig``, which must be there when the history holds tool blocks, and must hold a tool."""
    choice = request.settings.tool_choice
    given: Sequence[AnyTool] = request.tools
    if choice is not None and choice.mode == "none":
        given = _needed_tools(given, context)
        choice = None
    tools = [written for tool in given if (written := _tool(fit_tool(tool, BEDROCK, context), context)) is not None]
    marked = [Block("" if isinstance(tool, dict) else kind_of(tool), tool) for tool in tools]
    tools = [block.body for block in _limit_marks(marked, _marks(context).tools, context)]
    names: set[str] = {written["toolSpec"]["name"] for written in tools if isinstance(written, dict)}
    if not any(isinstance(tool, dict) or kind_of(tool) != "cachePoint" for tool in tools):
        tools = _declared(context)
        names = set(context.called)
    if not tools:
        fields.pop("toolConfig", None)
        if choice is not None and choice.mode != "auto":
            context.lose("dropped", "tool_choice", "there is no tool to choose")
        return
    put(fields, ("toolConfig", "tools"), tools)
    if choice is not None:
        put(fields, CHOICE.path, written_at(CHOICE, _fitted_choice(choice, names, context), stored))


def _needed_tools(tools: Sequence[AnyTool], context: Context) -> list[AnyTool]:
    """Write tool choice ``none``: leave out all tools except those that the history needs (docs/spec/wires.md#6.1)."""
    remaining = [
        tool for tool in tools if isinstance(tool, Tool) and fitting_name(tool.name, context) in context.called
    ]
    if context.called:
        why = "the wire has no “none”; the tools named in the history are declared, and may be called"
        context.lose("approximated", "tool_choice", why)
    elif tools:
        context.lose("converted", "tool_choice", "the wire has no “none”; the tools were left out")
    return cast("list[AnyTool]", remaining)


def _declared(context: Context) -> list[dict[str, Any]]:
    """Declare the tools that were called, of which only the names are known."""
    for name in context.called:
        context.lose("approximated", "tools", f"{name!r} was called, so it is declared, by its name")
    return [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in context.called]


def _fitted_choice(choice: ToolChoice, declared: set[str], context: Context) -> ToolChoice:
    names = tuple(fitting_name(name, context) for name in choice.names)
    if not names or (choice.mode == "required" and len(names) == 1 and names[0] in declared):
        return trusted.ToolChoice(choice.mode, names)
    if not declared.issubset(names):
        context.lose("approximated", "tool_choice", f"the wire cannot narrow it to {', '.join(names)}")
    return trusted.ToolChoice(choice.mode)


def _tool(tool: AnyTool, context: Context) -> Any:
    if isinstance(tool, ProviderTool):
        if tool.wire == WIRE and (context.own or kind_of(tool.raw_json)):
            return tool.raw_json
        context.lose("dropped", "provider tool", f"belongs to {tool.wire}")
        return None
    for wire, key, _ in json_fields.foreign(tool, WIRE):
        context.lose("dropped", key, f"a field of {wire}")
    rest = native(tool, WIRE)
    spec: dict[str, Any] = {"name": declared_name(tool.name, context)}
    if tool.description is not None:
        spec["description"] = tool.description
        if not context.own and not tool.description:
            del spec["description"]
    schema = tool.parameters_json if context.own else _schema(tool, context)
    spec["inputSchema"] = {"json": schema, **jsontext.fields(rest.pop("inputSchema", EMPTY_OBJECT))}
    if tool.strict is not None:
        spec["strict"] = tool.strict
    return {"toolSpec": {**spec, **rest}, **jsontext.fields(notes(tool, WIRE).get("beside", EMPTY_OBJECT))}


def _schema(tool: Tool, context: Context) -> object:
    """Write the schema of the arguments, which must be one of an object."""
    if tool.custom:
        lose_parameters(tool, context)
        context.lose("converted", "tools", f"{tool.name!r} takes free text; declared with an object around it")
        return {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    schema = tool.parameters_json
    if isinstance(schema, UnsetType):
        return {"type": "object", "properties": {}}
    if jsontext.kind(schema) != "an object":
        context.lose("approximated", "tools", f"the schema of {tool.name!r} is not of type object")
        return {"type": "object"}
    fields = jsontext.fields(schema)
    return schema if "type" in fields else {"type": "object", **fields}


# -- messages --------------------------------------------------------------------------------------


def turn(messages: Sequence[Placed], context: Context) -> list[dict[str, Any]]:
    """Write a turn: as it was found, or each run of one side as one message."""
    if context.own:
        return _as_found(messages, context)
    written: list[dict[str, Any]] = []
    for from_assistant, items in groupby(messages, lambda item: isinstance(item.message, AssistantMessage)):
        run = list(items)
        written += _assistant_turn(run, context) if from_assistant else _user_turn(run, context)
    return written


def _as_found(messages: Sequence[Placed], context: Context) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    for item in messages:
        index, message = item.index, item.message
        content = [block.body for block in blocks(message, context, index)]
        if written and "joined" in notes(message, WIRE):
            written[-1]["content"] += content
        else:
            role = "user" if isinstance(message, ToolMessage) else message.role
            written.append({"role": role, "content": content, **_beside(message)})
    return written


def _beside(message: Message) -> Fields:
    """Return the fields beside role and content of the wire message."""
    if isinstance(message, ToolMessage):
        return jsontext.fields(notes(message, WIRE).get("message", EMPTY_OBJECT))
    return native(message, WIRE)


def _written(run: Iterable[Placed], context: Context) -> tuple[list[Block], Fields]:
    content: list[Block] = []
    beside: Fields = {}
    for item in run:
        index, message = item.index, item.message
        content += _placed_marks(blocks(message, context, index), content, context, index)
        beside.update(_beside(message))
    return content, beside


def _placed_marks(found: list[Block], before: list[Block], context: Context, index: int) -> list[Block]:
    """Leave out cache points that begin a message, and those behind the fourth of the request.

    Source: docs/spec/wires.md#6.2.7.
    """
    left = _MOST_MARKS - sum(_marks(context))
    preserved: list[Block] = []
    for block in found:
        if block.kind == "cachePoint":
            if not (preserved or before):
                context.lose("dropped", "cachePoint", "there is no block before it", index)
                continue
            if not any(context.take(f"cachePoint {number}") for number in range(left)):
                context.lose("dropped", "cachePoint", _TOO_MANY, index)
                continue
        preserved.append(block)
    return preserved


class _Marks(NamedTuple):
    """How many cache points stand in the head."""

    tools: int
    system: int


def _marks(context: Context) -> _Marks:
    """Count the cache points of the head, which go before those of messages; what is more than four is left out."""
    tools = () if context.request is None else context.request.tools
    offered = _count(tool.raw_json for tool in tools if isinstance(tool, ProviderTool) and tool.wire == WIRE)
    parts = (part for message in context.system for part in message.content)
    blocks_of_system = _count(part.raw_json for part in parts if isinstance(part, Opaque))
    offered = min(offered, _MOST_MARKS)
    return _Marks(offered, min(blocks_of_system, _MOST_MARKS - offered))


def _count(raws: Iterable[Raw]) -> int:
    return sum(kind_of(raw) == "cachePoint" for raw in raws)


def _limit_marks(found: list[Block], most: int, context: Context) -> list[Block]:
    preserved: list[Block] = []
    for block in found:
        if block.kind == "cachePoint":
            if most == 0:
                context.lose("dropped", "cachePoint", _TOO_MANY)
                continue
            most -= 1
        preserved.append(block)
    return preserved


def _assistant_turn(run: list[Placed], context: Context) -> list[dict[str, Any]]:
    content, beside = _written(run, context)
    if not content:
        context.lose("converted", "assistant message", "would be empty; a fixed text was sent", run[0].index)
        content = [plain(_FILLER)]
    return [{"role": "assistant", "content": [block.body for block in content], **beside}]


def _user_turn(run: list[Placed], context: Context) -> list[dict[str, Any]]:
    """Write a run of results and user content as one message, or as two where they may not stand together."""
    cut = _cut(run, context)
    written = [_user(run[:cut], context)]
    if cut < len(run):
        why = "may not stand beside tool results; sent behind a fixed assistant text"
        context.lose("converted", "user message", why, run[cut].index)
        written.append({"role": "assistant", "content": [plain(_FILLER).body]})
        written.append(_user(run[cut:], context))
    return written


def _cut(run: list[Placed], context: Context) -> int:
    """Find the first message that may not stand beside the results before it."""
    alone = family(context.model) in _RESULTS_ALONE
    answered = False
    for position, item in enumerate(run):
        message = item.message
        if isinstance(message, ToolMessage):
            answered = True
        elif answered and (alone or (_moves(message) and "joined" not in notes(message, WIRE))):
            return position
    return len(run)


def _moves(message: Message) -> bool:
    return any(isinstance(part, (File, Video)) for part in message.content)


def _user(run: list[Placed], context: Context) -> dict[str, Any]:
    content, beside = _written(run, context)
    kinds = [block.kind for block in content]
    if not content:
        context.lose("converted", "user message", "would be empty; a fixed text was sent", run[0].index)
        content = [plain(_FILLER)]
    elif "document" in kinds and "text" not in kinds:
        context.lose("converted", "document", "needs a text beside it; a fixed one was added", run[0].index)
        content.insert(kinds.index("document"), plain(_BESIDE_DOCUMENT))
    return {"role": "user", "content": [block.body for block in content], **beside}


# -- responses -------------------------------------------------------------------------------------


def response(response: Response, context: Context) -> dict[str, Any]:
    """Write a response body; a foreign one gets the fields that the service's schema requires."""
    rest, message = native(response, WIRE), response.message
    content = [block.body for block in blocks(message, context, 0)]
    output = {"message": {"role": role(message), "content": content, **native(message, WIRE)}}
    return {"output": {**output, **jsontext.fields(rest.pop("output", EMPTY_OBJECT))}, **ending(response, context)}


def role(message: AssistantMessage) -> object:
    """Return the role of an answer."""
    return notes(message, WIRE).get("role", "assistant")


def ending(response: Response, context: Context) -> dict[str, Any]:
    """Write the fields beside the output: finish reason, usage, fields of the service."""
    rest, message = native(response, WIRE), response.message
    rest.pop("output", None)
    fields: dict[str, Any] = {}
    word = context.finish_word(
        message,
        lambda raw: finish(raw, message.content) if raw in FINISH else None,
        FINISH_WORD,
        near=NEAR_WORD,
    )
    if not isinstance(word, UnsetType):
        fields["stopReason"] = word
    if message.usage is not None or not context.own:
        fields["usage"] = write_usage(message.usage)
    if not context.own:
        fields["metrics"] = {"latencyMs": 0}
        _list_dropped(response, context)
    return {**fields, **rest}


def _list_dropped(response: Response, context: Context) -> None:
    message = response.message
    for name, value in (("model", message.model), ("response_id", message.response_id)):
        if value is not None:
            context.lose("dropped", name, "the wire has no such field", 0)
    for number, _ in enumerate(response.alternatives, 1):
        context.lose("dropped", "alternative", f"choice {number}: the wire has one answer")
