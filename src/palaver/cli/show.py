"""``palaver show``: a conversation in the terminal.

Stability: experimental.
"""

from __future__ import annotations

import click
from rich.text import Text

from palaver.cli import files, happened, render
from palaver.cli.failure import bad_input
from palaver.cli.screen import console
from palaver.cli.source import load, load_stream


@click.command(name="show")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--from", "spoken", metavar="WIRE", help="The file's own wire; recognised when not given.")
@click.option("--reasoning", is_flag=True, help="Unfold the reasoning.")
@click.option("--full", is_flag=True, help="Unfold everything.")
@click.option("--events", is_flag=True, help="List what happened in a recorded stream, one line an event.")
def command(file: str, spoken: str | None, *, reasoning: bool, full: bool, events: bool) -> None:
    """Show the conversation in FILE; what FILE may be is said by "palaver convert --help".

    Of a recorded stream that failed, what came is shown; the failure is said on standard error, and the exit code is 1.
    """
    out = console()
    if events:
        failed = happened.listed(load_stream(file, spoken).events(), out)
        if failed is not None:
            bad_input(files.shown(file), failed)
        return
    source = load(file, spoken, guess=True)
    for drawn in render.conversation(source.value, source.wire, render.View(reasoning=reasoning, full=full)):
        out.print(drawn)
    notes = list(source.notes)
    if source.maybe:
        notes.append(f"read as {source.wire}; it may also be of {', '.join(source.maybe)} (--from)")
    for note in notes:
        click.echo(f"{files.shown(file)}: {note}", err=True)
    out.print(Text())
    if source.failure is not None:
        bad_input(files.shown(file), source.failure)
