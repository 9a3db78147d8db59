"""The catalogue of models: sizes, capabilities and prices, in a table with its sources.

Rules:

- Provider and the longest matching beginning of the id find a row, in upper or lower case. Where none does,
  ``palaver.models.model_ids`` maps the id of a cloud or a router to the id of the model's own provider. Fields that a
  row omits are unknown, not guessed.
- Each row has its source and the date of the check. ``PALAVER_MODELS`` names a file of the same form whose rows come
  first; ``Catalogue.plus`` adds rows in code.
- A catalogue is a value and does no I/O beyond its files.

Source: docs/spec/kairo.md#7 (prefix table, longest wins); the pages named in ``catalogue.toml``.

The capabilities of a model, as data:

- The caller chooses what a missing capability does: content that needs it is dropped or converted, with a ``Loss``
  (``missing="drop"``), or refused with a ``CapabilityError`` (``"refuse"``).
- ``None`` is "not known": such content is sent, and the provider decides.

The cost of an answer, in USD:

- Prices are in USD for a million tokens. Where none is known for the cache, reading from it costs 10 % and writing to
  it 125 % of the input price. Reasoning costs as much as other output.
- An unknown cost is ``None``, never 0: for a model without prices, an answer without counters, or a pass of another
  model.
- A provider may charge more for a long prompt: ``long`` are the prices for prompts of more than ``over`` tokens, for
  the whole answer. So cost is counted for one answer at a time, and then added; not from a sum of usages.

Source: KAI-29; docs/spec/kairo.md#7; golden ``cost_usd``.

Stability: experimental.
"""

from __future__ import annotations

import datetime as dt
import os
import tomllib
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias, final

import msgspec
from msgspec import Struct, structs

from palaver.core.errors import DecodeError, MessageError
from palaver.core.type_checks import check_arguments
from palaver.core.usage import Usage
from palaver.models.model_ids import home_ids
from palaver.tokens.media import MediaRates
from palaver.wires._engine.capabilities import MEDIA_KINDS, MediaKind

# -- capabilities ----------------------------------------------------------------------------------


