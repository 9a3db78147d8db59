"""Middleware that asks the provider to keep the beginning of the conversation, so that the next turn costs less.

Rules (docs/spec/pains.md#10; docs/spec/message-fields.md#R10; docs/adr/0021-cache-marks.md):

- It says where marks shall stand; the wire of whichever model is asked says them, if it has any. A model behind a
  fallback gets its own. No message of the thread is changed.
- ``marks="stable"``: behind tools and system prompt, and in the messages where they stay put. ``"turns"``: at
  Codebuff's four places, which move with every turn (CBF-15). ``None``: nothing but the key.
- The thread's id is the key of its cache, for providers that have one.
- Where the provider moves a mark by itself, or has none, a turn costs a few counts, or nothing.

Stability: experimental.
"""

from __future__ import annotations

from typing import Literal

from palaver.agent.middleware import CallModel, Middleware, RunContext
from palaver.context.marks import STEP, Bridges, CachePlan, StableMarks, turn_marks
from palaver.core.argument_types import check_arguments
from palaver.models.language_model import Prompt, Reply
from palaver.wires.marking import no_places

__all__ = ["Caching", "Where"]

Where = Literal["stable", "turns"]


class Caching(Middleware):
    """Puts cache marks on what a model is asked. ``step``: so many tokens lie between two marks that stay."""

    def __init__(self, marks: Where | None = "stable", *, step: int = STEP) -> None:
        """Keep the choice. Raises ``MessageError`` for a ``step`` below 1."""
        check_arguments("Caching", Caching.__init__, locals())
        StableMarks(step=step)
        self._marks, self._step = marks, step

    async def wrap_model_call(self, prompt: Prompt, context: RunContext, call: CallModel) -> Reply:
        """Ask with a plan; one that the prompt has already stays."""
        if prompt.cache is not None:
            return await call(prompt)
        plan: CachePlan | None = context.own.get(self)
        if plan is None:
            plan = context.own[self] = self._plan(context.thread)
        return await call(prompt.replace(cache=plan))

    def _plan(self, thread: str) -> CachePlan:
        if self._marks == "stable":
            return CachePlan(places=StableMarks(step=self._step), bridges=Bridges(), key=thread)
        places = no_places if self._marks is None else turn_marks
        return CachePlan(places=places, head=False, automatic=False, key=thread)
