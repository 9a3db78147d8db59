"""The table: on the screen, as JSON and as Markdown.

Rules:

- Every number in it was measured in this run. A row that failed or was skipped says so, with its reason.
- Versions are those of the installed distributions. Nothing names a machine, a user or a path.
- ``about`` says what was measured: ``benchmark`` is its name, ``data`` a sentence, ``rounds`` a number. ``notes`` are
  sentences that stand under the table, where there are any.
"""

from __future__ import annotations

import json
import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from measure import Row, Spread

PACKAGES = (
    "palaver",
    "msgspec",
    "orjson",
    "pydantic-ai-slim",
    "pydantic",
    "langchain-core",
    "openai",
    "anthropic",
    "google-genai",
    "litellm",
    "jiter",
    "httpx",
    "httpx2",
    "anyio",
    "langchain",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "openai-agents",
    "langgraph-swarm",
    "autogen-core",
    "psycopg",
    "session-migrate",
    "claude-code-log",
)
_STYLES = {"met": "green", "not met": "bold red", "failed": "bold red", "skipped": "yellow", "not measured": "yellow"}
_RATIO_SPREAD = 5
HEADINGS = ("Case", "What", "Median", "Spread", "× palaver", "Spread of ×", "Target", "Result")


def versions() -> dict[str, str]:
    """Name the Python and every distribution that is measured."""
    found = {"python": f"{platform.python_implementation()} {platform.python_version()}"}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def number(value: float) -> str:
    """Write a number with three or four digits that count."""
    if value <= 0:
        return f"-{number(-value)}" if value else "0"
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def _spread(spread: Spread | None, unit: str = "") -> str:
    return "" if spread is None else f"{number(spread.low)} to {number(spread.high)}{unit}"


def _cells(row: Row) -> tuple[str, ...]:
    what = f"{row.name} ({row.note})" if row.note else row.name
    value = "" if row.value is None else f"{number(row.value.median)} {row.unit}"
    ratio = "" if row.ratio is None else f"{number(row.ratio.median)}×"
    reason = row.error or row.skipped
    verdict = f"{row.verdict}: {reason}" if reason else row.verdict
    return (row.case, what, value, _spread(row.value), ratio, _spread(row.ratio), row.target, verdict)


def show(rows: Sequence[Row], about: dict[str, Any]) -> None:
    """Print the table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width to keep to
        console = Console(width=200)
    shown = [index for index in range(len(HEADINGS)) if index != _RATIO_SPREAD or console.width >= 140]
    table = Table(box=box.SIMPLE_HEAD, title=f"palaver: {about['benchmark']}", caption=_caption(about), padding=(0, 1))
    for index in shown:
        right = 2 <= index <= 6
        table.add_column(HEADINGS[index], justify="right" if right else "left", no_wrap=right, overflow="fold")
    last = ""
    for row in rows:
        case, *_ = cells = _cells(row)
        if last and case != last:
            table.add_section()
        texts = ["" if case == last else case, *cells[1:-1], Text(cells[-1], style=_STYLES.get(row.verdict, ""))]
        table.add_row(*(texts[index] for index in shown))
        last = case
    console.print(table)


def _caption(about: dict[str, Any]) -> str:
    found = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return f"{about['data']} {about['rounds']} rounds.\n{found}"


def as_json(rows: Sequence[Row], about: dict[str, Any]) -> dict[str, Any]:
    """Give the table as JSON values."""

    def spread(item: Spread | None) -> dict[str, Any] | None:
        if item is None:
            return None
        return {
            "median": _short(item.median),
            "min": _short(item.low),
            "max": _short(item.high),
            "samples": [_short(sample) for sample in item.samples],
        }

    return about | {
        "rows": [
            {
                "case": row.case.strip(),
                "what": row.name,
                "unit": row.unit,
                "value": spread(row.value),
                "times_palaver": spread(row.ratio),
                "target": row.target or None,
                "result": row.verdict or None,
                "reason": row.error or row.skipped or None,
                "note": row.note or None,
            }
            for row in rows
        ]
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def as_markdown(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """Give the table as Markdown."""
    lines = [
        f"# {about['benchmark'].capitalize()} benchmark",
        "",
        "Written by `make bench`; [how to read it](../README.md).",
        "",
        _caption(about).replace("\n", "\n\n"),
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    lines += ["| " + " | ".join(cell.strip().replace("|", "\\|") for cell in _cells(row)) + " |" for row in rows]
    if about.get("notes"):
        lines += ["", "## What is not comparable", "", *(f"- {note}" for note in about["notes"])]
    return "\n".join(lines) + "\n"


def write(folder: Path, rows: Sequence[Row], about: dict[str, Any]) -> None:
    """Write ``codec.json`` and ``codec.md``, or ``stream``'s."""
    folder.mkdir(exist_ok=True)
    name = about["benchmark"]
    text = json.dumps(as_json(rows, about), ensure_ascii=False, indent=1)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(as_markdown(rows, about), encoding="utf-8")
