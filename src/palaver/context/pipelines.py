"""The stages of compaction in their order: from what costs nothing to what costs most.

Rules (docs/spec/kairo.md#3.3, KAI-04; golden ``stage_triggers``):

- ``pipeline`` has the shares and buffers of the golden, ``DEFAULT`` the shares alone: output and reserve are taken off
  the capacity already, and a buffer of 40,000 tokens begins at half of a small window, and again every few turns.
- ``supersede`` (ours) goes first, since what is out of date is missed by nobody; ``shorten`` (ours) before ``micro``,
  which empties results that may be of use.
- The stage that asks a model stands before ``partial``, which is the last resort, and is due where that is: in a small
  window, too, nothing is left out before a model was asked to sum it up.
- While the provider's cache of the prompt is cold, those that clear and shorten results run from half of the capacity
  on: what they take out can be read back, and the prompt is paid for in full anyway.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from palaver.context.clearing import micro, snip, supersede, time_micro
from palaver.context.cold import cold_stages
from palaver.context.folding import collapse, partial
from palaver.context.shortening import shorten
from palaver.context.stages import Stage, Work
from palaver.context.summary import summarising
from palaver.context.trimming import omit_large, simplify, trim

AUTO_SHARE: Final = 0.95
"""The share of the capacity from which on a model is asked."""

CLEARING: Final = (
    Stage("supersede", supersede, 0.80, 40_000),
    Stage("time_micro", time_micro, 0.80),
    Stage("snip", snip, 0.80, 40_000),
    Stage("shorten", shorten, 0.85, 30_000),
    Stage("micro", micro, 0.85, 30_000),
)
"""Stages that leave every message in its place."""
BEFORE: Final = (*CLEARING, Stage("collapse", collapse, 0.90, 20_000))
"""Stages that run before a model is asked."""
AFTER: Final = (Stage("partial", partial, 0.98, 5_000),)
"""Stages for when it was of no use."""


def pipeline(auto: Work | None = None) -> tuple[Stage, ...]:
    """All stages. ``auto`` is the one that asks a model; without one the others must do."""
    asked = () if auto is None else (Stage("auto", auto, AUTO_SHARE, AFTER[0].buffer),)
    return (*BEFORE, *asked, *AFTER)


def _by_share(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    return tuple([structs.replace(stage, buffer=None) for stage in stages])


DEFAULT: Final = (*cold_stages(_by_share(CLEARING)), *_by_share(pipeline(summarising())[len(CLEARING) :]))
"""What an agent uses, where it is not told otherwise: all stages, from their shares on (ADR 22)."""

SUMMARISE: Final = Stage("summarise", summarising("summarise"), 0.85)
"""A summary as the only stage (docs/spec/deepagents-swift.md#8.5): the newest 6 messages, and a quarter at most,
stay."""
CODEBUFF: Final = (
    Stage("simplify", simplify, 1.0),
    Stage("omit_large", omit_large, 1.0),
    Stage("trim", trim, 1.0),
)
"""Another pipeline: each from the capacity on, and none after the first that makes the plan fit.

Source: docs/spec/codebuff.md#9.3.
"""
