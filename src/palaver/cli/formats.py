"""``palaver formats``: every transcript format, and what each keeps and loses.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final

import click
from rich.text import Text

from palaver import transcripts
from palaver.cli import completion, rows
from palaver.cli.rows import Form
from palaver.cli.tables import NO, YES, Column, Listing
from palaver.cli.terminal import console

FIDELITY: Final = {
    "bytes": "the same bytes",
    "semantic": "equal values",
    "text": "roles and text",
    "read": "only read",
    "write": "only written",
}
"""What survives when a file is read and written unedited."""


@click.command(name="formats")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=completion.format_names)
@rows.options
def command(names: tuple[str, ...], *, form: Form | None) -> None:
    """List the transcript formats that are read and written. With NAME, show what one keeps and loses."""
    if form is not None:
        rows.write([_plain(transcripts.get(name)) for name in names or transcripts.names()], form)
        return
    out = console()
    if names:
        for each in names:
            _print_format(each)
        return
    folded = [Column(name, narrow="fold") for name in ("what it is", "read, then written")]
    listing = Listing(Column("format"), *folded, Column("branches"), Column("resumes"), padding=2)
    for name in transcripts.names():
        row = transcripts.get(name)
        signs = [YES if sign else NO for sign in (row.tree, row.resumes)]
        listing.add(name, row.title, FIDELITY[row.fidelity], *signs)
    out.print(listing, crop=False)
    aliases = ", ".join(f"{alias} ({name})" for alias, name in transcripts.ALIASES.items())
    out.print(Text(f"Short names: {aliases}.", "dim"))
    out.print(Text("palaver formats NAME shows what one keeps and loses.", "dim"))


def _plain(row: transcripts.TranscriptFormat) -> dict[str, Any]:
    return {
        "name": row.name,
        "aliases": [alias for alias, name in transcripts.ALIASES.items() if name == row.name],
        "title": row.title,
        "fidelity": row.fidelity,
        "branches": row.tree,
        "resumes": row.resumes,
        "keeps": row.keeps,
        "loses": row.loses,
    }


def _print_format(name: str) -> None:
    out = console()
    row = transcripts.get(name)
    out.print(Text.assemble((name, "bold"), f": {row.title}; {FIDELITY[row.fidelity]}"))
    out.print(Text(f"  keeps: {', '.join(row.keeps)}"))
    out.print(Text(f"  loses: {', '.join(row.loses)}"))
