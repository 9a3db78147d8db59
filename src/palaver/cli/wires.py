"""``palaver wires``: every wire and what it can carry.

The table shows ``wire.capabilities``, the data that decides a conversion. A mark means that a thing is sent as it is.
Without one it is converted, approximated or dropped, and the receipt can so.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from palaver import wires
from palaver.cli import rows, tables
from palaver.cli.rows import Form
from palaver.cli.tables import NO, YES
from palaver.cli.terminal import console

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from palaver.wires._engine.capabilities import MediaRule, WireCapabilities

_UNBOUNDED: Final = 10_000
_SOURCES: Final = {"inline": "bytes", "url": "URL", "file_id": "id"}


def _media(rule: MediaRule | None) -> str:
    return NO if rule is None else " ".join(short for name, short in _SOURCES.items() if name in rule.sources)


def _flag(value: bool) -> str:  # noqa: FBT001 (a cell of the table)
    return YES if value else NO


_ROWS: Final[dict[str, Callable[[WireCapabilities], str]]] = {
    "images": lambda capabilities: _media(capabilities.media.get("image")),
    "audio": lambda capabilities: _media(capabilities.media.get("audio")),
    "video": lambda capabilities: _media(capabilities.media.get("video")),
    "files": lambda capabilities: _media(capabilities.media.get("file")),
    "images in tool results": lambda capabilities: _media(capabilities.result_media.get("image")),
    "tool error flag": lambda capabilities: _flag(capabilities.error_flag),
    "free-text tool calls": lambda capabilities: _flag(capabilities.custom_calls),
    "arguments as text": lambda capabilities: _flag(not capabilities.object_arguments),
    "text after a tool call": lambda capabilities: _flag(capabilities.interleaving),
    "refusals": lambda capabilities: _flag(capabilities.refusal),
    "developer role": lambda capabilities: _flag(capabilities.developer),
    "system in mid-conversation": lambda capabilities: _flag(capabilities.later_system),
}


def table(names: tuple[str, ...]) -> Table:
    """Return a table of what these wires can carry, one column for each."""
    result = tables.table()
    result.add_column("")
    for name in names:
        result.add_column(Text(name.replace("_", "_\n", 1)), justify="center", min_width=_widest(name))
    for what, cell in _ROWS.items():
        result.add_row(what, *(_cell(cell(wires.get(name).capabilities)) for name in names))
    return result


def _cell(text: str) -> Text:
    return Text(text, {YES: "green", NO: "dim"}.get(text, ""))


def _plain(name: str) -> dict[str, Any]:
    aliases = [alias for alias, wire in wires.ALIASES.items() if wire == name]
    return {"name": name, "aliases": aliases, "variants": wires.variants(name)}


def _can(name: str) -> dict[str, str | bool]:
    capabilities = wires.get(name).capabilities
    can: dict[str, str | bool] = {}
    for what, cell in _ROWS.items():
        sign = cell(capabilities)
        can[what] = {YES: True, NO: False}.get(sign, sign)
    return can


def _widest(name: str) -> int:
    """Return the width of a column heading: the name takes two lines and is not cut."""
    return max(map(len, name.replace("_", "_\n", 1).split("\n")))


@click.command(name="wires")
@rows.options
def command(*, form: Form | None) -> None:
    """List the wires and what each can carry."""
    names = wires.names()
    if form is not None:
        rows.write([_plain(name) | (_can(name) if form == "csv" else {"says": _can(name)}) for name in names], form)
        return
    out = console()
    drawn = table(names)
    if out.measure(drawn, options=out.options.update(width=_UNBOUNDED)).minimum <= out.width:
        out.print(drawn)
    else:  # a narrow terminal: a block for each wire, so that no name is cut
        for name in names:
            out.print(Text(name, "bold"))
            for what, cell in _ROWS.items():
                out.print(Text.assemble((f"  {what}: ", "dim"), _cell(cell(wires.get(name).capabilities))))
    for name in names:
        if variants := wires.variants(name):
            out.print(Text.assemble(("variants of ", "dim"), name, (": ", "dim"), ", ".join(variants)))
    aliases = ", ".join(f"{alias} ({wire})" for alias, wire in wires.ALIASES.items())
    out.print(Text(f"Short names: {aliases}.", "dim"))
    out.print(Text("Name a variant after its wire: --to openai_chat:mistral.", "dim"))
