"""Which model is meant, and what to say where none can be asked.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import anyio
import click

from palaver.cli.demo_model import NAME, demo_model
from palaver.cli.harmless import echo
from palaver.models import names, providers
from palaver.models.capabilities import Capabilities
from palaver.models.catalogue import capabilities_of, catalogue
from palaver.models.credentials import first_set

if TYPE_CHECKING:
    from palaver.models.http_model import Model

_SHOWN: Final = 6
_USAGE: Final = 2


def chosen(name: str | None) -> Model:
    """The model of a name, or of ``PALAVER_MODEL``.

    Raises ``UnknownNameError``. Where no model is named, or no key is set for it, it says what to do, and ends the
    command.
    """
    name = name or os.environ.get(names.DEFAULT, "").strip()
    if is_demo(name):
        return demo_model()
    if not name:
        _give_up("no model is named", _what_there_is())
    provider = name.partition("/")[0]
    found = names.model(name)
    row = providers.PROVIDERS.get(provider)
    if row is not None and row.needs_key and row.keys and first_set(row.keys) is None:
        _give_up(f"{provider}: no key: set {' or '.join(row.keys)}", _without())
    return found


def sizes(name: str) -> tuple[str, Capabilities]:
    """What is known of a model, which is not asked: its name, with the provider where one is known, and what it can.

    ``name`` may also be the bare id that an answer names.
    """
    if is_demo(name):
        return demo_model().name, demo_model().capabilities
    provider, slash, _ = name.partition("/")
    if slash and provider in providers.PROVIDERS:
        return name, capabilities_of(name)
    card = max(
        (each for each in catalogue().cards if name.startswith(each.prefix)),
        key=lambda each: len(each.prefix),
        default=None,
    )
    if card is None:
        return name, Capabilities()
    return f"{card.providers[0]}/{name}", card.capabilities


def is_demo(name: str) -> bool:
    """Whether a name is that of the script, which needs no provider."""
    return name.partition("/")[0] == NAME


def _give_up(what: str, lines: Iterator[str]) -> None:
    echo(f"palaver: {what}", err=True)
    for line in lines:
        echo(f"  {line}", err=True)
    raise click.exceptions.Exit(_USAGE)


def _what_there_is() -> Iterator[str]:
    """What to set."""
    ready = names.available()
    here = anyio.run(names.answering)
    for name in (*ready, *here):
        why = "answers on this machine" if name in here else "has its key set"
        yield f"{name} {why}: --model {name}/…, or set {names.DEFAULT}={name}/…"
    if not ready and not here:
        keys = [row.keys[0] for row in providers.PROVIDERS.values() if row.needs_key and row.keys]
        some = ", ".join(list(dict.fromkeys(keys))[:_SHOWN])
        yield f"no key is set ({some}, …), and no server such as Ollama answers on this machine"
        yield "set a key and name a model: --model anthropic/claude-…, openai/gpt-…, ollama/…"
    yield from _without()


def _without() -> Iterator[str]:
    yield f"without a key: --model {NAME} plays a script, with tools and an approval"
