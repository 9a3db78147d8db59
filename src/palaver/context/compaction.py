"""Compaction: a plan goes through a pipeline of stages until it fits.

Rules (docs/spec/kairo.md#3.3, KAI-04; golden ``stage_triggers``):

- ``compaction_flow`` is a generator, so it serves sync and async callers. It yields each ``SummaryRequest``, receives
  the text of the answer (or a thrown ``PalaverError``), and returns a ``Compacted``. It does no I/O.
- A stage runs when its trigger is reached (I5). With a ``goal``, every stage runs until the plan weighs no more than
  the goal; stages see the goal as the capacity.
- A stage that saves less than a fiftieth of the capacity is discarded while the plan fits and no ``goal`` is set:
  every change of the prompt's beginning costs the provider's cache.
- A stage that fails, or makes the plan heavier (I6), leaves it unchanged; ``failures`` lists the errors (I7).
- Compacting a compacted plan changes nothing below the triggers (I9).
- ``pipeline`` has the shares and buffers of the golden. ``DEFAULT`` has the shares alone, and clears results from half
  of the capacity on while the provider's cache is cold.

A circuit breaker: after several failures in a row, calls stop for a while. It is a value, and the caller supplies the
time (docs/spec/kairo.md#3.4, #D5; KAI-09):

- ``max_failures`` failures in a row open it. While open it allows nothing for ``seconds`` after the last failure.
- Then it is half open and allows one probe (``start``). A success closes it, a failure opens it again, and
  ``cancelled`` frees the probe for another caller.
- A success resets the count.
- ``now`` is seconds of any clock that does not go back.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from msgspec import Struct, structs

from palaver.context.clear_stage import micro, snip, supersede, time_micro
from palaver.context.fold_stage import collapse, partial
from palaver.context.marks import cold_stages
from palaver.context.plan import Plan, Stage, SummaryRequest, Work
from palaver.context.shorten_stage import omit_large, shorten, simplify, trim
from palaver.context.summary_stage import summarizer
from palaver.core.errors import ContextOverflowError, MessageError, PalaverError

# -- breaker ---------------------------------------------------------------------------------------


FAILURES: Final = 3
SECONDS: Final = 30.0


class Breaker(Struct, frozen=True):
    """The state of something that may fail. ``opened_at`` is ``None`` while the breaker is closed.

    ``now`` is the time of a call, in seconds of any clock that does not go back.
    """

    failures: int = 0
    opened_at: float | None = None
    half_open: bool = False
    max_failures: int = FAILURES
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        """Refuse numbers with which the breaker would always be open. Raises ``MessageError``."""
        if self.max_failures < 1:
            raise MessageError(f"max_failures: {self.max_failures}: must be at least 1")
        if not self.seconds >= 0:
            raise MessageError(f"seconds: {self.seconds}: must be at least 0")

    def allows(self, now: float) -> bool:
        """Return whether a call is allowed."""
        if self.opened_at is None:
            return True
        return not self.half_open and now - self.opened_at >= self.seconds

    def start(self) -> Breaker:
        """Return the state after an allowed call has started; when the breaker is open, that call is the probe."""
        return self if self.opened_at is None or self.half_open else structs.replace(self, half_open=True)

    def failed(self, now: float) -> Breaker:
        """Return the state after a failure. Enough failures open the breaker; a failed probe opens it again."""
        failures = self.failures + 1
        opened_at = now if failures >= self.max_failures else None
        return structs.replace(self, failures=failures, opened_at=opened_at, half_open=False)

    def succeeded(self) -> Breaker:
        """Return the state after a success: the breaker is closed, and the count is 0."""
        return structs.replace(self, failures=0, opened_at=None, half_open=False)

    def cancelled(self) -> Breaker:
        """Return the state after a cancelled call, which tells nothing: another call may probe."""
        return structs.replace(self, half_open=False) if self.half_open else self


# --- compaction -------------------------------------------------------------------------------------------------------


_GAIN: Final = 50
_SHORTER: Final = 3
"""How often a summary is requested again, with less to summarize, when the question was too long for its model."""


class Failure(Struct, frozen=True):
    """A stage that failed."""

    stage: str
    error: Exception


class Compacted(Struct, frozen=True):
    """The result of a compaction. ``plan`` is the same object as before when nothing changed."""

    plan: Plan
    failures: tuple[Failure, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the plan is within its capacity."""
        return self.plan.tokens <= self.plan.capacity


Compaction = Generator[SummaryRequest, str, Compacted]


