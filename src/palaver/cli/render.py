"""Draw a conversation, or the branches of a thread.

- Each message is a block: its author, then its parts in order behind a bar in the colour of the role.
- A tool result is shown under its call, wherever it is in the conversation. A call without a result says so.
- Reasoning is folded to its first line, long results and raw text to their first lines; ``full`` unfolds them. Folded
  text says how much is hidden. Media shows its kind, type and size or address, never its bytes.
- In the tree of branches a line is a stretch of messages without a fork: the branches that end there, their lengths,
  the number of messages and the first text. An end without a branch, which a rewind left, is shown too.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
from rich.console import Group
from rich.rule import Rule
from rich.segment import Segment
from rich.style import Style
from rich.text import Text as Line

from palaver.cli import stores
from palaver.cli.terminal import count, indent_json, safe, size
from palaver.core import jsontext
from palaver.core.errors import ArgumentsError, PalaverError
from palaver.core.messages import AssistantMessage, FlushMarker, RescueMarker, ToolMessage
from palaver.core.parts import (
    Audio,
    Blob,
    File,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
    Video,
)
from palaver.core.request import Request
from palaver.threads.thread import Thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType

    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart, Citation
    from palaver.core.request import Response
    from palaver.core.usage import Usage


_ROLE_STYLES: Final = {
    "system": "magenta",
    "developer": "magenta",
    "user": "green",
    "assistant": "blue",
    "tool": "cyan",
    "rescue": "red",
    "flush": "yellow",
}
_FOLDED_LINES: Final = 6
_FOLDED_SIZE: Final = 600
_LEEWAY: Final = 2
"""A text is not folded when only this many lines would be hidden."""
_SHORT: Final = 64


class View(msgspec.Struct, frozen=True):
    """What is unfolded."""

    reasoning: bool = False
    full: bool = False


class _Bar:
    """Content behind a bar on the left."""

    def __init__(self, content: RenderableType, style: str) -> None:
        self._content = content
        self._bar = Segment("│ ", Style.parse(style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        inner = options.update_width(max(options.max_width - 2, 10))
        for line in console.render_lines(self._content, inner, pad=False):
            yield self._bar
            yield from line
            yield Segment.line()


def conversation(value: Request | Response, wire: str, view: View = View()) -> Iterator[RenderableType]:  # noqa: B008
    """Draw a request or a response."""
    yield _title(value, wire)
    yield from messages(value.messages if isinstance(value, Request) else (value.message, *value.alternatives), view)


def messages(items: Sequence[Message], view: View) -> Iterator[RenderableType]:
    """Draw messages, each after an empty line."""
    results = _Results(items)
    for position, message in enumerate(items):
        if isinstance(message, RescueMarker | FlushMarker):
            yield ""
            yield Rule(_marker(message), style=_ROLE_STYLES[message.role])
        elif not (isinstance(message, ToolMessage) and results.shown(position)):
            yield ""
            yield _message(message, position, results, view)


def _title(value: Request | Response, wire: str) -> RenderableType:
    pieces = [wire, "request" if isinstance(value, Request) else "response"]
    if value.model:
        pieces.append(safe(value.model))
    if isinstance(value, Request):
        pieces.append(count(len(value.messages), "message"))
        if value.tools:
            names = [getattr(tool, "name", None) or "one of the provider's" for tool in value.tools]
            pieces.append(f"{count(len(names), 'tool')} ({safe(', '.join(names))})")
    elif value.alternatives:
        pieces.append(count(len(value.alternatives), "alternative"))
    return Line(" · ".join(pieces), "bold")


def _marker(message: RescueMarker | FlushMarker) -> Line:
    return Line(safe(f"{message.role}: {message.reason}" if message.reason else message.role))


class _Results:
    """Maps tool messages to calls: a result belongs to the last call before it with the same id."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._answers: dict[tuple[int, str], list[ToolMessage]] = {}
        self._positions: dict[int, tuple[int, str]] = {}
        callers: dict[str | None, list[int]] = {}
        for position, message in enumerate(messages):
            if isinstance(message, AssistantMessage):
                ids = [call.id for call in message.tool_calls] + [call.id for call in message.malformed_tool_calls]
                for call_id in ids:
                    callers.setdefault(call_id, []).append(position)
            elif (
                isinstance(message, ToolMessage)
                and message.tool_call_id is not None
                and message.tool_call_id in callers
            ):
                place = (callers[message.tool_call_id][-1], message.tool_call_id)
                self._answers.setdefault(place, []).append(message)
                self._positions[position] = place

    def of(self, position: int, call_id: str | None) -> list[ToolMessage]:
        """Return the results of a call of the message at ``position``."""
        return [] if call_id is None else self._answers.get((position, call_id), [])

    def shown(self, position: int) -> bool:
        """Return whether the tool message at ``position`` is shown under its call."""
        return position in self._positions


