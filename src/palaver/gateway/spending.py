"""What an exchange may use, before it is allowed, and what it used, when it has ended. Pure.

Rules:

- Before: the input is estimated (``palaver.tokens``), the output is the most that the client asks for, for each of the
  answers that it wants, or 0 where it asks for no bound: what a model can say at most is more than many limits, which
  would then admit nothing. The cost is that of the dearest model that may answer, at full prices.
- A long request is not read for that: its length is an estimate that is too high, as long as it is a small part of the
  limit. Otherwise it is read.
- After: what the provider says it used. Of an answer that broke off, or that the client did not wait for, the output is
  at least the estimate of what came: providers count at the end of a stream.
- Where the provider says nothing: an exchange that the provider refused, and one that never reached it, used nothing.
  Any other used the estimate of its input and of the output that came, which is its length where it cannot be read.
- A model that did not answer in time, before it or another one was asked again, used the estimate of its input.

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
from palaver.gateway.record import MOST_TOKENS, is_unanswered, sound
from palaver.models.catalogue import cost, prices_of
from palaver.tokens import estimate, estimate_tools, overhead

if TYPE_CHECKING:
    from palaver.core.request import Request, Response
    from palaver.gateway.limits import Limit, Measure
    from palaver.gateway.record import ClientRequest, Record

_LONG: Final = 16_384
"""Bytes."""
_PART: Final = 64
_MOST_CHOICES: Final = 1000
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
        output = _for_choices(request, _bound(request.body, request.api.output_bounds))
        rough = _priced_for(models, measures, _by_length(len(request.body)), output)
        if all(rough.of(each.measure) * _PART <= each.amount for each in limits):
            return rough
    return _priced_for(models, measures, input_tokens(request), _most_output(request))


def _priced_for(models: Sequence[str], measures: Collection[Measure], tokens: int, output: int) -> Amounts:
    if "cost" not in measures:
        return Amounts(1, tokens, output)
    usage = Usage(input=tokens, output=output)
    costs = [_cost(usage, each) for each in models]
    return Amounts(1, tokens, output, max([each or 0 for each in costs]) if None not in costs else None)


def _by_length(size: int) -> int:
    return size * 2 // 7


def used(record: Record) -> Amounts:
    """Return what an exchange used that was admitted and has ended."""
    found = _used(record)
    earlier = [each.model for each in record.attempts[:-1] if is_unanswered(each.error)]
    lost = [*record.unanswered, *earlier]
    if not lost:
        return found
    tokens = input_tokens(record.request)
    costs = [found.cost, *(_cost(Usage(input=tokens), each) for each in lost)]
    known = [each for each in costs if each is not None]
    return Amounts(found.requests, found.input + tokens * len(lost), found.output, sum(known) if known else None)


def estimated(tokens: int, response: Response | None, received: int) -> Usage:
    """Return the estimate of what an exchange used of which the provider says nothing.

    ``tokens`` are those of its input, and ``received`` the length of its answer, for one that cannot be read.
    """
    output = 0 if response is None else _output(response)
    return Usage(input=tokens, output=output or _by_length(received))


def _output(response: Response) -> int:
    every = (response.message, *response.alternatives)
    return sum([estimate(each) for each in every if each.content])


def _used(record: Record) -> Amounts:
    response = record.response()
    usage = None if response is None else sound(response.usage)
    if usage is not None and usage.total:
        return _reported(record, response, usage)
    if not record.sent or not (response is not None or _may_have_worked(record)):
        return Amounts(requests=1 if record.attempts or record.sent else 0)
    received = sum(map(len, record.received)) if record.outcome == "answered" else 0
    return _priced(record, estimated(input_tokens(record.request), response, received))


def input_tokens(request: ClientRequest) -> int:
    """Return the estimate of what a request sends; of a body that cannot be read, by its length."""
    try:
        return input_of(request.decoded)
    except DecodeError:
        return _by_length(len(request.body))


def input_of(asked: Request) -> int:
    """Return the estimate of what a request sends."""
    messages = sum([estimate(each) + overhead(each) for each in asked.messages])
    return messages + estimate_tools(asked.tools, asked.settings.output)


def _most_output(request: ClientRequest) -> int:
    try:
        return _for_choices(request, request.decoded.settings.max_tokens or 0)
    except DecodeError:
        return 0


def _for_choices(request: ClientRequest, output: int) -> int:
    """Return the most tokens of all answers that a request wants, if each has up to ``output``."""
    fields = request.api.choice_counts
    count = _bound(request.body, fields) if fields and output > 0 else 1
    return min(max(output, 0), MOST_TOKENS) * min(max(count, 1), _MOST_CHOICES)


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
        more = _output(response) - (usage.output or 0) - (usage.reasoning or 0)
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
