"""The commands of a chat: lines that begin with a slash.

Rules:

- ``/help`` and ``/quit`` are everywhere, ``/help`` first and ``/quit`` last; a command that there is not is told, and
  does nothing.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from palaver.cli.harmless import in_line

if TYPE_CHECKING:
    from palaver.cli.telling import Teller


class Leave(Exception):  # noqa: N818 (not an error)
    """The user wants to leave."""


class Commands:
    """What can be typed in a chat: each command does something with the rest of its line, and says what it does."""

    def __init__(self, teller: Teller, own: Mapping[str, tuple[Callable[[str], None], str]]) -> None:
        """Take a chat's own commands."""
        self._teller = teller
        self._known: Mapping[str, tuple[Callable[[str], None], str]] = {
            "/help": (self._help, "say this"),
            **own,
            "/quit": (self._quit, "leave; so do Ctrl-D, and Ctrl-C at the prompt"),
        }

    def run(self, line: str) -> None:
        """Do what a line says. Raises ``Leave``, and what the command raises."""
        name, _, rest = line.strip().partition(" ")
        found = self._known.get(name)
        if found is None:
            self._teller.line(f"there is no {in_line(name)}; /help says what there is", "yellow")
        else:
            found[0](rest.strip())

    def _help(self, _: str) -> None:
        for name, (_does, about) in self._known.items():
            self._teller.line(f"{name:8} {about}", "dim")
        self._teller.line("a line that ends in \\ goes on in the next; Ctrl-C stops a turn", "dim")

    def _quit(self, _: str) -> None:
        raise Leave
