"""Middleware: hooks around model calls and tool calls, and at the start and end of steps and runs.

Rules (docs/spec/deepagents-swift.md#7.1, #7.2, #8; DAS-22, KAI-19):

- ``before_agent`` and ``before_model`` run in the order of the list, ``after_model`` and ``after_agent`` in reverse;
  the first wrapper in the list is the outermost. ``after_agent`` runs whatever the outcome of the run.
- A hook returns ``None`` or a ``Step``: messages to inject, and where to continue. The first jump that is not ``None``
  counts.
- A wrapper may change its request, call the next one several times, or not at all. ``Blocked`` stops the run from
  anywhere but a tool's wrapper. With ``withholds`` an answer is shown only after the wrappers have passed it.
- ``rule`` judges a call before the policy: the first ``deny`` wins, and ``ask`` overrides ``allow``.
- A hook, a policy, a function of instructions and a wrapper's own code have ``HOOK_SECONDS`` each (ASK-30). The time of
  the model or tool that they call does not count. A hook that takes longer or raises fails the run; the thread that
  remains is valid.
- Only hooks that a class overrides are called. ``tools`` are offered with the agent's own.

Stability: experimental.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import inf
from typing import Any, Final, Literal, TypeAlias, TypeVar

import anyio
from msgspec import Struct, field, structs

from palaver.context.marks import STEP, BridgeMarks, CachePlan, StableMarks, turn_marks
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message
from palaver.core.parts import ToolCall
from palaver.core.type_checks import check_arguments
from palaver.core.usage import Usage
from palaver.models.language_model import LanguageModel, Notice, Prompt, Reply
from palaver.store.jsonl.log import LogSink
from palaver.store.store import Store
from palaver.threads.thread import Entry
from palaver.turn.approvals import Decide
from palaver.turn.events import Watch
from palaver.turn.limits import Limits, Spend, Spent
from palaver.turn.run import Run
from palaver.turn.tool import AgentTool, Output, Policy, Rule, Toolbox, ToolContext, as_rule, rule_of
from palaver.wires._engine.cache_marks import no_places

# --- patience ---------------------------------------------------------------------------------------------------------


HOOK_SECONDS: float = 60.0
GRACE: float = 1.0
"""Seconds that all ``after_agent`` hooks have together when a run was cancelled (KAI-21)."""

_bounding: Final[ContextVar[anyio.CancelScope | None]] = ContextVar("palaver.turn.middleware", default=None)
"""The time limit of the hook or wrapper that is running."""

A = TypeVar("A")
R = TypeVar("R")


@contextmanager
def hook_time(what: str, at_most: float = math.inf) -> Generator[None]:
    """Limit the time of the block, to at most ``at_most`` seconds. Raises ``TimeoutError``."""
    with anyio.move_on_after(min(HOOK_SECONDS, at_most)) as scope:
        token = _bounding.set(scope)
        try:
            yield
        finally:
            _bounding.reset(token)
    if scope.cancelled_caught:
        raise _late(what)


@contextmanager
def uncounted() -> Generator[None]:
    """Exclude the time of the block from the hook's limit: what runs in it has a limit of its own."""
    scope = _bounding.get()
    if scope is None:
        yield
        return
    left, scope.deadline = scope.deadline - anyio.current_time(), math.inf
    try:
        yield
    finally:
        scope.deadline = anyio.current_time() + left


async def around(
    wrap: Callable[[A, Callable[[A], Awaitable[R]]], Awaitable[R]], call: Callable[[A], Awaitable[R]], given: A
) -> R:
    """Run a wrapper around a call; only the wrapper's own time is limited. Raises ``TimeoutError``."""
    with anyio.move_on_after(HOOK_SECONDS) as scope:

        async def within(given: A) -> R:
            scope.deadline = math.inf
            try:
                return await call(given)
            finally:
                scope.deadline = anyio.current_time() + HOOK_SECONDS

        token = _bounding.set(scope)
        try:
            return await wrap(given, within)
        finally:
            _bounding.reset(token)
    raise _late("a wrapper of the model call")


def _late(what: str) -> TimeoutError:
    return TimeoutError(f"{what} took longer than {HOOK_SECONDS:g} seconds")


