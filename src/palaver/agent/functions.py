"""Tools from functions.

Rules:

- The signature of the function is the schema (``palaver.agent.parameters``), its docstring the description up to the
  first section, its name the name. ``name=`` and ``description=`` say otherwise.
- What is not said to read is taken to write: ``effect="read"`` is a promise that the application makes.
- Asynchronous functions are awaited, others run in a thread that cannot be stopped (``palaver.agent.invoking``).
- What the function returns becomes an output (``palaver.agent.outputs``); what it raises goes through to the loop.
- ``strict`` asks the provider to enforce the schema. Providers that do want every parameter to be required.

Stability: experimental.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, overload

from palaver.agent.invoking import invoker
from palaver.agent.outputs import output_of
from palaver.agent.parameters import parameters_of
from palaver.agent.tool import TIMEOUT, AgentTool, Effect, Output, ToolContext
from palaver.agent.tool_names import check_names, legal
from palaver.core.argument_types import check_arguments
from palaver.core.errors import MessageError
from palaver.core.parts import ToolCall
from palaver.core.tools import Tool


@overload
def function_tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "write",
    repeatable: bool = False,
    timeout: float | None = TIMEOUT,
    limit: int | None = None,
    strict: bool | None = None,
    repairs: Sequence[str] = (),
) -> AgentTool: ...
@overload
def function_tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "write",
    repeatable: bool = False,
    timeout: float | None = TIMEOUT,
    limit: int | None = None,
    strict: bool | None = None,
    repairs: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], AgentTool]: ...
def function_tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "write",
    repeatable: bool = False,
    timeout: float | None = TIMEOUT,
    limit: int | None = None,
    strict: bool | None = None,
    repairs: Sequence[str] = (),
) -> AgentTool | Callable[[Callable[..., Any]], AgentTool]:
    """Make a tool of a function, as a call or as a decorator, with or without options.

    ``timeout`` is in seconds, ``limit`` in characters; ``repairs`` names parameters whose value a model may write
    without quotes (CBF-17). Raises ``MessageError`` for a function that a model cannot call.
    """
    check_arguments("function_tool", function_tool, locals())
    made = functools.partial(
        _made,
        name=name,
        description=description,
        effect=effect,
        repeatable=repeatable,
        timeout=timeout,
        limit=limit,
        strict=strict,
        repairs=repairs,
    )
    return made if function is None else made(function)


def _made(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "write",
    repeatable: bool = False,
    timeout: float | None = TIMEOUT,
    limit: int | None = None,
    strict: bool | None = None,
    repairs: Sequence[str] = (),
) -> AgentTool:
    name = legal(_name_of(function) if name is None else name)
    parameters = parameters_of(function, name, strict=bool(strict))
    check_names("repairs", repairs, parameters.converts, "parameter")
    invoke = invoker(function)
    contexts = tuple(parameters.contexts)

    def check(call: ToolCall) -> dict[str, Any]:
        return parameters.read(call, repairs)

    async def run(arguments: dict[str, Any], context: ToolContext) -> Output:
        return output_of(await invoke(**arguments, **dict.fromkeys(contexts, context)))

    said = parameters.description if description is None else description
    return AgentTool(
        definition=Tool(name, said, parameters.schema, strict),
        run=run,
        check=check,
        effect=effect,
        repeatable=repeatable,
        timeout=timeout,
        limit=limit,
    )


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise MessageError("a tool made of a function without a name needs name=")
    return name
