"""The limits of a run, its outcomes, the budget that a prompt may name, and spending.

Rules (KAI-12, KAI-13, KAI-29, D21, D43, DAS-23):

- Each limit is for one run and has an outcome of its own; ``None`` is no limit.
- ``iterations`` bounds the model calls. The last one is made without tools, so that the run ends with an answer.
- A prompt names a budget as ``+500k`` at its beginning or end, or as ``spend 2M tokens`` anywhere. The form at the
  end wins over the one at the beginning, and that over the words. ``parse`` strips all of them.
- Every model call counts, also one whose answer was blocked or replaced by a wrapper. A wrapper or a tool that calls a
  model itself reports it with ``spend``; the spending of a subagent counts in full, whatever its outcome.
- The cost is ``None`` as soon as one price is unknown. Limits count what is known.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct, structs

from palaver.core.errors import MessageError, excerpt
from palaver.core.type_checks import check_arguments
from palaver.core.usage import Usage
from palaver.models.catalogue import Prices, cost, prices_of

# --- limits -----------------------------------------------------------------------------------------------------------


Outcome: TypeAlias = Literal[
    "completed",
    "waiting",
    "cancelled",
    "timed_out",
    "max_iterations",
    "no_progress",
    "budget",
    "context_full",
    "length",
    "refused",
    "blocked",
    "invalid_output",
    "failed",
]
"""How a run ended. ``waiting``: it needs a decision, and then can continue. ``length``: the last answer reached the
output limit of the model. ``refused``: the model refused.
"""
CUT_ANSWER: Final = "the answer was cut at the model's output limit"
"""The reason of a run whose outcome is ``length``."""


_Repeats: TypeAlias = Literal["answer", "run"]


_WHOLE: Final = ("iterations", "tokens", "context_tokens", "recoveries", "output_attempts")
_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(_WHOLE, int),
    "cost": (int, float),
    "seconds": (int, float),
}


class Spent(Struct, frozen=True):
    """The spending of a run: all input and output tokens, USD, and the input tokens of the last call."""

    tokens: int = 0
    cost: float = 0.0
    context: int = 0

    def plus(self, tokens: int, cost: float, context: int) -> Spent:
        """Add one model call."""
        return Spent(self.tokens + tokens, self.cost + cost, context or self.context)


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a run.

    ``tokens`` and ``cost`` (USD) are for all calls together, ``seconds`` for the whole run, ``context_tokens`` for the
    input of one call. ``recoveries`` counts failed steps in a row, ``output_attempts`` answers that do not fit the
    schema. ``repeats`` is about a batch of calls that equals the one before: ``answer`` returns a note as the result,
    and the second time asks for a final answer; ``run`` runs it again. ``continue_cut`` asks the model to continue an
    answer that reached the output limit; one in a form (``output``) is not continued, since no half of it fits.
    """

    iterations: int = 25
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    context_tokens: int | None = None
    recoveries: int = 3
    output_attempts: int = 5
    repeats: _Repeats = "answer"
    continue_cut: bool = False

    def __post_init__(self) -> None:
        """Refuse values that are no limit. Raises ``MessageError``."""
        check_arguments("Limits", Limits, structs.asdict(self))
        for name, kinds in _KINDS.items():
            given: object = getattr(self, name)
            if given is not None and (isinstance(given, bool) or not isinstance(given, kinds)):
                expected = "whole number" if kinds is int else "number"
                raise MessageError(f"{name}: {excerpt(repr(given))} is not a {expected}")
        if self.iterations < 1:
            raise MessageError(f"iterations: {self.iterations}: a run makes at least one model call")
        for name in ("tokens", "cost", "seconds", "context_tokens", "recoveries", "output_attempts"):
            value: float | None = getattr(self, name)
            if value is not None and not value >= 0:
                raise MessageError(f"{name}: {value}: a limit is a number, 0 or more")
        if self.repeats not in get_args(_Repeats):
            raise MessageError(f"repeats: {excerpt(repr(self.repeats))}: expected {' or '.join(get_args(_Repeats))}")

    def over(self, spent: Spent, seconds: float) -> Outcome | None:
        """Return the outcome of the limit that is reached, if any.

        ``spent`` is the spending so far, ``seconds`` the time since the run began.
        """
        if self.seconds is not None and seconds >= self.seconds:
            return "timed_out"
        if (self.tokens is not None and spent.tokens >= self.tokens) or (
            self.cost is not None and spent.cost >= self.cost
        ):
            return "budget"
        if self.context_tokens is not None and spent.context >= self.context_tokens:
            return "context_full"
        return None

    def describe(self, outcome: Outcome, spent: Spent, seconds: float) -> str:
        """Describe the limit that ended a run, for people.

        ``outcome`` is what ``over`` returned for ``spent`` and ``seconds``.
        """
        if outcome == "timed_out":
            return f"{seconds:.1f} of {self.seconds:g} seconds"
        if outcome == "context_full":
            return f"the model read {spent.context} tokens; the limit is {self.context_tokens}"
        if self.tokens is not None and spent.tokens >= self.tokens:
            return f"{spent.tokens} of {self.tokens} tokens"
        return f"{spent.cost:.4f} of {self.cost:g} USD"