def _message(message: Message, position: int, results: _Results, view: View) -> RenderableType:
    style = _ROLE_STYLES[message.role]
    body: list[RenderableType] = []
    for part in message.content:
        body += _part(part, view)
        if isinstance(part, ToolCall | MalformedToolCall):
            body += _answers(part, results.of(position, part.id), view)
    if isinstance(message, AssistantMessage) and (foot := _footer(message)) is not None:
        body.append(foot)
    if not body and message.payload:  # a record of a request or a decision
        payload = jsontext.encode(message.payload).decode()
        body.append(
            Line(safe(payload), "dim") if view.full else Line(safe(payload), "dim", no_wrap=True, overflow="ellipsis")
        )
    return Group(_speaker(message, style), _Bar(Group(*body), style) if body else Line("(no content)", "dim"))


def _speaker(message: Message, style: str) -> Line:
    about = [message.agent, message.source and f"from {message.source}"]
    if isinstance(message, AssistantMessage):
        about.append(message.model)
    if isinstance(message, ToolMessage):
        about += [message.tool_name, "error" if message.is_error else None]
    about += [f"#{tag}" for tag in message.tags]
    line = Line(message.role, f"bold {style}")
    return line.append(safe("".join(f" · {each}" for each in about if each)), "dim")


def _footer(message: AssistantMessage) -> Line | None:
    pieces: list[str] = [message.finish_reason] if message.finish_reason else []
    raw = message.finish_reason_raw
    if isinstance(raw, str) and pieces and raw != message.finish_reason:
        pieces = [f"{message.finish_reason} ({safe(raw)})"]
    if message.usage is not None:
        pieces += _usage(message.usage)
    return Line("■ " + " · ".join(pieces), "dim") if pieces else None


def _usage(usage: Usage) -> Iterable[str]:
    labels = {
        "input": "in",
        "cache_read": "from cache",
        "cache_write": "to cache",
        "output": "out",
        "reasoning": "reasoning",
    }
    counted = ((getattr(usage, name), word) for name, word in labels.items())
    return [f"{number:,} {word}" for number, word in counted if number]


def _part(part: AnyPart, view: View) -> list[RenderableType]:
    match part:
        case Text():
            return [Line(safe(part.text)), *_citations(part.citations)]
        case Reasoning():
            return [_reasoning(part, view)]
        case ToolCall():
            return [_call(part)]
        case MalformedToolCall():
            head = Line.assemble(("✗ ", "red"), (safe(part.name or "call"), "bold red"), (" malformed: ", "red"))
            return [head.append(safe(part.reason), "red"), _indented(_folded(part.raw, view, "dim"))]
        case ServerToolResult():
            head = Line(f"← {safe(part.tool_name or 'result')} (run by the provider)", _result_style(part.is_error))
            return [_indented(Group(head, _json(part.output_json, view)))]
        case Image() | Audio() | Video() | File():
            return [_media(part)]
        case Refusal():
            return [Line.assemble(("refused: ", "bold red"), safe(part.text))]
        case Json():
            return [_json(part.value_json, view)]
        case Opaque():
            return [Line(f"◌ an unknown block of {part.wire} ({size(len(bytes(part.raw_json)))})", "dim")]
        case _:
            assert_never(part)


def _citations(citations: Iterable[Citation]) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for number, citation in enumerate(citations, 1):
        names = [each for each in (citation.title, citation.url) if each]
        line = Line(f"[{number}] {safe(' · '.join(names) or 'a source')}", "cyan")
        if citation.quote:
            line.append(f" “{safe(_first_line(citation.quote))}”", "dim")
        lines.append(_indented(line))
    return lines


def _reasoning(part: Reasoning, view: View) -> RenderableType:
    proof = "signed" if part.signature else "encrypted" if part.encrypted else None
    length = count(len(part.text), "character") if part.text else None
    about = ", ".join(each for each in (length, proof) if each) or "empty"
    if view.reasoning or view.full:
        return Group(Line(f"▾ reasoning ({about})", "dim italic"), _indented(Line(safe(part.text), "dim")))
    first = f": {safe(part.text.strip().partition(chr(10))[0])}" if part.text.strip() else ""
    return Line(f"▸ reasoning ({about}){first}", "dim italic", no_wrap=True, overflow="ellipsis")


def _call(call: ToolCall) -> RenderableType:
    head = Line.assemble(("→ ", "yellow"), (safe(call.name), "bold yellow"))
    if call.provider_executed:
        head.append(" (run by the provider)", "dim")
    arguments = _arguments(call)
    if not arguments:
        text = _free_text(call)
        return head.append(f"  {safe(text)}" if text.strip() not in {"", "{}"} else "()", "")
    pairs = [(safe(key), safe(_plain(item))) for key, item in arguments.items()]
    if sum(len(key) + len(text) + 4 for key, text in pairs) <= _SHORT and not any("\n" in text for _, text in pairs):
        return head.append("(" + ", ".join(f"{key}: {text}" for key, text in pairs) + ")", "")
    lines = [Line.assemble((f"{key}: ", "dim"), text) for key, text in pairs]
    return Group(head, _indented(Group(*lines)))


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    try:
        return {} if call.custom else call.arguments
    except ArgumentsError:
        return {}


def _free_text(call: ToolCall) -> str:
    """Return the text of a free-text call, else the raw arguments."""
    try:
        return jsontext.text(call.arguments_json.encode()) if call.custom else call.arguments_json
    except PalaverError:
        return call.arguments_json


