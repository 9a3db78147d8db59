"""An agent of a swarm: a model, its prompt, its tools, and the handling of its answers.

Rules (docs/spec/agent-swarm-kit.md#3):

- An agent is a description and holds no conversation. From the client's thread it gets what ``threads.AgentView``
  returns: its ``instructions``, those of the swarm, its own ``system`` texts and those of ``dynamic``, the model's
  ``flags``, the system messages committed for it, and the last ``keep`` messages of the dialogue.
- ``tools`` are offered in their order, navigation first; ``sources`` return further ones for each model call, and a
  source that fails is left out (K12). Of one answer, the last ``max_tool_calls`` calls are run, or the one that
  navigates (K11).
- ``map`` changes an answer as received, ``map_calls`` its calls, ``transform`` its text; ``validate`` returns why an
  answer must not be shown. An exception of any of them is the error of the turn.
- ``rescue`` decides what happens to an answer that may not be shown, or that calls an unknown tool
  (``palaver.swarm.rescue``).
- ``on_model_error``: when a model fails, the turn raises, or a placeholder is shown instead; in both cases nothing of
  the answer is stored (K13).
- ``hooks`` only observe. ``operator`` makes the agent a person, who is asked in the model's place.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, cast

from palaver.agent.agent import Agent
from palaver.agent.structured import Structured
from palaver.core.errors import MessageError, excerpt
from palaver.core.messages import AssistantMessage, Message, Scope
from palaver.core.parts import ToolCall
from palaver.core.request import Settings
from palaver.core.tools import ProviderTool
from palaver.core.type_checks import read_arguments
from palaver.core.usage import Usage
from palaver.models.language_model import LanguageModel
from palaver.models.names import model as named_model
from palaver.swarm.call import CallContext
from palaver.swarm.extras.storage import Storage
from palaver.swarm.rescue import PLACEHOLDERS, Flush, Rescue, not_empty
from palaver.swarm.state import State
from palaver.swarm.tool import AnySwarmTool, SwarmTool, as_tool
from palaver.threads.agent_view import KEEP
from palaver.turn.approvals import Decide
from palaver.turn.events import Observer
from palaver.turn.limits import Limits, Pricing
from palaver.turn.middleware import Chain, Middleware
from palaver.turn.tool import Policy, check_policy, legal, normalized
from palaver.turn.tool_output import RESULT_LIMIT

Text: TypeAlias = str | Callable[[CallContext], str | Awaitable[str]]
Source: TypeAlias = Callable[[CallContext], Awaitable[Sequence[AnySwarmTool]] | Sequence[AnySwarmTool]]
Operator: TypeAlias = Callable[[CallContext, str], Awaitable[str]]
OnModelError: TypeAlias = Literal["raise", "placeholder"]

MAX_TOOL_CALLS: Final = 1
"""The default number of calls of one answer that are run."""


class Hooks:
    """Observers of an agent: override the methods that you need, plain or asynchronous.

    The parameters: ``place`` is the ``CallContext`` (client, agent, turn); ``text`` is the text that is committed,
    emitted or answered; ``answer`` the message of the model, ``messages`` its prompt; ``call`` and ``calls`` are tool
    calls; ``mode`` is ``"user"`` or ``"tool"``, ``reason`` why an answer was rescued. Exceptions are logged, and change
    nothing.
    """

    def on_init(self, place: CallContext) -> Any:
        """The agent is used in a session for the first time."""

    def on_execute(self, place: CallContext, text: str, mode: str) -> Any:
        """A message is sent to it."""

    def on_run(self, place: CallContext, text: str) -> Any:
        """It is asked without a trace in the log."""

    def on_output(self, place: CallContext, text: str) -> Any:
        """Its answer is shown."""

    def on_assistant_message(self, place: CallContext, text: str) -> Any:
        """An answer of its own, or one committed for it, is added to the log."""

    def on_user_message(self, place: CallContext, text: str) -> Any:
        """A user message is committed."""

    def on_system_message(self, place: CallContext, text: str) -> Any:
        """A system message is committed."""

    def on_developer_message(self, place: CallContext, text: str) -> Any:
        """A developer message is committed."""

    def on_tool_output(self, place: CallContext, call: str, text: str) -> Any:
        """The result of a call is committed."""

    def on_tool_request(self, place: CallContext, calls: Sequence[ToolCall]) -> Any:
        """Calls are committed."""

    def on_flush(self, place: CallContext) -> Any:
        """A flush is committed."""

    def on_resurrect(self, place: CallContext, mode: str, reason: str) -> Any:
        """A rescue begins."""

    def on_tool_error(self, place: CallContext, call: ToolCall, error: Exception) -> Any:
        """A tool raised."""

    def on_after_tool_calls(self, place: CallContext, calls: Sequence[ToolCall]) -> Any:
        """All tools of a batch have committed, or were stopped."""

    def on_completion(self, place: CallContext, messages: Sequence[Message], answer: AssistantMessage) -> Any:
        """The model answered."""

    def on_dispose(self, place: CallContext) -> Any:
        """The session ends, or another agent became active."""


class AgentOptions(TypedDict, total=False):
    """The options of an agent besides its name, model and operator: the keywords of ``SwarmAgent``."""

    # the prompt
    instructions: Text
    system: Iterable[str]
    dynamic: Callable[[CallContext], Iterable[str] | Awaitable[Iterable[str]]] | None
    flags: Iterable[str]
    # the visible conversation
    keep: int | None
    where: Callable[[Message], bool] | None
    # the tools
    tools: Iterable[AnySwarmTool]
    sources: Iterable[Source]
    max_tool_calls: int
    policy: Policy
    decide: Decide | None
    result_limit: int | None
    states: Iterable[State[Any] | str]
    storages: Iterable[Storage[Any] | str]
    depends_on: Iterable[str]
    # the requests to the model
    settings: Settings
    provider: Mapping[str, Mapping[str, Any]] | None
    stream: bool
    output: Any
    on_model_error: OnModelError
    prices: Callable[[str, Usage], float | None] | None
    # the handling of answers
    map: Callable[[AssistantMessage], Any] | None
    map_calls: Callable[[Sequence[ToolCall]], Any] | None
    transform: Callable[[str], Any] | None
    validate: Callable[[str], Any]
    rescue: Rescue
    rescue_scope: Scope
    placeholders: Sequence[str]
    # the person in the place of a model
    operator_timeout: float | None
    # middleware and observers
    middleware: Sequence[Middleware]
    limits: Limits
    observers: Sequence[Observer]
    hooks: Hooks | None
    description: str


class AgentChanges(AgentOptions, total=False):
    """What ``SwarmAgent.replace`` changes."""

    name: str
    model: LanguageModel | str | None
    operator: Operator | None


class SwarmAgent:
    """An agent of a swarm. ``agent.replace(keep=30)`` returns an edited copy."""

    def __init__(
        self,
        name: str,
        model: LanguageModel | str | None = None,
        *,
        # the prompt
        instructions: Text = "",
        system: Iterable[str] = (),
        dynamic: Callable[[CallContext], Iterable[str] | Awaitable[Iterable[str]]] | None = None,
        flags: Iterable[str] = (),
        # the visible conversation
        keep: int | None = KEEP,
        where: Callable[[Message], bool] | None = None,
        # the tools
        tools: Iterable[AnySwarmTool] = (),
        sources: Iterable[Source] = (),
        max_tool_calls: int = MAX_TOOL_CALLS,
        policy: Policy = "allow",
        decide: Decide | None = None,
        result_limit: int | None = RESULT_LIMIT,
        states: Iterable[State[Any] | str] = (),
        storages: Iterable[Storage[Any] | str] = (),
        depends_on: Iterable[str] = (),
        # the requests to the model
        settings: Settings = Settings(),  # noqa: B008 (frozen)
        provider: Mapping[str, Mapping[str, Any]] | None = None,
        stream: bool = False,
        output: Any = None,
        on_model_error: OnModelError = "raise",
        prices: Callable[[str, Usage], float | None] | None = None,
        # the handling of answers
        map: Callable[[AssistantMessage], Any] | None = None,
        map_calls: Callable[[Sequence[ToolCall]], Any] | None = None,
        transform: Callable[[str], Any] | None = None,
        validate: Callable[[str], Any] = not_empty,
        rescue: Rescue = Flush(),  # noqa: B008 (frozen)
        rescue_scope: Scope = "turn",
        placeholders: Sequence[str] = PLACEHOLDERS,
        # the person in the place of a model
        operator: Operator | None = None,
        operator_timeout: float | None = None,
        # middleware and observers
        middleware: Sequence[Middleware] = (),
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        observers: Sequence[Observer] = (),
        hooks: Hooks | None = None,
        description: str = "",
    ) -> None:
        """Set up an agent.

        ``name`` is that of the agent. ``instructions`` are its system prompt, a text or a function of the place;
        ``system`` are further texts behind it, ``dynamic`` is a function that returns more for each model call, and
        ``flags`` are texts for this model only. ``tools`` are offered in their order; ``sources`` return further ones.
        ``keep`` is the number of messages of the dialogue that are sent; ``where`` selects them. Of one answer, the
        last ``max_tool_calls`` calls are run. ``map`` changes an answer, ``map_calls`` its calls, ``transform`` its
        text; ``validate`` returns why a text must not be shown. ``rescue`` handles such an answer, over
        ``rescue_scope``, and one of ``placeholders`` is shown in its place; ``on_model_error`` says whether a failing
        model raises. ``hooks`` observe, ``operator`` answers in the model's place. ``settings`` are those of the model,
        ``provider`` fields of one wire. ``model`` is a model, or the name of one (``"openai/…"``). ``states`` and
        ``storages`` are those that its tools may use, by description or by name; ``depends_on`` names the agents that
        it may hand over to, for diagrams. ``description`` documents the agent for people. With ``stream`` the text of
        an answer is published as it arrives, in events ``agent delta``: for agents whose answers are not changed.
        ``operator_timeout`` is in seconds; after it the answer is ``""``.

        ``middleware``, ``policy``, ``decide``, ``limits``, ``output``, ``result_limit``, ``observers`` and ``prices``
        are those of ``palaver.agent.Agent``; limits are of the agent's part in one turn, and ``recoveries``,
        ``repeats`` and ``continue_cut`` have no effect here. Raises ``MessageError`` for an argument of the wrong type,
        for an agent with neither a model nor an operator, with one that cannot be called, without a name, with a limit
        below 0, or with a tool that can never be called because another one has its name.
        """
        given = {key: value for key, value in locals().items() if key != "self"}
        self._given = read = _checked(name, given)
        if isinstance(model, str):
            model = named_model(model)
        self.name, self.description, self.model = name, description, model
        self.operator, self.operator_timeout = operator, operator_timeout
        self.instructions, self.dynamic = instructions, dynamic
        self.system: tuple[str, ...] = read["system"]
        self.flags: tuple[str, ...] = read["flags"]
        self.keep, self.where = keep, where
        self.tools: tuple[SwarmTool, ...] = read["tools"]
        self.sources: tuple[Source, ...] = read["sources"]
        self.chain = Chain(middleware)
        self.middleware_tools = tuple([as_tool(tool) for each in self.chain.all for tool in each.tools])
        """Tools of the middleware, offered behind the agent's own."""
        self.max_tool_calls, self.decide, self.result_limit = max_tool_calls, decide, result_limit
        self.policy: Policy = policy
        self._check_policy(policy)
        self.states = frozenset(_names(read["states"]))
        self.storages = frozenset(_names(read["storages"]))
        self.depends_on: tuple[str, ...] = read["depends_on"]
        self.structured = None if output is None or model is None else Structured(output, model.capabilities)
        """The form of the answers, if any."""
        self.settings = settings if self.structured is None else self.structured.asked(settings)
        self.provider, self.stream = dict(provider or {}), stream
        self.on_model_error: OnModelError = on_model_error
        self.map, self.map_calls, self.transform, self.validate = map, map_calls, transform, validate
        self.rescue = rescue
        self.placeholders: tuple[str, ...] = read["placeholders"]
        self.rescue_scope: Scope = rescue_scope
        self.limits, self.observers, self.price = limits, tuple(observers), Pricing(prices)
        self.hooks = hooks or Hooks()

    def _check_policy(self, policy: Policy) -> None:
        """Raise ``MessageError`` for an empty policy, or one with a tool that can never exist."""
        names = {tool.name for tool in (*self.tools, *self.middleware_tools)}
        names |= {name for each in self.chain.all for name in each.names}
        if self.sources or any(tool.describe for tool in self.tools):  # they may return tools of any name
            given: object = policy
            names |= set(cast("Mapping[str, object]", given)) if isinstance(given, Mapping) else set()
        check_policy(policy, names)

    def replace(self, **changes: Unpack[AgentChanges]) -> SwarmAgent:
        """Return a copy edited by ``changes``. Raises as the constructor does."""
        given: dict[str, Any] = {**self._given, **changes}
        return SwarmAgent(**given)

    def __repr__(self) -> str:
        """Show the name and the tools."""
        return f"SwarmAgent({self.name!r}, tools={[each.name for each in self.tools]})"


