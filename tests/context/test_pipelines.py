"""When stages run (golden ``stage_triggers``), and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.context.compaction import AFTER, BEFORE, pipeline
from tests.context.goldens import GOLDENS

TRIGGERS = GOLDENS["stage_triggers"]
ROWS = [
    (int(window), pressure, set(fires)) for window, rows in TRIGGERS["by_window"].items() for pressure, fires in rows
]
NAMED = {stage.name: stage for stage in pipeline()}


@pytest.mark.row("KAI-04")
@pytest.mark.parametrize(("window", "pressure", "fires"), ROWS)
def test_stages_fire_as_in_the_golden(window: int, pressure: float, fires: set[str]) -> None:
    known = {*TRIGGERS["p_and_buffer"], "time_micro"}
    if window:
        fired = {name for name in known if pressure * window >= NAMED[name].trigger(window)}
    else:  # a window of which nothing is known: the share alone decides
        fired = {name for name in known if pressure >= NAMED[name].share}
    assert fired == fires


@pytest.mark.row("KAI-04")
def test_all_rows_of_the_golden_are_here() -> None:
    assert len(ROWS) == 60


def test_the_model_is_asked_before_the_last_resort() -> None:
    def auto(plan: Any) -> Any:
        return plan

    names = [stage.name for stage in pipeline(auto)]
    assert names == ["supersede", "time_micro", "snip", "shorten", "micro", "collapse", "auto", "partial"]
    assert pipeline() == (*BEFORE, *AFTER)
    assert [stage.trigger(200_000) for stage in pipeline(auto)][-2:] == [190_000, 195_000]
