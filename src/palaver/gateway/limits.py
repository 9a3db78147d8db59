"""Limits: how much of what may be used in which time, and for whom. Pure.

Rules:

- A limit is an amount of one measure in one period: ``60/minute`` requests, ``1M/day`` tokens, ``5/day`` USD.
- Periods are fixed, and begin at whole minutes, hours, days and months of UTC. So a counter is one number, which
  several processes can share, and it is known when it begins anew. Between two periods, up to twice the amount can fall
  into a time as long as one. A sliding window has no such moment, but needs the history of each counter.
- An exchange counts in the period in which it began.
- A rule of the configuration is for all traffic that it matches together, or for each key, team or model by itself. The
  name of a model is the one that the client asks for, or the pattern of the configuration, where that leads to one
  model; without a provider, that of the client's API is added. A pattern also matches it without its provider.
- Amounts are whole numbers: requests, tokens, and billionths of a USD.

Stability: experimental.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct

from palaver.core.errors import DecodeError
from palaver.gateway.patterns import matches

if TYPE_CHECKING:
    from palaver.gateway.keys import Caller

Measure: TypeAlias = Literal["requests", "tokens", "input_tokens", "output_tokens", "cost"]
Period: TypeAlias = Literal["minute", "hour", "day", "month"]
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)
PERIODS: Final[tuple[Period, ...]] = get_args(Period)
_PERIODS: Final[Mapping[str, Period]] = {each: each for each in PERIODS}
USD: Final = 1_000_000_000
"""The amount of one USD."""
_SECONDS: Final[Mapping[Period, int]] = {"minute": 60, "hour": 3600, "day": 86_400}
_MULTIPLES: Final = {"": 1, "k": 1000, "m": 1_000_000, "b": 1_000_000_000}
_FORM: Final = re.compile(r"\s*\$?\s*(\d+(?:\.\d+)?)\s*([kKmMbB]?)\s*/\s*([a-z]+)\s*")
_MOST: Final = 2**53
_PLAIN: Final = re.compile(r"[A-Za-z0-9*][\w./:@*-]{0,127}", re.ASCII)


class Limit(Struct, frozen=True, array_like=True):
    """The most of one measure in one period."""

    measure: Measure
    amount: int
    period: Period

    def __str__(self) -> str:
        """``60 requests a minute``."""
        return f"{shown(self.measure, self.amount)} {'an' if self.period == 'hour' else 'a'} {self.period}"


class LimitRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of ``[[limits]]`` in a configuration.

    ``per`` says whether what matches is counted together (``all``) or for each key, team or model by itself. ``key``,
    ``team`` and ``model`` are patterns of names; ``*`` matches also what has no key, or no team. Each measure is one
    amount or several, such as ``"60/minute"``.
    """

    per: Literal["all", "key", "team", "model"] = "all"
    key: str = "*"
    team: str = "*"
    model: str = "*"
    requests: str | list[str] = []
    tokens: str | list[str] = []
    input_tokens: str | list[str] = []
    output_tokens: str | list[str] = []
    cost: str | list[str] = []
    """In USD."""

    def limits(self, source: str) -> tuple[Limit, ...]:
        """Return the limits of the rule; ``source`` is the place that errors name. Raises ``DecodeError``."""
        found: list[Limit] = []
        for measure in MEASURES:
            texts: str | list[str] = getattr(self, measure)
            for each in [texts] if isinstance(texts, str) else texts:
                try:
                    found.append(parse_limit(measure, each))
                except DecodeError as error:
                    raise error.within(f"{source}.{measure}") from None
        if not found:
            raise DecodeError("it limits nothing: set requests, tokens or cost", path=source)
        return tuple(found)


class ScopedLimit(NamedTuple):
    """A limit with the counter that it has: ``name`` is unique; ``label`` is what people read."""

    name: str
    label: str
    limit: Limit


