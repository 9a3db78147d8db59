"""An agent: a model, what it is told, what it may call, and how far it may go.

Rules:

- An agent is a description and holds no conversation: it may run any number of times, and many times at once.
- ``run`` carries a task to its end and returns a ``Run``; it raises nothing but cancellation. ``stream`` does the same
  while its events are read. ``agent.sync`` has both without ``await``. Without a prompt, both go on
  where a thread was left: calls that wait are decided by ``decisions`` or ``decide``, an unanswered user is answered.
- ``thread`` is a ``Thread``, or a ``StoredThread`` that keeps every message as it comes; without one the run begins
  its own. ``previous`` goes on behind an earlier run, which does not change; ``branch`` names a branch of a ``Thread``.
- The calls of a run that waits are decided once: ``previous`` with a run whose calls were decided, or closed by another
  prompt, raises ``DecisionError``. With a prompt alone it goes on, and says that the calls may have run.
- A new prompt closes what was left open: calls without a result are answered as not run, or as unknown. With
  ``decisions`` beside it, the calls that they decide get their results first, and the prompt follows the results.
- A call that waits for a tool that the agent does not have is left as it is: going on with it is an error.

What is given to an agent and to its runs, and is easily mistaken for another thing:

- It is said in one sentence, when the agent is made or the run begins: what stands where, and what should.
- Only what a type checker would refuse is looked at; what an argument means is judged by whoever reads it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeGuard, Unpack, cast

from msgspec import structs

from palaver.agent.active_run import ActiveRun
from palaver.agent.driver import Driver, RunOptions, RunStart
from palaver.agent.functions import function_tool
from palaver.agent.prompt import Carry
from palaver.agent.protocol import Begun, Resumed
from palaver.agent.structured import Structured
from palaver.core.errors import MessageError, PalaverError, StoreError, excerpt
from palaver.core.factories import system
from palaver.core.jsontext import is_json
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    Message,
    SystemMessage,
    UserMessage,
)
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.core.prompt_input import PromptInput, prompt_messages
from palaver.core.request import Settings
from palaver.core.tools import AnyTool, ProviderTool
from palaver.models.names import model as named_model
from palaver.models.sync import SyncFacade, SyncStream, on_loop, sync_method, sync_stream
from palaver.store.stored_thread import StoredThread
from palaver.threads.ids import uuid7
from palaver.threads.thread import MAIN, Path, Thread
from palaver.turn import notes
from palaver.turn.approvals import (
    Decide,
    Decision,
    DecisionError,
    Recorded,
    checked_choices,
    checked_decisions,
    checked_edits,
    checked_mapping,
    checked_tools,
    missing_tools,
)
from palaver.turn.calls import PlannedCall, result
from palaver.turn.events import AgentEvent, Observer, Observing
from palaver.turn.journal import AnyThread, Journal, check_log
from palaver.turn.limits import Limits, Pricing
from palaver.turn.middleware import Chain, Middleware, RunContext
from palaver.turn.open_calls import OpenAnswer, Settled, last_answer, open_answer, settled
from palaver.turn.results import READING
from palaver.turn.run import Run, own
from palaver.turn.tool import AgentTool, Policy, Toolbox, check_names, check_policy
from palaver.turn.tool_output import RESULT_LIMIT

# --- given ------------------------------------------------------------------------------------------------------------


def check_kinds(model: object, tools: object, middleware: object) -> None:
    """Say of what is easily given for another thing what it should be. Raises ``MessageError``."""
    if not callable(getattr(model, "session", None)):
        raise MessageError(f"model: {excerpt(repr(model))} is not a model; create one with palaver.models.model(…)")
    for name, given, kind in (("tools", tools, "tools or functions"), ("middleware", middleware, "Middleware")):
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise MessageError(f"{name}: {excerpt(repr(given))} is not a list of {kind}")
    for index, tool in enumerate(cast("Sequence[object]", tools)):
        if not isinstance(tool, AgentTool | ProviderTool) and not callable(tool):
            raise MessageError(f"tools[{index}]: {excerpt(repr(tool))} is neither a tool nor a function")
    for index, each in enumerate(cast("Sequence[object]", middleware)):
        if not isinstance(each, Middleware):
            raise MessageError(f"middleware[{index}]: {excerpt(repr(each))} is not a Middleware")


def check_places(thread: object, previous: object) -> None:
    """Raise ``MessageError`` for a thread or a run that is none."""
    if thread is not None and not isinstance(thread, Thread | StoredThread):
        kind = type(thread).__name__
        raise MessageError(f"thread: {kind} is not a Thread or StoredThread; store.open(id) returns one")
    if previous is not None and not isinstance(previous, Run):
        raise MessageError(f"previous: {type(previous).__name__} is not a Run")


_FIELDS: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "name": (str, "a text"),
    "limits": (Limits, "Limits(…)"),
    "settings": (Settings, "Settings(…)"),
    "provider": ((Mapping, NoneType), "a mapping of wire names to fields"),
    "result_limit": ((int, NoneType), "a whole number of characters, or None"),
    "invalid_calls": (str, "'answer' or 'note'"),
    "stream": (bool, "True or False"),
    "eager": (bool, "True or False"),
    "branch": (str, "the name of a branch"),
    "values": ((dict, NoneType), "a dictionary"),
}
"""The kinds of simple fields, and how each is called."""
_FUNCTIONS: Final = ("decide", "prices", "on_event")


def check_fields(fields: Mapping[str, object]) -> None:
    """Raise ``MessageError``, naming the field, for what an agent or a run cannot be made with."""
    for name, value in fields.items():
        if name in _FIELDS:
            kind: Any
            kind, shown = _FIELDS[name]
            if not isinstance(value, kind) or (isinstance(value, bool) and name == "result_limit"):
                raise MessageError(f"{name}: {excerpt(repr(value))} is not {shown}")
        elif name in _FUNCTIONS and value is not None and not callable(value):
            raise MessageError(f"{name}: {excerpt(repr(value))} is not a function")
    words = fields.get("invalid_calls", "answer")
    if words not in ("answer", "note"):
        raise MessageError(f"invalid_calls: {excerpt(repr(words))} is not 'answer' or 'note'")
    limit = fields.get("result_limit")
    if isinstance(limit, int) and limit < 1:
        raise MessageError(f"result_limit: {limit}: must be at least 1; None means no limit")
    said = fields.get("instructions", "")
    if not isinstance(said, str | SystemMessage | DeveloperMessage) and not callable(said):
        raise MessageError(f"instructions: {excerpt(repr(said))} is not a string, a system message or a function")
    for name in ("polling", "observers"):
        given = fields.get(name, ())
        if not isinstance(given, Sequence):
            raise MessageError(f"{name}: {excerpt(repr(given))} is not a list")
    for index, each in enumerate(cast("Sequence[object]", fields.get("observers", ()))):
        if not callable(each):
            raise MessageError(f"observers[{index}]: {excerpt(repr(each))} is not a function")


def check_options(options: RunOptions) -> None:
    """Raise ``MessageError``, naming the field, for what a run cannot begin with."""
    check_places(options.thread, options.previous)
    check_fields(structs.asdict(options))
    if options.decisions is not None:
        checked_mapping(options.decisions, "decisions")
    if options.previous is not None and options.thread is not None:
        raise MessageError("previous: a run continues in its own thread; pass previous or thread, not both")


_PROMPT: Final = UserMessage(mode="user", tags=(notes.USER_PROMPT,))


# --- agent ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from palaver.core.usage import Usage
    from palaver.models.language_model import LanguageModel
    from palaver.store.jsonl.log import LogSink
    from palaver.turn.events import Watch

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

Instructions: TypeAlias = "str | SystemMessage | DeveloperMessage | Callable[[RunContext], str | Awaitable[str]]"
Input: TypeAlias = PromptInput | None


class AgentFields(TypedDict, total=False):
    """What of an agent can be changed in a copy; the keywords of ``Agent``."""

    model: LanguageModel | str
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
        model: LanguageModel | str,
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

        ``model`` is a model, or the name of one, as ``palaver.models.model`` takes it (``"openai/…"``). ``policy`` says
        which tools are allowed, asked for or denied; a table must name tools that are there, and what it does not name
        is asked for, unless it only reads. ``decide`` decides what is asked for while a run goes on. ``name`` is the
        name in events and threads. ``instructions`` are the system prompt: a text, a message, or a function of the run.
        ``tools`` are functions, tools, and tools that the provider runs. ``middleware`` comes first in a run in its
        order. ``limits`` bound a run; ``settings`` are those of the model, ``provider`` fields that only one wire
        understands, by its name. ``result_limit`` is the most characters of a result that the model is sent; what is
        cut can be read by a tool. It holds beside a ``Compactor``, which counts tokens. Without ``stream`` the provider
        is asked for whole answers. ``log`` gets every message of every run as a line. ``output`` is the form of the
        answer: a type, or a JSON Schema; ``None`` and ``str`` take any text as it is. ``invalid_calls``: a call that
        cannot be run is answered with an error, or becomes a note that leaves no call in the thread. ``polling`` names
        tools that may be called again and again with the same arguments. ``observers`` are told every event of every
        run (``palaver.turn.events``). With ``eager`` tools that read begin while the answer that calls them is still
        streaming (``palaver.turn.tool_call``). ``prices`` gives what an answer of a model cost, in USD; by default the
        catalogue does. Raises ``MessageError`` for tools that cannot stand together.
        """
        self._given = {key: value for key, value in locals().items() if key != "self"}
        if isinstance(model, str):
            model = named_model(model)
        check_kinds(model, tools, middleware)
        check_fields(self._given)
        check_log(log)
        self.model, self.name, self.decide, self.limits = model, name, decide, limits
        self.policy: Policy = policy
        self.instructions = instructions
        self.provider: Mapping[str, Mapping[str, Any]] = provider or {}
        self.result_limit, self.polling, self.streams, self.log = result_limit, tuple(polling), stream, log
        self.eager, self.observers = eager, tuple(observers)
        self._invalid_calls, self.price = invalid_calls, Pricing(prices)
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
        self._structured = None if output is None or output is str else Structured(output, model.capabilities)
        self.settings = settings if self._structured is None else self._structured.asked(settings)
        self.system = self._fixed_system()

    @property
    def fields(self) -> Mapping[str, Any]:
        """The keywords that the agent was made with, and their values: all those of ``AgentFields``."""
        return dict(self._given)

    def replace(self, **changes: Unpack[AgentFields]) -> Agent[Any]:
        """Return a copy with ``changes``. Raises ``TypeError`` for a field that an agent does not have."""
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
        """Read an answer, ``message``, in the form that was asked for.

        Raises ``PalaverError``, whose text is for the model.
        """
        return message.text if self._structured is None else self._structured.read(message.text)

    def received(self, message: AssistantMessage) -> AssistantMessage:
        """Return an answer, ``message``, as it joins the thread.

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
        """Carry a task to its end. Keywords as in ``stream``; raises ``MessageError`` for input that cannot be.

        Everything that goes wrong later is the outcome of the run.
        """
        options = RunOptions(
            thread=thread,
            branch=branch,
            previous=previous,
            deps=deps,
            values=values,
            decide=decide,
            decisions=decisions,
            on_event=on_event,
        )
        return await self.driver(prompt, options).drive()

    def stream(
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
    ) -> ActiveRun[T]:
        """Begin a run and read its events: ``async with agent.stream("…") as run: async for event in run: …``.

        ``prompt`` is a text, parts or messages; ``None`` goes on where the thread was left. Keywords: ``thread``,
        ``branch``, ``previous``, ``deps`` (anything, for tools and middleware), ``values`` (what they share),
        ``decide``, ``decisions`` (by the id of the call; a prompt beside them follows the results of the calls),
        ``on_event`` (one more observer). Raises as ``run`` does.
        """
        options = RunOptions(
            thread=thread,
            branch=branch,
            previous=previous,
            deps=deps,
            values=values,
            decide=decide,
            decisions=decisions,
            on_event=on_event,
        )
        return ActiveRun(partial(self.driver, prompt, options))

    @property
    def sync(self) -> SyncAgent[T]:
        """The same agent without ``await``: ``agent.sync.run("…")``; its methods have the same parameters."""
        return SyncAgent(self)

    def driver(
        self,
        prompt: Input,
        options: RunOptions = RunOptions(),  # noqa: B008 (frozen)
        watch: Watch | None = None,
    ) -> Driver:
        """Return what drives a run, with a ``watch`` for its events; for code that runs agents. Raises as ``run`` does.

        ``prompt`` is that of ``stream``, and ``options`` are its keywords.
        """
        check_options(options)
        thread, branch, previous, decisions = options.thread, options.branch, options.previous, options.decisions or {}
        resumes = prompt is None or bool(decisions)
        end = None
        if previous is not None:
            end = _settled(previous)
            if end is not None and resumes:
                raise _decided_already(end, previous)
            thread, branch = _behind(previous)
        run = uuid7()
        journal = Journal(Thread() if thread is None else thread, branch, agent=self.name, run=run, log=self.log)
        opened = open_answer(journal.path)
        messages = () if prompt is None else prompt_messages(prompt, template=_PROMPT)
        known = opened.recorded if opened is not None and resumes else Recorded()
        checked_decisions(decisions, known.pending.values())
        checked_choices(decisions, known.pending.values())
        checked_edits(decisions, known.pending.values(), self.toolbox.find)
        closing = resumes and prompt is not None
        checked_tools(missing_tools(known, decisions, self.toolbox.find, closing=closing))
        first = _resumed(journal, opened, messages) if resumes else _begun(opened, messages, end)
        start = RunStart(run=run, event=first, carry=self._carry(previous), known=known, closing=closing)
        values = options.values if options.values is not None or previous is None else own(previous.values)
        options = structs.replace(options, decide=options.decide or self.decide, values=values)
        observers = self.observers if options.on_event is None else (*self.observers, options.on_event)
        return Driver(self, journal, start, options, Observing(observers, watch) if observers else watch)

    def _carry(self, previous: Run[Any] | None) -> Carry:
        """What an earlier run of the same model leaves in this process."""
        carry = None if previous is None else previous.carry
        return carry if isinstance(carry, Carry) and carry.model is self.model else Carry(self.model)


def is_agent(value: object) -> TypeGuard[Agent[Any]]:
    """Return whether a value is an agent, for code that takes anything."""
    return isinstance(value, Agent)


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


def _settled(previous: Run[Any]) -> Settled | None:
    """What became of the calls that a run waited for; with a store, also in other processes."""
    if not previous.pending:
        return None
    thread = previous.thread
    if isinstance(thread, StoredThread):
        with suppress(StoreError):  # the run that begins meets the same error
            thread.refresh()
        thread = thread.tree
    return settled(thread, previous.leaf, {each.call.id for each in previous.pending})


def _decided_already(what: Settled, previous: Run[Any]) -> DecisionError:
    return DecisionError(
        f"previous: call {excerpt(what.call)!r} was {what.how} already, behind this run; continue with the run that "
        f"came of it, or with another prompt, or fork thread {previous.thread.id!r} at the run's leaf to decide again"
    )


def _begun(opened: OpenAnswer | None, messages: tuple[Message, ...], end: Settled | None) -> Begun:
    if opened is None:
        return Begun(0.0, messages)
    decided = end is not None and end.how == "decided"
    may_have_run = decided or opened.may_have_run or opened.recorded.may_have_run
    text = notes.MAY_HAVE_RUN if may_have_run else notes.NOT_RUN_UNDECIDED
    closing = [
        result(PlannedCall(index, call), text, is_error=True)
        for index, (call, known) in enumerate(zip(opened.calls, opened.results, strict=True))
        if known is None
    ]
    return Begun(0.0, (*opened.deferred, *messages), tuple(closing))


def _resumed(journal: Journal, opened: OpenAnswer | None, messages: tuple[Message, ...]) -> Resumed:
    if opened is not None:
        deferred = (*opened.deferred, *messages)
        return Resumed(0.0, opened.message, opened.results, opened.may_have_run, deferred=deferred)
    if not journal.path:
        raise MessageError("nothing to continue: pass a prompt, or a thread that has messages")
    return Resumed(0.0, last=last_answer(journal.path))


class SyncActiveRun(SyncStream[ActiveRun[T], AgentEvent], Generic[T]):
    """A run under way, and an iterator of its events: ``with agent.sync.stream("…") as run: for event in run: …``."""

    wait = sync_method(ActiveRun[T].wait)

    def steer(self, text: str) -> None:
        """Add ``text`` as a user message, at the next boundary of steps.

        Raises ``MessageError`` when the run is over.
        """
        on_loop(partial(self.wrapped.steer, text))

    def cancel(self, reason: str = "") -> None:
        """Stop the run; its outcome is ``cancelled``. ``reason`` is kept with it."""
        on_loop(partial(self.wrapped.cancel, reason))

    @property
    def path(self) -> Path:
        """The conversation so far, as a window that never changes."""
        return self.wrapped.path

    @property
    def result(self) -> Run[T]:
        """The run, when it is over. Raises ``MessageError`` before."""
        return self.wrapped.result


class SyncAgent(SyncFacade[Agent[T]], Generic[T]):
    """An agent whose methods are called without ``await``, also where an event loop runs. Made by ``agent.sync``."""

    run = sync_method(Agent[T].run)

    stream = sync_stream(Agent[T].stream, SyncActiveRun[T])
