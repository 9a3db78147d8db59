"""Tables with a row for each wire or format. A missing row raises an error that says where to add it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")


class MissingRowError(KeyError):
    """A table has no row for a name; the text says what to add, and where."""

    def __str__(self) -> str:
        """The text, without the quotes that `KeyError` puts around it."""
        return str(self.args[0])


def row(table: Mapping[str, V], name: str, place: str) -> V:
    """Give the row of a table. Raises ``MissingRowError``: "add 'telegraph' to NULLED in tests/wires/test_laws.py".

    ``place`` names the table and its file.
    """
    if name not in table:
        raise MissingRowError(f"add {name!r} to {place}; it has {', '.join(table) or 'no row'}")
    return table[name]
