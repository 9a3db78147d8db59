"""Compaction for the loop: a run of any length stays within the window of its model.

Rules (law 9; kairo.md 3; D24, D29; issue 6):

- Before the model is asked, what it would read is weighed: what it reported of the last prompt, and an estimate of
  what came since. When a stage is due, the conversation is compacted first: the thread goes on with fewer or shorter
  messages, and keeps what it was as a branch, ``<branch>/before-<n>``.
- When the provider says that a prompt is too long, the conversation is compacted to half of that and asked once more;
  the second time, the error ends the run as any other. What was learned of the window is remembered.
- What fails changes nothing, and is told as ``Compacted.failures``; only a store that cannot write fails the run.
- What left the prompt can be brought back: ``search_history`` finds what a summary stands for, and ``read_result``
  reads it, and results that were cleared, from the branch that has them. Both are offered always; their descriptions
  say so, and the system prompt does not.
- A result that alone is a quarter of what is left of the window is cut when it comes, and can be read on with the
  same tool: nothing can be taken out of a result that the model has not seen (I10).
- It stands before other middleware that changes prompts: what it puts into the thread is what the thread had.

Stability: experimental.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from palaver.agent.events import ContextCompacted
from palaver.agent.limiting import limit
from palaver.agent.middleware import CallModel, CallTool, Middleware, RunContext, ToolRequest
from palaver.agent.reading import READER
from palaver.agent.recalling import SEARCHER
from palaver.agent.summaries import SECONDS, Summariser
from palaver.agent.tool import AgentTool, Output
from palaver.context.budget import capacity
from palaver.context.compaction import compacting, due
from palaver.context.ledger import Ledger, Measure
from palaver.context.pipelines import DEFAULT
from palaver.context.plan import Item, Plan, plan_of
from palaver.context.rewriting import rewritten
from palaver.context.stages import Stage
from palaver.core.errors import ContextOverflowError, MessageError
from palaver.core.usage import Usage
from palaver.models.capabilities import Capabilities
from palaver.models.http_model import Model
from palaver.models.language_model import LanguageModel, Prompt, Reply
from palaver.models.written import merged
from palaver.tokens.estimate import estimate, estimate_tools

_TOOLS: Final = (READER, SEARCHER)
_LEAST_RESULT: Final = 2_000
"""Tokens that a result may always have."""
_PER_TOKEN: Final = 4
_LATEST: Final = 32
"""As many of the latest messages are looked at to see whether a cache is cold."""
_OF_OVERFLOW: Final = 0.9
"""How much of a prompt that was too long is taken to fit."""


class _Known:
    """What is known of a conversation with one model, from run to run."""

    def __init__(self, model: str) -> None:
        self.ledger = Ledger(model)
        self.fixed = 0
        self.left: int | None = None
        """Tokens that are left of the window."""
        self._head: tuple[object, object] | None = None
        self._most: int | None = None

    def measure(self, prompt: Prompt, context: RunContext) -> Measure:
        """What a prompt weighs. Costs what is new in it."""
        path, messages, ledger = context.path(), prompt.messages, self.ledger
        new = self._head is None
        if self._head is None or self._head[0] is not prompt.system or self._head[1] is not prompt.tools:
            self._head = (prompt.system, prompt.tools)
            self.fixed = sum(map(estimate, prompt.system)) + estimate_tools(prompt.tools)
        if new:
            ledger.recall(path, messages, fixed=self.fixed)
        anchor = ledger.anchored(path, messages)
        return ledger.measure(messages, fixed=self.fixed, anchor=anchor)

    def capacity(self, prompt: Prompt, model: LanguageModel | None, window: int | None) -> int:
        """What a prompt may weigh."""
        can = Capabilities() if model is None else model.capabilities
        settings = merged(model.settings, prompt.settings) if isinstance(model, Model) else prompt.settings
        room = capacity(window or can.window, can.max_output, settings)
        return room if self._most is None else min(room, self._most)

    def overflowed(self, tokens: int) -> None:
        """So much was too long."""
        self._most = max(int(tokens * _OF_OVERFLOW), 1)


class Compacting(Middleware):
    """Keeps what the model reads within its window. One object may serve many runs and agents."""

    def __init__(
        self,
        stages: Sequence[Stage] = DEFAULT,
        *,
        model: LanguageModel | None = None,
        window: int | None = None,
        keep_last: Iterable[str] = (),
        seconds: float = SECONDS,
    ) -> None:
        """Set how.

        ``stages`` are those of ``palaver.context``, in order. ``model`` is asked for summaries, by default the agent's
        own, each at most ``seconds`` long. ``window`` is that of the agent's model in tokens, where the catalogue does
        not know it. ``keep_last`` are tags: the last message of each is left as it is. Raises ``MessageError``.
        """
        if window is not None and window < 1:
            raise MessageError(f"window: {window}: a window has at least one token")
        self._stages, self._window, self._keep_last = tuple(stages), window, frozenset(keep_last)
        self.summariser = Summariser(model, seconds=seconds)

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tools ``read_result`` and ``search_history``."""
        return _TOOLS

    async def wrap_model_call(self, prompt: Prompt, context: RunContext, call: CallModel) -> Reply:
        """Compact where it is time, ask, and compact once more where it was too long."""
        known = self._known(context)
        measured = known.measure(prompt, context)
        plan = self._plan(prompt, context, known, measured)
        if plan is not None:
            prompt, measured = await self._compacted(prompt, context, known, plan)
        try:
            reply = await call(prompt)
        except ContextOverflowError:
            known.overflowed(measured.tokens)
            plan = self._plan(prompt, context, known, measured, forced=True)
            if plan is None:
                raise
            again, measured = await self._compacted(prompt, context, known, plan, goal=measured.tokens // 2)
            if again is prompt:
                raise
            reply = await call(again)
        known.ledger.heard(measured, reply.response.message)
        return reply

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:
        """Cut a result that would take too much of what is left."""
        output = await call(request)
        known = self._known(context)
        if request.tool in _TOOLS or output.whole is not None or known.left is None:
            return output
        characters = max(known.left // 4, _LEAST_RESULT) * _PER_TOKEN
        limited = limit(output.content, characters)
        if limited.whole is None:
            return output
        return structs.replace(output, content=limited.with_handle(request.context.call.id), whole=limited.whole)

    def _known(self, context: RunContext) -> _Known:
        known: _Known | None = context.carried.get(self)
        if known is None:
            known = context.carried[self] = _Known(context.model)
        return known

    def _plan(
        self, prompt: Prompt, context: RunContext, known: _Known, measured: Measure, *, forced: bool = False
    ) -> Plan | None:
        """What is to be compacted; ``None`` while no stage is due."""
        room = known.capacity(prompt, context.language_model, self._window)
        known.left = max(room - measured.tokens, 0)
        now = time.time_ns() // 1_000_000
        if not forced:
            latest = tuple([Item(message, 0) for message in prompt.messages[-_LATEST:]])
            weighed = Plan(items=latest, sum=measured.estimate, capacity=room, scale=measured.scale, now=now)
            if not due(weighed, self._stages):
                return None
        return plan_of(
            prompt.messages,
            capacity=room,
            tokens=known.ledger.estimates,
            fixed=known.fixed,
            around=known.ledger.around,
            scale=measured.scale,
            now=now,
            keep_last=self._keep_last,
        )

    async def _compacted(
        self, prompt: Prompt, context: RunContext, known: _Known, plan: Plan, *, goal: int | None = None
    ) -> tuple[Prompt, Measure]:
        """The prompt behind a compaction; the same one where nothing changed."""
        model = context.language_model
        found = await self.summariser.drive(
            compacting(plan, self._stages, goal=goal), model, spent=partial(_spend, context)
        )
        path = context.path()
        change = rewritten(path, prompt.messages, found.plan)
        if change is not None and context.rewrite is not None:
            prompt = prompt.replace(messages=await context.rewrite(*change))
        if change is not None or found.failures:
            context.emit(
                ContextCompacted(
                    agent=context.agent,
                    run=context.run,
                    before=plan.tokens,
                    after=found.plan.tokens,
                    capacity=plan.capacity,
                    changes=found.plan.changes,
                    failures=found.failures,
                )
            )
        return prompt, known.measure(prompt, context)


def _spend(context: RunContext, model: str, usage: Usage | None) -> None:
    if usage is None:
        context.spend({model: Usage()}, None)
    else:
        context.spend({model: usage}, context.price(model, usage))
