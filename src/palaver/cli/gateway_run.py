"""``palaver gateway run``: run a program on any model, behind a gateway that lasts as long as the program.

- CLIENT is one of the programs that ``palaver gateway --for`` knows; what follows it goes to the program.
- A gateway is started on a free port, with ``--config`` or without; ``--url`` names one that runs already.
- The exit code is that of the program; 1 when the gateway or the program cannot be started.

Stability: experimental.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click

from palaver.cli.gateway_clients import PROGRAMS, find_client, start_of
from palaver.cli.suggestions import Choice

_EXAMPLE: Final = "openai/gpt-5.5"


@click.command(name="run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("client", type=Choice(tuple(each.name for each in PROGRAMS)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENT]...")
@click.option("-m", "--model", default=_EXAMPLE, metavar="MODEL", show_default=True, help="The model that it asks.")
@click.option("--config", metavar="FILE", help="The configuration of the gateway.")
@click.option("--url", metavar="URL", help="A gateway that runs already.")
def run(client: str, arguments: tuple[str, ...], *, model: str, config: str | None, url: str | None) -> int:
    """Run a program on any model, behind a gateway of its own.

    Options of this command stand before CLIENT. Exit codes: the program's own, 1 when something cannot be started.
    """
    row = find_client(client)
    program = shutil.which(row.command[0])
    if program is None:
        raise click.ClickException(f"{row.command[0]} is not installed; try: {row.package}")
    if url is not None:
        return _run(client, program, url.rstrip("/"), model, arguments)
    with _gateway(config) as address:
        return _run(client, program, address, model, arguments)


def _run(client: str, program: str, url: str, model: str, arguments: tuple[str, ...]) -> int:
    row = find_client(client)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "settings.json"
        settings.write_text(row.settings, "utf-8")
        command, variables = start_of(row, url, model, str(settings))
        process = subprocess.Popen([program, *command[1:], *arguments], env={**os.environ, **variables})  # noqa: S603 (the user asked for it)
        while True:
            with suppress(KeyboardInterrupt):  # Ctrl-C is the program's
                return process.wait()


@contextmanager
def _gateway(config: str | None) -> Generator[str]:
    """Run a gateway on a free port, in a process of its own, and yield its address."""
    command = [sys.executable, "-m", "palaver", "gateway", *([] if config is None else [config]), "--port", "0"]
    with tempfile.TemporaryFile("w+") as errors:  # a pipe that nobody reads would stop the gateway
        process = subprocess.Popen(  # noqa: S603 (this program)
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        try:
            address = (process.stdout.readline() if process.stdout else "").partition(" ")[0]
            if not address:
                process.wait()
                errors.seek(0)
                raise click.ClickException(errors.read().strip().removeprefix("Error: ") or "the gateway did not start")
            yield address
        finally:
            process.terminate()
            process.communicate()