def swarm_agent(agent: Agent[Any]) -> SwarmAgent:
    """Return an agent of a swarm with the model, instructions, tools and limits of ``agent``, and streamed answers.

    Raises ``MessageError`` for instructions that are not a text, and for tools that a provider runs.
    """
    made = agent.fields
    instructions, tools = made["instructions"], made["tools"]
    if not isinstance(instructions, str):
        raise MessageError("instructions: an agent of a swarm takes a string, not a message or a function")
    own: list[AnySwarmTool] = []
    for tool in tools:
        if isinstance(tool, ProviderTool):
            raise MessageError("tools: an agent of a swarm cannot have tools that the provider runs")
        own.append(tool)
    return SwarmAgent(
        agent.name,
        agent.model,
        instructions=instructions,
        tools=own,
        keep=None,
        max_tool_calls=_MANY,
        settings=made["settings"],
        provider=made["provider"],
        stream=True,
        middleware=made["middleware"],
        policy=made["policy"],
        decide=made["decide"],
        result_limit=made["result_limit"],
        output=made["output"],
        limits=made["limits"],
        observers=made["observers"],
        prices=made["prices"],
    )


_MANY: Final = 10_000
"""An agent runs every call of an answer."""


_READ_ONCE: Final = ("system", "flags", "tools", "sources", "placeholders", "states", "storages", "depends_on")
"""Arguments that may be iterators."""


