"""Tools of a swarm: those that speak, and those that return.

Rules (docs/spec/agent-swarm-kit.md#3.1, #5.4):

- A tool that *speaks* (``tool``) takes a ``Call``. It commits its result, and then continues the turn itself:
  ``execute`` asks the model again, ``emit`` ends the turn with a text. A tool that does neither fails its turn (K5),
  unless it ``defers``: it will do so later, before the turn's deadline.
- A tool that *returns* is one of ``palaver.agent``: a function, or an ``AgentTool``. Its return value is committed, and
  the model is asked again when its batch is done; the model gets its exceptions as results.
- ``available`` says whether it is offered at present, ``validate`` whether a call may run; ``describe`` is a function
  of the place, and may return another name for each place.
- ``kind`` is ``navigation`` or ``commit`` for tools of which one call wins over all others of its batch (K11).

Stability: experimental.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, overload

from msgspec import Struct, structs

from palaver.agent.functions import function_tool
from palaver.agent.parameters import parameters_of
from palaver.core.errors import MessageError
from palaver.core.parts import Text, ToolCall
from palaver.core.tools import Tool
from palaver.core.type_checks import check_arguments
from palaver.swarm.call import CALL, Call, CallContext
from palaver.turn.tool import TIMEOUT, AgentTool, Output, ToolContext, invoker, legal
from palaver.turn.tool_output import output_of

Kind: TypeAlias = Literal["plain", "navigation", "commit"]
Hook: TypeAlias = Callable[..., Any]


class SwarmTool(Struct, frozen=True, kw_only=True):
    """A tool as a swarm runs it, made by ``tool``, by ``result_tool``, or by one of the factories.

    ``run`` gets the call and the arguments that ``check`` returned. The ``on_…`` hooks only observe.
    """

    definition: Tool
    check: Callable[[ToolCall], Any]
    run: Callable[[Call, Any], Awaitable[Any]]
    kind: Kind = "plain"
    returns: bool = False
    defers: bool = False
    target: str | None = None
    """The agent that it hands over to; for diagrams."""
    available: Callable[[CallContext], bool | Awaitable[bool]] | None = None
    validate: Callable[[CallContext, Any], bool | Awaitable[bool]] | None = None
    describe: Callable[[CallContext, Tool], Tool | Awaitable[Tool]] | None = None
    """Returns the definition for the model at a place, with its name."""
    inner: AgentTool | None = None
    """The tool of ``palaver.agent`` that it was made of: its effect, limits and rule apply here too."""
    on_validate: Hook | None = None
    on_before_call: Hook | None = None
    on_after_call: Hook | None = None
    on_call_error: Hook | None = None

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.definition.name

    def replace(self, **changes: Unpack[ToolChanges]) -> SwarmTool:
        """Return a copy edited by ``changes``. Raises ``MessageError`` for a field of the wrong type."""
        check_arguments(f"the tool {self.name!r}", SwarmTool, changes)
        return structs.replace(self, **changes)

    def as_agent_tool(self, checked: Mapping[str, tuple[str, Any]]) -> AgentTool:
        """Return the tool as ``palaver.turn`` runs it; ``checked`` has text and arguments of calls, by id.

        Navigation changes only the active agent, so its effect is to read. A tool that speaks has all the time of its
        turn.
        """

        def check(call: ToolCall) -> Any:
            text, arguments = checked.get(call.id, (None, None))
            return arguments if text == call.arguments_json else self.check(call)

        async def run(arguments: Any, context: ToolContext) -> Output:
            call = CALL.get()
            assert call is not None  # noqa: S101 (a batch sets it)
            call.context = context
            value = await self.run(call, arguments)
            if not self.returns:
                return Output()
            return Output(content=(Text(""),)) if isinstance(value, str) and not value else output_of(value)

        if self.inner is not None:
            return structs.replace(self.inner, definition=self.definition, check=check, run=run)
        return AgentTool(
            definition=self.definition,
            check=check,
            run=run,
            effect="read" if self.kind == "navigation" else "write",
            timeout=TIMEOUT if self.returns else None,
        )

    def __post_init__(self) -> None:
        """Raise ``MessageError`` for a field of the wrong type."""
        check_arguments(f"the tool {getattr(self.definition, 'name', '')!r}", SwarmTool, structs.asdict(self))


class ToolOptions(TypedDict, total=False):
    """The options of a tool besides its function: fields of ``SwarmTool``."""

    kind: Kind
    defers: bool
    target: str | None
    available: Callable[[CallContext], bool | Awaitable[bool]] | None
    validate: Callable[[CallContext, Any], bool | Awaitable[bool]] | None
    describe: Callable[[CallContext, Tool], Tool | Awaitable[Tool]] | None
    on_validate: Hook | None
    on_before_call: Hook | None
    on_after_call: Hook | None
    on_call_error: Hook | None


class NamedToolOptions(ToolOptions, total=False):
    """The options of a tool made of a function: also another name and description than the function's."""

    name: str | None
    description: str | None