# --- output budget ----------------------------------------------------------------------------------------------------


_AMOUNT: Final = r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([kmb])"
_PLUS: Final = re.compile(rf"\+{_AMOUNT}[.,:;!?]*", re.IGNORECASE)
_BARE: Final = re.compile(_AMOUNT, re.IGNORECASE)
_VERB: Final = re.compile(r"spend|use", re.IGNORECASE)
_NOUN: Final = re.compile(r"tokens?[.,:;!?]*", re.IGNORECASE)
_WORD: Final = re.compile(r"\S+\s*")
_UNITS: Final = {"k": 10**3, "m": 10**6, "b": 10**9}
_WORDS: Final = 3
"""``spend``, ``2M``, ``tokens``."""


class Budget(NamedTuple):
    """The budget of a prompt in tokens, if it names one, and the prompt without it."""

    tokens: int | None
    prompt: str


def parse(prompt: str) -> Budget:
    """Parse the budget of a prompt."""
    words: list[str] = []
    spent: int | None = None
    for word in _WORD.findall(prompt):
        words.append(word)
        if (found := _spelled(words)) is not None:
            del words[-_WORDS:]
            spent = found if spent is None else spent
    last = len(words)
    while last and _plus(words[last - 1]) is not None:
        last -= 1
    first = 0
    while first < last and _plus(words[first]) is not None:
        first += 1
    if last < len(words):
        spent = _plus(words[-1])
    elif first:
        spent = _plus(words[0])
    if first == 0 and last == len(words) and spent is None:
        return Budget(None, prompt.strip())
    return Budget(spent, "".join(words[first:last]).strip())


def _spelled(words: list[str]) -> int | None:
    if len(words) < _WORDS:
        return None
    verb, amount, noun = (word.rstrip() for word in words[-_WORDS:])
    if not _VERB.fullmatch(verb) or not _NOUN.fullmatch(noun):
        return None
    return _tokens(_BARE.fullmatch(amount))


def _plus(word: str) -> int | None:
    return _tokens(_PLUS.fullmatch(word.rstrip()))


def _tokens(match: re.Match[str] | None) -> int | None:
    return None if match is None else int(Decimal(match[1]) * _UNITS[match[2].lower()])


# -- spending --------------------------------------------------------------------------------------


Spend: TypeAlias = Callable[[Mapping[str, Usage], float | None], None]
"""Counts usage by model name, and its cost in USD (``None``: unknown)."""


class Spending:
    """Sums up the spending of a run. ``take`` returns what was added since the last ``take``."""

    __slots__ = ("_fresh_cost", "_fresh_tokens", "cost", "usage")

    def __init__(self) -> None:
        """Start at zero."""
        self.usage: dict[str, Usage] = {}
        self.cost: float | None = 0.0
        self._fresh_tokens, self._fresh_cost = 0, 0.0

    def add(self, usage: Mapping[str, Usage], cost: float | None) -> None:
        """Add usage; no usage costs nothing."""
        if not usage:
            return
        for model, used in usage.items():
            known = self.usage.get(model)
            self.usage[model] = used if known is None else known + used
            self._fresh_tokens += used.total
        self._fresh_cost += cost or 0.0
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    def merge(self, other: Spending) -> None:
        """Add everything that ``other`` counted."""
        self.add(other.usage, other.cost)

    def take(self) -> tuple[int, float]:
        """Return the tokens and USD since the last ``take``."""
        fresh = self._fresh_tokens, self._fresh_cost
        self._fresh_tokens, self._fresh_cost = 0, 0.0
        return fresh

    @property
    def total(self) -> Usage:
        """All usage together."""
        return sum(self.usage.values(), Usage())


class Pricing:
    """Computes costs in USD: with a function of the application, else from the catalogue."""

    __slots__ = ("_known", "_prices")

    def __init__(self, prices: Callable[[str, Usage], float | None] | None = None) -> None:
        """Use ``prices`` if it is not ``None``."""
        self._prices = prices
        self._known: dict[str, Prices | None] = {}

    def __call__(self, model: str, usage: Usage) -> float | None:
        """Return what an answer of a model cost in USD; ``None`` where the price is not known."""
        if self._prices is not None:
            return self._prices(model, usage)
        if model not in self._known:
            self._known[model] = prices_of(model)
        return cost(usage, self._known[model])
