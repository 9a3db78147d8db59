"""``palaver context``: show what fills a model's context window.

- Tokens are the provider's last report plus an estimate of what follows it, or an estimate alone. Only ``--exact`` asks
  the provider to count, and needs a key.
- A thread does not hold the agent's instructions and tools: the provider's report includes them, the estimate does not.
  A request file has them.
- The output is a bar, a table by kind, and the stages that are due. A kind is a colour where there are colours, and a
  letter elsewhere, in the bar and in the table.
- The bar is the whole window: used, left, and what is reserved. Nothing is wider than the terminal.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import click
from rich.text import Text

from palaver.cli import agent_options, completion, files, rows, stores
from palaver.cli.ranges import WholeNumber
from palaver.cli.rows import Form
from palaver.cli.show import request_without_messages, with_media_bytes
from palaver.cli.source import form_name, load
from palaver.cli.tables import Column, Listing
from palaver.cli.terminal import bad_input, console, count, safe, safe_line
from palaver.context.compaction import DEFAULT
from palaver.context.contents import contents
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.request import Request
from palaver.models import names, providers
from palaver.models.language_model import Prompt
from palaver.models.token_count import count_tokens
from palaver.threads.ids import now_ms
from palaver.threads.thread import Thread
from palaver.threads.view import for_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType

    from palaver.context.contents import Contents, Kind, LargeMessage
    from palaver.core.messages import Message
    from palaver.threads.thread import Entry


_BLOCK: Final = "█"
_LETTERS: Final[tuple[str, str]] = (".", "-")
_SHADES: Final[tuple[str, str]] = ("░", "▒")
"""For free space, and for space that is reserved."""
_TOOLS: Final = 5
_MAX_TEXT: Final = 300
_MIN_BAR: Final = 24
"""The least width of the bar, in cells."""


class _Style(NamedTuple):
    name: str
    letter: str
    colour: str


_KIND_STYLES: Final[dict[Kind, _Style]] = {
    "system": _Style("system prompt", "S", "magenta"),
    "tools": _Style("tool definitions", "D", "bright_magenta"),
    "user": _Style("user", "U", "green"),
    "assistant": _Style("assistant", "A", "cyan"),
    "reasoning": _Style("reasoning", "R", "bright_black"),
    "calls": _Style("tool calls", "C", "yellow"),
    "results": _Style("tool results", "T", "blue"),
    "media": _Style("media", "M", "red"),
    "summaries": _Style("summaries", "Y", "bright_cyan"),
}


def render_contents(found: Contents, out: Console) -> Iterator[RenderableType]:
    """Render what fills a window."""
    about = "counted by the provider" if found.exact else "by the last report" if found.report else "estimated"
    used = f"{found.tokens:,} of {found.capacity:,} tokens"
    yield Text.assemble((used, "bold"), f" · {_share(found.pressure)} · {found.left:,} left · {about}")
    yield _bar(found, out)
    yield _kinds(found, out)
    yield from _details(found)
    if found.results:
        yield _results(found)
    if found.largest:
        yield _largest(found)


def plain(found: Contents) -> dict[str, Any]:
    """Return the contents as JSON values."""
    return {
        "model": found.model,
        "tokens": found.tokens,
        "exact": found.exact,
        "window": found.window,
        "window_known": found.known,
        "capacity": found.capacity,
        "reserved": found.reserved,
        "margin": found.margin,
        "left": found.left,
        "pressure": round(found.pressure, 4),
        "messages": found.messages,
        "kinds": [{"kind": each.kind, "tokens": each.tokens, "count": each.count} for each in found.kinds],
        "results": [{"tool": each.tool, "tokens": each.tokens, "count": each.count} for each in found.results],
        "largest": [
            {
                "place": each.place,
                "role": each.message.role,
                "id": each.message.id,
                "tool": each.message.tool_name if isinstance(each.message, ToolMessage) else None,
                "tokens": each.tokens,
            }
            for each in found.largest
        ],
        "report": None
        if found.report is None
        else {"place": found.report.place, "tokens": found.report.tokens, "estimate": found.report.estimate},
        "stages": [{"stage": each.stage, "tokens": each.tokens, "due": each.due} for each in found.stages],
    }


def _bar(found: Contents, out: Console) -> Text:
    width = max(min(out.width, 100), _MIN_BAR)
    coloured = _coloured(out)
    left, other = _SHADES if coloured else _LETTERS
    pieces: list[tuple[int, str, str]] = [
        (each.tokens, _BLOCK if coloured else _KIND_STYLES[each.kind].letter, _KIND_STYLES[each.kind].colour)
        for each in found.kinds
    ]
    pieces += [(found.left, left, "dim"), (found.reserved + found.margin, other, "dim")]
    whole = max(sum(size for size, _, _ in pieces), 1)
    bar = Text(no_wrap=True, overflow="crop")
    before = cells = 0
    for size, glyph, style in pieces:
        before += size
        upto = round(width * before / whole)
        bar.append(glyph * (upto - cells), style)
        cells = upto
    return bar


def _coloured(out: Console) -> bool:
    return out.color_system is not None and not out.no_color and not out.options.ascii_only


_NUMBERS: Final = (Column("tokens", "right"), Column("share", "right", optional=True), Column("count", "right"))


def _kinds(found: Contents, out: Console) -> Listing:
    mark = _coloured(out)
    listing = Listing(Column(""), Column("what"), *_NUMBERS)
    for each in found.kinds:
        style = _KIND_STYLES[each.kind]
        sign = Text(_BLOCK if mark else style.letter, style.colour)
        share = _share(each.tokens / max(found.tokens, 1))
        listing.add(sign, style.name, f"{each.tokens:,}", share, f"{each.count:,}")
    left, other = _SHADES if mark else _LETTERS
    listing.add(Text(left, "dim"), Text("left", "dim"), f"{found.left:,}", "", "")
    listing.add(Text(other, "dim"), Text("not for the prompt", "dim"), f"{found.reserved + found.margin:,}", "", "")
    return listing


def _results(found: Contents) -> Listing:
    listing = Listing(Column("results of"), *_NUMBERS)
    for each in found.results[:_TOOLS]:
        share = _share(each.tokens / max(found.tokens, 1))
        listing.add(safe_line(each.tool), f"{each.tokens:,}", share, f"{each.count:,}")
    rest = found.results[_TOOLS:]
    if rest:
        tokens = sum(each.tokens for each in rest)
        others = Text(count(len(rest), "other"), "dim")
        share = _share(tokens / max(found.tokens, 1))
        listing.add(others, f"{tokens:,}", share, f"{sum(each.count for each in rest):,}")
    return listing


def _largest(found: Contents) -> Listing:
    listing = Listing(
        Column("largest", "right"),
        Column("tokens", "right"),
        Column("who", narrow="fold"),
        Column("says", narrow="cut", optional=True),
    )
    for each in found.largest:
        says = Text(_excerpt(each.message), "dim")
        listing.add(f"#{each.place + 1:,}", f"{each.tokens:,}", safe_line(_who(each)), says)
    return listing


def _who(heavy: LargeMessage) -> str:
    message = heavy.message
    if isinstance(message, ToolMessage):
        return f"tool {message.tool_name}" if message.tool_name else "tool"
    return "summary" if message.is_summary else message.role


def _excerpt(message: Message) -> str:
    text = message.text[:_MAX_TEXT] or ", ".join(call.name for call in message.tool_calls)
    return safe(" ".join(text.split()))


def _details(found: Contents) -> Iterator[Text]:
    known = "" if found.known else " (assumed; set it with --window)"
    yield _line(
        "window",
        f"{found.window:,}{known}: {found.capacity:,} for the prompt, {found.reserved:,} for the answer, "
        f"{found.margin:,} as a margin for the estimate",
    )
    due = found.due
    if due:
        yield _line("due now", ", ".join(each.stage for each in due), "yellow")
    upcoming = found.next
    if upcoming is not None:
        more = max(upcoming.tokens - found.tokens, 0)
        yield _line("next stage", f"{upcoming.stage}, from {upcoming.tokens:,} tokens: {more:,} more")
    if found.report is not None:
        reported, estimated = found.report.tokens, found.report.estimate
        off = (estimated - reported) / max(reported, 1)
        where = f"{reported:,} in the prompt of #{found.report.place + 1:,}"
        yield _line("last report", f"{where}; an estimate alone says {estimated:,} ({off:+.0%})")


def _line(name: str, text: str, style: str = "") -> Text:
    return Text.assemble((f"{name}: ", "bold"), (text, style))


def _share(part: float) -> str:
    return f"{part:.1%}" if part < 0.0995 else f"{part:.0%}"  # noqa: PLR2004 (one digit below 10 %)


class _Conversation(NamedTuple):
    """A conversation: its display name, its path, and its request. ``sent`` are the messages with their media bytes."""

    name: str
    path: Sequence[Entry]
    request: Request
    sent: Sequence[Message]


@click.command(name="context")
@click.argument(
    "what",
    metavar="FILE|THREAD[@POSITION]",
    type=click.Path(allow_dash=True),
    shell_complete=completion.threads_or_files,
)
@click.option(
    "-m",
    "--model",
    metavar="M",
    shell_complete=completion.models,
    help="provider/id. Default: that of the last answer.",
)
@click.option("--branch", metavar="NAME", help="The branch of a thread. Default: main.")
@click.option("--window", type=WholeNumber(1), metavar="TOKENS", help="The model's window, when it is not known.")
@click.option(
    "--from",
    "source_format",
    callback=form_name,
    metavar="WIRE",
    shell_complete=completion.form_names,
    help="The file's wire. Default: recognised.",
)
@click.option("--exact", is_flag=True, help="Let the provider count the tokens; needs a key.")
@rows.options
@stores.option
def command(
    what: str,
    *,
    model: str | None,
    branch: str | None,
    window: int | None,
    source_format: str | None,
    location: str | None,
    exact: bool,
    form: Form | None,
) -> None:
    """Show what fills a model's window, for a request in FILE or a thread of the store.

    Without --exact the count is the provider's last report plus an estimate of what follows it, or an estimate alone.
    THREAD and POSITION are as in "palaver show". --json prints one object, --csv a line for each kind.
    """
    is_file = branch is None and (what == files.STDIO or os.path.lexists(what) or source_format is not None)
    found = _file(what, source_format) if is_file else _thread(what, branch, location)
    messages = for_model(found.path)
    name = model_name(model, messages, found.request.model)
    if name is None:
        bad_input(found.name, "no answer in it names a model; pass --model provider/id")
    full, can = agent_options.model_info(name)
    exact_tokens = _exact_tokens(full, found) if exact else None
    window_contents = contents(
        found.path,
        messages,
        model=full,
        window=window or can.window,
        max_output=can.max_output,
        settings=found.request.settings,
        tools=found.request.tools,
        stages=DEFAULT,
        exact=exact_tokens,
        now=now_ms(),
    )
    if form == "json":
        stores.print_json([plain(window_contents)])
    elif form == "csv":
        rows.write(plain(window_contents)["kinds"], form, ["kind", "tokens", "count"])
    else:
        _draw(found, window_contents)


def model_name(name: str | None, messages: Sequence[Message], otherwise: str | None = None) -> str | None:
    """Return the model's name, or the bare id that the last answer names; ``None`` when there is none.

    Raises ``UnknownNameError`` for an unknown provider.
    """
    if name:
        if "/" in name and not agent_options.is_demo(name):
            providers.find(name.partition("/")[0])
        return name
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and message.model:
            return message.model
    return otherwise or os.environ.get(names.DEFAULT, "").strip() or None


def _draw(found: _Conversation, window_contents: Contents) -> None:
    out = console()
    pieces = [found.name, count(window_contents.messages, "message"), safe_line(window_contents.model or "")]
    out.print(Text(" · ".join(pieces), "bold"), overflow="fold")
    for each in render_contents(window_contents, out):
        out.print(each, crop=False)


def _file(what: str, source_format: str | None) -> _Conversation:
    source = load(what, source_format, guess=True)
    if source.failure is not None:
        bad_input(files.display_name(what), source.failure)
    value = source.value
    request = value if isinstance(value, Request) else Request((value.message,), value.model)
    thread = Thread()
    thread.append(*request.messages)
    return _Conversation(safe(files.display_name(what)), thread.path(), request, request.messages)


def _thread(what: str, branch: str | None, location: str | None) -> _Conversation:
    if not stores.exists(location):
        bad_input(
            safe(files.display_name(what)), f"no such file, and there is no store at {stores.display_name(location)}"
        )
    with stores.open_existing(location) as store:
        found = stores.find_address(store, what)
        if branch is not None:
            found = found._replace(position=stores.find_position(store, found.info, branch))
        path = store.path(found.info.id, found.position_or_main)
        sent = [with_media_bytes(store, message) for message in for_model(path)]
        return _Conversation(f"thread {safe(str(found))}", path, request_without_messages(found), sent)


def _exact_tokens(name: str, found: _Conversation) -> int:
    """Return the provider's count. Raises ``CapabilityError`` when the provider cannot count."""
    request = found.request
    prompt = Prompt(messages=tuple(found.sent), tools=request.tools, settings=request.settings)
    model = agent_options.choose_model(name, demo=False)

    async def ask() -> int:
        return await count_tokens(model, prompt)

    return anyio.run(ask)
