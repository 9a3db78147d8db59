"""People in a swarm, at the terminal: whoever talks with it answers in their place.

Rules:

- A question is taken from the desk (``Operator``) of the agent who is asked; where the program's file has somebody else
  who takes it, whoever is first has it.
- What is typed is the answer. Ctrl-D gives none; Ctrl-C stops the turn, and goes through.

Stability: experimental.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from rich.text import Text as Line

from palaver.cli.harmless import in_line
from palaver.cli.lines import Lines
from palaver.swarm.operator import Operator, Question

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.cli.telling import Teller
    from palaver.swarm.swarm import Swarm

_STYLE: Final = "bold magenta"


def desks(swarm: Swarm) -> Iterable[Operator]:
    """The desks of a swarm, each once."""
    found = (agent.operator for agent in swarm.agents.values())
    return {id(each): each for each in found if isinstance(each, Operator)}.values()


def ask(question: Question, teller: Teller) -> str:
    """Ask; ``""`` for no answer. Raises ``KeyboardInterrupt`` for Ctrl-C."""
    name = in_line(question.place.agent)
    teller.line(Line.assemble(("? ", _STYLE), (name, _STYLE), f" is asked: {in_line(question.text)}"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return Lines(teller, typed=True).read(f"as {name}: ")
    except EOFError:
        return ""
    finally:
        signal.signal(signal.SIGINT, before)
