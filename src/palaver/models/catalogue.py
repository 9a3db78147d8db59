"""The catalogue of models: sizes, capabilities and prices, in a table with its sources.

Rules:

- Provider and the longest matching beginning of the id find a row. Fields that a row omits are unknown, not guessed.
- Each row has its source and the date of the check. ``PALAVER_MODELS`` names a file of the same form whose rows come
  first; ``Catalogue.plus`` adds rows in code.
- A catalogue is a value and does no I/O beyond its files.

Source: docs/spec/kairo.md#7 (prefix table, longest wins); the pages named in ``catalogue.toml``.

Stability: experimental.
"""

from __future__ import annotations

import datetime as dt
import os
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, Literal, Self, final

import msgspec
from msgspec import Struct, structs

from palaver.core.errors import DecodeError, MessageError
from palaver.models.capabilities import Capabilities
from palaver.models.cost import Prices
from palaver.tokens.media import MediaRates
from palaver.wires._engine.capabilities import MediaKind

FILE: Final = "PALAVER_MODELS"
"""The variable that names a file of rows that stand before those built in."""


class ModelCard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of the models whose id begins with ``prefix``. ``None`` is "not known"; sizes are in tokens.

    ``rates`` are what images and other media cost in tokens; what a row does not say of them is as usual.
    ``checked`` is the day on which ``source`` was read. ``note`` says what could not be found there.
    """

    providers: tuple[str, ...]
    prefix: str
    source: str
    checked: dt.date
    window: int | None = None
    max_output: int | None = None
    media: frozenset[MediaKind] | None = None
    tools: bool | None = None
    parallel_tools: bool | None = None
    reasoning: bool | None = None
    structured: Literal["json_schema", "json", "none"] | None = None
    prices: Prices | None = None
    rates: MediaRates | None = None
    note: str = ""

    @property
    def capabilities(self) -> Capabilities:
        """The same as what fitting asks; what is not known is taken to be there."""
        return merge_capabilities(self, Capabilities())


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[ModelCard, ...] = ()


_SAME: Final = ("media", "tools", "parallel_tools", "reasoning", "window", "max_output")


def merge_capabilities(card: ModelCard, otherwise: Capabilities) -> Capabilities:
    """What a card says, and what it leaves out from ``otherwise``."""
    known = {name: value for name in _SAME if (value := getattr(card, name)) is not None}
    if card.structured is not None:
        known["structured"] = None if card.structured == "none" else card.structured
    return structs.replace(otherwise, **known)


@final
class Catalogue:
    """Rows, found by provider and beginning of the id. Of two rows for one beginning the first stands."""

    def __init__(self, cards: Iterable[ModelCard] = ()) -> None:
        """Hold the rows."""
        self.cards = tuple(cards)
        self._rows: dict[tuple[str, str], ModelCard] = {}
        for card in self.cards:
            for provider in card.providers:
                self._rows.setdefault((provider, card.prefix), card)

    @classmethod
    def read(cls, text: str, *, source: str = "catalogue") -> Self:
        """Read rows as TOML. Raises ``DecodeError`` naming the place."""
        try:
            found = msgspec.convert(tomllib.loads(text), _File)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError, MessageError) as error:
            raise DecodeError(str(error), source=source) from error
        return cls(found.models)

    def plus(self, cards: Iterable[ModelCard]) -> Catalogue:
        """Give a catalogue in which these rows stand before the others."""
        return Catalogue((*cards, *self.cards))

    def find(self, provider: str, model_id: str) -> ModelCard | None:
        """The row of a model; ``None`` where nothing is known. Looks at the length of the id, not at all rows."""
        for end in range(len(model_id), 0, -1):
            card = self._rows.get((provider, model_id[:end]))
            if card is not None:
                return card
        return None

    def __repr__(self) -> str:
        """How many rows there are."""
        return f"Catalogue({len(self.cards)} rows)"


def catalogue() -> Catalogue:
    """The rows of ``PALAVER_MODELS``, and those built in. Raises ``DecodeError`` for a file that cannot be read."""
    return _with_file(os.environ.get(FILE, "").strip())


def find(provider: str, model_id: str) -> ModelCard | None:
    """What is known of a model; ``None`` where nothing is."""
    return catalogue().find(provider, model_id)


def capabilities_of(name: str) -> Capabilities:
    """What is known of the model ``provider/id``; what is not known is taken to be there."""
    provider, _, model_id = name.partition("/")
    card = find(provider, model_id)
    return Capabilities() if card is None else card.capabilities


def prices_of(name: str) -> Prices | None:
    """The prices of the model ``provider/id``; ``None`` where they are not known."""
    provider, _, model_id = name.partition("/")
    card = find(provider, model_id)
    return None if card is None else card.prices


def rates_of(name: str) -> MediaRates | None:
    """What media cost on the model ``provider/id``, in tokens; ``None`` where that is not known."""
    provider, _, model_id = name.partition("/")
    card = find(provider, model_id)
    return None if card is None else card.rates


@cache
def _built_in() -> Catalogue:
    return Catalogue.read(Path(__file__).with_name("catalogue.toml").read_text("utf-8"), source="catalogue.toml")


@cache
def _with_file(path: str) -> Catalogue:
    if not path:
        return _built_in()
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DecodeError(f"cannot be read: {type(error).__name__}", source=f"{FILE}={path}") from error
    return _built_in().plus(Catalogue.read(text, source=f"{FILE}={path}").cards)