def _plain(item: object) -> str:
    return item if isinstance(item, str) else jsontext.encode(item).decode()


def _answers(call: ToolCall | MalformedToolCall, answers: list[ToolMessage], view: View) -> list[RenderableType]:
    if not answers:
        needs_result = isinstance(call, ToolCall) and not call.provider_executed
        return [_indented(Line("← no result", "dim"))] if needs_result else []
    drawn: list[RenderableType] = []
    for answer in answers:
        head = Line("← error" if answer.is_error else "←", _result_style(answer.is_error))
        parts = [each for part in answer.content for each in _result(part, view)]
        if len(parts) == 1 and isinstance(parts[0], Line) and "\n" not in parts[0].plain:
            parts = [Line.assemble(head, " ", parts[0])]
        else:
            parts = [head, *(_indented(each) for each in parts)]
        drawn.append(_indented(Group(*parts)))
    return drawn


def _result(part: AnyPart, view: View) -> list[RenderableType]:
    return [_folded(part.text, view)] if isinstance(part, Text) else _part(part, view)


def _result_style(is_error: bool) -> str:  # noqa: FBT001 (of a result)
    return "bold red" if is_error else "green"


def _media(part: Image | Audio | Video | File) -> Line:
    pieces = [type(part).__name__.lower()]
    if isinstance(part, File) and part.name:
        pieces.append(safe(part.name))
    if part.media_type:
        pieces.append(safe(part.media_type))
    match part.source:
        case Inline() as content:
            pieces.append(size(content.size))
        case Url(url):
            pieces.append(safe(url))
        case FileId(id, wire):
            pieces.append(f"{safe(id)} of {wire}")
        case Blob(hash):
            pieces.append(safe(hash))
        case _:
            assert_never(part.source)
    return Line("▣ " + " · ".join(pieces), "cyan")


def _json(raw: msgspec.Raw, view: View) -> Line:
    line = indent_json(bytes(raw), 0)
    return _folded((line if len(line) <= _SHORT else indent_json(line)).decode(), view)


def _folded(text: str, view: View, style: str = "") -> Line:
    if view.full:
        return Line(safe(text), style)
    lines = text.splitlines()
    if len(lines) <= _FOLDED_LINES + _LEEWAY and len(text) <= _FOLDED_SIZE:
        return Line(safe(text), style)
    short = "\n".join(lines[:_FOLDED_LINES])[:_FOLDED_SIZE]
    return Line(safe(short), style).append(f"\n… {len(text) - len(short):,} more characters", "dim")


def _indented(content: RenderableType) -> RenderableType:
    return _Bar(content, "dim")


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1]}…"


_FIRST: Final = 48
_MAX_TEXT: Final = 1_000


def branches(tree: Thread) -> Iterator[Line]:
    """Draw the branches of a thread as a tree, parents first."""
    names: dict[str, list[str]] = {}
    for name, head in tree.branches.items():
        if head is not None:
            names.setdefault(head, []).append(name)
    roots = tree.children(None)
    waiting = [(root, "", at == len(roots) - 1, len(roots) > 1, 0) for at, root in enumerate(roots)][::-1]
    while waiting:
        first, margin, last, parted, before = waiting.pop()
        end, length = _stretch(tree, first, names)
        children = tree.children(end)
        line = Line(margin + (("└─ " if last else "├─ ") if parted else ""), "dim")
        if end in names:
            line.append(", ".join(map(safe, names[end])), "bold green").append(
                f" ({before + length:,})", "green"
            ).append(" · ", "dim")
        elif not children:
            line.append(f"no branch ({before + length:,})", "yellow").append(" · ", "dim")
        yield _describe_stretch(line, tree, first, length)
        inner = margin + (("   " if last else "│  ") if parted else "")
        waiting += [
            (child, inner, at == len(children) - 1, len(children) > 1, before + length)
            for at, child in enumerate(children)
        ][::-1]
    for name, head in tree.branches.items():
        if head is None:
            yield Line.assemble((safe(name), "bold green"), (" is empty", "dim"))


def _stretch(tree: Thread, first: str, names: dict[str, list[str]]) -> tuple[str, int]:
    """Return the last entry of the stretch that starts with an entry, and its length without records."""
    end, length = first, int(stores.is_message(tree.entry(first).message))
    while len(children := tree.children(end)) == 1 and end not in names:
        end = children[0]
        length += stores.is_message(tree.entry(end).message)
    return end, length


def _describe_stretch(line: Line, tree: Thread, first: str, length: int) -> Line:
    """Append the length of a stretch and the text of its first message."""
    message = tree.entry(first).message
    text = message.text[:_MAX_TEXT] or ", ".join(f"→ {call.name}" for call in message.tool_calls)
    excerpt = " ".join(safe(text[:_MAX_TEXT]).split())
    excerpt = excerpt if len(excerpt) <= _FIRST else f"{excerpt[: _FIRST - 1]}…"
    line.append(count(length, "message"), "").append(f" from {stores.short(first)}, {message.role}", "dim")
    return line.append(f": {excerpt}" if excerpt else "", "")
