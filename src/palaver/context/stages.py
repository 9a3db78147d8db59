"""The stages of compaction, in a table: when each runs, and what it does.

Rules (docs/spec/kairo.md#3.3, KAI-04; golden ``stage_triggers``):

- A stage runs when the plan weighs as much as its trigger, or more: ``min(share * capacity, capacity - buffer)``, where
  ``capacity - buffer`` counts as half of the capacity when it is less than that. Both sides are in the same unit.
- A stage with ``early`` runs also below its trigger, when that says so of the plan.
- Stages run in the order of the table, from cheap to dear; the plan is weighed again before each (I5, D2).
- ``Stage.run`` gives a plan, or a ``Summarise``: a question for a model, with what its answer makes of the plan.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from palaver.context.plan import Plan
from palaver.core.request import Request


class Summarise(Struct, frozen=True):
    """A model is to be asked, for the stage of that name. ``applied`` makes the next plan of the text that it answers.

    ``applied`` raises ``SummaryError`` for a text that is empty, or that wins nothing. ``shorter`` is the same question
    about less, for a model that finds this one too long; ``None`` when nothing can be left out any more.
    """

    request: Request
    applied: Callable[[str], Plan]
    shorter: Callable[[], Summarise | None]
    stage: str = "auto"


Work: TypeAlias = Callable[[Plan], "Plan | Summarise"]


class Stage(Struct, frozen=True):
    """A step of compaction. ``share`` is of the capacity, ``buffer`` in tokens; ``early`` is another reason to run."""

    name: str
    run: Work
    share: float
    buffer: int | None = None
    early: Callable[[Plan], bool] | None = None

    def trigger(self, capacity: int) -> int:
        """The weight from which on it runs, in tokens."""
        by_share = int(self.share * capacity)
        if self.buffer is None:
            return by_share
        return min(by_share, max(capacity - self.buffer, capacity // 2))

    def due(self, plan: Plan) -> bool:
        """Whether it runs on a plan."""
        return plan.tokens >= self.trigger(plan.capacity) or (self.early is not None and self.early(plan))
