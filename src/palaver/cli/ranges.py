"""Numbers as the values of options, and one line that says which are taken: 'x' is not a whole number of at least 1.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any

import click

from palaver.core.errors import excerpt


class WholeNumber(click.IntRange):
    """A whole number in a range."""

    def __init__(self, least: int, most: int | None = None) -> None:
        """Take a number of at least ``least``, and of at most ``most`` if that is given."""
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return ``value`` as a number. Raises ``click.BadParameter`` for ``param`` in ``ctx``."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            raise click.BadParameter(_refusal("a whole number", value, self), ctx, param) from None


class Number(click.FloatRange):
    """A number in a range, with or without a fraction."""

    def __init__(self, least: float, most: float | None = None) -> None:
        """Take a number of at least ``least``, and of at most ``most`` if that is given."""
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return ``value`` as a number. Raises ``click.BadParameter`` for ``param`` in ``ctx``."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            raise click.BadParameter(_refusal("a number", value, self), ctx, param) from None


def _refusal(kind: str, value: object, taken: click.IntRange | click.FloatRange) -> str:
    which = f"of at least {taken.min}" if taken.max is None else f"from {taken.min} to {taken.max}"
    return f"{excerpt(str(value))!r} is not {kind} {which}"
