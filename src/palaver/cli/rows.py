"""Rows for other programs: the options ``--json`` and ``--csv`` of commands that list things.

A row of CSV has the fields of the first row; a value that is not text or a number is written as JSON, and ``None`` is
empty. Control characters are escaped at a terminal, as everywhere.

Stability: experimental.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import click

from palaver.cli import files, stores
from palaver.cli.terminal import safe
from palaver.core import jsontext

Form: TypeAlias = Literal["json", "csv"]
_F = TypeVar("_F", bound="Callable[..., Any]")

_json = click.option("--json", "form", flag_value="json", default=None, help="One JSON object a line.")
_csv = click.option("--csv", "form", flag_value="csv", help="Comma-separated values, with a line of names.")


def options(command: _F) -> _F:
    """Add ``--json`` and ``--csv`` to a command, which gets ``form``: ``"json"``, ``"csv"`` or ``None``."""
    return _json(_csv(command))


def write(rows: Iterable[Mapping[str, Any]], form: Form) -> None:
    """Print rows in a form."""
    if form == "json":
        stores.print_json(rows)
        return
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(out, list(row), extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in row.items()})
    files.write(files.STDIO, out.getvalue().encode("utf-8", "replace"))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return safe(value) if isinstance(value, str) else jsontext.encode(value).decode()
