"""Tools from functions.

Rules:

- The signature of the function is the schema (``palaver.agent.parameters``), its docstring the description up to the
  first section, its name the name. ``name=`` and ``description=`` say otherwise.
- What is not said to read is taken to write: ``effect="read"`` is a promise that the application makes.
- Asynchronous functions are awaited, others run in a thread that cannot be stopped (``palaver.turn.tool``).
- What the function returns becomes an output (``palaver.turn.tool_output``); what it raises goes through to the loop.
- ``strict`` asks the provider to enforce the schema. Providers that do want every parameter to be required.

Tools from JSON Schema, and free-text tools:

- The schema goes to the provider as it was given; one given as text, byte for byte (docs/spec/kairo.md#D19).
- Every call is checked against the whole of it (docs/spec/deepagents-swift.md#13: never only top-level fields). Each
  issue is told with its path: ``cities[2].name: 3 is not of type 'string'``.
- The checker is ``jsonschema``, imported when the first schema is met. The draft is that of ``$schema``, else 2020-12.
  A reference to another document is not followed: nothing is fetched.
- The function gets the arguments as one dictionary, and the context when it takes a second parameter.
- A free-text tool (``custom``) has no schema; its function gets the text.

Two lists of tools, made one: the later of a name wins (CBF-22).

Stability: experimental.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast, overload

from msgspec import UNSET, Raw, structs

from palaver.agent.json_schema import linear_validator
from palaver.agent.parameters import parameters_of
from palaver.core import jsontext
from palaver.core.errors import DecodeError, MessageError, ToolError, excerpt
from palaver.core.parts import ToolCall
from palaver.core.tools import Tool
from palaver.core.type_checks import check_arguments
from palaver.turn.tool import (
    TIMEOUT,
    AgentTool,
    Effect,
    Output,
    Rule,
    ToolContext,
    check_names,
    invalid,
    invoker,
    legal,
    read_arguments,
    read_text,
)
from palaver.turn.tool_output import output_of

# --- functions --------------------------------------------------------------------------------------------------------


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
    """Make a tool of ``function``, as a call or as a decorator, with or without options.

    ``name`` and ``description`` stand for those of the function. ``effect="read"`` promises that the function changes
    nothing: several such calls of one answer run at once, and a policy need not name the tool; ``"write"`` runs alone.
    ``repeatable`` says that running the same call twice does no harm: a call that may have run when the process died
    runs again, where any other is asked for again. A tool that reads is repeatable. ``timeout`` is in seconds
    (``None``: no end), ``limit`` the most characters of a result that the model is sent. ``strict`` asks the provider
    to enforce the schema. ``repairs`` names parameters whose value a model may write without quotes. Raises
    ``MessageError`` for a function that a model cannot call.
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
        raise MessageError("a function without a name needs name=")
    return name


# --- schemas ----------------------------------------------------------------------------------------------------------


_VALUE: Final = 40
"""Characters of a value that an issue shows."""


def schema_tool(
    name: str,
    description: str | None,
    parameters: Mapping[str, Any] | str | bytes | None,
    run: Callable[..., Any],
    *,
    effect: Effect = "write",
    repeatable: bool = False,
    timeout: float | None = TIMEOUT,
    limit: int | None = None,
    strict: bool | None = None,
    custom: bool = False,
    repairs: Sequence[str] = (),
    scope: str | None = None,
) -> AgentTool:
    """Make a tool of JSON Schema and a function.

    ``name`` and ``description`` are what the model is shown. ``parameters`` is a JSON Schema of an object, as a mapping
    or as its text; ``None`` declares no parameters. ``run`` gets the arguments as a dictionary, and the ``ToolContext``
    if it has a second parameter; it may be asynchronous. ``custom`` makes a free-text tool without parameters, whose
    ``run`` gets a text. ``scope`` names the origin of the tool, for errors about two tools of one name. ``effect``,
    ``repeatable``, ``timeout``, ``limit``, ``strict`` and ``repairs`` are those of ``function_tool``. Raises
    ``MessageError`` for an invalid schema, for a name that a wire refuses, and for parameters of a ``custom`` tool.
    """
    check_arguments("schema_tool", schema_tool, locals())
    if custom and parameters is not None:
        raise MessageError(f"the tool {name!r}: a free-text tool has no parameters")
    schema = UNSET if custom else _text_of(parameters, name)
    invoke = invoker(run)
    takes_context = _takes_context(run)

    async def run_it(arguments: Any, context: ToolContext) -> Output:
        return output_of(await (invoke(arguments, context) if takes_context else invoke(arguments)))

    return AgentTool(
        definition=Tool(legal(name), description, schema, strict, custom),
        run=run_it,
        check=checker(schema, name, repairs) if isinstance(schema, Raw) else read_text,
        effect=effect,
        repeatable=repeatable,
        timeout=timeout,
        limit=limit,
        scope=scope,
    )


