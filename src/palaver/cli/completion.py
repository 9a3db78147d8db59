"""Shell completion of names: threads of the store, models, wires, transcript formats, providers and settings.

- click's own completion calls these functions with the words so far; ``palaver`` prints what fits.
- What fails, such as a store that cannot be read, completes nothing: a shell shows no errors.
- Each function imports what only it needs: every command reads this module.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Final, TypeAlias

from click.shell_completion import CompletionItem

from palaver.core.errors import PalaverError

if TYPE_CHECKING:
    import click

    from palaver.store.store import ThreadInfo

Completer: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"
_MAX_THREADS: Final = 200
"""The number of threads that are offered, the last changed first."""


def _completer(found: Callable[[click.Context], Iterable[tuple[str, str | None]]]) -> Completer:
    """Make a completer of a function that yields names, each with a description."""

    @wraps(found)
    def complete(context: click.Context, _parameter: click.Parameter, beginning: str) -> list[CompletionItem]:
        try:
            return [CompletionItem(name, help=about) for name, about in found(context) if name.startswith(beginning)]
        except (PalaverError, OSError):
            return []

    return complete


def _or_file(complete: Completer) -> Completer:
    """Make a completer that offers files too."""

    @wraps(complete)
    def complete_both(context: click.Context, parameter: click.Parameter, beginning: str) -> list[CompletionItem]:
        return [*complete(context, parameter, beginning), CompletionItem(beginning, type="file")]

    return complete_both


@_completer
def threads(context: click.Context) -> Iterator[tuple[str, str | None]]:
    """Complete a thread of the store of ``--store``, with its title."""
    from palaver.cli import stores

    location = context.params.get("location")
    if not stores.exists(location):
        return
    with stores.open_existing(location) as store:
        found: list[ThreadInfo] = list(store.threads(limit=_MAX_THREADS))
    for info in found:
        yield stores.short(info.id), info.title


@_completer
def models(_context: click.Context) -> Iterator[tuple[str, str | None]]:
    """Complete a model of the catalogue. A row whose beginning is not itself a name is left out."""
    from palaver.models.catalogue import catalogue

    yield "demo", "a script that needs no key"
    for card in catalogue().cards:
        for provider in card.providers if _is_id(card.prefix) else ():
            yield f"{provider}/{card.prefix}", None


_BEGINNINGS: Final = (
    r".*[^a-zA-Z0-9]",  # other models of a series: gpt-5.
    r"claude-.*-20\d\d",  # a day follows
    r"claude-3-.*",  # -latest or a day follows
    r"gpt-.*-(audio|chat|image|realtime|search)",  # -preview, -latest or -api follows
    r"gemini-.*-(live|native-audio|preview-image)",  # a version follows
    r"magistral-medium|kimi-k2-turbo|command-a-translate|openai/gpt-oss-safeguard",  # so do a day, -preview, a size
)
"""Beginnings of ids in the catalogue that are no ids themselves."""
_BEGINNING: Final = re.compile("|".join(_BEGINNINGS))


def _is_id(prefix: str) -> bool:
    """Whether the beginning of names is a name itself."""
    return _BEGINNING.fullmatch(prefix) is None


@_completer
def settings(_context: click.Context) -> Iterator[tuple[str, str | None]]:
    """Complete the name of a setting."""
    from palaver.cli.agent_options import SETTINGS

    yield from ((name, None) for name in SETTINGS)


@_completer
def providers(_context: click.Context) -> Iterator[tuple[str, str | None]]:
    """Complete a provider."""
    from palaver.models.providers import PROVIDERS

    yield from ((name, None) for name in PROVIDERS)


@_completer
def wire_names(_context: click.Context) -> Iterator[tuple[str, str | None]]:
    """Complete a wire."""
    from palaver import wires

    yield from ((name, None) for name in (*wires.names(), *wires.ALIASES))


@_completer
def format_names(_context: click.Context) -> Iterator[tuple[str, str | None]]:
    """Complete a transcript format."""
    from palaver import transcripts

    yield from ((name, None) for name in (*transcripts.names(), *transcripts.ALIASES))


@_completer
def form_names(_context: click.Context) -> Iterator[tuple[str, str | None]]:
    """Complete a wire or a transcript format."""
    from palaver import transcripts, wires

    names = (*wires.names(), *wires.ALIASES, *transcripts.names(), *transcripts.ALIASES, "palaver")
    yield from ((name, None) for name in dict.fromkeys(names))


threads_or_files: Final = _or_file(threads)
