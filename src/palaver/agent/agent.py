"""An agent: a model, what it is told, what it may call, and how far it may go.

Rules:

- An agent is a description and holds no conversation: it may run any number of times, and many times at once.
- ``run`` carries a task to its end and gives a ``Run``; it raises nothing but cancellation. ``start`` does the same
  while its events are read; ``run_sync`` is ``run`` for programs without an event loop. Without a prompt, both go on
  where a thread was left: calls that wait are decided by ``decisions`` or ``decide``, an unanswered user is answered.
- ``thread`` is a ``Thread``, or a ``StoredThread`` that keeps every message as it comes; without one the run begins
  its own. ``previous`` goes on behind an earlier run, which does not change; ``branch`` names a branch of a ``Thread``.
- A new prompt closes what was left open: calls without a result are answered as not run, or as unknown.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, Unpack, cast

import anyio

from palaver.agent import notes
from palaver.agent.approvals import Decide, Decision, Recorded, checked_choices, checked_decisions
from palaver.agent.calls import PlannedCall, result
from palaver.agent.cut_results import READING
from palaver.agent.driver import Driver
from palaver.agent.functions import function_tool
from palaver.agent.given import check_fields, check_kinds, check_log, check_no_loop, check_places, check_run
from palaver.agent.journal import AnyThread, Journal
from palaver.agent.limits import Limits
from palaver.agent.middleware import Chain, Middleware, RunContext
from palaver.agent.model_calls import Carry
from palaver.agent.observing import Observer, Observing
from palaver.agent.permission import Policy, check_policy
from palaver.agent.protocol import Begun, Resumed
from palaver.agent.resuming import LeftOpen, last_answer, left_open
from palaver.agent.run import Run, own
from palaver.agent.running import Running
from palaver.agent.structured import Structured
from palaver.agent.tool import AgentTool
from palaver.agent.tool_names import Toolbox, check_names
from palaver.core.errors import MessageError, PalaverError
from palaver.core.factories import system
from palaver.core.jsontext import is_json
from palaver.core.messages import (
    MESSAGE_CLASSES,
    AssistantMessage,
    DeveloperMessage,
    Message,
    SystemMessage,
    UserMessage,
)
from palaver.core.parts import AnyPart, MalformedToolCall, ToolCall, UserPart
from palaver.core.request import Settings
from palaver.core.tools import AnyTool, ProviderTool
from palaver.models.catalogue import prices_of
from palaver.models.cost import Prices, cost
from palaver.store.stored import StoredThread
from palaver.threads.ids import uuid7
from palaver.threads.thread import MAIN, Thread

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from palaver.agent.watching import Watch
    from palaver.core.usage import Usage
    from palaver.models.language_model import LanguageModel
    from palaver.store.jsonl.log import LogSink

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

Instructions: TypeAlias = "str | SystemMessage | DeveloperMessage | Callable[[RunContext], str | Awaitable[str]]"
Input: TypeAlias = "str | UserPart | Message | Sequence[str | UserPart] | Sequence[Message] | None"
RESULT_LIMIT = 6000
"""Characters that the model is sent of a result, where neither agent nor tool says otherwise (DAS-24)."""


class AgentFields(TypedDict, total=False):
    """What of an agent can be changed in a copy; the keywords of ``Agent``."""

    model: LanguageModel
    name: str
    instructions: Instructions
    tools: Sequence[AgentTool | ProviderTool | Callable[..., Any]]
    policy: Policy
    decide: Decide | None
    middleware: Sequence[Middleware]
    limits: Limits
    output: Any
    settings: Settings
    provider: Mapping[str, Mapping[str, Any]] | None
    result_limit: int | None
    invalid_calls: Literal["answer", "note"]
    polling: Sequence[str]
    observers: Sequence[Observer]
    stream: bool
    eager: bool
    log: LogSink | None
    prices: Callable[[str, Usage], float | None] | None


class Agent(Generic[T]):
    """A model with instructions, tools and limits. Changing one is a copy: ``agent.replace(limits=…)``."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        name: str = "agent",
        instructions: Instructions = "",
        tools: Sequence[AgentTool | ProviderTool | Callable[..., Any]] = (),
        policy: Policy = "allow",
        decide: Decide | None = None,
        middleware: Sequence[Middleware] = (),
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        output: type[T] | UnionType | Mapping[str, Any] | None = None,
        settings: Settings = Settings(),  # noqa: B008 (frozen)
        provider: Mapping[str, Mapping[str, Any]] | None = None,
        result_limit: int | None = RESULT_LIMIT,
        invalid_calls: Literal["answer", "note"] = "answer",
        polling: Sequence[str] = (),
        observers: Sequence[Observer] = (),
        stream: bool = True,
        eager: bool = False,
        log: LogSink | None = None,
        prices: Callable[[str, Usage], float | None] | None = None,
    ) -> None:
        """Describe an agent.

        ``policy`` says which tools are allowed, asked for or denied; a table must name tools that are there, and what
        it does not name is asked for, unless it only reads. ``decide`` decides what is asked for while a run goes on.
        ``output`` is the form of the answer: a type, or a JSON Schema. ``invalid_calls``: a call that cannot be run is
        answered with an error, or becomes a note that leaves no call in the thread (CBF-18). ``polling`` names tools
        that may be called again and again with the same arguments. ``observers`` are told every event of every run
        (``palaver.agent.observing``). With ``eager`` tools that read begin while the answer that calls them is still
        streaming (``palaver.agent.eager``). ``prices`` gives what an answer of a model cost, in USD; by default the
        catalogue does. Raises ``MessageError`` for tools that cannot stand together.
        """
        self._given = {key: value for key, value in locals().items() if key != "self"}
        check_kinds(model, tools, middleware)
        check_fields(self._given)
        check_log(log)
        self.model, self.name, self.decide, self.limits = model, name, decide, limits
        self.policy: Policy = policy
        self.instructions = instructions
        self.provider: Mapping[str, Mapping[str, Any]] = provider or {}
        self.result_limit, self.polling, self.stream, self.log = result_limit, tuple(polling), stream, log
        self.eager, self.observers = eager, tuple(observers)
        self._invalid_calls, self._prices = invalid_calls, prices
        self._known_prices: dict[str, Prices | None] = {}
        self.chain = Chain(middleware)
        own = [each for each in tools if not isinstance(each, ProviderTool)]
        offered = [*own, *(tool for each in self.chain.all for tool in each.tools)]
        self.toolbox = Toolbox([each if isinstance(each, AgentTool) else function_tool(each) for each in offered])
        self.definitions: tuple[AnyTool, ...] = (
            *self.toolbox.definitions,
            *(each for each in tools if isinstance(each, ProviderTool)),
        )
        """What the model is offered: the tools that run here, then those that a provider runs."""
        reading = {id(each.definition) for each in self.toolbox if each.scope == READING}
        self.first_definitions = tuple([each for each in self.definitions if id(each) not in reading])
        """The same as long as nothing was cut: without the tools that read what was."""
        check_policy(policy, {*self.toolbox.names, *(name for each in self.chain.all for name in each.names)})
        check_names("polling", polling, self.toolbox.names, "tool")
        self._structured = None if output is None else Structured(output, model.capabilities)
        self.settings = settings if self._structured is None else self._structured.asked(settings)
        self.system = self._fixed_system()

    def replace(self, **changes: Unpack[AgentFields]) -> Agent[Any]:
        """Give an edited copy. Raises ``TypeError`` for a field that an agent does not have."""
        given: dict[str, Any] = {**self._given, **changes}
        return Agent(**given)

    def __repr__(self) -> str:
        """Show name, model and tools."""
        return f"Agent({self.name!r}, {self.model.name!r}, tools={[each.name for each in self.toolbox]})"

    # -- what a run asks of it ---------------------------------------------------------------------------------------

    @property
    def reads_output(self) -> bool:
        """Whether answers have a form that was asked for."""
        return self._structured is not None

    def read_output(self, message: AssistantMessage) -> Any:
        """Read an answer in the form that was asked for. Raises ``PalaverError``, whose text is for the model."""
        return message.text if self._structured is None else self._structured.read(message.text)

    def price(self, model: str, usage: Usage) -> float | None:
        """What an answer of a model cost in USD; ``None`` where the price is not known."""
        if self._prices is not None:
            return self._prices(model, usage)
        if model not in self._known_prices:
            self._known_prices[model] = prices_of(model)
        return cost(usage, self._known_prices[model])

    def received(self, message: AssistantMessage) -> AssistantMessage:
        """An answer as it joins the thread.

        Malformed calls that their tool can read are calls; under ``note``, those that cannot be run are malformed.
        """
        content = [self._repaired(part) if isinstance(part, MalformedToolCall) else part for part in message.content]
        if any(new is not old for new, old in zip(content, message.content, strict=True)):
            message = message.replace(content=content)
            if message.finish_reason == "stop":
                message = message.replace(finish_reason="tool_calls")
        if self._invalid_calls == "answer" or not message.tool_calls:
            return message
        content = [self._judged(part) if isinstance(part, ToolCall) else part for part in message.content]
        return message.replace(content=content)

    def _repaired(self, part: MalformedToolCall) -> ToolCall | MalformedToolCall:
        """A malformed call whose tool can read its text (``repairs``), as a call with the model's own text."""
        tool = self.toolbox.find(part.name) if part.name else None
        if tool is None or part.id is None or tool.definition.custom or not part.raw.strip() or is_json(part.raw):
            return part
        call = ToolCall(part.id, tool.name, part.raw, provider_json=part.provider_json)
        try:
            tool.check(call)
        except PalaverError:
            return part
        return call

    def _judged(self, call: ToolCall) -> ToolCall | MalformedToolCall:
        tool = self.toolbox.find(call.name)
        try:
            if tool is not None or call.provider_executed:
                if tool is not None:
                    tool.check(call)
                return call
            reason = self.toolbox.unknown(call.name)
        except PalaverError as error:
            reason = str(error)
        return MalformedToolCall(call.arguments_json, reason, call.name, call.id)

    def _fixed_system(self) -> tuple[SystemMessage | DeveloperMessage, ...] | None:
        """The system prompt, where it is the same for every call of the model."""
        said = self.instructions
        if callable(said):
            return None
        sections = "\n\n".join(filter(None, [each.instructions for each in self.chain.all]))
        if isinstance(said, str):
            said = "\n\n".join(filter(None, (said, sections)))
            return (system(said),) if said else ()
        return (said, system(sections)) if sections else (said,)

    # -- running -----------------------------------------------------------------------------------------------------

    async def run(
        self,
        prompt: Input = None,
        *,
        thread: AnyThread | None = None,
        branch: str = MAIN,
        previous: Run[Any] | None = None,
        deps: Any = None,
        values: dict[str, Any] | None = None,
        decide: Decide | None = None,
        decisions: Mapping[str, Decision] | None = None,
        on_event: Observer | None = None,
    ) -> Run[T]:
        """Carry a task to its end. Keywords as in ``start``; raises ``MessageError`` for input that cannot be.

        Everything that goes wrong later is the outcome of the run.
        """
        driver = self.driver(
            prompt,
            None,
            thread=thread,
            branch=branch,
            previous=previous,
            deps=deps,
            values=values,
            decide=decide,
            decisions=decisions,
            on_event=on_event,
        )
        return await driver.drive()

    def start(
        self,
        prompt: Input = None,
        *,
        thread: AnyThread | None = None,
        branch: str = MAIN,
        previous: Run[Any] | None = None,
        deps: Any = None,
        values: dict[str, Any] | None = None,
        decide: Decide | None = None,
        decisions: Mapping[str, Decision] | None = None,
        on_event: Observer | None = None,
    ) -> Running[T]:
        """Begin a run and read its events: ``async with agent.start("…") as run: async for event in run: …``.

        Keywords: ``thread``, ``branch``, ``previous``, ``deps`` (anything, for tools and middleware), ``values`` (what
        they share), ``decide``, ``decisions`` (by the id of the call), ``on_event`` (one more observer). Raises as
        ``run`` does.
        """
        begin = partial(
            self.driver,
            prompt,
            thread=thread,
            branch=branch,
            previous=previous,
            deps=deps,
            values=values,
            decide=decide,
            decisions=decisions,
            on_event=on_event,
        )
        return Running(begin)

    def run_sync(
        self,
        prompt: Input = None,
        *,
        thread: AnyThread | None = None,
        branch: str = MAIN,
        previous: Run[Any] | None = None,
        deps: Any = None,
        values: dict[str, Any] | None = None,
        decide: Decide | None = None,
        decisions: Mapping[str, Decision] | None = None,
        on_event: Observer | None = None,
    ) -> Run[T]:
        """``run`` for programs without an event loop. Raises ``RuntimeError`` where one runs already."""
        check_no_loop()
        begin = partial(
            self.run,
            prompt,
            thread=thread,
            branch=branch,
            previous=previous,
            deps=deps,
            values=values,
            decide=decide,
            decisions=decisions,
            on_event=on_event,
        )
        return anyio.run(begin)

    def driver(
        self,
        prompt: Input,
        watch: Watch | None,
        *,
        thread: AnyThread | None = None,
        branch: str = MAIN,
        previous: Run[Any] | None = None,
        deps: Any = None,
        values: dict[str, Any] | None = None,
        decide: Decide | None = None,
        decisions: Mapping[str, Decision] | None = None,
        on_event: Observer | None = None,
    ) -> Driver:
        """Stand ready to run, with a watch for its events; for what runs agents itself. Raises as ``run`` does."""
        check_places(thread, previous)
        check_run(branch=branch, values=values, decide=decide, decisions=decisions, on_event=on_event)
        if previous is not None:
            if thread is not None:
                raise MessageError("previous: a run goes on in its own thread; give previous or thread, not both")
            thread, branch = _behind(previous)
        if prompt is not None and decisions:
            raise MessageError("decisions: a new prompt closes what is pending; give the one or the other")
        observers = self.observers if on_event is None else (*self.observers, on_event)
        run = uuid7()
        journal = Journal(Thread() if thread is None else thread, branch, agent=self.name, run=run, log=self.log)
        opened = left_open(journal.path)
        first = _resumed(journal, opened) if prompt is None else _begun(opened, as_messages(prompt))
        known = Recorded() if opened is None or prompt is not None else opened.recorded
        checked_decisions(decisions or {}, known.pending.values())
        checked_choices(decisions or {}, known.pending.values())
        carry = None if previous is None else previous.carry
        if not isinstance(carry, Carry) or carry.model is not self.model:
            carry = Carry(self.model)
        return Driver(
            self,
            journal,
            first,
            run=run,
            carry=carry,
            decide=decide or self.decide,
            decisions=decisions,
            deps=deps,
            values=values if values is not None else own(previous.values) if previous is not None else {},
            watch=Observing(observers, watch) if observers else watch,
            known=known,
        )