# --- middleware -------------------------------------------------------------------------------------------------------


Jump: TypeAlias = Literal["end", "model", "tools"]
Rewrite: TypeAlias = Callable[[int, Sequence[Message]], Awaitable[Sequence[Message]]]


def _ignored(usage: Mapping[str, Usage], cost: float | None) -> None:
    """Ignore spending."""


def _no_price(model: str, usage: Usage) -> None:
    """Return ``None``: the price is unknown."""


class Step(Struct, frozen=True, kw_only=True):
    """What a hook returns: messages to append, and where to go. ``end`` ends the run, ``model`` calls the model."""

    inject: tuple[Message, ...] = ()
    jump: Jump | None = None
    error: Exception | None = None
    """Ends the run as ``failed`` after the messages are injected."""

    def __post_init__(self) -> None:
        """Refuse values of a wrong type. Raises ``MessageError``, which names the field."""
        check_arguments("Step", Step, structs.asdict(self))


class Blocked(PalaverError):  # noqa: N818 (a guardrail's decision, not an error)
    """Raised by a guardrail to stop a run. ``message`` is the answer that is blocked, if there is one."""

    error_code = "blocked"
    category = "run"

    def __init__(self, reason: str, *, message: AssistantMessage | None = None) -> None:
        """Keep the ``message``. ``reason`` is the text of the error, and the ``reason`` of the run."""
        super().__init__(reason)
        self.reason = reason
        self.message = message


class RunContext(Struct, kw_only=True, weakref=True):
    """The run that middleware belongs to. ``values`` is shared with the tools; everything else is read-only."""

    agent: str
    run: str
    thread: str
    deps: Any
    values: dict[str, Any]
    path: Callable[[], Sequence[Entry]]
    """The conversation so far."""
    emit: Callable[[Any], None]
    """Publishes an ``AgentEvent``."""
    model: str = ""
    """The name of the model that is called."""
    iteration: int = 0
    spent: Spent = Spent()
    message: AssistantMessage | None = None
    """The answer, in ``after_model``."""
    ended: Run | None = None
    """The run, in ``after_agent``."""
    spend: Spend = _ignored
    """Counts usage of models that middleware or tools call themselves."""
    judge: Callable[[ToolCall, AgentTool], Awaitable[Rule]] | None = None
    """The decision of middleware and policy about a call. Subagents use it too."""
    decide: Decide | None = None
    watch: Watch | None = None
    """Receives the events; ``None`` when nobody watches."""
    store: Store | None = None
    """The store of the thread; ``None`` for a thread in memory."""
    log: LogSink | None = None
    """Receives the messages of the run and of its subagents."""
    own: dict[Any, Any] = {}
    """State of middleware for one run, by middleware."""
    carried: dict[Any, Any] = {}
    """State of middleware that later runs of the conversation in this process get too."""
    language_model: LanguageModel | None = None
    """The model that is called."""
    entries: Callable[[], Sequence[Entry]] = tuple
    """All entries of the thread, on all branches, in the order in which they were appended."""
    messages: Callable[[], Sequence[Message]] = tuple
    """The part of the conversation that the model sees."""
    limits: Limits = Limits()
    """The limits of the run."""
    price: Callable[[str, Usage], float | None] = _no_price
    """Returns the cost of an answer in USD; ``None`` where the price is not known."""
    toolbox: Toolbox = Toolbox()
    """The tools of the agent, those of its middleware included."""
    call_tool: CallTool | None = None
    """Runs a tool with all middleware, without asking the policy. Raises what they raise."""
    rewrite: Rewrite | None = None
    """Keeps so many entries of the branch, appends other messages behind them, and returns what the model sees then.
    The original stays on a branch of its own. Raises ``StoreError`` and then changes nothing.
    """


class CallState(Struct):
    """Progress of a call: whether its tool was started, and whether it ended."""

    started: bool = False
    finished: bool = False


