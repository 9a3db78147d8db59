"""``palaver swarm``: a conversation with a swarm of agents at the terminal, or one message; or a drawing of the swarm.

Rules:

- Who speaks, hand-overs, calls and results are lines aside; what the agents say goes to standard output.
- At a terminal, what a person in the swarm is asked is asked here.
- The conversation is the client's thread in the store; ``--client`` goes on with one.
- Exit codes: 0, 1 for a message that came to no answer and for what cannot be used, 130 after Ctrl-C.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import Final

import click

from palaver.cli import files, stores, swarm_file
from palaver.cli.swarm_chat import SwarmChat, once, opened
from palaver.cli.swarm_telling import SwarmTeller
from palaver.swarm.drawing import FORMATS

_DRAWINGS: Final = ("markdown", "mermaid", "plantuml")


@click.command(name="swarm")
@click.argument("named", metavar="FILE")
@click.option("--client", metavar="X", help="Whose conversation it is; without it a new one begins.")
@stores.option
@click.option("--message", metavar="TEXT", help="Say one thing, and leave; - reads it from standard input.")
@click.option("--events", is_flag=True, help="Show each event of the swarm's bus as a line.")
@click.option("--draw", "drawing", type=click.Choice(_DRAWINGS), help="Print what the swarm is, and leave.")
def command(
    named: str,
    *,
    client: str | None,
    location: str | None,
    message: str | None,
    events: bool,
    drawing: str | None,
) -> int:
    """Talk with the swarm of FILE.py, FILE.py:NAME or FILE.toml; /help says what can be typed."""
    if client == "":
        raise click.UsageError("a client needs a name")
    made = swarm_file.swarm(named)
    if drawing is not None:
        drawn = FORMATS[drawing](made)
        files.write(files.STANDARD, drawn.encode())
        return 0

    again = ["palaver", "swarm", named, *([] if location is None else ["--store", stores.shown(location)])]
    said = files.read("-").decode(errors="replace").strip() if message == "-" else message
    typed = sys.stdin.isatty()
    with opened(made, client, location, asks=typed and sys.stderr.isatty()) as talk:
        teller = SwarmTeller(events=events)
        if said is not None:
            return once(talk, teller, said, again)
        return SwarmChat(talk, teller, again, typed=typed).go()
