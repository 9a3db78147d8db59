"""``palaver keys``: store API keys for the command line.

- A key is read from a prompt that shows nothing, or from standard input when that is piped; never from an argument,
  which other processes can see.
- NAME is a provider, or ``server`` for the server of ``--url``. A key of the environment always comes first.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.text import Text

from palaver.cli import completion, key_store, rows
from palaver.cli.rows import Form
from palaver.cli.suggestions import Group
from palaver.cli.terminal import bad_input, console, echo
from palaver.core.errors import UnknownNameError
from palaver.models import providers
from palaver.models.endpoint import first_set


@click.group(name="keys", cls=Group)
def command() -> None:
    """Store API keys, for commands that name a model."""


def _check_provider(name: str) -> None:
    known = [*providers.PROVIDERS, key_store.SERVER]
    if name not in known:
        raise UnknownNameError.among(f"no provider {name!r}", known, name)


@command.command(name="set", context_settings={"allow_extra_args": True})
@click.argument("name", shell_complete=completion.providers)
@click.pass_context
def set_key(context: click.Context, name: str) -> None:
    """Store the key of provider NAME. It is read from a hidden prompt, or from piped standard input."""
    if context.args:  # a key, which no error may show
        raise click.UsageError("a key is not an argument, which other users see: type it at the prompt, or pipe it")
    _check_provider(name)
    key = click.prompt("Key", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read()
    if not key.strip():
        bad_input(name, "the key is empty")
    if len(key.strip().splitlines()) > 1:
        bad_input(name, "a key is one line, and there are several")
    key_store.store(name, key.strip())
    echo(f"stored the key of {name} in {key_store.place()}", err=True)


@command.command(name="list")
@rows.options
def list_keys(form: Form | None) -> None:
    """List the providers that have a key, and where it comes from. No key is shown."""
    stored = set(key_store.names())
    found: list[dict[str, Any]] = []
    variables = {name: row.keys for name, row in providers.PROVIDERS.items()} | {key_store.SERVER: ()}
    for name, keys in variables.items():
        variable = next((each for each in keys if first_set([each])), None)
        if variable is not None or name in stored:
            found.append({"name": name, "source": variable or "stored", "stored": name in stored})
    if form is not None:
        rows.write(found, form, ("name", "source", "stored"))
        return
    for each in found:
        console().print(Text.assemble((each["name"], "bold"), ("  " + each["source"], "dim")), soft_wrap=True)
    if not found:
        echo("no key is stored or set; palaver keys set NAME stores one", err=True)


@command.command(name="get")
@click.argument("name", shell_complete=completion.providers)
def get_key(name: str) -> None:
    """Print the stored key of provider NAME."""
    _check_provider(name)
    key = key_store.find(name)
    if key is None:
        bad_input(name, "no key is stored")
    echo(key)


@command.command(name="remove")
@click.argument("name", shell_complete=completion.providers)
def remove_key(name: str) -> None:
    """Remove the stored key of provider NAME."""
    _check_provider(name)
    if not key_store.remove(name):
        bad_input(name, "no key is stored")
    echo(f"removed the key of {name}", err=True)


@command.command(name="path")
def show_path() -> None:
    """Print where keys are stored."""
    echo(key_store.place())
