"""``palaver run``: one task for an agent, in the terminal or in a script.

Rules:

- What is piped into standard input stands in front of PROMPT, in the same message; ``-``, or no PROMPT, is that alone.
- Everything that is said is kept in a thread of the store as it is said, also when it is stopped.
- Without a terminal nobody is asked: what waits for a decision stays pending, and the way to go on is told.
- Exit codes: 0 completed, 1 failed, 2 wrong usage or no model, 3 waiting for a decision, 130 after Ctrl-C.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from palaver.cli import agent_options, conversation, files, run_renderer, stores
from palaver.cli.agent_options import Asked, Typed
from palaver.cli.conversation import Conversation
from palaver.cli.run_renderer import Teller
from palaver.cli.terminal import echo, in_line
from palaver.turn.events import AgentEvent
from palaver.turn.run import Run


@click.command(name="run")
@click.argument("prompt", required=False)
@agent_options.options
@click.option(
    "--decide",
    "decided",
    multiple=True,
    metavar="CALL=DECISION",
    callback=agent_options.decisions,
    help="Decide a call that waits: approve, edit:JSON, reject:TEXT, answer:TEXT; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="One event a line, as JSON.")
def command(prompt: str | None, *, decided: tuple[Typed, ...], as_json: bool, **given: Any) -> int:
    """Let an agent carry out PROMPT; what is piped into standard input comes before it.

    PROMPT may be -, or left out, when standard input is all there is to say. Without either, a thread goes on where it
    was left. Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 waiting for a decision, 130 after Ctrl-C.
    """
    asked = agent_options.asked(given)
    task = "" if prompt in {None, files.STANDARD} else prompt
    piped = _piped() if prompt == files.STANDARD or files.is_piped() else ""
    prompt = "\n\n".join(each for each in (piped, task) if each)
    if not prompt and asked.thread is None:
        raise click.UsageError("give a PROMPT, or --thread to go on with one")
    images = conversation.images(asked.images)
    said = [prompt, *images] if prompt and images else images or prompt or None
    decisions = conversation.typed(decided)
    with conversation.opened(asked, begins=said is not None) as talk:
        talk.entitle(task or prompt)
        try:
            run = _told(talk, said, decisions, as_json=as_json)
        except KeyboardInterrupt:  # at a question, or twice
            _go_on(asked, talk, None)
            raise
        _go_on(asked, talk, run)
    return conversation.EXITS.get(run.outcome, 1)


def _piped() -> str:
    """Read standard input. Raises ``click.UsageError`` for what is not text."""
    data = files.read(files.STANDARD)
    try:
        return data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        cause = f"standard input is not UTF-8 text (byte {error.start:,}); images go in by --image"
        raise click.UsageError(cause) from None


def _told(talk: Conversation, said: Any, decisions: Any, *, as_json: bool) -> Run:
    if as_json:

        def show(event: AgentEvent | None) -> None:
            if event is not None:
                stores.say_json([run_renderer.as_json(event)])

        return talk.turn(said, show, decisions=decisions)
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    return talk.talk(said, Teller(), decisions=decisions, asks=asks)


def _go_on(asked: Asked, talk: Conversation, run: Run | None) -> None:
    """Say how to go on with what is not over."""
    if run is not None and run.outcome == "waiting":
        for each in run.pending:
            echo(f"palaver: {in_line(each.tool)} waits for a decision: {in_line(each.call.id)}", err=True)
        decide = [word for each in run.pending for word in ("--decide", f"{each.call.id}=approve")]
        echo(f"go on: {in_line(asked.again('run', talk.place, *decide))}", err=True)
    elif run is None or run.outcome == "cancelled":
        echo(f"stopped; go on: {in_line(asked.again('run', talk.place))}", err=True)
