"""``palaver context``: what fills a model's window, by kind.

Rules:

- A file that exists wins, as for ``show``: a request is what would be sent. Anything else is a thread of the store.
- The model is the one that is named, else that of the last answer, else that of the request, else ``PALAVER_MODEL``.
  It is not asked, but with ``--exact``, and needs no key.
- What an agent's instructions and tools weigh is not in its thread: there, the report of the provider knows of it, and
  the estimate does not. A request has them.

Draws what fills a window: a bar, a table by kind, and what would become of it.

Rules:

- With colour a kind is a colour; without, it is a letter, in the bar and in the table. So the bar says the same on
  paper, in a pipe, and where the encoding has no blocks.
- The bar is the whole window: what is used, what is left, and at its end what is not for the prompt.
- Nothing is wider than the terminal: the room that numbers leave is that of the texts.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import click
from rich import box
from rich.table import Table
from rich.text import Text

from palaver.cli import agent_options, files, stores
from palaver.cli.show import bare_request, whole_media
from palaver.cli.source import load
from palaver.cli.terminal import bad_input, console, count, in_line, safe
from palaver.context.compaction import DEFAULT
from palaver.context.contents import contents
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.request import Request
from palaver.models import names, providers
from palaver.models.language_model import Prompt
from palaver.models.token_count import count_tokens
from palaver.threads.ids import now_ms
from palaver.threads.model_view import for_model
from palaver.threads.thread import Thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType

    from palaver.context.contents import Contents, Kind, LargeMessage
    from palaver.core.messages import Message
    from palaver.threads.thread import Entry


# --- filling ----------------------------------------------------------------------------------------------------------


_BLOCK: Final = "█"
_LETTERS: Final[tuple[str, str]] = (".", "-")
_SHADES: Final[tuple[str, str]] = ("░", "▒")
"""What is left, and what is not for the prompt."""
_TOOLS: Final = 5
_LOOKED_AT: Final = 300
_PLACES: Final = 24
"""The fewest cells of a bar."""


class _Look(NamedTuple):
    name: str
    letter: str
    colour: str


_LOOKS: Final[dict[Kind, _Look]] = {
    "system": _Look("system prompt", "S", "magenta"),
    "tools": _Look("tool definitions", "D", "bright_magenta"),
    "user": _Look("user", "U", "green"),
    "assistant": _Look("assistant", "A", "cyan"),
    "reasoning": _Look("reasoning", "R", "bright_black"),
    "calls": _Look("tool calls", "C", "yellow"),
    "results": _Look("tool results", "T", "blue"),
    "media": _Look("media", "M", "red"),
    "summaries": _Look("summaries", "Y", "bright_cyan"),
}


def drawn(found: Contents, out: Console) -> Iterator[RenderableType]:
    """What fills a window."""
    about = "counted by the provider" if found.exact else "by the last report" if found.report else "estimated"
    used = f"{found.tokens:,} of {found.capacity:,} tokens"
    yield Text.assemble((used, "bold"), f" · {_share(found.pressure)} · {found.left:,} left · {about}")
    yield _bar(found, out)
    yield _kinds(found, out)
    yield from _told(found)
    if found.results:
        yield _results(found)
    if found.largest:
        yield _largest(found)


def plain(found: Contents) -> dict[str, Any]:
    """The same for programs."""
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


# -- the bar -----------------------------------------------------------------------------------------------------------


def _bar(found: Contents, out: Console) -> Text:
    width = max(min(out.width, 100), _PLACES)
    coloured = _coloured(out)
    left, other = _SHADES if coloured else _LETTERS
    pieces: list[tuple[int, str, str]] = [
        (each.tokens, _BLOCK if coloured else _LOOKS[each.kind].letter, _LOOKS[each.kind].colour)
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


# -- tables ------------------------------------------------------------------------------------------------------------


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))


def _kinds(found: Contents, out: Console) -> Table:
    mark = _coloured(out)
    table = _table()
    table.add_column("", no_wrap=True)
    table.add_column("what", no_wrap=True)
    for name in ("tokens", "share", "count"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found.kinds:
        look = _LOOKS[each.kind]
        sign = Text(_BLOCK if mark else look.letter, look.colour)
        share = _share(each.tokens / max(found.tokens, 1))
        table.add_row(sign, look.name, f"{each.tokens:,}", share, f"{each.count:,}")
    left, other = _SHADES if mark else _LETTERS
    table.add_row(Text(left, "dim"), Text("left", "dim"), f"{found.left:,}", "", "")
    table.add_row(Text(other, "dim"), Text("not for the prompt", "dim"), f"{found.reserved + found.margin:,}", "", "")
    return table


def _results(found: Contents) -> Table:
    table = _table()
    table.add_column("results of", overflow="fold")
    for name in ("tokens", "share", "count"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found.results[:_TOOLS]:
        share = _share(each.tokens / max(found.tokens, 1))
        table.add_row(Text(in_line(each.tool)), f"{each.tokens:,}", share, f"{each.count:,}")
    rest = found.results[_TOOLS:]
    if rest:
        tokens = sum(each.tokens for each in rest)
        others = Text(count(len(rest), "other"), "dim")
        table.add_row(
            others, f"{tokens:,}", _share(tokens / max(found.tokens, 1)), f"{sum(each.count for each in rest):,}"
        )
    return table


def _largest(found: Contents) -> Table:
    table = _table()
    table.add_column("largest", justify="right", no_wrap=True)
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("who", overflow="fold", max_width=24)
    table.add_column("says")  # takes the room that is left, and its cells do not wrap
    for each in found.largest:
        table.add_row(
            f"#{each.place + 1:,}",
            f"{each.tokens:,}",
            Text(in_line(_who(each))),
            Text(_says(each.message), "dim", no_wrap=True, overflow="ellipsis"),
        )
    return table


def _who(heavy: LargeMessage) -> str:
    message = heavy.message
    if isinstance(message, ToolMessage):
        return f"tool {message.tool_name}" if message.tool_name else "tool"
    return "summary" if message.is_summary else message.role


def _says(message: Message) -> str:
    text = message.text[:_LOOKED_AT] or ", ".join(call.name for call in message.tool_calls)
    return safe(" ".join(text.split()))


# -- what is said of it ------------------------------------------------------------------------------------------------


def _told(found: Contents) -> Iterator[Text]:
    known = "" if found.known else " (taken, as it is not known; --window says it)"
    yield _line(
        "window",
        f"{found.window:,}{known}: {found.capacity:,} for the prompt, {found.reserved:,} for the answer, "
        f"{found.margin:,} for what an estimate cannot know",
    )
    due = found.due
    if due:
        yield _line("due now", ", ".join(each.stage for each in due), "yellow")
    upcoming = found.next
    if upcoming is not None:
        more = max(upcoming.tokens - found.tokens, 0)
        yield _line("next stage", f"{upcoming.stage}, from {upcoming.tokens:,} tokens: {more:,} more")
    if found.report is not None:
        said, guessed = found.report.tokens, found.report.estimate
        off = (guessed - said) / max(said, 1)
        where = f"{said:,} in the prompt of #{found.report.place + 1:,}"
        yield _line("last report", f"{where}; an estimate alone says {guessed:,} ({off:+.0%})")


def _line(name: str, text: str, style: str = "") -> Text:
    return Text.assemble((f"{name}: ", "bold"), (text, style))


def _share(part: float) -> str:
    return f"{part:.1%}" if part < 0.0995 else f"{part:.0%}"  # noqa: PLR2004 (one digit below 10 %)


# --- context ----------------------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """A conversation: its name for people, its path, and what it is sent with. ``sent`` has the bytes of its media."""

    name: str
    path: Sequence[Entry]
    request: Request
    sent: Sequence[Message]


@click.command(name="context")
@click.argument("what", metavar="FILE|THREAD[@PLACE]", type=click.Path(allow_dash=True))
@click.option("--model", metavar="M", help="provider/id; else that of the last answer.")
@click.option("--branch", metavar="NAME", help="Of a thread, the branch; else main.")
@click.option(
    "--window", type=click.IntRange(min=1), metavar="TOKENS", help="The model's window, where it is not known."
)
@click.option("--from", "spoken", metavar="WIRE", help="The file's own wire; recognised when not given.")
@click.option("--exact", is_flag=True, help="Ask the provider to count; it answers nothing, and needs a key.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@stores.option
def command(
    what: str,
    *,
    model: str | None,
    branch: str | None,
    window: int | None,
    spoken: str | None,
    location: str | None,
    exact: bool,
    as_json: bool,
) -> None:
    """Say what fills a model's window, by kind: in a request in FILE, or in a thread of the store.

    Without --exact it is what the provider reported last and an estimate of what came since, or an estimate alone.
    THREAD and PLACE are meant as in "palaver show".
    """
    is_file = branch is None and (what == files.STANDARD or os.path.lexists(what) or spoken is not None)
    found = _file(what, spoken) if is_file else _thread(what, branch, location)
    messages = for_model(found.path)
    name = named(model, messages, found.request.model)
    if name is None:
        bad_input(found.name, "no answer in it names a model: say which with --model provider/id")
    full, can = agent_options.sizes(name)
    counted = _counted(full, found) if exact else None
    told = contents(
        found.path,
        messages,
        model=full,
        window=window or can.window,
        max_output=can.max_output,
        settings=found.request.settings,
        tools=found.request.tools,
        stages=DEFAULT,
        exact=counted,
        now=now_ms(),
    )
    if as_json:
        stores.say_json([plain(told)])
    else:
        _draw(found, told)


def named(given: str | None, messages: Sequence[Message], otherwise: str | None = None) -> str | None:
    """The model that is meant, by its name or by the bare id that an answer names; ``None`` where nothing says.

    Raises ``UnknownNameError`` for a provider that there is not.
    """
    if given:
        if "/" in given and not agent_options.is_demo(given):
            providers.find(given.partition("/")[0])
        return given
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and message.model:
            return message.model
    return otherwise or os.environ.get(names.DEFAULT, "").strip() or None


def _draw(found: _Found, told: Contents) -> None:
    out = console()
    pieces = [found.name, count(told.messages, "message"), in_line(told.model or "")]
    out.print(Text(" · ".join(pieces), "bold"), overflow="fold")
    for each in drawn(told, out):
        out.print(each)


# -- what is meant -----------------------------------------------------------------------------------------------------


def _file(what: str, spoken: str | None) -> _Found:
    source = load(what, spoken, guess=True)
    if source.failure is not None:
        bad_input(files.shown(what), source.failure)
    value = source.value
    request = value if isinstance(value, Request) else Request((value.message,), value.model)
    thread = Thread()
    thread.append(*request.messages)
    return _Found(safe(files.shown(what)), thread.path(), request, request.messages)


def _thread(what: str, branch: str | None, location: str | None) -> _Found:
    if not stores.is_there(location):
        bad_input(safe(files.shown(what)), f"no such file, and there is no store at {stores.shown(location)}")
    with stores.opened(location) as store:
        found = stores.address(store, what)
        if branch is not None:
            found = found._replace(place=stores.place(store, found.info, branch))
        path = store.path(found.info.id, found.of)
        sent = [whole_media(store, message) for message in for_model(path)]
        return _Found(f"thread {safe(str(found))}", path, bare_request(found), sent)


def _counted(name: str, found: _Found) -> int:
    """What the provider counts. Raises ``CapabilityError`` where it has no way to."""
    request = found.request
    prompt = Prompt(messages=tuple(found.sent), tools=request.tools, settings=request.settings)
    model = agent_options.chosen(name, demo=False)

    async def ask() -> int:
        return await count_tokens(model, prompt)

    return anyio.run(ask)
