"""A tool: its definition, name, arguments, policy, and how its function is called.

Rules:

- ``effect`` is ``read`` or ``write``, the default. Calls that read may run at the same time, and again after a crash.
  Calls that write run one at a time, in the model's order.
- ``check`` reads the arguments of a call. It raises ``InvalidArgumentsError``, whose text the model gets. ``run`` takes
  the result of ``check`` and the context of the call, and returns an ``Output``. An exception becomes an error result;
  only cancellation propagates.
- ``repeatable`` says that a call may run twice without harm. A tool that reads is repeatable, except one with ``once``
  (a subagent): it may run beside others, but needs an approval to run again.

Names (docs/spec/deepagents-swift.md#7.3, #7.4; docs/spec/wires.md#1.5):

- A name is legal on every wire: a letter or ``_``, then up to 63 letters, digits, ``_`` and ``-``.
- Models misspell names. A name means the tool of that name, else the only tool with the same normalised name. If
  several tools have it, it means none.
- The normalised form has ASCII letters in lower case, digits and ``_``, and ``_`` for everything else.
- A toolbox is immutable: its definitions are the same tuple each turn, so that their encoding can be cached.

Arguments (docs/spec/codebuff.md#5, CBF-17):

- The call is never changed: it keeps the model's own text. Parsed arguments go to the tool only.
- An empty text and ``null`` are no arguments. A string that contains JSON is parsed again: three rounds in all.
- The bare-value repair makes ``{"path": src/main.py}`` an object, only for parameters that a tool names. For other
  repairs call ``palaver.stream.argument_repair`` and build a new call.
- Each failure has its own message. A message never contains the whole input.
- NaN, infinities, numbers beyond a double, and duplicate keys with different values are refused: the values that run
  must be the values that were shown for approval.
- The arguments of a free-text tool are its text: one JSON string, or the object ``{"input": text}`` on wires without
  such tools.

Policies:

- A policy returns ``allow``, ``ask`` or ``deny`` for a call. It is one word for all tools, a table by tool name (``*``
  for the rest), or a function. ``deny`` always wins, and ``ask`` never becomes ``allow`` (DAS-25).
- A tool that a table without ``*`` does not name: reads are allowed, writes ask (ADR 28).
- A table with an unknown tool is refused, since the intended tool would have no rule. So is any other word.
- The rule of a tool (``AgentTool.rule``) comes before ``allow`` and ``ask`` of a policy.

Functions:

- An async function is awaited in place, so cancellation reaches it at once.
- Any other function runs in a worker thread, with the context variables of the caller. Threads cannot be stopped: after
  a cancellation or a timeout the function runs on and its result is discarded. An awaitable result is awaited.
- A tool cannot end the program: ``SystemExit``, ``GeneratorExit`` and a cancellation that nobody around it requested
  are failures of its call. So is ``KeyboardInterrupt`` in a worker thread, where no Ctrl-C arrives.
- Generators are refused: a tool shows progress with ``ctx.emit``.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import json
import math
import re
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, NoReturn, TypeAlias, cast, final, get_args

import anyio
from anyio import to_thread
from msgspec import Struct, structs

from palaver.core.errors import MessageError, ToolError, excerpt
from palaver.core.parts import ToolCall, ToolPart
from palaver.core.tools import Tool
from palaver.core.type_checks import check_arguments
from palaver.threads.thread import Entry

# -- invoke ----------------------------------------------------------------------------------------


def invoker(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return an async function that calls a function of either kind. Raises ``MessageError`` for a generator."""
    inner = called(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise MessageError("a generator cannot be a tool; return the result, and show progress with ctx.emit")
    if inspect.iscoroutinefunction(inner):
        return function

    async def in_thread(*args: Any, **kwargs: Any) -> Any:
        def work() -> tuple[Any]:  # in a tuple: trio refuses a thread that returns an awaitable
            try:
                return (function(*args, **kwargs),)
            except Exception:
                raise
            except BaseException as error:
                raise _ended(error) from error

        (result,) = await to_thread.run_sync(work, abandon_on_cancel=True)
        return await result if inspect.isawaitable(result) else result

    return in_thread


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs when ``function`` is called: inside partials and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function):
        return function
    return function if inspect.isclass(function) else cast("Callable[..., Any]", getattr(type(function), "__call__"))  # noqa: B004, B009


@contextmanager
def own_exits() -> Generator[None]:
    """Raise ``ToolError`` for exceptions of a tool that would end more than its call."""
    try:
        yield
    except (SystemExit, GeneratorExit) as error:
        raise _ended(error) from error
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise ToolError("An operation that the tool awaited was cancelled.") from error
    except Exception:
        raise
    except BaseException as error:
        if _is_interrupt(error) or _is_cancelled():
            raise
        raise _ended(error) from error