def parse_limit(measure: Measure, text: str) -> Limit:
    """Return the limit of a ``measure`` whose ``text`` is ``60/minute``, ``1.5M/day`` or ``5/month``.

    Raises ``DecodeError``.
    """
    found = _FORM.fullmatch(text)
    period = None if found is None else _PERIODS.get(found[3])
    if found is None or period is None:
        raise DecodeError(f"{text[:40]!r} is not an amount in a {', '.join(PERIODS)}, such as 60/minute")
    unit = USD if measure == "cost" else 1
    amount = round(float(found[1]) * _MULTIPLES[found[2].lower()] * unit)
    if not 0 <= amount <= _MOST:
        raise DecodeError(f"{text[:40]!r} is too much to count")
    return Limit(measure, amount, period)


def shown(measure: Measure, amount: int) -> str:
    """Return an amount for people: ``5 USD``, ``60 requests``."""
    if measure == "cost":
        text = f"{amount / USD:,.6f}".rstrip("0").rstrip(".")
        return f"{text} USD"
    return f"{amount:,} {measure.replace('_', ' ')}"


def period_of(period: Period, now: float) -> tuple[int, int]:
    """Return the first second of the period at a time, and the first one after it. Times are Unix seconds."""
    if period == "month":
        first = dt.datetime.fromtimestamp(now, dt.UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = (first + dt.timedelta(days=31)).replace(day=1)
        return int(first.timestamp()), int(following.timestamp())
    start = int(now) - int(now) % _SECONDS[period]
    return start, start + _SECONDS[period]


class LimitTable:
    """The rules of a configuration, and those of keys: which limits an exchange has."""

    def __init__(self, rules: Sequence[LimitRule]) -> None:
        """Read the rules. Raises ``DecodeError``."""
        self._rules = [(each, each.limits(f"limits[{index}]")) for index, each in enumerate(rules)]

    def find(self, caller: Caller | None, model: str, counted: str | None = None) -> tuple[ScopedLimit, ...]:
        """Return the limits of an exchange. Of several for one counter, the lowest.

        ``counted`` is the name under which ``model`` is counted, where it is another one.
        """
        found: dict[str, ScopedLimit] = {}
        for each in self._all(caller, model, counted or model):
            known = found.get(each.name)
            if known is None or each.limit.amount < known.limit.amount:
                found[each.name] = each
        return tuple(found.values())

    def _all(self, caller: Caller | None, model: str, counted: str) -> Iterator[ScopedLimit]:
        if caller is not None:
            yield from _scoped(f"own:{caller.key_id}", f"the key {caller.name}", caller.limits)
        for rule, limits in self._rules:
            if _applies(rule, caller, model, counted):
                subject = _subject(rule, caller, counted)
                if subject is not None:
                    filters = f"key={rule.key} team={rule.team} model={rule.model}"
                    yield from _scoped(f"{subject[0]} {filters}", subject[1], limits)


def _scoped(scope: str, label: str, limits: Iterable[Limit]) -> Iterator[ScopedLimit]:
    for each in limits:
        yield ScopedLimit(f"{scope} {each.measure}/{each.period}", label, each)


def _applies(rule: LimitRule, caller: Caller | None, model: str, counted: str) -> bool:
    key, team = ("", "") if caller is None else (caller.name, caller.team or "")
    names = (model, model.rpartition("/")[2], counted)
    return (
        (rule.key == "*" or matches([rule.key], key))
        and (rule.team == "*" or matches([rule.team], team))
        and (rule.model == "*" or any(matches([rule.model], each) for each in names))
    )


def _subject(rule: LimitRule, caller: Caller | None, model: str) -> tuple[str, str] | None:
    """Return what is counted by itself, and its label; ``None`` where the exchange has nothing of that kind."""
    match rule.per:
        case "all":
            return "all", "this gateway" if rule.model == "*" else f"{rule.model} of this gateway"
        case "model":
            return f"model:{_name(model)}", f"the model {_name(model)}"
        case "key":
            return None if caller is None else (f"key:{caller.key_id}", f"the key {caller.name}")
        case "team":
            return None if caller is None or caller.team is None else (f"team:{caller.team}", f"the team {caller.team}")


def _name(model: str) -> str:
    """Return a name that a client made up, short and without odd characters."""
    return model if _PLAIN.fullmatch(model) else f"sha256:{hashlib.sha256(model.encode(errors='replace')).hexdigest()}"
