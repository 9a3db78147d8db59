"""What ``serve`` and ``work`` need when several processes share a swarm: a bus, a store, and the packages for both.

Stability: experimental.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import click

from palaver.cli import stores
from palaver.cli.failure import bad_input
from palaver.store.location import default_location, parted

_NATS: Final = "nats://"
_POSTGRES: Final = frozenset(("postgresql", "postgres"))


def check(bus: str, location: str | None) -> None:
    """Raise ``click.ClickException`` unless both can be shared, and spoken to."""
    if not bus.startswith(_NATS):
        raise click.UsageError(f"--bus {stores.shown(bus)}: {_NATS}… is expected")
    where = location or default_location()
    if parted(where)[0] not in _POSTGRES:
        raise click.UsageError(f"workers share --store postgresql://…, and {stores.shown(where)} is none")
    check_extra("nats", "nats")
    check_extra("postgres", "psycopg")


def check_extra(extra: str, *modules: str) -> None:
    """Raise ``click.ClickException`` unless the packages of an extra are there."""
    for name in modules:
        if find_spec(name) is None:
            bad_input(
                name, f"it is not installed: pip install 'palaver[{extra}]', or pip install -e '.[{extra}]' in a clone"
            )
