"""Compaction: a plan goes through stages until it fits. A generator, so that one text serves every kind of caller.

Rules:

- ``compacting`` yields what a model is to be asked, and is sent the text of the answer; it returns a ``Compacted``. It
  is thrown a ``PalaverError`` where no answer came. Nothing here waits, and nothing is written.
- Before each stage the plan is weighed; a stage whose trigger is not reached does not run (I5). With a ``goal`` every
  stage runs until the plan weighs no more than that, whatever the triggers say: when somebody asked for it, or when the
  provider said that the prompt is too long. Stages see the goal as the capacity, so that those that stop at the
  capacity go on.
- A stage that wins less than a fiftieth of the capacity has not changed the plan, as long as that fits and there is no
  ``goal``: every change of what was sent before costs the provider's cache of it.
- A stage that fails, however it does, leaves the plan as it was, and is told in ``failures``; the next one has its
  turn (I7). One that would make the plan heavier has not changed it (I6).
- Compaction of what was compacted changes nothing below the triggers (I9).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from msgspec import Struct, structs

from palaver.context.plan import Plan
from palaver.context.stages import Stage, Summarise
from palaver.core.errors import ContextOverflowError, PalaverError

_GAIN: Final = 50
_SHORTER: Final = 3
"""How often a summary is asked for again about less, when it was too long for its model."""


class Failure(Struct, frozen=True):
    """A stage that came to nothing."""

    stage: str
    error: Exception


class Compacted(Struct, frozen=True):
    """What came of it. ``plan`` is the same object as before where nothing changed."""

    plan: Plan
    failures: tuple[Failure, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the plan is within its capacity."""
        return self.plan.tokens <= self.plan.capacity


Compaction = Generator[Summarise, str, Compacted]


def due(plan: Plan, stages: Sequence[Stage]) -> bool:
    """Whether any stage would run. Costs nothing but the weighing of the plan."""
    return any(stage.due(plan) for stage in stages)


def compacting(plan: Plan, stages: Sequence[Stage], *, goal: int | None = None) -> Compaction:
    """Send a plan through the stages; see the module for how this generator is driven."""
    failures: list[Failure] = []
    given = begun = plan
    if goal is not None and goal < plan.capacity:
        plan = begun = structs.replace(plan, capacity=goal)
    for stage in stages:
        if not (stage.due(plan) if goal is None else plan.tokens > goal):
            continue
        try:
            found = stage.run(plan)
            if isinstance(found, Summarise):
                found = yield from _asked(found)
        except Exception as error:  # noqa: BLE001 (whatever a stage raises, nothing is lost)
            failures.append(Failure(stage.name, error))
        else:
            plan = found if plan.tokens - found.tokens >= _least(plan, goal) else plan
    compacted = given if plan is begun else structs.replace(plan, capacity=given.capacity)
    return Compacted(compacted, tuple(failures))


def _least(plan: Plan, goal: int | None) -> int:
    """The tokens that a stage must win."""
    return 1 if goal is not None or plan.tokens > plan.capacity else max(plan.capacity // _GAIN, 1)


def _asked(question: Summarise) -> Generator[Summarise, str, Plan]:
    """Have a question answered; one that is too long for its model is asked again about less."""
    for _ in range(_SHORTER):
        try:
            text = yield question
        except ContextOverflowError:
            shorter = question.shorter()
            if shorter is None:
                raise
            question = shorter
        else:
            return question.applied(text)
    text = yield question
    return question.applied(text)


def without_model(compaction: Compaction, why: PalaverError) -> Compacted:
    """Drive a compaction where no model can be asked: every question is answered with an error."""
    try:
        next(compaction)
        while True:
            compaction.throw(why)
    except StopIteration as stop:
        found: Compacted = stop.value
        return found
