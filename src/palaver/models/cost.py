"""What an answer cost, in USD.

Rules:

- Prices are in USD for a million tokens. Where none is known for the cache, reading from it costs 10 % and writing to
  it 125 % of the input price. Reasoning costs as much as other output.
- What is not known has no cost, and is never 0: a model without prices, an answer without counters, a pass that another
  model made.
- A provider may ask more for a long prompt: ``long`` are the prices for prompts of more than ``over`` tokens, for the
  whole answer. So cost is counted for one answer at a time, and then added; not from a sum of usages.

Source: KAI-29; docs/spec/kairo.md#7; golden ``cost_usd``.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, structs

from palaver.core.type_checks import check_arguments
from palaver.core.usage import Usage

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