class ToolRequest(Struct, frozen=True, kw_only=True):
    """A call that is about to run: the tool, its checked arguments, and its context.

    At ``deadline`` (of the event loop's clock) it is cancelled. ``state`` says whether the tool itself has run,
    whatever the middleware around it reports; copies of a request share it.
    """

    tool: AgentTool
    arguments: Any
    context: ToolContext
    deadline: float = inf
    limit: int | None = None
    """Characters of the result that the model gets, unless middleware has shortened it already."""
    hidden: bool = False
    """Whether a script makes the call and the model never sees the result: then nothing shortens it."""
    state: CallState = field(default_factory=CallState)


CallModel: TypeAlias = Callable[[Prompt], Awaitable[Reply]]
CallTool: TypeAlias = Callable[[ToolRequest], Awaitable[Output]]
WrapModel: TypeAlias = Callable[[Prompt, RunContext, CallModel], Awaitable[Reply]]
WrapTool: TypeAlias = Callable[[ToolRequest, RunContext, CallTool], Awaitable[Output]]
Hook: TypeAlias = Callable[[RunContext], Awaitable[Step | None]]
Judging: TypeAlias = Callable[[ToolCall, AgentTool, RunContext], Awaitable[Rule | None]]


class Middleware:
    """Base class with empty hooks. One object may serve many runs; keep the state of a run in ``RunContext.own``.

    Parameters of the hooks: ``context`` is the run's; ``prompt`` is what the model gets, ``message`` its answer;
    ``request`` is a tool call to run, ``call`` its ``ToolCall``, ``tool`` the tool that it calls; ``notice`` is a retry
    or a fallback; ``run`` is the result. In a hook that wraps, ``call`` runs the next wrapper or the call itself.
    """

    @property
    def name(self) -> str:
        """A name for people."""
        return type(self).__name__

    @property
    def tools(self) -> Sequence[AgentTool]:
        """Tools to offer with the agent's own."""
        return ()

    @property
    def names(self) -> Collection[str]:
        """More tool names that a policy may mention: those of agents that it runs."""
        return ()

    @property
    def instructions(self) -> str:
        """A section of the system prompt."""
        return ""

    @property
    def withholds(self) -> bool:
        """Whether an answer is shown only after the wrappers have passed it."""
        return False

    @property
    def compacts(self) -> bool:
        """Whether it keeps prompts within the model's window, and names what it cannot shorten."""
        return False

    async def rule(self, call: ToolCall, tool: AgentTool, context: RunContext) -> Rule | None:
        """Judge a planned call. ``None``: no opinion."""

    def noticed(self, notice: Notice, context: RunContext) -> None:
        """Called when the model is called again, or another one instead."""

    async def before_agent(self, context: RunContext) -> Step | None:
        """Called at the start of a run, when its input is in the thread."""

    async def before_model(self, context: RunContext) -> Step | None:
        """Called before the model."""

    async def after_model(self, context: RunContext) -> Step | None:
        """Called after the model: ``context.message`` is in the thread, its calls have not run."""

    async def after_agent(self, context: RunContext) -> None:
        """Called at the end of a run, whatever its outcome."""

    async def wrap_model_call(self, prompt: Prompt, context: RunContext, call: CallModel) -> Reply:  # noqa: ARG002 (for those who override)
        """Wrap a model call."""
        return await call(prompt)

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:  # noqa: ARG002 (for those who override)
        """Wrap the run of a tool."""
        return await call(request)


