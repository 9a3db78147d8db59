"""Middleware: what stands around the calls of a model and of tools, and at the turns of a run.

Rules (docs/spec/deepagents-swift.md#7.1, #7.2, #8; DAS-22, KAI-19):

- ``before_agent`` and ``before_model`` run in the order of the list, ``after_model`` and ``after_agent`` in reverse;
  the first wrapper in the list is the outermost. ``after_agent`` runs however the run ends.
- A hook gives ``None`` or a ``Step``: messages to inject, and where to go; the first jump that is not ``None``
  counts.
- A wrapper may change what it passes on, call it several times, or not at all. ``Blocked`` stops the run, from
  anywhere but a tool's wrapper. With ``withholds`` nobody is shown an answer before the wrappers have passed it.
- ``rule`` judges a call before the policy: the first ``deny`` holds, and ``ask`` makes a question of what is allowed.
- A hook, a policy, a function of instructions and the own part of a wrapper have ``HOOK_SECONDS`` each (ASK-30). What
  they wait for is not counted. What takes longer, or raises, fails the run, and the thread that remains is whole.
- Only what a class overrides is called. ``tools`` are offered with the agent's own.

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
"""What bounds the hook or wrapper that runs."""

A = TypeVar("A")
R = TypeVar("R")


@contextmanager
def hook_time(what: str, at_most: float = math.inf) -> Generator[None]:
    """Bound what stands inside, also to ``at_most`` seconds. Raises ``TimeoutError``."""
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
    """What a hook or wrapper waits for inside is not counted: it has a limit of its own."""
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
    """Run a wrapper around a call, whose own time is not counted. Raises ``TimeoutError``."""
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
    raise _late("a wrapper of the model")


def _late(what: str) -> TimeoutError:
    return TimeoutError(f"{what} took longer than {HOOK_SECONDS:g} seconds")


# --- middleware -------------------------------------------------------------------------------------------------------


Jump: TypeAlias = Literal["end", "model", "tools"]
Rewrite: TypeAlias = Callable[[int, Sequence[Message]], Awaitable[Sequence[Message]]]


def _unheard(usage: Mapping[str, Usage], cost: float | None) -> None:
    """Nobody counts."""


def _unknown(model: str, usage: Usage) -> None:
    """Nobody knows a price."""


class Step(Struct, frozen=True, kw_only=True):
    """What a hook wants: messages to join, and where to go. ``end`` ends the run, ``model`` asks the model again."""

    inject: tuple[Message, ...] = ()
    jump: Jump | None = None
    error: Exception | None = None
    """Ends the run as ``failed``, with the messages that are injected; for a hook that has something to say first."""

    def __post_init__(self) -> None:
        """Refuse values of another type. Raises ``MessageError``, which names the field."""
        check_arguments("Step", Step, structs.asdict(self))


class Blocked(PalaverError):  # noqa: N818 (it is raised as a word, not as a fault)
    """Stops a run: raised by a guardrail. ``reply`` is the answer that is blocked, where there is one."""

    error_code = "blocked"
    category = "run"

    def __init__(self, reason: str, *, message: AssistantMessage | None = None) -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason
        self.message = message


class RunContext(Struct, kw_only=True, weakref=True):
    """What middleware may know of a run. ``values`` is shared with the tools; everything else is for reading."""

    agent: str
    run: str
    thread: str
    deps: Any
    values: dict[str, Any]
    path: Callable[[], Sequence[Entry]]
    """The conversation so far."""
    emit: Callable[[Any], None]
    """Show an ``AgentEvent`` to whoever watches."""
    model: str = ""
    """The name of the model that is asked."""
    iteration: int = 0
    spent: Spent = Spent()
    message: AssistantMessage | None = None
    """The answer that is looked at, in ``after_model``."""
    ended: Run | None = None
    """The run, in ``after_agent``."""
    spend: Spend = _unheard
    """Counts what was used of a model that the loop did not ask."""
    judge: Callable[[ToolCall, AgentTool], Awaitable[Rule]] | None = None
    """What middleware and policy of this run say of a call: the gate, also of its sub-agents (DAS-25)."""
    decide: Decide | None = None
    watch: Watch | None = None
    """Where events go; ``None`` when nobody watches."""
    store: Store | None = None
    """Where the thread is kept; ``None`` for one in memory."""
    log: LogSink | None = None
    """What takes the messages of the run, and those of its sub-agents."""
    own: dict[Any, Any] = {}
    """What middleware keeps for itself as long as the run lasts, by itself."""
    carried: dict[Any, Any] = {}
    """The same, also for the runs that go on behind this one in this process."""
    language_model: LanguageModel | None = None
    """The model that is asked."""
    entries: Callable[[], Sequence[Entry]] = tuple
    """All entries of the thread, on all branches, in the order in which they joined."""
    messages: Callable[[], Sequence[Message]] = tuple
    """What of the conversation the model is sent."""
    limits: Limits = Limits()
    """How far the run may go."""
    price: Callable[[str, Usage], float | None] = _unknown
    """What an answer of a model cost, in USD; ``None`` where the price is not known."""
    toolbox: Toolbox = Toolbox()
    """The tools of the agent, its middleware's among them."""
    call_tool: CallTool | None = None
    """Runs a tool with all middleware around it, without a judgement of the policy. Raises what they raise."""
    rewrite: Rewrite | None = None
    """Lets the branch go on behind so many entries of its path with other messages, and gives what the model is sent
    then. What the branch was stays, as one of its own. Raises ``StoreError``; then nothing was changed."""


