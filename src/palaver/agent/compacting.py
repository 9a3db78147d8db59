"""Compaction for the loop: a run of any length stays within the window of its model.

Rules (law 9; docs/spec/kairo.md#3; D24, D29; issue 6):

- Before the model is asked, what it would read is weighed: what it reported of the last prompt, and an estimate of
  what came since. When a stage is due, the conversation is compacted first: the thread goes on with fewer or shorter
  messages, and keeps what it was as a branch, ``<branch>/before-<n>``.
- When the provider says that a prompt is too long, the conversation is compacted to half of that and asked once more;
  the second time, the error ends the run as any other. What was learned of the window is remembered.
- What fails changes nothing, and is told as ``Compacted.failures``; only a store that cannot write fails the run.
- What left the prompt can be brought back: ``search_history`` finds what a summary stands for, and ``read_result``
  reads it, and results that were cleared, from the branch that has them. Both are offered always; their descriptions
  say so, and the system prompt does not.
- The results of a turn share 35 % of what is left of the window (``result_budget``): a longer one is cut when it comes,
  and can be read on with the same tool: nothing can be taken out of a result that the model has not seen (I10).
- An answer that was cut because the window was full teaches that, and so does a stream that ends in such an error: what
  was said is kept, and the next prompt is compacted.
- It stands before other middleware that changes prompts: what it puts into the thread is what the thread had. Where
  the messages of a prompt are not those of the thread, it says so (``Warned``), and compacts nothing.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import is_
from typing import Final

from msgspec import structs

from palaver.agent.events import ContextCompacted, Warned
from palaver.agent.middleware import CallModel, CallTool, Middleware, RunContext, ToolRequest
from palaver.agent.reading import READER
from palaver.agent.recalling import SEARCHER
from palaver.agent.result_budget import fit
from palaver.agent.summaries import SECONDS, Summariser
from palaver.agent.tool import AgentTool, Output
from palaver.agent.weighing import Weighing
from palaver.context.compaction import compacting, due
from palaver.context.ledger import Measure
from palaver.context.pipelines import DEFAULT
from palaver.context.plan import Item, Plan
from palaver.context.rewriting import rewritten
from palaver.context.shortening import oversized
from palaver.context.stages import Stage
from palaver.core.argument_types import check_arguments
from palaver.core.errors import ContextOverflowError, MessageError, StreamError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.usage import Usage
from palaver.models.failures import cut_by_window
from palaver.models.language_model import LanguageModel, Prompt, Reply
from palaver.threads.ids import now_ms
from palaver.tokens.counter import Counter

_TOOLS: Final = (READER, SEARCHER)
_LATEST: Final = 32
"""As many of the latest messages are looked at to see whether a cache is cold."""


class Compacting(Middleware):
    """Keeps what the model reads within its window: ``Agent(model, middleware=[Compacting()])``.

    One object may serve many runs and agents. Sub-agents need one too. Let it stand first, or behind ``Tracing``.
    """

    def __init__(
        self,
        stages: Sequence[Stage] = DEFAULT,
        *,
        model: LanguageModel | None = None,
        window: int | None = None,
        keep_last: Iterable[str] = (),
        seconds: float = SECONDS,
        counter: Counter | None = None,
    ) -> None:
        """Set how.

        ``stages`` are those of ``palaver.context``, in order. ``model`` is asked for summaries, by default the agent's
        own, each at most ``seconds`` long. ``window`` is that of the agent's model in tokens, where the catalogue does
        not know it. ``keep_last`` are tags: the last message of each is left as it is. ``counter`` counts tokens
        (``palaver.tokens``: ``Tiktoken``, ``HuggingFace``), by default the estimate does. Raises ``MessageError`` for a
        window that is none.
        """
        check_arguments("Compacting", Compacting.__init__, locals())
        if window is not None and window < 1:
            raise MessageError(f"window: {window}: a window has at least one token")
        self._stages, self._window, self._keep_last = tuple(stages), window, frozenset(keep_last)
        self._counter = counter
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
            known.overflowed(measured)
            plan = self._plan(prompt, context, known, measured, forced=True)
            if plan is None:
                raise
            again, measured = await self._compacted(prompt, context, known, plan, goal=known.goal(prompt, measured))
            if again is prompt:
                self._stuck(plan, context)
                raise
            reply = await call(again)
        except StreamError as error:
            if isinstance(error.__cause__, ContextOverflowError):
                known.overflowed(measured)
            raise
        known.answered(reply.response.message)
        if cut_by_window(reply.response.message):
            known.overflowed(measured)
        known.ledger.heard(measured, reply.response.message)
        return reply

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:
        """Cut a result that would take more than its share of what is left."""
        output = await call(request)
        if request.hidden or request.tool in _TOOLS:
            return output
        turn = self._known(context).turn(context)
        share = turn.share(_together(request, context))
        fitted = fit(output.content, output.whole, share, request.limit)
        turn.took(fitted.metadata["tool_result_budget_kept_tokens"])
        output = structs.replace(output, metadata={**output.metadata, **fitted.metadata})
        cut = fitted.cut
        if cut.whole is None:
            return output
        return structs.replace(output, content=cut.with_handle(request.context.call.id), whole=cut.whole)

    def _stuck(self, plan: Plan, context: RunContext) -> None:
        """Name what fills the window and may not be touched, and how it can be cut."""
        for place in oversized(plan):
            message = plan.items[place].message
            name = f"the result of call {message.tool_call_id}" if isinstance(message, ToolMessage) else message.role
            text = (
                f"{name} (message {message.id}, {plan.scaled(plan.items[place].tokens):,} tokens) fills the window, "
                "and the model has not seen it: compact(thread, cut_results=True) cuts it, and keeps the whole"
            )
            context.emit(Warned(agent=context.agent, run=context.run, text=text))

    def _known(self, context: RunContext) -> Weighing:
        known: Weighing | None = context.carried.get(self)
        if known is None:
            known = Weighing(context.language_model, window=self._window, counter=self._counter)
            context.carried[self] = known
        return known

    def _plan(
        self, prompt: Prompt, context: RunContext, known: Weighing, measured: Measure, *, forced: bool = False
    ) -> Plan | None:
        """What is to be compacted; ``None`` while no stage is due."""
        room = known.capacity(prompt, context)
        now = now_ms()
        if not forced:
            latest = tuple([Item(message, 0) for message in prompt.messages[-_LATEST:]])
            weighed = Plan(items=latest, sum=measured.tokens, capacity=room, now=now)
            if not due(weighed, self._stages):
                return None
        if not _same(prompt.messages, context.messages()):
            text = f"{self.name}: nothing is compacted behind middleware that changes the messages: let it stand before"
            context.emit(Warned(agent=context.agent, run=context.run, text=text))
            return None
        known.ledger.carry(measured)
        return known.ledger.plan(prompt.messages, measured, capacity=room, now=now, keep_last=self._keep_last)

    async def _compacted(
        self, prompt: Prompt, context: RunContext, known: Weighing, plan: Plan, *, goal: int | None = None
    ) -> tuple[Prompt, Measure]:
        """The prompt behind a compaction; the same one where nothing changed."""
        model = context.language_model
        found = await self.summariser.drive(
            compacting(plan, self._stages, goal=goal), model, spent=partial(_spend, context)
        )
        made, path = found.plan, context.path()
        if made.changes:
            made = made.ending_at(known.ledger.measure(made.messages, fixed=known.fixed).tokens)
        change = rewritten(path, prompt.messages, made, learned=known.ledger.learned)
        if change is not None and context.rewrite is not None:
            prompt = prompt.replace(messages=await context.rewrite(*change))
        measured = known.measure(prompt, context)
        if change is not None or found.failures:
            context.emit(
                ContextCompacted(
                    agent=context.agent,
                    run=context.run,
                    before=plan.tokens,
                    after=measured.tokens,
                    capacity=plan.capacity,
                    changes=made.changes,
                    failures=found.failures,
                )
            )
        return prompt, measured


def _together(request: ToolRequest, context: RunContext) -> int | None:
    """How many calls stand beside one, with it; ``None`` where its answer is not whole yet."""
    call, message = request.context.call, context.message
    if message is None:  # the answer came in an earlier run
        path = context.path()
        message = next((e.message for e in reversed(path) if isinstance(e.message, AssistantMessage)), None)
        return len(message.tool_calls) if message is not None and call in message.tool_calls else None
    calls = message.tool_calls
    return len(calls) if any(each is call for each in calls) else None


def _same(messages: Sequence[Message], others: Sequence[Message]) -> bool:
    return len(messages) == len(others) and all(map(is_, messages, others))


def _spend(context: RunContext, model: str, usage: Usage | None) -> None:
    if usage is None:
        context.spend({model: Usage()}, None)
    else:
        context.spend({model: usage}, context.price(model, usage))
