"""The command line: agents (``run``, ``chat``), files (``convert``, ``show``), stores (``import``, …) and swarms.

- A command's module is imported only when that command runs. ``--help`` imports none of them.
- Exit codes: 0; 1 for bad input and refused losses; 2 for wrong usage; 130 after Ctrl-C; 141 when the reader of the
  output is gone. ``run`` adds 3: a call waits for a decision.
- An error is one line on standard error that names the place and the cause. It is never a traceback.

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

from palaver.cli.suggestions import Group, usage_text
from palaver.cli.terminal import echo, replace_encoding_errors, sanitize_logs
from palaver.core.errors import PalaverError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS: Final = {
    "run": ("palaver.cli.run", "Run an agent on one task."),
    "chat": ("palaver.cli.chat", "Chat with an agent."),
    "serve": ("palaver.cli.serve", "Serve a swarm over HTTP and WebSocket."),
    "work": ("palaver.cli.work", "Run a worker for a swarm that is served elsewhere."),
    "mcp": ("palaver.cli.mcp", "Serve tools, threads or an agent to MCP clients."),
    "gateway": ("palaver.cli.gateway", "Let clients of any provider's API ask models of any provider."),
    "replay": ("palaver.cli.replay", "Send a logged request to another model, and compare the answers."),
    "convert": ("palaver.cli.convert", "Convert a file to another wire or transcript format."),
    "resume": ("palaver.cli.resume", "Put a conversation where another agent resumes it."),
    "show": ("palaver.cli.show", "Show the conversation in a file or a stored thread."),
    "import": ("palaver.cli.imports", "Import conversations into a store without duplicates."),
    "threads": ("palaver.cli.threads", "List the threads of a store, the last changed first."),
    "today": ("palaver.cli.today", "Show today's work of all agents, with tokens and cost."),
    "search": ("palaver.cli.search", "Search messages, the newest first."),
    "logs": ("palaver.cli.logs", "Show what was asked and answered lately."),
    "context": ("palaver.cli.context", "Show what fills a model's context window."),
    "compact": ("palaver.cli.compact", "Compact a conversation, or undo a compaction."),
    "fork": ("palaver.cli.fork", "Start a branch at a position of a thread."),
    "export": ("palaver.cli.export", "Write a thread, or the conversation at one position, to a file."),
    "verify": ("palaver.cli.verify", "Check everything in a store, or the transcripts in a folder."),
    "gc": ("palaver.cli.gc", "Remove unreferenced data from the disk."),
    "delete": ("palaver.cli.delete", "Delete a thread with all its branches."),
    "swarm": ("palaver.cli.swarm", "Chat with a swarm of agents, or draw it."),
    "bus": ("palaver.cli.bus", "Show the events of swarms live."),
    "models": ("palaver.cli.models", "List the models of the catalogue, or of a server."),
    "keys": ("palaver.cli.keys", "Store API keys."),
    "formats": ("palaver.cli.formats", "List the transcript formats, and what each keeps and loses."),
    "wires": ("palaver.cli.wires", "List the wires and what each can carry."),
    "schema": ("palaver.cli.schema", "Print the JSON Schema of the canonical form."),
}
"""Each command's module and its summary."""

USAGE: Final = 2
INTERRUPTED: Final = 130
CLOSED: Final = 141


class _OutputClosed(Exception):  # noqa: N818 (not an error: the reader has read enough)
    """The reader of our output is gone."""


class _Group(Group):
    """Looks commands up in the table and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the command names in the order of the table."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        return import_module(_COMMANDS[cmd_name][0]).command if cmd_name in _COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command and flush its output, so that a closed pipe is noticed here and not at exit."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise _OutputClosed from None
        return result


def _print_version(ctx: click.Context, _option: click.Parameter, requested: bool) -> None:  # noqa: FBT001 (click's)
    if requested and not ctx.resilient_parsing:
        from importlib.metadata import version

        echo(f"palaver {version('palaver')}")
        ctx.exit()


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Print the version."
)
def group() -> None:
    """One conversation, every provider's wire, and a receipt for what could not be carried."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code."""
    replace_encoding_errors(sys.stdout)
    sanitize_logs()
    with suppress(OSError):  # the caller has already read from it
        replace_encoding_errors(sys.stdin)
    try:
        result = group.main(args, prog_name="palaver", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else _command_path(sys.argv[1:] if args is None else args)
        return _fail(f"{usage_text(error)} (see {command} --help)", USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except UnknownNameError as error:
        return _fail(str(error), USAGE)
    except (PalaverError, OSError) as error:
        return _fail(_cause(error), 1)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except _OutputClosed:
        _discard_output()
        return CLOSED
    return result if isinstance(result, int) else 0


def _command_path(args: Sequence[str]) -> str:
    """Return the command of ``args``, for an error of the parser, which does not have it."""
    name = next((each for each in args if not each.startswith("-")), None)
    return f"palaver {name}" if name in _COMMANDS else "palaver"


def run() -> Never:
    """Run the command line as a process. Exit at once, without the interpreter's teardown.

    A standard stream that is closed is replaced by the null device.
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


def _discard_output() -> None:
    """Point standard output at the null device, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
