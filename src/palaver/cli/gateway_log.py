"""``palaver gateway log``: the exchanges of a gateway, one of them with its receipt, or the bytes of one side.

- ID is that of the header ``palaver-exchange``; a part of it will do, from 4 characters on.
- ``--body`` writes the very bytes to standard output: what the client asked (``request``), what the model got
  (``sent``), what it answered (``received``), and what the client got (``returned``).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import json, structs
from rich.text import Text

from palaver.cli import files, gateway_database, receipt, rows, stores
from palaver.cli.ranges import WholeNumber
from palaver.cli.rows import Form
from palaver.cli.suggestions import Choice
from palaver.cli.tables import Column, Listing
from palaver.cli.terminal import bad_input, console, echo, safe_line, when

if TYPE_CHECKING:
    from palaver.gateway.log.exchanges import ExchangeSummary, StoredExchange

_BODIES: Final = ("request", "sent", "received", "returned")
_YEAR: Final = len("2030-")
"""What is left out of the times of a list."""
_FIELDS: Final = ("id", "at", "api", "asked", "model", "status", "outcome", "thread")


@click.command(name="log")
@click.argument("id", required=False)
@click.option(
    "-n", "--count", "number", type=WholeNumber(1), default=20, show_default=True, help="How many are listed."
)
@click.option("-t", "--thread", metavar="THREAD", help="Only those of this thread; a part of its id will do.")
@click.option("--body", type=Choice(_BODIES), help="Write the bytes of one side of the exchange ID.")
@gateway_database.options
@rows.options
def log(
    id: str | None,
    *,
    number: int,
    thread: str | None,
    body: str | None,
    form: Form | None,
    config: str | None,
    database: str | None,
) -> None:
    """List the exchanges of a gateway, the newest first, or show the exchange ID."""
    if body is not None and (id is None or form is not None):
        raise click.UsageError("--body needs an ID, and excludes --json and --csv")
    with gateway_database.opened(config, database) as opened:
        from palaver.gateway.log.exchanges import Exchanges

        table = Exchanges(opened)
        if id is not None:
            _show(table.read(id), body, form, gateway_database.key_names(opened))
            return
        found = table.recent(number, thread=thread)
        names = gateway_database.key_names(opened) if form is not None else {}
    if form is not None:
        rows.write([_summary(each, names) for each in found], form, _FIELDS)
    elif found:
        _list(found)
    else:
        echo("nothing is logged", err=True)


def _list(found: list[ExchangeSummary]) -> None:
    listing = Listing(
        Column("exchange"),
        Column("at"),
        Column("model", narrow="fold"),
        Column("status", "right"),
        *[Column(name, "right") for name in ("in", "out", "USD", "losses")],
        Column("s", "right", optional=True),
        Column("thread", optional=True),
        Column("asked", optional=True),
        padding=0,
        note="in a wider terminal, or with --json",
    )
    for each in found:
        listing.add(
            Text(each.id[-12:], "bold"),
            when(each.at)[_YEAR:],
            safe_line(each.model or each.asked),
            Text(str(each.status or each.outcome), "" if each.outcome == "answered" else "red"),
            _number((each.input or 0) + (each.cache_read or 0) + (each.cache_write or 0)),
            _number((each.output or 0) + (each.reasoning or 0)),
            "" if each.cost is None else f"{each.cost:.4f}",
            _number(each.losses),
            "" if each.seconds is None else f"{each.seconds:.1f}",
            "" if each.thread is None else stores.short(each.thread),
            safe_line(each.asked),
        )
    console().print(listing, crop=False)


def _number(value: int) -> str:
    return f"{value:,}" if value else ""


def _summary(found: ExchangeSummary, names: Mapping[str, str]) -> dict[str, Any]:
    """Return a summary as JSON values, with the name of its key beside the id of that."""
    return {**structs.asdict(found), "key": names.get(found.caller or "")}


def _show(found: StoredExchange, body: str | None, form: Form | None, names: Mapping[str, str]) -> None:
    if body is not None:
        if found.bodies is None:
            bad_input(found.summary.id, "the log keeps no bodies of it")
        files.write(files.STDIO, getattr(found.bodies, body))
    elif form is not None:
        rows.write([_row(found, names)], form)
    else:
        _draw(found, names)


def _row(found: StoredExchange, names: Mapping[str, str]) -> dict[str, Any]:
    details: dict[str, Any] = json.decode(json.encode(found.receipt))
    sizes = {} if found.bodies is None else {name: len(getattr(found.bodies, name)) for name in _BODIES}
    return {**_summary(found.summary, names), **details, "losses": details.get("losses", []), "bytes": sizes}


def _draw(found: StoredExchange, names: Mapping[str, str]) -> None:
    out, summary = console(), found.summary
    out.print(Text(summary.id, "bold"), soft_wrap=True)
    for name, value in _row(found, names).items():
        if value is None or value in ([], {}, "") or name in {"id", "losses", "attempts"}:
            continue
        value = round(value, 6) if isinstance(value, float) else value  # noqa: PLW2901 (the same figure)
        shown = when(summary.at) if name == "at" else value if isinstance(value, str) else json.encode(value).decode()
        out.print(Text.assemble((f"  {name:<14}", "dim"), safe_line(shown)), soft_wrap=True)
    for each in found.receipt.attempts:
        line = f"{each.model} ({each.wire})" + ("" if each.error is None else f": {each.error}")
        out.print(Text.assemble((f"  {'asked':<14}", "dim"), safe_line(line)), soft_wrap=True)
    if found.receipt.losses:
        out.print(receipt.as_table(found.receipt.losses), crop=False)