def _ended(error: BaseException) -> ToolError:
    return ToolError(f"The tool ended itself: {type(error).__name__} {error}".rstrip())


def _is_interrupt(error: BaseException) -> bool:
    """Whether the user's own interruption is in an exception, or is it."""
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).subgroup(KeyboardInterrupt) is not None
    return isinstance(error, KeyboardInterrupt)


def _is_cancelled() -> bool:
    """Whether the running code was cancelled from outside: by a scope, or by the owner of its task."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another event loop, with cancellations of its own
        return False
    return task is None or task.cancelling() > 0


# -- policy ----------------------------------------------------------------------------------------


Judgement: TypeAlias = Literal["allow", "ask", "deny"]
DecisionKind: TypeAlias = Literal["approve", "edit", "reject", "answer"]
CHOICES: Final[tuple[DecisionKind, ...]] = ("approve", "edit", "reject", "answer")
_JUDGEMENTS: Final[tuple[Judgement, ...]] = get_args(Judgement)


class Rule(Struct, frozen=True, kw_only=True):
    """The decision of a policy about a call. ``reason`` is for the approver, or for the model if the call is denied."""

    judgement: Judgement
    reason: str = ""
    text: str = ""
    """The result of a denied call, in place of the usual sentence."""
    choices: tuple[DecisionKind, ...] = CHOICES

    def __post_init__(self) -> None:
        """Refuse unknown choices. Raises ``MessageError``."""
        check_arguments("Rule", Rule, structs.asdict(self))
        given = cast("object", self.choices)
        listed = cast("Sequence[object]", given) if isinstance(given, tuple | list) else ()
        if not listed or not all(each in CHOICES for each in listed):
            raise MessageError(f"choices: {excerpt(repr(self.choices))} is not one or more of {', '.join(CHOICES)}")


_ALLOWED: Final = Rule(judgement="allow")
_NOT_NAMED: Final = Rule(judgement="ask", reason="The policy does not name this tool.")

Judged: TypeAlias = Judgement | Rule
Judge: TypeAlias = Callable[[ToolCall], Judged | Awaitable[Judged]]
Policy: TypeAlias = Judgement | Mapping[str, Judged] | Judge


def rule_of(policy: Policy, call: ToolCall, tool: str, *, reads: bool) -> Rule | Awaitable[Judged]:
    """Return a policy's decision about a call. The result of an async function must be awaited.

    ``reads`` says that the tool changes nothing.
    """
    if callable(policy):
        judged = policy(call)
        return judged if isinstance(judged, Awaitable) else as_rule(judged)
    if isinstance(policy, Mapping):
        if tool in policy or "*" in policy:
            return as_rule(policy.get(tool, policy.get("*")))
        return _ALLOWED if reads else _NOT_NAMED
    return as_rule(policy)


def as_rule(value: object) -> Rule:
    """Return a rule for a word; a rule stays as it is. Raises ``MessageError`` for anything else."""
    if isinstance(value, Rule) and value.judgement in _JUDGEMENTS:
        return value
    for word in _JUDGEMENTS:
        if value == word:
            return Rule(judgement=word)
    raise MessageError(f"a policy returns {', '.join(_JUDGEMENTS)}, or a Rule; not {excerpt(repr(value))}")


def check_policy(policy: Policy, names: Collection[str]) -> None:
    """Raise ``MessageError`` for an unknown word, and for a tool that is not among ``names``."""
    if callable(policy):
        return
    if not isinstance(policy, Mapping):
        as_rule(policy)
        return
    for name, rule in policy.items():
        as_rule(rule)
        if name != "*" and name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise MessageError(f"policy: there is no tool {excerpt(repr(name))}; there is: {known}")


# --- tool -------------------------------------------------------------------------------------------------------------


Effect: TypeAlias = Literal["read", "write"]
TIMEOUT = 120.0
"""The default time limit of a tool, in seconds."""


class InvalidArgumentsError(ToolError):
    """The arguments of a call do not fit its tool. The model gets the text, which names the place."""

    error_code = "invalid_arguments"


class Output(Struct, frozen=True, kw_only=True):
    """The result of a tool: parts for the model, and data for the application that the model does not see."""

    content: tuple[ToolPart, ...] = ()
    is_error: bool = False
    metadata: Mapping[str, Any] = {}
    whole: str | None = None
    """The full text, where ``content`` is a shortened form of it. It is stored beside the result, in a record."""

    def __post_init__(self) -> None:
        """Refuse values of a wrong type. Raises ``MessageError``, which names the field.

        ``content`` is converted when the call ends.
        """
        given = {"is_error": self.is_error, "metadata": self.metadata, "whole": self.whole}
        check_arguments("Output", Output, given)


class ToolContext(Struct, frozen=True, kw_only=True, weakref=True):
    """The run that calls a tool. A function with a parameter of this type gets it.

    ``path`` is the conversation so far, ``deps`` the value of ``run(deps=…)``, ``values`` a dictionary that the
    tools and the middleware of a run share. ``emit`` shows progress (any value) to whoever watches the run.
    ``idempotency_key`` is the same whenever this call of this run runs.
    """

    call: ToolCall
    agent: str
    run: str
    thread: str
    path: Sequence[Entry]
    values: dict[str, Any]
    emit: Callable[[Any], None]
    show: Callable[[Any], None]
    """Publishes an ``AgentEvent`` unchanged; for tools that run agents."""
    idempotency_key: str
    deps: Any = None
    host: Any = None
    """The ``RunContext`` of the run. A tool that calls models itself reports their usage to ``host.spend``."""


class AgentTool(Struct, frozen=True, kw_only=True):
    """A tool that the loop can run. Made by ``function_tool``, ``schema_tool``, ``mcp_tools``, or by hand.

    ``timeout`` is in seconds (``None``: none). ``limit`` is the most characters of a result that the model gets;
    ``None`` leaves it to the agent.
    """

    definition: Tool
    run: Callable[[Any, ToolContext], Awaitable[Output]]
    check: Callable[[ToolCall], Any]
    effect: Effect = "write"
    repeatable: bool = False
    once: bool = False
    timeout: float | None = TIMEOUT
    limit: int | None = None
    rule: Rule | None = None
    """The tool's own rule, before that of the policy: a tool that asks the user can only be answered."""
    scope: str | None = None
    """The origin of the tool: the name of an MCP server or of a middleware."""

    def __post_init__(self) -> None:
        """Refuse values of a wrong type, and sizes below 0. Raises ``MessageError``, which names the field."""
        check_arguments("AgentTool", AgentTool, structs.asdict(self))
        for name, size in (("timeout", self.timeout), ("limit", self.limit)):
            if size is not None and not size >= 0:
                raise MessageError(f"{name}: {size}: expected a number, 0 or more, or None")

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.definition.name

    @property
    def is_repeatable(self) -> bool:
        """Whether a call may run again without an approval."""
        return (self.repeatable or self.effect == "read") and not self.once