class ToolChanges(ToolOptions, total=False):
    """What ``SwarmTool.replace`` changes: the fields of ``SwarmTool``."""

    definition: Tool
    check: Callable[[ToolCall], Any]
    run: Callable[[Call, Any], Awaitable[Any]]
    returns: bool
    inner: AgentTool | None


@overload
def tool(function: Callable[..., Any], /, **options: Unpack[NamedToolOptions]) -> SwarmTool: ...
@overload
def tool(**options: Unpack[NamedToolOptions]) -> Callable[[Callable[..., Any]], SwarmTool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[NamedToolOptions]
) -> SwarmTool | Callable[[Callable[..., Any]], SwarmTool]:
    """Make a tool that speaks from ``function``, which has a parameter of type ``Call``; a call or a decorator.

    The other parameters are the model's, as for ``palaver.agent.function_tool``. ``options`` are fields of
    ``SwarmTool``, ``name`` and ``description``. Raises ``MessageError`` for a function that a model cannot call, or
    that takes no ``Call``.
    """
    if function is None:
        return functools.partial(_speaking, **options)
    return _speaking(function, **options)


def _speaking(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> SwarmTool:
    name = legal(str(name or getattr(function, "__name__", "")))
    parameters = parameters_of(function, name, context=Call)
    if not parameters.contexts:
        raise MessageError(
            f"the tool {name!r} has no Call parameter; pass a function that returns its result without @tool"
        )
    invoke = invoker(function)
    contexts = tuple(parameters.contexts)

    async def run(call: Call, arguments: dict[str, Any]) -> None:
        await invoke(**arguments, **dict.fromkeys(contexts, call))

    said = parameters.description if description is None else description
    return SwarmTool(definition=Tool(name, said, parameters.schema), check=parameters.read, run=run, **options)


def result_tool(given: AgentTool | Callable[..., Any], **options: Unpack[ToolOptions]) -> SwarmTool:
    """Make a tool from ``given``, a function or an ``AgentTool`` that returns its result.

    ``options`` are fields of ``SwarmTool``. Raises ``MessageError`` as ``function_tool`` does.
    """
    inner = given if isinstance(given, AgentTool) else function_tool(given)

    async def run(call: Call, arguments: Any) -> Any:
        return await inner.run(arguments, call.tool_context())

    return SwarmTool(definition=inner.definition, check=inner.check, run=run, returns=True, inner=inner, **options)


AnySwarmTool: TypeAlias = SwarmTool | AgentTool | Callable[..., Any]


def as_tool(given: AnySwarmTool) -> SwarmTool:
    """Return any allowed item of a list of tools as a ``SwarmTool``."""
    return given if isinstance(given, SwarmTool) else result_tool(given)


FIRST: Final[tuple[Kind, ...]] = ("navigation", "commit")
"""The kinds of which one call wins over the rest of its batch."""
