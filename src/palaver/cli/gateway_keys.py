"""``palaver gateway keys``: the virtual keys that clients of a gateway send.

- ``create`` and ``rotate`` print the key, once: only its hash is stored.
- NAME may also be the id of a key.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from palaver.cli import gateway_database, rows
from palaver.cli.gateway_database import shown_time
from palaver.cli.rows import Form
from palaver.cli.suggestions import Group
from palaver.cli.terminal import console, echo, safe_line
from palaver.core.errors import DecodeError
from palaver.threads.ids import now_ms

if TYPE_CHECKING:
    from palaver.gateway.keys import NewKey, VirtualKey
    from palaver.gateway.limits import Limit

_FIELDS = ("name", "id", "key", "team", "models", "limits", "created", "expires", "revoked", "last_used")


@click.group(name="keys", cls=Group)
def keys() -> None:
    """Make, list and revoke the keys of clients."""


@keys.command(name="create")
@click.argument("name")
@click.option("--team", metavar="TEAM", help="The team that the key belongs to.")
@click.option("--models", multiple=True, metavar="PATTERN", help="A name that it may ask for, with * for any text.")
@click.option("--expires", metavar="WHEN", help="A date, or a time from now such as 30d.")
@click.option("--requests", multiple=True, metavar="LIMIT", help="A limit of requests, such as 60/minute.")
@click.option("--tokens", multiple=True, metavar="LIMIT", help="A limit of tokens, such as 1M/day.")
@click.option("--input-tokens", multiple=True, metavar="LIMIT", help="A limit of the tokens that are sent.")
@click.option("--output-tokens", multiple=True, metavar="LIMIT", help="A limit of the tokens that are answered.")
@click.option("--cost", multiple=True, metavar="LIMIT", help="A limit of USD, such as 5/day.")
@gateway_database.options
@rows.options
def create(name: str, form: Form | None, config: str | None, database: str | None, **fields: Any) -> None:
    """Make a key for NAME, and print it. It is not shown again."""
    with gateway_database.opened(config, database, create=True) as opened:
        from palaver.gateway.keys import GatewayKeys

        when: str | None = fields["expires"]
        made = GatewayKeys(opened).create(
            name, team=fields["team"], models=fields["models"], limits=_limits(fields), expires=_expiry(when)
        )
    _print_new(made, form)


@keys.command(name="list")
@click.option("--all", "everything", is_flag=True, help="Also those that are revoked.")
@gateway_database.options
@rows.options
def list_keys(*, everything: bool, form: Form | None, config: str | None, database: str | None) -> None:
    """List the keys. None is shown but for its first letters."""
    with gateway_database.opened(config, database) as opened:
        from palaver.gateway.keys import GatewayKeys

        found = [each for each in GatewayKeys(opened).list() if everything or each.revoked is None]
    if form is not None:
        rows.write(map(_row, found), form, _FIELDS)
        return
    for each in found:
        row = _row(each)
        about = [f"{name} {row[name]}" for name in ("team", "expires", "revoked", "last_used") if row[name]]
        about += [" ".join([label, *row[label]]) for label in ("models", "limits") if row[label]]
        line = "  ".join([row["key"], *[safe_line(text.replace("_", " ")) for text in about]])
        console().print(Text.assemble((row["name"], "bold"), ("  " + line, "dim")), soft_wrap=True)
    if not found:
        echo("there is no key; palaver gateway keys create NAME makes one", err=True)


@keys.command(name="revoke")
@click.argument("name")
@gateway_database.options
def revoke(name: str, config: str | None, database: str | None) -> None:
    """Revoke the key NAME: gateways refuse it within five seconds."""
    with gateway_database.opened(config, database) as opened:
        from palaver.gateway.keys import GatewayKeys

        key = GatewayKeys(opened).revoke(name)
    echo(f"revoked {key.caller.name} ({key.shown}…)", err=True)


@keys.command(name="rotate")
@click.argument("name")
@click.option("--keep", default="0s", metavar="TIME", help="How long the old key is accepted, such as 1d.")
@gateway_database.options
@rows.options
def rotate(name: str, keep: str, form: Form | None, config: str | None, database: str | None) -> None:
    """Replace the key NAME by a new one with the same limits and scope, and print it."""
    milliseconds = gateway_database.span(keep)
    if milliseconds is None:
        raise click.BadParameter(f"{keep[:40]!r} is no time such as 1d or 12h", param_hint="--keep")
    with gateway_database.opened(config, database) as opened:
        from palaver.gateway.keys import GatewayKeys

        made = GatewayKeys(opened).rotate(name, keep=milliseconds)
    _print_new(made, form)


def _limits(fields: dict[str, Any]) -> list[Limit]:
    from palaver.gateway.limits import MEASURES, parse_limit

    try:
        return [parse_limit(measure, text) for measure in MEASURES for text in fields[measure]]
    except DecodeError as error:
        raise click.UsageError(str(error)) from None


def _expiry(text: str | None) -> int | None:
    if text is None:
        return None
    milliseconds = gateway_database.span(text)
    time = gateway_database.date(text) if milliseconds is None else now_ms() + milliseconds
    if time <= now_ms():
        raise click.UsageError(f"--expires: {text} has passed")
    return time


def _print_new(made: NewKey, form: Form | None) -> None:
    if form is not None:
        rows.write([{**_row(made.key), "secret": made.secret}], form)
        return
    echo(made.secret)
    echo(f"this is the key of {made.key.caller.name}; it is not stored, and not shown again", err=True)


def _row(key: VirtualKey) -> dict[str, Any]:
    caller = key.caller
    return {
        "name": caller.name,
        "id": caller.key_id,
        "key": f"{key.shown}…",
        "team": caller.team,
        "models": list(caller.models),
        "limits": [str(each) for each in caller.limits],
        "created": shown_time(key.created),
        "expires": shown_time(key.expires),
        "revoked": shown_time(key.revoked),
        "last_used": shown_time(key.last_used),
    }
