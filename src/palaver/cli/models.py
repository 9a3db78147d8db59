"""``palaver models``: the models of the catalogue, or those that a server offers by its own listing.

- Without a name, the catalogue: the beginning of the id, the window, the longest answer, the prices in USD for a
  million tokens, and what the model takes and does. WORDS select the rows that have all of them, in their names or
  among these (``image``, ``tools``, ``reasoning``).
- With ``--server NAME``, or ``--url``, the server is asked.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import click
from rich.text import Text

from palaver.cli import completion, key_store, rows
from palaver.cli.rows import Form
from palaver.cli.tables import Column, Listing
from palaver.cli.terminal import console, count, echo, safe
from palaver.core.errors import AuthenticationError
from palaver.models import providers
from palaver.models.catalogue import ModelCard, catalogue
from palaver.models.endpoint import first_set
from palaver.models.server_models import list_models

if TYPE_CHECKING:
    from collections.abc import Iterable


_NAMES: Final = (
    *("name", "window", "max_output", "input", "output", "cache_read", "cache_write", "takes", "tools", "reasoning"),
    *("key", "source", "checked"),
)


@click.command(name="models")
@click.argument("words", metavar="[WORDS]...", nargs=-1)
@click.option(
    "--server",
    metavar="PROVIDER",
    shell_complete=completion.providers,
    help="Ask this provider which models it offers.",
)
@click.option("--url", metavar="URL", help="Ask the server at this address.")
@click.option(
    "--wire", metavar="WIRE", shell_complete=completion.wire_names, help="The wire that the server at --url speaks."
)
@rows.options
def command(
    words: tuple[str, ...], *, server: str | None, url: str | None, wire: str | None, form: Form | None
) -> None:
    """List the models of the catalogue that have all WORDS, or those that a server offers.

    A word is part of a name, or something that a model takes or does: image, audio, file, tools, reasoning.
    """
    if server is not None or url is not None:
        _list_server(server, url, wire, words, form)
        return
    found = [row for row in _rows(catalogue().cards) if _has_words(row, words)]
    if form is not None:
        rows.write(found, form, _NAMES)
    elif found:
        _draw(found)
        echo(f"{count(len(found), 'row')}; a row is for all models whose name begins so", err=True)
    else:
        echo("no row matches; any name of a provider's model can be used: provider/id", err=True)


def _list_server(
    server: str | None, url: str | None, wire: str | None, words: tuple[str, ...], form: Form | None
) -> None:
    key = key_store.server_key() if server is None else key_store.provider_key(server)

    async def ask() -> tuple[str, ...]:
        return await list_models(server or key_store.SERVER, url=url, wire=wire, key=key)

    try:
        offered = anyio.run(ask)
    except AuthenticationError as error:
        missing = None if server is None else key_store.missing_key(server)
        raise error if missing is None else click.ClickException(f"{missing}, or palaver keys set {server}") from None
    names = [each if server is None else f"{server}/{each}" for each in offered]
    names = [each for each in names if all(word.lower() in each.lower() for word in words)]
    if form is not None:
        rows.write(({"name": each} for each in names), form, ["name"])
        return
    for each in names:
        echo(safe(each))
    if not names:
        echo("the server offers no such model", err=True)


def _has_words(row: dict[str, Any], words: Iterable[str]) -> bool:
    """Whether each word is in the name of a model, or is something that it takes or does."""
    return all(word.lower() in row["name"].lower() or word.lower() in _capabilities(row) for word in words)


def _rows(cards: Iterable[ModelCard]) -> Iterable[dict[str, Any]]:
    stored = set(key_store.names())
    seen: set[str] = set()
    for card in cards:
        for provider in card.providers:
            name = f"{provider}/{card.prefix}"
            if name in seen:  # of two rows for one name the first stands
                continue
            seen.add(name)
            row = providers.PROVIDERS.get(provider)
            prices = card.prices
            yield {
                "name": name,
                "window": card.window,
                "max_output": card.max_output,
                "input": None if prices is None else prices.input,
                "output": None if prices is None else prices.output,
                "cache_read": None if prices is None else prices.cache_read,
                "cache_write": None if prices is None else prices.cache_write,
                "takes": None if card.media is None else " ".join(sorted(card.media)),
                "tools": card.tools,
                "reasoning": card.reasoning,
                "key": provider in stored
                or (row is not None and (not row.needs_key or first_set(row.keys) is not None)),
                "source": card.source,
                "checked": card.checked.isoformat(),
            }


def _draw(found: list[dict[str, Any]]) -> None:
    numbers = [Column(name, "right") for name in ("window", "answer", "in $", "out $")]
    listing = Listing(Column("model"), *numbers, Column("takes", narrow="fold"))
    for row in found:
        listing.add(
            Text(safe(row["name"]), "bold" if row["key"] else ""),
            _size(row["window"]),
            _size(row["max_output"]),
            *("" if row[each] is None else f"{row[each]:g}" for each in ("input", "output")),
            Text(" ".join(_capabilities(row)), "dim"),
        )
    console().print(listing, crop=False)


def _capabilities(row: dict[str, Any]) -> list[str]:
    return [*(row["takes"] or "").split(), *(each for each in ("tools", "reasoning") if row[each])]


def _size(tokens: int | None) -> str:
    """``200k``, ``1.0M``; nothing where it is not known."""
    if tokens is None:
        return ""
    if tokens >= 1_000_000:  # noqa: PLR2004 (a million)
        return f"{tokens / 1_000_000:.1f}M"
    return f"{round(tokens / 1000)}k"
