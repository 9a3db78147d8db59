"""Compaction in runs and by hand: a conversation of any length fits its model's context window.

Rules (law 9; docs/spec/kairo.md#3; I7, I10, D24, D29):

- ``Compactor`` measures each prompt: the provider's report of the last one, plus an estimate of what is new. When a
  stage is due, the thread continues with fewer or shorter messages; the original stays as ``<branch>/before-<n>``.
- When the provider refuses a prompt as too long, it is compacted to half and sent once more. Where the window is not
  known, that is repeated until the prompt fits, or nothing can be shortened.
- A window that is not known is assumed, with a warning. It bounds a conversation, but neither the first nor the last
  prompt of the user is cut for it: one that does not fit even alone is sent whole, and the provider answers.
- A failed stage changes nothing and is listed in ``Compacted.failures``; only a failed write fails the run.
- ``search_history`` and ``read_result`` find what was removed. The results of a turn share 35 % of the free window.
- Put it before other middleware that changes prompts; behind such middleware it compacts nothing and warns.
- A summary that fails or takes too long is skipped. After several failures in a row the breaker pauses summaries.
  All usage of summaries counts as spending.
- ``compact`` shortens a thread to ``to`` tokens, stage by stage; open calls stay at its end. ``undo`` reverts the last
  compaction. No run may be active on the branch.

Stability: experimental.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import is_
from typing import Final, TypeAlias

import anyio
from msgspec import Struct, structs

from palaver.context import shorten_stage
from palaver.context.compaction import (
    DEFAULT,
    Breaker,
    Compacted,
    Compaction as Steps,
    Failure,
    compaction_flow,
    due,
    without_model,
)
from palaver.context.ledger import Ledger, Measure
from palaver.context.plan import WINDOW, Change, Item, Plan, Stage, SummaryRequest, capacity
from palaver.context.rewrite import plan_rewrite, plan_undo, record
from palaver.context.shorten_stage import cuts_prompt, oversized
from palaver.context.summary_stage import summary_of
from palaver.core.errors import ContextOverflowError, MessageError, StreamError, SummaryError, TimedOutError
from palaver.core.messages import AssistantMessage, DeveloperMessage, Message, SystemMessage, ToolMessage
from palaver.core.request import Request, Settings
from palaver.core.tools import AnyTool
from palaver.core.type_checks import check_arguments
from palaver.core.usage import Usage
from palaver.models.catalogue import Capabilities, rates_of
from palaver.models.failures import cut_by_window
from palaver.models.language_model import LanguageModel, Prompt, Reply, complete
from palaver.store.jsonl.log import LogSink
from palaver.store.store import to_thread
from palaver.store.stored_thread import StoredThread
from palaver.threads.ids import now_ms
from palaver.threads.thread import MAIN, Entry
from palaver.tokens.counter import Counter
from palaver.tokens.media import guessed_tokens
from palaver.turn.events import ContextCompacted, Warned
from palaver.turn.journal import AnyThread, Journal, ReplayView, before_name, check_log
from palaver.turn.middleware import CallModel, CallTool, Middleware, RunContext, ToolRequest, uncounted
from palaver.turn.open_calls import open_answer
from palaver.turn.results import READER, SEARCHER
from palaver.turn.token_budget import TokenBudget, fit
from palaver.turn.tool import AgentTool, Output

# --- summaries --------------------------------------------------------------------------------------------------------


SECONDS = 180.0

Spent: TypeAlias = Callable[[str, Usage | None], None]
"""Receives the model and the usage of a summary; ``None`` where the model did not report usage."""


def _unspent(model: str, usage: Usage | None) -> None:
    """Ignore usage."""


class Summariser:
    """Runs compactions and asks a model for summaries. ``model`` is asked where ``drive`` gets none."""

    def __init__(self, model: LanguageModel | None = None, *, seconds: float = SECONDS) -> None:
        """Set the model, and the seconds that one summary may take."""
        self._model, self._seconds = model, seconds
        self.breaker = Breaker()

    async def drive(
        self, compaction: Steps, model: LanguageModel | None = None, *, spent: Spent = _unspent
    ) -> Compacted:
        """Run a compaction to its end. Raises nothing but cancellation."""
        asks = self._model or model
        stages_asked: set[str] = set()
        try:
            question = next(compaction)
            while True:
                try:
                    if not stages_asked:
                        self._begin(asks)
                    stages_asked.add(question.stage)
                    text = await self._ask(asks, question, spent)
                except Exception as error:  # noqa: BLE001 (reported in the failures of the compaction)
                    question = compaction.throw(error)
                else:
                    question = compaction.send(text)
        except StopIteration as stop:
            found: Compacted = stop.value
        except BaseException:
            if stages_asked:
                self.breaker = self.breaker.cancelled()
            raise
        if stages_asked:
            failed = any(each.stage in stages_asked for each in found.failures)
            self.breaker = self.breaker.failed(anyio.current_time()) if failed else self.breaker.succeeded()
        return found

    def _begin(self, model: LanguageModel | None) -> None:
        """Check the breaker. Raises ``SummaryError`` when no model may be asked."""
        if model is None:
            raise SummaryError("there is no model to ask for a summary")
        if not self.breaker.allows(anyio.current_time()):
            raise SummaryError("summaries failed several times in a row and are paused")
        self.breaker = self.breaker.start()

    async def _ask(self, model: LanguageModel | None, question: SummaryRequest, spent: Spent) -> str:
        assert model is not None  # noqa: S101 (``_begin`` saw to it)
        reply = None
        try:
            with uncounted(), anyio.move_on_after(self._seconds):
                reply = await complete(model, _fitting(question.request, model), stream=True)
        except StreamError as error:
            spent(model.name, error.response.message.usage)
            raise
        if reply is None:
            raise TimedOutError(f"the summary took longer than {self._seconds:g} seconds", phase="idle")
        spent(reply.model, reply.response.message.usage)
        return summary_of(reply.response.message)


def _fitting(request: Request, model: LanguageModel) -> Request:
    """Remove the temperature for reasoning models: providers refuse it there."""
    if not model.capabilities.reasoning:
        return request
    return request.replace(settings=structs.replace(request.settings, temperature=None))


# --- compacting -------------------------------------------------------------------------------------------------------


_TOOLS: Final = (READER, SEARCHER)
_LATEST: Final = 32
"""How many of the latest messages are checked for a cold cache."""
HOW_TO_SET: Final = "Compactor(window=…), or model(…, capabilities=Capabilities(window=…)), sets it"
"""The end of the warning that a window is assumed; the command line names its option in its place."""
_ANY_WINDOW: Final = 2_048
"""A prompt of so few tokens fits any window, with its answer: the smallest usual window is 4,096 (Ollama's default)."""


class Compactor(Middleware):
    """Keeps prompts within the model's context window: ``Agent(model, middleware=[Compactor()])``.

    One object may serve many runs and agents. Subagents need one too. Put it first, or behind ``Tracing``.
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
        """Configure compaction.

        ``stages`` are those of ``palaver.context``, in order. ``model`` writes summaries, by default the agent's own
        model; each summary may take ``seconds``. ``window`` is the context window of the agent's model in tokens, for
        models that the catalogue does not know. ``keep_last`` are tags: the last message with each tag is not changed.
        ``counter`` counts tokens (``palaver.tokens``: ``Tiktoken``, ``HuggingFace``); by default they are estimated.
        Raises ``MessageError`` for a window below 1.
        """
        check_arguments("Compactor", Compactor.__init__, locals())
        if window is not None and window < 1:
            raise MessageError(f"window: {window}: a window has at least one token")
        self._stages, self._window, self._keep_last = tuple(stages), window, frozenset(keep_last)
        self._counter = counter
        self._assumed: set[str] = set()
        self.summariser = Summariser(model, seconds=seconds)

    @property
    def compacts(self) -> bool:
        """Always true."""
        return True

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tools ``read_result`` and ``search_history``."""
        return _TOOLS

    async def wrap_model_call(self, prompt: Prompt, context: RunContext, call: CallModel) -> Reply:
        """Compact the prompt where it is due, call the model, and compact again if the prompt was too long."""
        known = self._known(context)
        measured = known.measure(prompt, context)
        if measured.tokens > _ANY_WINDOW:
            self._check_window(prompt, measured, context)
        plan = self._plan(prompt, context, known, measured)
        if plan is not None:
            prompt, measured = await self._compacted(prompt, context, known, plan)
        try:
            try:
                reply = await call(prompt)
            except ContextOverflowError as error:
                reply, measured = await self._call_shorter(prompt, measured, error, context, call)
        except StreamError as error:
            if isinstance(error.__cause__, ContextOverflowError):
                known.overflowed(measured)
            raise
        known.answered(reply.response.message)
        if cut_by_window(reply.response.message):
            known.overflowed(measured)
        known.ledger.learn(measured, reply.response.message)
        return reply

    async def _call_shorter(
        self,
        prompt: Prompt,
        measured: Measure,
        error: ContextOverflowError,
        context: RunContext,
        call: CallModel,
    ) -> tuple[Reply, Measure]:
        """Compact a prompt that was refused to half, and send it once more; again and again if no window is known."""
        known = self._known(context)
        while True:
            known.overflowed(measured)
            plan = self._plan(prompt, context, known, measured, forced=True)
            if plan is None:
                raise error
            again, smaller = await self._compacted(prompt, context, known, plan, goal=known.goal(prompt, measured))
            if again is prompt:
                self._stuck(plan, context)
                raise error
            try:
                return await call(again), smaller
            except ContextOverflowError as refused:
                if known.knows_windows or smaller.tokens >= measured.tokens:
                    known.overflowed(smaller)
                    raise
                prompt, measured, error = again, smaller, refused

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:
        """Cut a result that would take more than its share of the free window."""
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

    def _check_window(self, prompt: Prompt, measured: Measure, context: RunContext) -> None:
        """Warn once for each model that its window is assumed, and name the setting.

        A medium of unknown size does not make a prompt long.
        """
        model = context.language_model
        if model is None or model.name in self._assumed or model.capabilities.window is not None:
            return
        if self._window is not None or context.limits.context_tokens is not None:
            return
        if measured.tokens - guessed_tokens(part for each in prompt.messages for part in each.content) <= _ANY_WINDOW:
            return
        self._assumed.add(model.name)
        text = f"the window of {model.name} is not known; {WINDOW:,} tokens are assumed: {HOW_TO_SET}"
        context.emit(Warned(agent=context.agent, run=context.run, text=text))

    def _stuck(self, plan: Plan, context: RunContext) -> None:
        """Name the message that fills the window and cannot be shortened, and how to cut it."""
        for place in oversized(plan):
            message = plan.items[place].message
            name = f"the result of call {message.tool_call_id}" if isinstance(message, ToolMessage) else message.role
            text = (
                f"{name} (message {message.id}, {plan.scaled(plan.items[place].tokens):,} tokens) fills the window, "
                "and the model has not seen it: compact(thread, cut_results=True) cuts it, and keeps the whole"
            )
            context.emit(Warned(agent=context.agent, run=context.run, text=text))

    def _known(self, context: RunContext) -> TokenBudget:
        known: TokenBudget | None = context.carried.get(self)
        if known is None:
            known = TokenBudget(context.language_model, window=self._window, counter=self._counter)
            context.carried[self] = known
        return known

    def _plan(
        self, prompt: Prompt, context: RunContext, known: TokenBudget, measured: Measure, *, forced: bool = False
    ) -> Plan | None:
        """Return the plan of a due compaction; ``None`` while no stage is due."""
        room = known.capacity(prompt, context)
        now = now_ms()
        if not forced:
            latest = tuple([Item(message, 0) for message in prompt.messages[-_LATEST:]])
            weighed = Plan(items=latest, sum=measured.tokens, capacity=room, now=now)
            if not due(weighed, self._stages):
                return None
        if not _same(prompt.messages, context.messages()):
            text = f"{self.name}: nothing is compacted behind middleware that changes the messages: put it before"
            context.emit(Warned(agent=context.agent, run=context.run, text=text))
            return None
        known.ledger.carry(measured)
        plan = known.ledger.plan(prompt.messages, measured, capacity=room, now=now, keep_last=self._keep_last)
        return plan if forced else self._widened(plan, prompt, context, known)

    def _widened(self, plan: Plan, prompt: Prompt, context: RunContext, known: TokenBudget) -> Plan:
        """Return the plan for the assumed window that what the user wrote fits into."""
        before = known.assumed
        while known.is_assumed(prompt, context) and cuts_prompt(plan):
            known.widen()
            plan = structs.replace(plan, capacity=known.capacity(prompt, context))
        if known.assumed != before:
            text = (
                f"a message of the user does not fit a window of {before:,} tokens, which is only assumed: it is sent "
                f"whole, and {known.assumed:,} are assumed from now on"
            )
            context.emit(Warned(agent=context.agent, run=context.run, text=text))
        return plan

    async def _compacted(
        self, prompt: Prompt, context: RunContext, known: TokenBudget, plan: Plan, *, goal: int | None = None
    ) -> tuple[Prompt, Measure]:
        """Return the prompt after compaction; the same prompt if nothing changed."""
        model = context.language_model
        found = await self.summariser.drive(
            compaction_flow(plan, self._stages, goal=goal), model, spent=partial(_spend, context)
        )
        made, path = found.plan, context.path()
        if made.changes:
            made = made.with_measured(known.ledger.measure(made.messages, fixed=known.fixed).tokens)
        change = plan_rewrite(path, prompt.messages, made, learned=known.ledger.learned)
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
    """Return how many calls the answer of this call has; ``None`` while the answer is incomplete."""
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


# --- compact thread ---------------------------------------------------------------------------------------------------


class Compaction(Struct, frozen=True, kw_only=True):
    """The result of ``compact``; sizes are in tokens. ``original_branch`` has the original conversation.

    It is ``None`` when nothing was written: nothing changed, or it was a trial. ``usage`` is that of the summaries.
    """

    before: int
    after: int
    goal: int
    capacity: int
    changes: tuple[Change, ...] = ()
    failures: tuple[Failure, ...] = ()
    usage: Usage = Usage()
    original_branch: str | None = None


async def compact(
    thread: AnyThread,
    model: LanguageModel | None = None,
    *,
    branch: str = MAIN,
    to: int | None = None,
    stages: Sequence[Stage] = DEFAULT,
    system: Sequence[SystemMessage | DeveloperMessage] = (),
    tools: Sequence[AnyTool] = (),
    window: int | None = None,
    keep_last: Iterable[str] = (),
    summariser: Summariser | None = None,
    summaries: bool = True,
    trial: bool = False,
    cut_results: bool = False,
    counter: Counter | None = None,
    log: LogSink | None = None,
) -> Compaction:
    """Compact the conversation in ``thread`` now, to ``to`` tokens: half of its size by default.

    ``stages`` run in order until it is that small. ``keep_last`` are tags: the last message with each of them is kept.
    The conversation shall fit the window of ``model`` (or ``window`` tokens). ``model`` also writes summaries, unless
    ``summariser`` has a model of its own; with ``summaries=False`` no model is asked. ``system`` and ``tools`` are
    sent with the conversation and count too. ``counter`` counts tokens in place of the estimate. ``branch`` is that of
    a ``Thread``; a ``StoredThread`` has its own. A ``trial`` writes nothing. ``cut_results`` first cuts large results,
    also those that the model has not seen. ``log`` is the log of the agent's runs, and gets the entries that are
    written. Raises ``MessageError`` for sizes below 1 and for arguments of a wrong type, and ``StoreError``.
    """
    check_arguments("compact", compact, locals())
    check_log(log)
    for name, size in (("to", to), ("window", window)):
        if size is not None and size < 1:
            raise MessageError(f"{name}: {size}: expected a number of tokens, 1 or more")
    on = thread.branch if isinstance(thread, StoredThread) else branch
    path = thread.path() if isinstance(thread, StoredThread) else thread.path(on)
    cut = _closed(path)
    head = tuple(path)[:cut]
    messages = ReplayView()(head)
    model_name = None if model is None else model.name
    ledger = Ledger(model_name, rates=None if model_name is None else rates_of(model_name), counter=counter)
    fixed = ledger.fixed(system, tools, getattr(model, "settings", Settings()).output)
    every = ReplayView()(path)
    ledger.recall(path, every, fixed=fixed)
    measured = ledger.measure(every, fixed=fixed, anchor=ledger.anchored(path, every))
    ledger.carry(measured)
    whole = ledger.plan(messages, measured, capacity=_capacity(model, window), now=now_ms(), keep_last=keep_last)
    goal = max(whole.tokens // 2, 1) if to is None else to
    asking = compaction_flow(whole, (*([_CUT] if cut_results else []), *stages), goal=goal)
    spent = _UsageSum()
    if summaries:
        found = await (summariser or Summariser()).drive(asking, model, spent=spent)
    else:
        found = _unasked(without_model(asking, _NOBODY))
    change = plan_rewrite(head, messages, found.plan)
    plan, after, original_branch = found.plan, measured, None
    if change is not None:
        after = ledger.measure((*plan.messages, *every[len(messages) :]), fixed=fixed)
        plan = plan.with_measured(after.tokens)
    if change is not None and not trial:
        stays = [entry.message for entry in path[cut:]]
        messages = (*change.messages[:-1], *stays, record(path, plan, learned=ledger.learned))
        onto = path[change.kept - 1].id if change.kept else None
        original_branch = await _rebased(thread, on, onto, messages, log)
    return Compaction(
        before=measured.tokens,
        after=after.tokens,
        goal=goal,
        capacity=whole.capacity,
        changes=plan.changes,
        failures=found.failures,
        usage=spent.usage,
        original_branch=original_branch,
    )


async def undo(thread: AnyThread, *, branch: str = MAIN, log: LogSink | None = None) -> str | None:
    """Revert the last compaction of ``thread``. Return the branch that has the compacted conversation.

    Returns ``None`` when there is no compaction. ``branch`` is that of a ``Thread``; a ``StoredThread`` has its own.
    ``log`` is that of ``compact``. Raises ``StoreError``.
    """
    check_arguments("undo", undo, locals())
    check_log(log)
    on = thread.branch if isinstance(thread, StoredThread) else branch
    path = thread.path() if isinstance(thread, StoredThread) else thread.path(on)
    found = plan_undo(path)
    if found is None:
        return None
    return await _rebased(thread, on, found.leaf, found.messages, log)


_LOGGER: Final = logging.getLogger("palaver.agent")
_CUT = Stage(shorten_stage.CUT, shorten_stage.cut_results, 1.0)
_NOBODY = SummaryError("no model may be asked")


class _UsageSum:
    """Sums up usage."""

    def __init__(self) -> None:
        self.usage = Usage()

    def __call__(self, model: str, usage: Usage | None) -> None:  # noqa: ARG002 (the signature of ``Spent``)
        if usage is not None:
            self.usage += usage


def _closed(path: Sequence[Entry]) -> int:
    """How many entries stand before an answer with open calls."""
    opened = open_answer(path)
    if opened is None:
        return len(path)
    return next(place for place in range(len(path) - 1, -1, -1) if path[place].message is opened.message)


def _capacity(model: LanguageModel | None, window: int | None) -> int:
    """Tokens that a prompt for a model may have."""
    can = Capabilities() if model is None else model.capabilities
    settings: Settings = getattr(model, "settings", Settings())
    return capacity(window or can.window, can.max_output, settings)


def _unasked(found: Compacted) -> Compacted:
    """Remove the failures that only say that no model may be asked."""
    return structs.replace(found, failures=tuple([each for each in found.failures if each.error is not _NOBODY]))


async def _rebased(
    thread: AnyThread, branch: str, onto: str | None, messages: Sequence[Message], log: LogSink | None
) -> str:
    """Continue a branch behind another entry, also in the log. Return the branch that has the original."""
    if isinstance(thread, StoredThread):
        keep = before_name(thread.tree, branch)
        entries = await to_thread(thread.rebase, messages, onto=onto, keep=keep)
    else:
        keep = before_name(thread, branch)
        entries = thread.rebase(messages, onto=onto, keep=keep, branch=branch)
    journal = Journal(thread, branch, log=log)
    await journal.rebased(entries, keep)
    for failure in journal.failures:
        _LOGGER.warning("the log did not take a compaction: %s", failure)
    return keep
