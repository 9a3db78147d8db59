"""The database of a gateway, for the commands that read or change it, and times that people write.

Stability: experimental.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from palaver.cli.serve import check_extra
from palaver.core.errors import UnavailableError
from palaver.threads.ids import now_ms

if TYPE_CHECKING:
    from palaver.gateway.database import Database

_SPAN: Final = re.compile(r"(\d{1,6})\s*([smhdw])")
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config`` and ``--database``, which say where the database is."""
    config = click.option(
        "--config", metavar="FILE", help="The configuration of the gateway, which names its database."
    )
    database = click.option(
        "--database",
        metavar="LOCATION",
        help="The path of an SQLite file, or postgresql://…  [default: that of a gateway without a configuration]",
    )
    return config(database(command))


@contextmanager
def opened(config: str | None, location: str | None, *, create: bool = False) -> Generator[Database]:
    """Open the database; with ``create`` also one that is not there yet. Raises ``PalaverError``."""
    check_extra("gateway", "starlette", "uvicorn")
    from palaver.gateway.config import read_config
    from palaver.gateway.database import default_location, open_database

    if location is None and config is not None:
        location = read_config(config).database
    location = location or default_location()
    if not create and "://" not in location and not Path(location).exists():
        raise UnavailableError(f"{location}: there is no such database")
    database = open_database(location)
    try:
        yield database
    finally:
        database.close()


def key_names(database: Database) -> dict[str, str]:
    """Return the names of all keys by their ids, also of those that are revoked. Raises ``PalaverError``."""
    from palaver.gateway.keys import GatewayKeys

    return {each.caller.key_id: each.caller.name for each in GatewayKeys(database).list()}


def span(text: str) -> int | None:
    """Return the milliseconds of ``30d``, ``12h`` and the like; ``None`` for another text."""
    found = _SPAN.fullmatch(text.strip().lower())
    return None if found is None else int(found[1]) * _SECONDS[found[2]] * 1000


def date(text: str) -> int:
    """Return a date, or a date and time, in UTC where it names no zone, in Unix milliseconds.

    Raises ``click.BadParameter``.
    """
    try:
        found = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.BadParameter(f"{text[:40]!r} is no time such as 30d, 12h or 2030-01-31") from None
    return int((found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).timestamp() * 1000)


def shown_time(at: int | None) -> str | None:
    """Return a time in Unix milliseconds as ISO 8601 in UTC."""
    return None if at is None else dt.datetime.fromtimestamp(at // 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def since(text: str | None) -> int:
    """Return the time that a user means by a date, or by a time ago; 0 without either."""
    if text is None:
        return 0
    milliseconds = span(text)
    return date(text) if milliseconds is None else now_ms() - milliseconds