class Chain:
    """The hooks of a list of middleware, each list in the order in which it runs."""

    __slots__ = (
        "after_agent",
        "after_model",
        "all",
        "before_agent",
        "before_model",
        "compacts",
        "noticed",
        "rules",
        "withholds",
        "wrap_model",
        "wrap_tool",
    )

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        """Find the hooks that each class overrides."""
        self.all = tuple(middleware)
        back = self.all[::-1]
        self.before_agent: tuple[Hook, ...] = _overriding(self.all, "before_agent")
        self.before_model: tuple[Hook, ...] = _overriding(self.all, "before_model")
        self.after_model: tuple[Hook, ...] = _overriding(back, "after_model")
        self.after_agent: tuple[Hook, ...] = _overriding(back, "after_agent")
        self.wrap_model: tuple[WrapModel, ...] = _overriding(back, "wrap_model_call")
        self.wrap_tool: tuple[WrapTool, ...] = _overriding(back, "wrap_tool_call")
        self.rules: tuple[Judging, ...] = _overriding(self.all, "rule")
        self.noticed: tuple[Callable[[Notice, RunContext], None], ...] = _overriding(self.all, "noticed")
        self.withholds = any(each.withholds for each in self.all)
        self.compacts = any(each.compacts for each in self.all)

    def around_model(self, call: CallModel, context: RunContext) -> CallModel:
        """Return a model call with all wrappers around it."""
        for wrap in self.wrap_model:
            call = partial(_around_model, wrap, context, call)
        return call

    def around_tool(self, call: CallTool, context: RunContext) -> CallTool:
        """Return the run of a tool with all wrappers around it."""
        for wrap in self.wrap_tool:
            call = partial(_around_tool, wrap, context, call)
        return call

    async def judge(self, call: ToolCall, tool: AgentTool, context: RunContext, policy: Policy) -> Rule:
        """Return the decision of all rules and the policy about a call: ``deny`` wins, then ``ask``."""
        ask: Rule | None = None
        for rule in self.rules:
            found = await rule(call, tool, context)
            if found is not None and found.judgement == "deny":
                return found
            if found is not None and found.judgement == "ask":
                ask = ask or found
        judged = rule_of(policy, call, tool.name, reads=tool.effect == "read")
        judged = judged if isinstance(judged, Rule) else as_rule(await judged)
        return ask if ask is not None and judged.judgement == "allow" else judged


async def run_hooks(hooks: Sequence[Hook], context: RunContext) -> Step:
    """Run hooks in order, each within its time limit, and merge their steps.

    The first jump counts; an error ends the row. Raises what a hook raises, and ``TimeoutError``.
    """
    inject: list[Message] = []
    where: Jump | None = None
    for hook in hooks:
        with hook_time("a hook"):
            wanted = await hook(context)
        if wanted is not None:
            inject += wanted.inject
            where = wanted.jump if where is None else where
            if wanted.error is not None:
                return Step(inject=tuple(inject), error=wanted.error)
    return Step(inject=tuple(inject), jump=where)


async def _around_model(wrap: WrapModel, context: RunContext, call: CallModel, prompt: Prompt) -> Reply:
    return await around(lambda given, within: wrap(given, context, within), call, prompt)


async def _around_tool(wrap: WrapTool, context: RunContext, call: CallTool, request: ToolRequest) -> Output:
    return await wrap(request, context, call)


def _overriding(middleware: Sequence[Middleware], name: str) -> tuple[Any, ...]:
    base = getattr(Middleware, name)
    return tuple([getattr(each, name) for each in middleware if getattr(type(each), name, None) is not base])


# --- caching ----------------------------------------------------------------------------------------------------------


__all__ = ["PromptCache", "Where"]

Where = Literal["stable", "turns"]


class PromptCache(Middleware):
    """Puts cache marks on prompts. ``step`` is the number of tokens between two permanent marks.

    ``marks`` is ``"stable"`` (marks that stay in place), ``"turns"`` (marks that move with every turn) or ``None``
    (no marks).
    """

    def __init__(self, marks: Where | None = "stable", *, step: int = STEP) -> None:
        """Store the options. Raises ``MessageError`` for a ``step`` below 1."""
        check_arguments("PromptCache", PromptCache.__init__, locals())
        StableMarks(step=step)
        self._marks, self._step = marks, step

    async def wrap_model_call(self, prompt: Prompt, context: RunContext, call: CallModel) -> Reply:
        """Add a cache plan to a prompt that has none."""
        if prompt.cache is not None:
            return await call(prompt)
        plan: CachePlan | None = context.own.get(self)
        if plan is None:
            plan = context.own[self] = self._plan(context.thread)
        return await call(prompt.replace(cache=plan))

    def _plan(self, thread: str) -> CachePlan:
        if self._marks == "stable":
            return CachePlan(places=StableMarks(step=self._step), bridges=BridgeMarks(), key=thread)
        places = no_places if self._marks is None else turn_marks
        return CachePlan(places=places, head=False, automatic=False, key=thread)
