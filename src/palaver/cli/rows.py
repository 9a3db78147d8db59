"""Rows for other programs: the options ``--json`` and ``--csv`` of commands that list things.

A row of CSV has the fields of the first row, and without rows there is the line of names alone. A value that is not
text or a number is written as JSON, and ``None`` is empty. Control characters are escaped at a terminal, as everywhere.

Stability: experimental.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from palaver.cli import exclusive, files, stores
from palaver.cli.terminal import safe
from palaver.core import jsontext

Form: TypeAlias = Literal["json", "csv"]
options: Final = exclusive.flags(
    "form",
    {
        "json": (("--json",), "One JSON object a line."),
        "csv": (("--csv",), "Comma-separated values, with a line of names."),
    },
)
"""Adds ``--json`` and ``--csv`` to a command, which gets ``form``: ``"json"``, ``"csv"`` or ``None``."""


def write(rows: Iterable[Mapping[str, Any]], form: Form, names: Sequence[str] = ()) -> None:
    """Print rows in a form. ``names`` are those of the fields, for CSV without rows."""
    if form == "json":
        stores.print_json(rows)
        return
    out = io.StringIO()
    every = list(rows)
    writer = csv.DictWriter(out, list(every[0]) if every else names, extrasaction="ignore", lineterminator="\n")
    if writer.fieldnames:
        writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in every)
    files.write(files.STDIO, out.getvalue().encode("utf-8", "replace"))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return safe(value) if isinstance(value, str) else jsontext.encode(value).decode()
