"""What an exchange may use, before it is allowed, and what it used, when it has ended. Pure.

Rules:

- Before: the input is estimated (``palaver.tokens``), the output is the most that the client asks for, or 0 where it
  asks for no bound. The cost is that of the dearest model that may answer, at full prices.
- After: what the provider says it used. Of an answer that broke off, or that the client did not wait for, the output is
  at least the estimate of what came: providers count at the end of a stream.
- Where the provider says nothing: an exchange that the provider refused, and one that never reached it, used nothing.
  Any other used the estimate of its input and of the output that came.

Stability: experimental.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.core.errors import DecodeError, StreamError, TimedOutError
from palaver.core.usage import Usage
from palaver.gateway.limits import USD
from palaver.models.catalogue import cost, prices_of
from palaver.tokens import estimate, estimate_tools, overhead

if TYPE_CHECKING:
    from palaver.core.request import Response
    from palaver.gateway.limits import Measure
    from palaver.gateway.record import ClientRequest, Record

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


def expected(request: ClientRequest, models: Sequence[str], measures: Collection[Measure]) -> Amounts:
    """Return what a request may use of ``measures``. ``models`` are the names of those that may answer it."""
    if _TOKENS.isdisjoint(measures):
        return Amounts(requests=1)
    tokens = input_tokens(request)
    output = _most_output(request)
    if "cost" not in measures:
        return Amounts(1, tokens, output)
    usage = Usage(input=tokens, output=output)
    costs = [_cost(usage, each) for each in models]
    return Amounts(1, tokens, output, max([each or 0 for each in costs]) if None not in costs else None)


def used(record: Record) -> Amounts:
    """Return what an exchange used that was admitted and has ended."""
    response = record.response()
    usage = None if response is None else response.usage
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
        return len(request.body) * 2 // 7
    messages = sum([estimate(each) + overhead(each) for each in asked.messages])
    return messages + estimate_tools(asked.tools, asked.settings.output)


def _most_output(request: ClientRequest) -> int:
    try:
        return max(request.decoded.settings.max_tokens or 0, 0)
    except DecodeError:
        return 0


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
