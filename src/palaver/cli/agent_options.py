"""What ``run`` and ``chat`` are asked for: the options that both have, and how they are typed again to go on.

Rules:

- Nothing that runs an agent is imported here: the help of every command reads this module.

Stability: experimental.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final, Literal, NamedTuple, TypeVar

import click

from palaver.cli import stores

Mode = Literal["ask", "allow", "deny"]
_F = TypeVar("_F", bound="Callable[..., Any]")


class Asked(NamedTuple):
    """The options that both commands have."""

    model: str | None = None
    tools: tuple[str, ...] = ()
    thread: str | None = None
    location: str | None = None
    system: str = ""
    approve: Mode = "ask"
    steps: int | None = None
    images: tuple[str, ...] = ()
    no_compaction: bool = False

    def again(self, command: str, thread: str, *more: str) -> str:
        """What to type to go on with a thread in the same way. It names the store without its password."""
        words = ["palaver", command, "--thread", thread]
        words += [] if self.model is None else ["--model", self.model]
        words += [word for each in self.tools for word in ("--tools", each)]
        words += [] if self.location is None else ["--store", stores.shown(self.location)]
        words += [] if self.approve == "ask" else ["--approve", self.approve]
        words += ["--no-compaction"] if self.no_compaction else []
        return shlex.join([*words, *more])


_OPTIONS: Final = (
    click.option("--model", metavar="M", help="provider/id, or demo; else PALAVER_MODEL."),
    click.option(
        "--tools",
        multiple=True,
        metavar="TOOLS",
        help="FILE.py, FILE.py:name,…, mcp:URL, “mcp:COMMAND …”, or files; may be repeated.",
    ),
    click.option("--thread", metavar="T", help="Go on with a thread, or begin one of that name."),
    stores.option,
    click.option("--system", default="", metavar="TEXT", help="What the model is told first."),
    click.option(
        "--approve",
        type=click.Choice(("ask", "allow", "deny")),
        default="ask",
        show_default=True,
        help="What becomes of calls that do more than read.",
    ),
    click.option("--max-steps", "steps", type=click.IntRange(min=1), metavar="N", help="How often the model is asked."),
    click.option(
        "--image", "images", multiple=True, metavar="FILE", type=click.Path(), help="Show it an image; may be repeated."
    ),
    click.option("--no-compaction", is_flag=True, help="Leave a conversation that fills the window as it is."),
)


def options(command: _F) -> _F:
    """Give a command the options; it gets them by the names of the fields of ``Asked``."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def asked(given: dict[str, Any]) -> Asked:
    """Take them out of what click gives."""
    return Asked(**{name: given[name] for name in Asked._fields})


# -- decisions that are typed beforehand -----------------------------------------------------------------------------


class Typed(NamedTuple):
    """A decision as it was typed: ``CALL=approve``, ``CALL=reject:no``, ``CALL=answer:…``, ``CALL=edit:{…}``."""

    call: str
    kind: Literal["approve", "edit", "reject", "answer"]
    text: str


_KINDS: Final[dict[str, Literal["approve", "edit", "reject", "answer"]]] = {
    "approve": "approve",
    "edit": "edit",
    "reject": "reject",
    "answer": "answer",
}


def decisions(_context: click.Context, _option: click.Parameter, given: Sequence[str]) -> tuple[Typed, ...]:
    """Take decisions apart: a callback of an option."""
    return tuple([_decision(each) for each in given])


def _decision(text: str) -> Typed:
    call, equals, rest = text.partition("=")
    kind, _, said = rest.partition(":")
    if not (call and equals) or kind not in _KINDS:
        raise click.BadParameter(f"{text!r} is not CALL={'|'.join(_KINDS)}, with :TEXT behind the last three")
    return Typed(call, _KINDS[kind], said)