def client_tool(name: str, description: str | None, parameters: Mapping[str, Any] | None = None) -> AgentTool:
    """Make a tool that a client runs, such as a front end: a call waits until it is decided with ``answer``.

    ``name``, ``description`` and ``parameters`` (JSON Schema) are what the model is shown. Raises ``MessageError`` for
    a schema that is none.
    """
    check_arguments("client_tool", client_tool, locals())
    made = schema_tool(name, description, parameters, _never_run)
    return structs.replace(made, rule=Rule(judgement="ask", reason="The client runs it.", choices=("answer",)))


def _never_run(_arguments: Any) -> str:
    raise ToolError("the client runs this tool; its result is a decision")


def checker(schema: Raw, name: str, repairs: Sequence[str] = ()) -> Callable[[ToolCall], dict[str, Any]]:
    """Make the function that reads and checks the arguments of a call. Raises ``MessageError`` for a broken schema."""
    plain = jsontext.value(schema)
    if repairs:
        check_names("repairs", repairs, plain.get("properties", {}), "parameter")
    validator = linear_validator(plain, f"the schema of the tool {name!r}")

    def check(call: ToolCall) -> dict[str, Any]:
        arguments = read_arguments(call, repairs)
        issues = issues_of(validator, arguments)
        if issues:
            raise invalid(call, issues)
        return arguments

    return check


def issues_of(validator: Any, value: Any) -> list[str]:
    """What does not fit, one sentence a place, in the order of the places."""
    try:
        errors = sorted(validator.iter_errors(value), key=lambda each: [str(step) for step in each.absolute_path])
    except RecursionError:
        return ["nested too deeply"]
    except Exception as error:  # a reference that leads nowhere, a pattern that is none  # noqa: BLE001
        return [f"the schema of the tool is invalid: {excerpt(str(error), 120)}"]
    best = importlib.import_module("jsonschema.exceptions").best_match
    return list(dict.fromkeys(_issue(best([error])) for error in errors))


def _issue(error: Any) -> str:
    path = _path(cast("Iterable[object]", error.absolute_path))
    shown = repr(error.instance)
    text: str = error.message
    if len(shown) > _VALUE:
        text = text.replace(shown, excerpt(shown, _VALUE))
    return f"{path}: {text}" if path else text


def _path(steps: Iterable[object]) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.removeprefix(".")


def _text_of(parameters: Mapping[str, Any] | str | bytes | None, name: str) -> Raw:
    where = f"the schema of the tool {name!r}"
    match parameters:
        case None:
            return jsontext.raw({"type": "object", "properties": {}})
        case str() | bytes():
            try:
                text = jsontext.source(parameters)
                jsontext.fields(text)
            except DecodeError as error:
                raise MessageError(f"{where}: {error.reason}") from None
            return Raw(text)
        case _:
            return jsontext.checked(dict(parameters), where)


def _takes_context(run: Callable[..., Any]) -> bool:
    """Whether it has a second parameter."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(run).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(each.kind in kinds for each in parameters) > 1


# --- merging ----------------------------------------------------------------------------------------------------------


def merged(
    tools: Sequence[AgentTool | Callable[..., Any]], more: Sequence[AgentTool | Callable[..., Any]]
) -> tuple[AgentTool, ...]:
    """Tools with others, by name: ``agent.replace(tools=merged(tools, more))``.

    What replaces a tool stands in its place, so that as much as can be of a request stays what it was. Raises as
    ``function_tool`` does.
    """
    by_name: dict[str, AgentTool] = {}
    for each in (*tools, *more):
        tool = each if isinstance(each, AgentTool) else function_tool(each)
        by_name[tool.name] = tool
    return tuple(by_name.values())
