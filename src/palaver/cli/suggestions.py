"""Suggest the name that was meant, wherever click itself refuses one: commands, options and choices.

Names of wires, formats, providers and the like are refused by the library, with ``UnknownNameError.among``; both use
``palaver.core.errors.near``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from palaver.core.errors import near

if TYPE_CHECKING:
    from collections.abc import Sequence


class Choice(click.Choice[str]):
    """A choice of names, one of which is suggested for a name that is like it."""

    def __init__(self, choices: Sequence[str]) -> None:
        """Take one of ``choices``."""
        super().__init__(choices)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the choice. Raises ``click.BadParameter``, which suggests a similar name."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            hint = meant(str(value), self.choices)
            raise click.BadParameter(f"{error.message.rstrip('.')}{hint}", ctx, param) from None


class Group(click.Group):
    """A group of commands, one of which is suggested for a name that is like it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called. Raises ``UsageError``, which suggests a similar name."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"No such command {args[0]!r}{meant(args[0], self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)


def usage_text(error: click.UsageError) -> str:
    """Return what was wrong with the usage, in one line without a full stop."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        options = [each for param in error.ctx.command.get_params(error.ctx) for each in param.opts]
        return f"No such option {error.option_name}{meant(error.option_name, _long(options))}"
    return error.format_message().rstrip(".")


def _long(options: Iterable[str]) -> list[str]:
    return [each for each in options if each.startswith("--")]


def meant(name: str, names: Iterable[str]) -> str:
    """Return ``"; did you mean …?"`` with the name that is like ``name``, or nothing."""
    close = near(name, names)
    return "" if close is None else f"; did you mean {close}?"
