"""``palaver gateway usage``: what the keys, teams and models of a gateway used.

Stability: experimental.
"""

from __future__ import annotations

import click
from msgspec import structs
from rich.text import Text

from palaver.cli import gateway_database, rows
from palaver.cli.rows import Form
from palaver.cli.tables import Column, Listing
from palaver.cli.terminal import console, echo, safe_line

_UNCOUNTED = " that is counted here: that needs [keys] or [[limits]]; palaver gateway stats sums up the log"
_FIELDS = ("key", "team", "model", "requests", "input_tokens", "output_tokens", "cost", "unpriced")


@click.command(name="usage")
@click.option("--key", metavar="NAME", help="Only what this key used.")
@click.option("--team", metavar="TEAM", help="Only what this team used.")
@click.option("--model", metavar="MODEL", help="Only what was used of this model.")
@click.option("--since", metavar="WHEN", help="Only since a date, or a time ago such as 7d; in whole hours.")
@gateway_database.options
@rows.options
def usage(
    *,
    key: str | None,
    team: str | None,
    model: str | None,
    since: str | None,
    form: Form | None,
    config: str | None,
    database: str | None,
) -> None:
    """Show what keys, teams and models used."""
    with gateway_database.opened(config, database) as opened:
        from palaver.gateway.usage import UsageLedger

        found = UsageLedger(opened).sums(key=key, team=team, model=model, since=gateway_database.since(since))
    if form is not None:
        rows.write([structs.asdict(each) for each in found], form, _FIELDS)
        return
    if not found:
        echo(f"nothing was used{_UNCOUNTED}" if config is None or not _counts(config) else "nothing was used", err=True)
        return
    listing = Listing(
        Column("key"),
        Column("team", optional=True),
        Column("model"),
        *[Column(name, "right") for name in ("requests", "input", "output", "USD")],
    )
    for each in found:
        cost = f"{each.cost:,.4f}" + (f" + {each.unpriced:,} unpriced" if each.unpriced else "")
        amounts = [f"{amount:,}" for amount in (each.requests, each.input_tokens, each.output_tokens)]
        listing.add(Text(each.key or "-", "bold"), each.team or "-", safe_line(each.model), *amounts, cost)
    console().print(listing, crop=False)


def _counts(config: str) -> bool:
    """Whether a gateway with this configuration counts what is used."""
    from palaver.gateway.config import read_config

    found = read_config(config)
    return found.keys is not None or bool(found.limits)