def due(plan: Plan, stages: Sequence[Stage]) -> bool:
    """Return whether any of ``stages`` would run on ``plan``. Runs none of them."""
    return any(stage.due(plan) for stage in stages)


def compaction_flow(plan: Plan, stages: Sequence[Stage], *, goal: int | None = None) -> Compaction:
    """Run ``stages`` on ``plan``, in order; the module describes how this generator is driven.

    ``goal`` is in tokens: with it, each stage runs until the plan weighs no more. Without it, a stage runs when its
    trigger is reached.
    """
    failures: list[Failure] = []
    given = begun = plan
    if goal is not None and goal < plan.capacity:
        plan = begun = structs.replace(plan, capacity=goal)
    for stage in stages:
        if not (stage.due(plan) if goal is None else plan.tokens > goal):
            continue
        try:
            found = stage.run(plan)
            if isinstance(found, SummaryRequest):
                found = yield from _answer_of(found)
        except Exception as error:  # noqa: BLE001 (whatever a stage raises, nothing is lost)
            failures.append(Failure(stage.name, error))
        else:
            plan = found if plan.tokens - found.tokens >= _min_gain(plan, goal) else plan
    compacted = given if plan is begun else structs.replace(plan, capacity=given.capacity)
    return Compacted(compacted, tuple(failures))


def _min_gain(plan: Plan, goal: int | None) -> int:
    """Return the tokens that a stage must save."""
    return 1 if goal is not None or plan.tokens > plan.capacity else max(plan.capacity // _GAIN, 1)


def _answer_of(question: SummaryRequest) -> Generator[SummaryRequest, str, Plan]:
    """Yield a question; one that is too long for its model is yielded again with less in it."""
    for _ in range(_SHORTER):
        try:
            text = yield question
        except ContextOverflowError:
            shorter = question.shorter()
            if shorter is None:
                raise
            question = shorter
        else:
            return question.apply(text)
    text = yield question
    return question.apply(text)


def without_model(compaction: Compaction, why: PalaverError) -> Compacted:
    """Run a compaction for which no model is available: every question is answered with an error.

    ``compaction`` is a generator that ``compaction_flow`` returned and that has not started. ``why`` is the error.
    """
    try:
        next(compaction)
        while True:
            compaction.throw(why)
    except StopIteration as stop:
        found: Compacted = stop.value
        return found


# --- pipelines --------------------------------------------------------------------------------------------------------


AUTO_SHARE: Final = 0.95
"""The share of the capacity from which on a model is asked for a summary."""

CLEARING: Final = (
    Stage("supersede", supersede, 0.80, 40_000),
    Stage("time_micro", time_micro, 0.80),
    Stage("snip", snip, 0.80, 40_000),
    Stage("shorten", shorten, 0.85, 30_000),
    Stage("micro", micro, 0.85, 30_000),
)
"""Stages that keep every message in its place."""
BEFORE: Final = (*CLEARING, Stage("collapse", collapse, 0.90, 20_000))
"""Stages that run before a model is asked."""
AFTER: Final = (Stage("partial", partial, 0.98, 5_000),)
"""Stages that run when those before did not suffice."""


def pipeline(auto: Work | None = None) -> tuple[Stage, ...]:
    """Return all stages. ``auto`` is the stage that asks a model; without it, the pipeline asks none."""
    asked = () if auto is None else (Stage("auto", auto, AUTO_SHARE, AFTER[0].buffer),)
    return (*BEFORE, *asked, *AFTER)


def _by_share(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    return tuple([structs.replace(stage, buffer=None) for stage in stages])


# Shares alone: a buffer of 40,000 tokens would start at half of a small window, and again every few turns.
DEFAULT: Final = (*cold_stages(_by_share(CLEARING)), *_by_share(pipeline(summarizer())[len(CLEARING) :]))
"""The stages that an agent uses by default: all of them, each from its share on (ADR 22)."""

SUMMARY_ONLY: Final = Stage("summarise", summarizer("summarise"), 0.85)
"""A summary as the only stage (docs/spec/deepagents-swift.md#8.5). The newest 6 messages stay, with at most a
quarter of the capacity."""
CODEBUFF: Final = (
    Stage("simplify", simplify, 1.0),
    Stage("omit_large", omit_large, 1.0),
    Stage("trim", trim, 1.0),
)
"""Another pipeline: each stage runs from the capacity on, and none after the first that makes the plan fit.

Source: docs/spec/codebuff.md#9.3.
"""