Missing: TypeAlias = Literal["drop", "refuse"]


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a model accepts and returns. Sizes are in tokens.

    ``media``: the kinds it can see. ``structured``: the form of answer that it can enforce: any JSON Schema, any JSON,
    or none. ``prefill``: it continues an assistant message that ends the prompt.
    """

    media: frozenset[MediaKind] = frozenset(MEDIA_KINDS)
    tools: bool = True
    parallel_tools: bool = True
    reasoning: bool | None = None
    structured: Literal["json_schema", "json"] | None = "json_schema"
    streaming: bool = True
    prefill: bool = False
    window: int | None = None
    max_output: int | None = None

    def __post_init__(self) -> None:
        """Refuse values of another type. Raises ``MessageError``, which names the field."""
        check_arguments("Capabilities", Capabilities, structs.asdict(self))


# -- catalogue -------------------------------------------------------------------------------------


FILE: Final = "PALAVER_MODELS"
"""The variable that names a file of rows that stand before those built in."""


class ModelCard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of the models whose id begins with ``prefix``. ``None`` is "not known"; sizes are in tokens.

    ``rates`` are what images and other media cost in tokens; rates that a row omits have the defaults. ``checked`` is
    the day on which ``source`` was read. ``note`` says what could not be found there.
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
        """The capabilities of the card; unknown ones are assumed."""
        return merge_capabilities(self, Capabilities())


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[ModelCard, ...] = ()


_SAME: Final = ("media", "tools", "parallel_tools", "reasoning", "window", "max_output")


def merge_capabilities(card: ModelCard, otherwise: Capabilities) -> Capabilities:
    """Return the capabilities of a card; those that it omits come from ``otherwise``."""
    known = {name: value for name in _SAME if (value := getattr(card, name)) is not None}
    if card.structured is not None:
        known["structured"] = None if card.structured == "none" else card.structured
    return structs.replace(otherwise, **known)


class CatalogueRow(Struct, frozen=True, kw_only=True):
    """One row of the catalogue, for one provider.

    ``name`` is ``provider/`` and the beginning of the ids that the row is for. ``capabilities`` has what is known, and
    assumes what is not; sizes that are not known are ``None``, as are ``prices``. ``source`` is the page that it was
    read from, on the day ``seen``.
    """

    name: str
    provider: str
    capabilities: Capabilities
    prices: Prices | None
    source: str
    seen: dt.date


@final
class Catalogue:
    """Rows, found by provider and beginning of the id. Of two rows for one beginning the first stands."""

    def __init__(self, cards: Iterable[ModelCard] = ()) -> None:
        """Keep the rows."""
        self.cards = tuple(cards)
        self._rows: dict[tuple[str, str], ModelCard] = {}
        for card in self.cards:
            for provider in card.providers:
                self._rows.setdefault((provider, card.prefix.lower()), card)
        self._found = lru_cache(maxsize=1024)(self._find)

    @classmethod
    def read(cls, text: str, *, source: str = "catalogue") -> Self:
        """Read rows as TOML. Raises ``DecodeError`` naming the place."""
        try:
            found = msgspec.convert(tomllib.loads(text), _File)
        except (ValueError, RecursionError, MessageError) as error:  # ValueError: also a number of 5000 digits
            raise DecodeError(str(error), source=source) from error
        return cls(found.models)

    def plus(self, cards: Iterable[ModelCard]) -> Catalogue:
        """Give a catalogue in which these rows stand before the others."""
        return Catalogue((*cards, *self.cards))

    def find(self, provider: str, model_id: str) -> ModelCard | None:
        """Return the row of a model; ``None`` for an unknown one.

        Takes time in the length of the id, not in the number of rows. The row of a model of another provider has no
        prices, unless they are the same there.
        """
        return self._found(provider, model_id)

    def _find(self, provider: str, model_id: str) -> ModelCard | None:
        card = self._longest(provider, model_id)
        if card is not None:
            return card
        for home in home_ids(provider, model_id):
            card = self._longest(home.provider, home.id)
            if card is not None:
                return card if home.priced else structs.replace(card, prices=None)
        return None

    def find_answered(self, model_id: str) -> tuple[str, ModelCard] | None:
        """The provider and the row of a model whose id an answer names without its provider."""
        found = ((each, self._longest(each, model_id)) for each in dict.fromkeys(each for each, _ in self._rows))
        known = [(provider, card) for provider, card in found if card is not None]
        return max(known, key=lambda each: len(each[1].prefix), default=None)

    def _longest(self, provider: str, model_id: str) -> ModelCard | None:
        model_id = model_id.lower()
        for end in range(len(model_id), 0, -1):
            card = self._rows.get((provider, model_id[:end]))
            if card is not None:
                return card
        return None

    def rows(self) -> tuple[CatalogueRow, ...]:
        """Each row, once for each provider; of two rows for one name the first."""
        return tuple(
            CatalogueRow(
                name=f"{provider}/{card.prefix}",
                provider=provider,
                capabilities=card.capabilities,
                prices=card.prices,
                source=card.source,
                seen=card.checked,
            )
            for (provider, _), card in self._rows.items()
        )

    def __repr__(self) -> str:
        """How many rows there are."""
        return f"Catalogue({len(self.cards)} rows)"


def catalogue() -> Catalogue:
    """The rows of ``PALAVER_MODELS``, and those built in. Raises ``DecodeError`` for a file that cannot be read."""
    return _with_file(os.environ.get(FILE, "").strip())


def catalogue_rows() -> tuple[CatalogueRow, ...]:
    """Every model that is known, those of ``PALAVER_MODELS`` first. Raises ``DecodeError`` for a file that is no table.

    A row is for all models whose name begins with the row's name; the longest such row counts.
    """
    return catalogue().rows()


def find(provider: str, model_id: str) -> ModelCard | None:
    """Return what is known of a model; ``None`` for an unknown one."""
    return catalogue().find(provider, model_id)


def capabilities_of(name: str) -> Capabilities:
    """Return the capabilities of the model ``provider/id``; unknown ones are assumed."""
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


# -- cost ------------------------------------------------------------------------------------------


_CACHE_READ: Final = 0.10
_CACHE_WRITE: Final = 1.25
_MILLION: Final = 1_000_000


class Prices(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD for a million tokens. ``long`` are the prices for a prompt of more than ``over`` tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    over: int | None = None
    long: Prices | None = None

    def __post_init__(self) -> None:
        """Refuse values of another type. Raises ``MessageError``, which names the field."""
        check_arguments("Prices", Prices, structs.asdict(self))


def cost(usage: Usage | None, prices: Prices | None) -> float | None:
    """What one answer cost in USD; ``None`` where that is not known."""
    if usage is None or prices is None:
        return None
    counted = [usage, *(each.usage for each in usage.passes if each.model is None)]
    if len(counted) <= len(usage.passes) or all(_is_unknown(each) for each in counted):
        return None
    return sum(_usage_cost(each, prices) for each in counted)


def _is_unknown(usage: Usage) -> bool:
    counters = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    return all(counter is None for counter in counters)


def _usage_cost(usage: Usage, prices: Prices) -> float:
    read, written, fresh = usage.cache_read or 0, usage.cache_write or 0, usage.input or 0
    if prices.long is not None and prices.over is not None and fresh + read + written > prices.over:
        prices = prices.long
    reading = prices.input * _CACHE_READ if prices.cache_read is None else prices.cache_read
    writing = prices.input * _CACHE_WRITE if prices.cache_write is None else prices.cache_write
    generated = (usage.output or 0) + (usage.reasoning or 0)
    return (fresh * prices.input + read * reading + written * writing + generated * prices.output) / _MILLION