def as_messages(prompt: object) -> tuple[Message, ...]:
    """Messages for what a prompt may be: a text, parts, a message, or several. Raises ``MessageError``."""
    items: tuple[object, ...] = (prompt,)
    if isinstance(prompt, Sequence) and not isinstance(prompt, str):
        items = tuple(cast("Sequence[object]", prompt))
    found = [each for each in items if isinstance(each, MESSAGE_CLASSES)]
    if found and len(found) == len(items):
        return tuple(found)
    if found:
        raise MessageError("a prompt is messages, or the parts of one: not both")
    return (
        UserMessage(mode="user", tags=(notes.USER_PROMPT,)).replace(content=cast("tuple[str | AnyPart, ...]", items)),
    )


def _behind(previous: Run[Any]) -> tuple[AnyThread, str]:
    """Where to go on behind a run: on its branch, or on a new one when somebody else went on there."""
    thread, branch, leaf = previous.thread, previous.branch, previous.leaf
    tree = thread.tree if isinstance(thread, StoredThread) else thread
    if tree.head(branch) == leaf:
        return thread, branch
    name = f"{branch}-{uuid7()}"
    if isinstance(thread, StoredThread):
        return thread.fork(name, at=leaf), name
    thread.fork(name, at=leaf)
    return thread, name


def _begun(opened: LeftOpen | None, messages: tuple[Message, ...]) -> Begun:
    if opened is None:
        return Begun(0.0, messages)
    text = notes.MAY_HAVE_RUN if opened.begun or opened.recorded.begun else notes.NOT_RUN_SKIPPED
    closing = [
        result(PlannedCall(index, call), text, is_error=True)
        for index, (call, known) in enumerate(zip(opened.calls, opened.results, strict=True))
        if known is None
    ]
    return Begun(0.0, (*opened.held, *messages), tuple(closing))


def _resumed(journal: Journal, opened: LeftOpen | None) -> Resumed:
    if opened is not None:
        return Resumed(0.0, opened.message, opened.results, opened.begun, held=opened.held)
    if not journal.path:
        raise MessageError("there is nothing to go on with: give a prompt, or a thread that has messages")
    return Resumed(0.0, last=last_answer(journal.path))
