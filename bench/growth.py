"""Cases: how the time grows with the stream.

Rules:

- The exponent is the slope of a line through the logarithms of size and time, by least squares: 1 is linear, 2
  is quadratic. One is fitted in each round, over all sizes; the median counts.
- palaver is measured at all sizes, in three rounds at most, and so is the bare loop: its exponent is what the memory
  of the machine adds, since long texts leave the caches. A peer is measured in one round, at sizes that grow until
  the next one would take more than ``PATIENCE`` seconds, by the slope so far; the note names the last one, and its
  time.
- Small sizes carry what a stream costs in any case, which lowers the exponent of whoever has much of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import assembly
import clients
import deltas
import end_to_end
from measure import Case, Contender, Job, Row, Spread, run, slope
from report import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
QUICK = (500, 1_500, 5_000)
PEER_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000)
AT_MOST = 1.05
PATIENCE = 2.0
_WORDS = {"text": "text deltas", "arguments": "arguments deltas"}


@dataclass(frozen=True)
class Growing:
    """One way to do the work, at any size."""

    case: str
    name: str
    job: Callable[[int], Job]
    ours: bool = False
    thorough: bool = False
    """Whether it is measured at all sizes."""


def all_of_them() -> Iterator[Growing]:
    """Name what is measured, palaver first in each case."""
    for kind in deltas.KINDS:
        case = f"3. Growth, assemble {_WORDS[kind]}"
        yield Growing(case, "palaver Assembler", partial(assembly.palaver, kind), ours=True, thorough=True)
        yield Growing(case, "bare loop, list and join", partial(assembly.bare, kind), thorough=True)
        yield Growing(case, "pydantic-ai parts manager", partial(assembly.pydantic_ai, kind))
        yield Growing(case, "openai ChatCompletionStreamState", partial(assembly.openai, kind))
        yield Growing(case, "anthropic accumulate_event", partial(assembly.anthropic, kind))
        yield Growing(case, "langchain-core chunk + chunk", partial(assembly.langchain, kind))
        yield Growing(case, "litellm stream_chunk_builder", partial(assembly.litellm, kind))
    for wire, kind in end_to_end.KINDS:
        case = f"3. Growth, {wire}, bytes of {_WORDS[kind]}"
        yield Growing(case, "palaver stream_decoder", partial(end_to_end.palaver, wire, kind), ours=True, thorough=True)
        if wire in end_to_end.PEERS:
            peer = end_to_end.PEERS[wire][0]
            yield Growing(case, f"{peer} client .stream()", partial(clients.stream, wire, kind))
    case = "4. Growth, look at the arguments after each delta"
    yield Growing(case, "palaver arguments_so_far", assembly.looking, ours=True, thorough=True)
    yield Growing(case, "jiter from_json, partial mode", assembly.jiter)


def measured(growing: Growing, rounds: int, sizes: Sequence[int], patience: float) -> Row:
    """Fit the exponent."""
    row = Row(growing.case, growing.name, "exponent")
    if growing.ours:
        row.target = f"≤ {AT_MOST:g}"
    most = sizes[-1]
    samples: list[list[float]] = []
    taken: list[int] = []
    for size in sizes if growing.thorough else PEER_SIZES:
        if size > most or (taken and not growing.thorough and _next(samples, taken, size) > patience):
            break
        (found,) = run(
            Case(growing.case, "s", [Contender(growing.name, partial(growing.job, size))]),
            min(rounds, 3) if growing.thorough else 1,
        )
        if found.value is None:
            row.error, row.skipped = found.error, found.skipped
            return row
        samples.append(found.value.samples)
        taken.append(size)
    if len(taken) < 2:
        row.skipped = f"{samples[0][0]:.1f} s at {taken[0]:,} deltas, and more were not tried"
        return row
    row.value = Spread([slope(taken, times) for times in zip(*samples, strict=True)])
    row.note = f"{taken[0]:,} to {taken[-1]:,} deltas, the last {number(samples[-1][0] * 1e3)} ms"
    if growing.ours:
        row.met = row.value.median <= AT_MOST
    return row


def _next(samples: list[list[float]], taken: list[int], size: int) -> float:
    """What the next size would take, as the last step was, or quadratic when there was none."""
    times = [each[0] for each in samples]
    exponent = slope(taken[-2:], times[-2:]) if len(taken) > 1 else 2
    return times[-1] * (size / taken[-1]) ** exponent
