"""A command that has other commands below it: ``palaver gateway FILE``, and ``palaver gateway keys``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from palaver.cli.suggestions import Group


class DefaultGroup(Group):
    """Runs one of its commands where its name comes first, and otherwise the default command."""

    def __init__(self, default: click.Command, commands: Sequence[click.Command]) -> None:
        """Take the name, the options and the help of ``default``, which lists the other ``commands``."""
        super().__init__(default.name, list(commands), help=default.help)
        self.default = default
        default.epilog = "Commands: " + "; ".join(
            f"{each.name} ({each.get_short_help_str(limit=100).rstrip('.').lower()})" for each in commands
        )

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the command that the first argument names, or of the default command."""
        if args and args[0] in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        return self.default.make_context(info_name, args, parent, **extra)
