"""Draws what fills a window: a bar, a table by kind, and what would become of it.

Rules:

- With colour a kind is a colour; without, it is a letter, in the bar and in the table. So the bar says the same on
  paper, in a pipe, and where the encoding has no blocks.
- The bar is the whole window: what is used, what is left, and at its end what is not for the prompt.
- Nothing is wider than the terminal: the room that numbers leave is that of the texts.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from palaver.cli.figures import count
from palaver.cli.harmless import in_line, safe
from palaver.core.messages import ToolMessage

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from palaver.context.contents import Contents, Heavy, Kind
    from palaver.core.messages import Message

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


def _who(heavy: Heavy) -> str:
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
