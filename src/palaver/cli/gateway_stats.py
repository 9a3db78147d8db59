"""``palaver gateway stats``: the logged exchanges of a gateway, summed up.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

import click
from msgspec import structs
from rich.text import Text

from palaver.cli import gateway_database, rows
from palaver.cli.rows import Form
from palaver.cli.suggestions import Choice
from palaver.cli.tables import Column, Listing
from palaver.cli.terminal import console, echo, safe_line

if TYPE_CHECKING:
    from palaver.gateway.log.exchanges import ExchangeSums, Group

_GROUPS: Final = ("model", "name", "api", "key", "team", "day", "outcome")


@click.command(name="stats")
@click.option("--by", type=Choice(_GROUPS), default="model", show_default=True, help="What they are summed up by.")
@click.option("--since", metavar="WHEN", help="Only since a date, or a time ago such as 7d.")
@gateway_database.options
@rows.options
def stats(*, by: str, since: str | None, form: Form | None, config: str | None, database: str | None) -> None:
    """Sum up the exchanges of a gateway: tokens, cost, losses and time."""
    with gateway_database.opened(config, database) as opened:
        from palaver.gateway.log.exchanges import Exchanges

        found = Exchanges(opened).sums(cast("Group", by), since=gateway_database.since(since))
        names = gateway_database.key_names(opened) if by == "key" else {}
    if form is not None:
        rows.write([_row(each, by, names) for each in found], form, (by, "exchanges", "answered", "cost"))
        return
    if not found:
        echo("nothing is logged", err=True)
        return
    listing = Listing(
        Column(by),
        *[Column(name, "right") for name in ("exchanges", "answered", "in", "out", "USD", "losses")],
        *[Column(name, "right", optional=True) for name in ("cached", "s")],
        note="in a wider terminal, or with --json",
    )
    for each in found:
        listing.add(
            Text(safe_line(names.get(each.group, each.group) or "-"), "bold"),
            f"{each.exchanges:,}",
            f"{each.answered:,}",
            f"{each.input + each.cache_read + each.cache_write:,}",
            f"{each.output + each.reasoning:,}",
            "" if each.cost is None else f"{each.cost:,.4f}",
            f"{each.losses:,}",
            f"{each.cache_read:,}",
            "" if each.seconds is None else f"{each.seconds:.1f}",
        )
    console().print(listing, crop=False)


def _row(each: ExchangeSums, by: str, names: Mapping[str, str]) -> dict[str, object]:
    figures = structs.asdict(each)
    group = figures.pop("group")
    return {by: names.get(group, group), **({"key_id": group} if by == "key" else {}), **figures}