# --- tool names -------------------------------------------------------------------------------------------------------


_LEGAL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_OTHER: Final = re.compile(r"[^a-z0-9_]")
_LOWER: Final = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})


def legal(name: str) -> str:
    """Return ``name`` if it is legal on every wire. Raises ``MessageError`` otherwise."""
    if not _LEGAL.fullmatch(name):
        msg = (
            f"{excerpt(name, 40)!r} is not a tool name: a name is a letter or “_”, then up to 63 letters, digits, "
            "“_” and “-”"
        )
        raise MessageError(msg)
    return name


def normalized(name: str) -> str:
    """``Read-File`` and ``read file`` are ``read_file``."""
    return _OTHER.sub("_", name.translate(_LOWER)) or "_"


def unknown_tool(name: str, names: Iterable[str]) -> str:
    """The error result for an unknown tool (DAS-24)."""
    available = ", ".join(names)
    return f"Unknown tool {excerpt(name)!r}. Available tools: {available or 'none'}."


def check_names(field: str, names: Iterable[str], known: Iterable[str], kind: str) -> None:
    """Raise ``MessageError`` for a name that is not among ``known``."""
    available = sorted(known)
    if isinstance(names, str):
        raise MessageError(f"{field}: {excerpt(repr(names))} is a string; expected a list of names")
    for name in names:
        if name not in available:
            listed = ", ".join(available) or "none"
            raise MessageError(f"{field}: there is no {kind} {excerpt(repr(name))}; there is: {listed}")


@final
class Toolbox:
    """The tools of an agent, in order. Raises ``MessageError`` when two have the same name."""

    __slots__ = ("_alike", "_by_name", "definitions", "tools")

    def __init__(self, tools: Iterable[AgentTool] = ()) -> None:
        """Store the tools."""
        self.tools = tuple({id(tool): tool for tool in tools}.values())
        self.definitions: tuple[Tool, ...] = tuple(tool.definition for tool in self.tools)
        self._by_name: dict[str, AgentTool] = {}
        self._alike: dict[str, AgentTool | None] = {}
        for tool in self.tools:
            if tool.name in self._by_name:
                raise MessageError(f"two tools have the name {tool.name!r}{_whence(self._by_name[tool.name], tool)}")
            self._by_name[tool.name] = tool
            key = normalized(tool.name)
            self._alike[key] = None if key in self._alike else tool

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._by_name)

    def find(self, name: str) -> AgentTool | None:
        """Return the tool of that name, else the only one with the same normalised name, else ``None``."""
        return self._by_name.get(name) or self._alike.get(normalized(name))

    def unknown(self, name: str) -> str:
        """The error result for a name that ``find`` does not know."""
        return unknown_tool(name, self._by_name)

    def __iter__(self) -> Iterator[AgentTool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._by_name)})"


