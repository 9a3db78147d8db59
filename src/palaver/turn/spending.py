"""What a turn used: its own calls of models, and what its tools and middleware asked of models in its name.

Rules:

- Every call of the model counts, also one whose answer was blocked or replaced by a wrapper. A wrapper or a tool that
  asks a model by itself says so with ``spend``; the run of a sub-agent is spent whole, however it ended.
- The cost is ``None`` as soon as one price is unknown. Limits count what is known.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from palaver.core.usage import Usage
from palaver.models.catalogue import Prices, cost, prices_of

Spend: TypeAlias = Callable[[Mapping[str, Usage], float | None], None]
"""Counts what was used, by the name of the model, and what it cost in USD (``None``: nobody knows)."""


class Spending:
    """Sums up a run. ``take`` gives what came since it was taken last."""

    __slots__ = ("_fresh_cost", "_fresh_tokens", "cost", "usage")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.usage: dict[str, Usage] = {}
        self.cost: float | None = 0.0
        self._fresh_tokens, self._fresh_cost = 0, 0.0

    def add(self, usage: Mapping[str, Usage], cost: float | None) -> None:
        """Count what was used; nothing costs nothing."""
        if not usage:
            return
        for model, used in usage.items():
            known = self.usage.get(model)
            self.usage[model] = used if known is None else known + used
            self._fresh_tokens += used.total
        self._fresh_cost += cost or 0.0
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    def merge(self, other: Spending) -> None:
        """Count everything that ``other`` counted."""
        self.add(other.usage, other.cost)

    def take(self) -> tuple[int, float]:
        """Tokens and USD that nobody has taken yet."""
        fresh = self._fresh_tokens, self._fresh_cost
        self._fresh_tokens, self._fresh_cost = 0, 0.0
        return fresh

    @property
    def total(self) -> Usage:
        """All usage together."""
        return sum(self.usage.values(), Usage())


class Pricing:
    """Prices answers in USD: by a function of the application, else by the catalogue."""

    __slots__ = ("_known", "_prices")

    def __init__(self, prices: Callable[[str, Usage], float | None] | None = None) -> None:
        """Use ``prices`` where it is given."""
        self._prices = prices
        self._known: dict[str, Prices | None] = {}

    def __call__(self, model: str, usage: Usage) -> float | None:
        """Return what an answer of a model cost in USD; ``None`` where the price is not known."""
        if self._prices is not None:
            return self._prices(model, usage)
        if model not in self._known:
            self._known[model] = prices_of(model)
        return cost(usage, self._known[model])