def _checked(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked arguments, those of ``_READ_ONCE`` as tuples, and each tool once. Raises ``MessageError``."""
    operator, keep, calls = given["operator"], given["keep"], given["max_tool_calls"]
    if operator is not None and not callable(operator):
        raise MessageError(f"the operator of {name!r} is not a function: {excerpt(repr(operator))}")
    read = read_arguments(f"the agent {name!r}", SwarmAgent.__init__, given, _READ_ONCE)
    if not name:
        raise MessageError("an agent needs a name")
    if (given["model"] is None) == (operator is None):
        raise MessageError(f"the agent {name!r} needs a model or an operator")
    if (keep or 0) < 0 or calls < 0:
        raise MessageError(f"the agent {name!r} has a negative limit: keep {keep}, max_tool_calls {calls}")
    if not read["placeholders"]:
        raise MessageError(f"the agent {name!r} needs a placeholder")
    read["tools"] = _distinct(name, read["tools"])
    return read


def _distinct(agent: str, given: Iterable[AnySwarmTool]) -> tuple[SwarmTool, ...]:
    """Return the tools of an agent, each once. Raises ``MessageError`` for a tool that another one always hides.

    Navigation tools to agents whose names differ in punctuation only get numbers, except the first.
    """
    tools = [as_tool(each) for each in {id(each): each for each in given}.values()]
    taken = {tool.name for tool in tools}
    found: dict[str, SwarmTool] = {}
    made: list[SwarmTool] = []
    for tool in tools:
        before = found.get(tool.name)
        if before is not None and before.target != tool.target and _is_named_by_target(tool):
            tool = _numbered(tool, taken)  # noqa: PLW2901 (it is the same tool)
            before = None
        if before is not None and before.available is None and before.describe is None:
            raise MessageError(f"the agent {agent!r}: two tools have the name {tool.name!r}")
        found.setdefault(tool.name, tool)
        made.append(tool)
    return tuple(made)


def _is_named_by_target(tool: SwarmTool) -> bool:
    return tool.target is not None and tool.name == f"to_{normalized(tool.target)}"


def _numbered(tool: SwarmTool, taken: set[str]) -> SwarmTool:
    name = next(each for number in count(2) if (each := f"{tool.name}_{number}") not in taken)
    taken.add(name)
    return tool.replace(definition=tool.definition.replace(name=legal(name)))


def _names(given: Iterable[Any]) -> list[str]:
    return [each if isinstance(each, str) else each.name for each in given]
