"""The command line: agents (``run``, ``chat``), files (``convert``, …), stores (``import``, …), and what there is.

Rules:

- A command's module is imported when the command is called, by the table below; nothing else is, also for ``--help``.
- Exit codes: 0, 1 for bad input and for losses that were refused, 2 for wrong usage; 130 after Ctrl-C, and 141 when
  the reader of the output went away, as shells count them; ``run`` adds 3 for what waits for a decision.
- What goes wrong is one line on standard error, with the place and the cause. Never a traceback.

Stability: experimental.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Never

import click

from palaver.cli.terminal import echo, forgiving, harmless_logs
from palaver.core.errors import PalaverError, UnknownNameError, near

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS: Final = {
    "run": ("palaver.cli.run", "Let an agent carry out a task."),
    "chat": ("palaver.cli.chat", "Talk with an agent."),
    "serve": ("palaver.cli.serve", "Serve a swarm over HTTP and WebSocket."),
    "work": ("palaver.cli.work", "Answer turns of a swarm that is served elsewhere."),
    "convert": ("palaver.cli.convert", "Convert a file to another wire."),
    "show": ("palaver.cli.show", "Show the conversation in a file, or in a thread of the store."),
    "import": ("palaver.cli.imports", "Import conversations into a store, each once."),
    "threads": ("palaver.cli.threads", "List the threads of a store, those that went on last first."),
    "search": ("palaver.cli.search", "Find messages, the newest first."),
    "context": ("palaver.cli.context", "Say what fills a model's window, by kind."),
    "compact": ("palaver.cli.compact", "Make a conversation shorter, or take that back."),
    "fork": ("palaver.cli.fork", "Begin a branch at a place of a thread."),
    "export": ("palaver.cli.export", "Write a thread, or the conversation at one place of it, to a file."),
    "verify": ("palaver.cli.verify", "Read everything in a store and derive every hash again."),
    "gc": ("palaver.cli.gc", "Remove from the disk what nothing refers to."),
    "delete": ("palaver.cli.delete", "Delete a thread with all its branches."),
    "swarm": ("palaver.cli.swarm", "Talk with a swarm of agents, or draw it."),
    "bus": ("palaver.cli.bus", "Show what happens in swarms, as it happens."),
    "formats": ("palaver.cli.formats", "List the file formats of agents, and what each keeps and loses."),
    "wires": ("palaver.cli.wires", "List the wires and what each can say."),
    "schema": ("palaver.cli.schema", "Print the JSON Schema of Palaver's own form."),
}
"""The module of each command, and what it does."""

USAGE: Final = 2
INTERRUPTED: Final = 130
CLOSED: Final = 141


class _Closed(Exception):  # noqa: N818 (not an error: the reader has read enough)
    """Whoever read our output went away."""


class _Group(click.Group):
    """Finds its commands in the table, and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Name the commands, in the order of the table."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        return import_module(_COMMANDS[cmd_name][0]).command if cmd_name in _COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called. Raises ``UsageError``, which names the one that is like it."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = near(args[0], _COMMANDS)
            if close is None:
                raise
            raise click.UsageError(f"{error.message.rstrip('.')}; did you mean {close}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command, and find out now, not at exit, that nobody reads what it wrote."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise _Closed from None
        return result


def _print_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:  # noqa: FBT001 (click's)
    if asked and not ctx.resilient_parsing:
        from importlib.metadata import version

        echo(f"palaver {version('palaver')}")
        ctx.exit()


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Say which.")
def group() -> None:
    """One conversation, every provider's wire, and a receipt for what could not be carried."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line, and give the exit code."""
    forgiving(sys.stdout)
    harmless_logs()
    with suppress(OSError):  # who called this has read from it already
        forgiving(sys.stdin)
    try:
        result = group.main(args, prog_name="palaver", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        asked = error.ctx.command_path if error.ctx else _called(sys.argv[1:] if args is None else args)
        return _fail(f"{error.format_message().rstrip('.')} (see {asked} --help)", USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except UnknownNameError as error:
        return _fail(str(error), USAGE)
    except (PalaverError, OSError) as error:
        return _fail(_cause(error), 1)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except _Closed:
        _let_go()
        return CLOSED
    return result if isinstance(result, int) else 0


def _called(args: Sequence[str]) -> str:
    """The command that was called, for an error of the parser, which does not know of it."""
    name = next((each for each in args if not each.startswith("-")), None)
    return f"palaver {name}" if name in _COMMANDS else "palaver"


def run() -> Never:
    """Run the command line as a process, and end it without taking apart, object by object, what was built.

    A stream that is closed already is one that says nothing, and that nobody reads.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (until the end)
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _cause(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    cause = (error.strerror or str(error)).lower()
    return cause if error.filename is None else f"{error.filename}: {cause}"


def _fail(message: str, code: int) -> int:
    try:
        echo(f"palaver: {' '.join(message.split())}", err=True)
    except OSError:
        return CLOSED
    return code


def _let_go() -> None:
    """Point standard output nowhere, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