class CallState(Struct):
    """How far a call has come: whether its tool was started, and whether it came to its end."""

    started: bool = False
    finished: bool = False


class ToolRequest(Struct, frozen=True, kw_only=True):
    """A call that is about to run: the tool, its checked arguments, and its context.

    At ``deadline`` (of the event loop's clock) its time is over, and it is cancelled. ``state`` says whether the tool
    itself has run, whatever the middleware around it says; copies of a request share it.
    """

    tool: AgentTool
    arguments: Any
    context: ToolContext
    deadline: float = inf
    limit: int | None = None
    """Characters at which the loop cuts the text of the result, unless middleware has shortened it."""
    hidden: bool = False
    """Whether a script makes the call, and no model is sent the result: then nothing shortens it."""
    state: CallState = field(default_factory=CallState)


CallModel: TypeAlias = Callable[[Prompt], Awaitable[Reply]]
CallTool: TypeAlias = Callable[[ToolRequest], Awaitable[Output]]
WrapModel: TypeAlias = Callable[[Prompt, RunContext, CallModel], Awaitable[Reply]]
WrapTool: TypeAlias = Callable[[ToolRequest, RunContext, CallTool], Awaitable[Output]]
Hook: TypeAlias = Callable[[RunContext], Awaitable[Step | None]]
Judging: TypeAlias = Callable[[ToolCall, AgentTool, RunContext], Awaitable[Rule | None]]


class Middleware:
    """Does nothing: override what you need. One object may serve many runs; keep what is a run's in ``values``.

    What hooks are given: ``context`` is the run's; ``prompt`` what the model is asked, ``message`` its answer;
    ``request`` a call of a tool, ``call`` its ``ToolCall``; ``notice`` a retry or a fallback; ``run`` the result.
    In a hook that wraps, ``call`` goes on with what is behind it.
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
        """Names of tools besides, of which a policy may speak: those of agents that it runs."""
        return ()

    @property
    def instructions(self) -> str:
        """A section of the system prompt."""
        return ""

    @property
    def withholds(self) -> bool:
        """Whether an answer is shown only when the wrappers have passed it."""
        return False

    @property
    def compacts(self) -> bool:
        """Whether it keeps prompts within the window of the model, and names what it cannot shorten."""
        return False

    async def rule(self, call: ToolCall, tool: AgentTool, context: RunContext) -> Rule | None:
        """What it says of a call that is planned; ``None``: nothing."""

    def noticed(self, notice: Notice, context: RunContext) -> None:
        """When a model is asked again, or another one instead."""

    async def before_agent(self, context: RunContext) -> Step | None:
        """When a run begins, its input is in the thread."""

    async def before_model(self, context: RunContext) -> Step | None:
        """Before the model is asked."""

    async def after_model(self, context: RunContext) -> Step | None:
        """After it answered: ``context.message`` is in the thread, its calls have not run."""

    async def after_agent(self, context: RunContext) -> None:
        """When a run is over, however it ended."""

    async def wrap_model_call(self, prompt: Prompt, context: RunContext, call: CallModel) -> Reply:  # noqa: ARG002 (for those who override)
        """Stand around the call of the model."""
        return await call(prompt)

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:  # noqa: ARG002 (for those who override)
        """Stand around the run of a tool."""
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
        """Find what each overrides."""
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
        """A call of the model with all wrappers around it."""
        for wrap in self.wrap_model:
            call = partial(_around_model, wrap, context, call)
        return call

    def around_tool(self, call: CallTool, context: RunContext) -> CallTool:
        """A run of a tool with all wrappers around it."""
        for wrap in self.wrap_tool:
            call = partial(_around_tool, wrap, context, call)
        return call

    async def judge(self, call: ToolCall, tool: AgentTool, context: RunContext, policy: Policy) -> Rule:
        """What all of them and the policy say of a call: ``deny`` wins, then ``ask``."""
        asked: Rule | None = None
        for rule in self.rules:
            said = await rule(call, tool, context)
            if said is not None and said.judgement == "deny":
                return said
            if said is not None and said.judgement == "ask":
                asked = asked or said
        judged = rule_of(policy, call, tool.name, reads=tool.effect == "read")
        judged = judged if isinstance(judged, Rule) else as_rule(await judged)
        return asked if asked is not None and judged.judgement == "allow" else judged


async def run_hooks(hooks: Sequence[Hook], context: RunContext) -> Step:
    """Run hooks in order, each within its time; join what they want.

    The first jump counts, and the first error ends the row. Raises what a hook raises, and ``TimeoutError``.
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
    """Puts cache marks on what a model is asked. ``step``: so many tokens lie between two marks that stay."""

    def __init__(self, marks: Where | None = "stable", *, step: int = STEP) -> None:
        """Keep the choice. Raises ``MessageError`` for a ``step`` below 1."""
        check_arguments("PromptCache", PromptCache.__init__, locals())
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
            return CachePlan(places=StableMarks(step=self._step), bridges=BridgeMarks(), key=thread)
        places = no_places if self._marks is None else turn_marks
        return CachePlan(places=places, head=False, automatic=False, key=thread)
