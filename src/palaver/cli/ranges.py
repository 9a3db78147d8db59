"""The values that options take, and one line that refuses others: 'x' is not a whole number of at least 1.

An argument may be any bytes. Python keeps those that are not UTF-8 as lone surrogates, which only the name of a file
may hold.

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


class Utf8(click.types.StringParamType):
    """Text, as UTF-8."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return ``value`` as text. Raises ``click.BadParameter`` for ``param`` in ``ctx``."""
        try:
            utf8(text := super().convert(value, param, ctx))
        except click.BadParameter as error:
            raise click.BadParameter(error.message, ctx, param) from None
        return text


def utf8(text: str) -> bytes:
    """Return an argument as UTF-8. Raises ``click.BadParameter`` for one that was not."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{excerpt(text)!r} is not UTF-8 text") from None


def _refusal(kind: str, value: object, taken: click.IntRange | click.FloatRange) -> str:
    which = f"of at least {taken.min}" if taken.max is None else f"from {taken.min} to {taken.max}"
    return f"{excerpt(str(value))!r} is not {kind} {which}"
