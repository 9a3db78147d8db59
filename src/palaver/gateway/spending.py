"""What an exchange may use, before it is allowed, and what it used, when it has ended. Pure.

Rules:

- Before: the input is estimated (``palaver.tokens``), the output is the most that the client asks for, or 0 where it
  asks for no bound. The cost is that of the dearest model that may answer, at full prices.
- A long request is not read for that: its length is an estimate that is too high, as long as it is a small part of the
  limit. Otherwise it is read.
- After: what the provider says it used. Of an answer that broke off, or that the client did not wait for, the output is
  at least the estimate of what came: providers count at the end of a stream.
- Where the provider says nothing: an exchange that the provider refused, and one that never reached it, used nothing.
  Any other used the estimate of its input and of the output that came.

Stability: experimental.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from palaver.core.errors import DecodeError, StreamError, TimedOutError
from palaver.core.usage import Usage
from palaver.gateway.limits import USD
from palaver.gateway.record import sound
from palaver.models.catalogue import cost, prices_of
from palaver.tokens import estimate, estimate_tools, overhead

if TYPE_CHECKING:
    from palaver.core.request import Response
    from palaver.gateway.limits import Limit, Measure
    from palaver.gateway.record import ClientRequest, Record

_LONG: Final = 16_384
"""Bytes."""
_PART: Final = 64
_TOKENS: Final = frozenset({"tokens", "input_tokens", "output_tokens", "cost"})


class Amounts(Struct, frozen=True):
    """What an exchange uses. ``cost`` is in billionths of a USD, ``None`` where no price is known."""

    requests: int = 0
    input: int = 0
    output: int = 0
    cost: int | None = 0

    def of(self, measure: Measure) -> int:
        """Return the amount of one measure; an unknown cost is 0."""
        match measure:
            case "requests":
                return self.requests
            case "tokens":
                return self.input + self.output
            case "input_tokens":
                return self.input
            case "output_tokens":
                return self.output
            case "cost":
                return self.cost or 0


NOTHING: Final = Amounts()


def expected(request: ClientRequest, models: Sequence[str], limits: Collection[Limit]) -> Amounts:
    """Return what a request may use, as far as ``limits`` need it. ``models`` are those that may answer it."""
    measures: set[Measure] = {each.measure for each in limits}
    if _TOKENS.isdisjoint(measures):
        return Amounts(requests=1)
    if len(request.body) > _LONG:
        output = _bound(request.body, request.api.output_bounds)
        rough = _priced_for(models, measures, _by_length(request.body), output)
        if all(rough.of(each.measure) * _PART <= each.amount for each in limits):
            return rough
    return _priced_for(models, measures, input_tokens(request), _most_output(request))


def _priced_for(models: Sequence[str], measures: Collection[Measure], tokens: int, output: int) -> Amounts:
    if "cost" not in measures:
        return Amounts(1, tokens, output)
    usage = Usage(input=tokens, output=output)
    costs = [_cost(usage, each) for each in models]
    return Amounts(1, tokens, output, max([each or 0 for each in costs]) if None not in costs else None)


def _by_length(body: bytes) -> int:
    return len(body) * 2 // 7


def used(record: Record) -> Amounts:
    """Return what an exchange used that was admitted and has ended."""
    response = record.response()
    usage = None if response is None else sound(response.usage)
    if usage is not None and usage.total:
        return _reported(record, response, usage)
    if not record.sent or not (response is not None or _may_have_worked(record)):
        return Amounts(requests=1 if record.attempts or record.sent else 0)
    output = 0 if response is None else estimate(response.message)
    return _priced(record, Usage(input=input_tokens(record.request), output=output))


def input_tokens(request: ClientRequest) -> int:
    """Return the estimate of what a request sends; of a body that cannot be read, by its length."""
    try:
        asked = request.decoded
    except DecodeError:
        return _by_length(request.body)
    messages = sum([estimate(each) + overhead(each) for each in asked.messages])
    return messages + estimate_tools(asked.tools, asked.settings.output)


def _most_output(request: ClientRequest) -> int:
    try:
        return max(request.decoded.settings.max_tokens or 0, 0)
    except DecodeError:
        return 0


def _bound(body: bytes, fields: tuple[str, ...]) -> int:
    """Return the greatest number in one of the fields of a body, without reading the others; 0 without any."""
    try:
        numbers = [found for each in fields if (found := _value(_reader(each).decode(body)))]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0
    return max([0, *numbers])


@cache
def _reader(field: str) -> msgspec.json.Decoder[Any]:
    """Return what reads one field, which is a number, out of objects within each other."""
    kind: Any = int
    for name in reversed(field.split(".")):
        kind = msgspec.defstruct("Bound", [("found", kind | None, msgspec.field(name=name, default=None))])
    return msgspec.json.Decoder(kind)


def _value(found: Any) -> int:
    while found is not None and not isinstance(found, int):
        found = found.found
    return found or 0


def _may_have_worked(record: Record) -> bool:
    """Return whether a provider that sent nothing may have begun with its answer."""
    return record.outcome in {"answered", "cancelled"} or isinstance(record.error, TimedOutError | StreamError)


def _reported(record: Record, response: Response | None, usage: Usage) -> Amounts:
    if record.outcome != "answered" and response is not None:
        more = estimate(response.message) - (usage.output or 0) - (usage.reasoning or 0)
        if more > 0:
            usage = Usage(
                input=usage.input,
                cache_read=usage.cache_read,
                cache_write=usage.cache_write,
                output=(usage.output or 0) + more,
                reasoning=usage.reasoning,
            )
    return _priced(record, usage)


def _priced(record: Record, usage: Usage) -> Amounts:
    output = (usage.output or 0) + (usage.reasoning or 0)
    return Amounts(1, usage.total - output, output, _cost(usage, record.model or ""))


def _cost(usage: Usage, model: str) -> int | None:
    found = cost(usage, prices_of(model))
    return None if found is None else math.ceil(found * USD)
