"""``palaver run``: run an agent on one task, in a terminal or in a script.

- Standard input, when piped, comes before PROMPT in the same message. ``-``, or no PROMPT, means standard input alone.
- ``--schema`` prints the answer as one line of JSON, ``--extract`` its first or last code block, or all of it when
  there is none. What the run does meanwhile is not shown. A run that did not complete prints nothing there: an answer
  that was cut, or does not fit, is no result. One line on standard error says why, and how to read the answer.
- Every message is kept in a thread of the store as it arrives, also when the run is stopped.
- Without a terminal nobody is asked: a call that needs a decision stays pending, and the command to continue is
  printed.
- Exit codes: 0 completed, 1 failed, 2 wrong usage or no model, 3 waiting for a decision, 130 after Ctrl-C.

Stability: experimental.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from palaver.cli import agent_options, code_block, conversation, files, output_schema, run_renderer, stores
from palaver.cli.agent_options import AgentOptions, TypedDecision
from palaver.cli.attachments import attachments
from palaver.cli.code_block import Which
from palaver.cli.conversation import Conversation
from palaver.cli.run_renderer import RunRenderer
from palaver.cli.terminal import echo, safe_line
from palaver.turn.approvals import Decision
from palaver.turn.events import AgentEvent
from palaver.turn.open_calls import pending
from palaver.turn.run import Run


@click.command(name="run")
@click.argument("prompt", required=False)
@agent_options.options
@agent_options.decide_option("Decide a pending call: approve, edit:JSON, reject:TEXT, answer:TEXT; may be repeated.")
@click.option(
    "--schema",
    "output",
    metavar="SCHEMA",
    callback=output_schema.parse,
    help="Answer in JSON of this form: a JSON Schema in a file or as text, or “name, age int, bio: short”.",
)
@code_block.options
@click.option("--json", "as_json", is_flag=True, help="One event a line, as JSON.")
def command(
    prompt: str | None, *, typed: tuple[TypedDecision, ...], extract: Which | None, as_json: bool, **values: Any
) -> int:
    """Run an agent on PROMPT. Piped standard input comes before it.

    PROMPT may be - or left out when standard input is the whole prompt. Without either, a thread continues where it
    stopped. Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 waiting for a decision, 130 after Ctrl-C.
    """
    options = agent_options.parse(values)
    task = "" if prompt in {None, files.STDIO} else prompt
    piped = _read_stdin() if prompt == files.STDIO or files.is_piped() else ""
    prompt = "\n\n".join(each for each in (piped, task) if each)
    if not prompt and not options.attachments and options.thread is None and not options.last:
        raise click.UsageError("give a PROMPT, or --thread or --continue to continue a thread")
    if (extract is not None) + as_json + (options.output is not None) > 1:
        raise click.UsageError("--extract, --json and --schema exclude each other")
    attached = attachments(options.attachments)
    content = [prompt, *attached] if prompt and attached else attached or prompt or None
    decisions = conversation.parse_decisions(typed)
    with conversation.open_conversation(options, create=content is not None) as chat:
        chat.set_title(task or prompt)
        try:
            if extract is not None or options.output is not None:
                _print_closed(chat, content, decisions)
                run = chat.run_once(content, lambda _: None, decisions=decisions)
                _print_result(run, extract, options, chat)
            else:
                run = _run(chat, content, decisions, as_json=as_json)
        except KeyboardInterrupt:  # at a question, or twice
            _print_continuation(options, chat, None)
            raise
        _print_continuation(options, chat, run)
    return conversation.EXITS.get(run.outcome, 1)


def _read_stdin() -> str:
    """Read standard input. Raises ``click.UsageError`` for what is not text."""
    data = files.read(files.STDIO)
    try:
        return data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        cause = f"standard input is not UTF-8 text (byte {error.start:,}); pass other files with --attachment"
        raise click.UsageError(cause) from None


def _run(chat: Conversation, content: Any, decisions: Any, *, as_json: bool) -> Run:
    if as_json:

        def show(event: AgentEvent | None) -> None:
            if event is not None:
                stores.print_json([run_renderer.as_json(event)])

        return chat.run_once(content, show, decisions=decisions)
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    return chat.run_with_approvals(content, RunRenderer(), decisions=decisions, asks=asks)


def _print_result(run: Run, extract: Which | None, options: AgentOptions, chat: Conversation) -> None:
    """Print the code block of an answer, or the answer in the form of the schema; else say why there is none."""
    if run.ok and extract is not None:
        block = code_block.code_block(run.text, extract)
        files.write(files.STDIO, (f"{run.text}\n" if block is None else block).encode("utf-8", "replace"))
    elif run.ok:
        stores.print_json([run.output])
    elif run.outcome not in {"waiting", "cancelled"}:  # for those, _print_continuation says what to do
        outcome, why = run_renderer.end_of(run)
        where = f"; to read the answer: {safe_line(options.show(chat.address))}" if run.text and options.stored else ""
        echo(f"palaver: {outcome}{f': {why}' if why else ''}{where}", err=True)
        if run.text and not options.stored:  # it is nowhere else
            echo(run.text, err=True)


def _print_closed(chat: Conversation, content: object, decisions: Mapping[str, Decision]) -> None:
    """Print a line for each call that a prompt closes, where the run itself is not shown."""
    for each in pending(chat.thread) if content is not None else ():
        if each.call.id not in decisions:
            cause = "it waited for a decision, and the new prompt closes it"
            echo(f"palaver: {safe_line(each.tool)} ({safe_line(each.call.id)}) is not run: {cause}", err=True)


def _print_continuation(options: AgentOptions, chat: Conversation, run: Run | None) -> None:
    """Print the command that continues an unfinished run."""
    if run is not None and run.outcome == "waiting":
        for each in run.pending:
            echo(f"palaver: {safe_line(each.tool)} waits for a decision: {safe_line(each.call.id)}", err=True)
        if not options.stored:
            echo("palaver: the run is not stored and cannot be continued; --approve decides such calls", err=True)
            return
        decide = [word for each in run.pending for word in ("--decide", f"{each.call.id}=approve")]
        echo(f"continue: {safe_line(options.again('run', chat.address, *decide))}", err=True)
    elif run is None or run.outcome == "cancelled":
        if not options.stored:
            return
        echo(f"stopped; continue: {safe_line(options.again('run', chat.address))}", err=True)