def _whence(*tools: AgentTool) -> str:
    scopes = [tool.scope for tool in tools]
    if scopes == [None, None]:
        return ""
    return f" (from {' and '.join(scope or 'the application' for scope in scopes)})"


# --- arguments --------------------------------------------------------------------------------------------------------


ROUNDS: Final = 3
_SHOWN: Final = 5
_BARE: Final = re.compile(
    r'\s*\{\s*"?(?P<name>[A-Za-z_]\w*)"?\s*:\s*(?P<value>[^\s"\'{}\[\],:][^"\'{}\[\],\n]*+)\s*+\}\s*'
)
_STILL: Final = "expected the tool arguments to be an object, but received a string."
_KINDS: Final[dict[type, str]] = {
    list: "an array",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
}


class _UnfitError(ValueError):
    """JSON with values that cannot be represented exactly."""


def invalid(call: ToolCall, issues: Iterable[str]) -> InvalidArgumentsError:
    """The error for invalid arguments; of many issues it lists the first few."""
    listed = list(issues)
    text = "; ".join(excerpt(issue, 300) for issue in listed[:_SHOWN])
    more = f"; and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return InvalidArgumentsError(f"Invalid arguments for {excerpt(call.name)!r}: {text}{more}")


def read_arguments(call: ToolCall, repairs: Sequence[str] = ()) -> dict[str, Any]:
    """Read the arguments of a call as an object. Raises ``InvalidArgumentsError``.

    ``repairs`` names the parameters whose value may be bare, without quotes.
    """
    text = call.arguments_json
    if not text.strip():
        return {}
    rounds = 0
    while True:
        try:
            value = _parsed(text)
        except _UnfitError as error:
            raise invalid(call, [str(error)]) from None
        except RecursionError:
            raise invalid(call, ["nested too deeply"]) from None
        except json.JSONDecodeError as error:
            repaired = _repaired(text, repairs)
            if repaired is not None:
                return repaired
            raise invalid(call, [_not_json(error, within=rounds > 0)]) from None
        rounds += 1
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        if value is None:
            return {}
        if not isinstance(value, str):
            raise invalid(call, [f"expected an object, but received {_KINDS[type(value)]}"])
        if rounds == ROUNDS:
            raise invalid(call, [f"{_STILL} After {ROUNDS} rounds of parsing the parsed value was still a string"])
        text = value


def read_text(call: ToolCall) -> str:
    """Read the text of a call of a free-text tool. Text that is not JSON is taken as it is."""
    try:
        value = _parsed(call.arguments_json)
    except (ValueError, RecursionError):
        return call.arguments_json
    match value:
        case str():
            return value
        case {"input": str(text), **rest} if not rest:
            return text
        case _:
            return call.arguments_json


def _not_json(error: json.JSONDecodeError, *, within: bool) -> str:
    where = f" ({error.msg[:1].lower()}{error.msg[1:]} at character {error.pos})"
    if within:
        return f"{_STILL} The string is not JSON{where}; it may be malformed or incomplete"
    return f"expected an object, but received text that is not JSON{where}; it may be malformed or incomplete"


def _repaired(text: str, repairs: Sequence[str]) -> dict[str, Any] | None:
    found = _BARE.fullmatch(text) if repairs else None
    return {found["name"]: found["value"].rstrip()} if found and found["name"] in repairs else None


# -- JSON at its word --------------------------------------------------------------------------------------------------


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        for key, value in pairs:
            if table[key] != value or type(table[key]) is not type(value):
                raise _UnfitError(f"the key {excerpt(key, 40)!r} occurs twice in one object, with different values")
    return table


def _float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise _UnfitError(f"the number {excerpt(text, 40)} is too large")
    return number


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _UnfitError(f"the number {excerpt(text, 40)} is too large") from None


def _constant(text: str) -> NoReturn:
    raise _UnfitError(f"{text} is not JSON; use a number or null")


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_float, parse_int=_int, parse_constant=_constant)


def _parsed(text: str) -> Any:
    return _decoder.decode(text)


# --- idempotency ------------------------------------------------------------------------------------------------------


_DIGITS = 32


def idempotency_key(run: str, step: int, index: int) -> str:
    """32 hexadecimal digits, the same whenever the call runs (KAI-27). ``index`` is the call's index in its step."""
    return hashlib.sha256(f"{run}:{step}:{index}".encode()).hexdigest()[:_DIGITS]
