"""A tool: its definition, its effect, and how it runs.

Rules:

- ``effect`` is ``read`` or ``write``, the default. Calls that read change nothing: several may run at once, and again
  after a crash. Calls that write run one at a time, in the model's order.
- ``check`` reads the arguments of a call. It raises ``InvalidArgumentsError``, whose text the model gets. ``run`` takes
  the result of ``check`` and the context of the call, and returns an ``Output``. An exception becomes an error result;
  only cancellation propagates.
- ``repeatable`` says that a call may run twice without harm. A tool that reads is repeatable, except one with ``once``
  (a sub-agent): it may run beside others, and a person is asked before it runs again.

Names of tools: what may be one, and which tool a name means (docs/spec/deepagents-swift.md#7.3, #7.4;
docs/spec/wires.md#1.5):

- A name that an application gives is legal on every wire: a letter or ``_``, then up to 63 letters, digits, ``_``
  and ``-``.
- Models misspell names. A name means the tool of that name; else the one tool whose normalised name is the same. Where
  several are, it means none: nothing is guessed.
- The normalised form has ASCII letters lower-cased, digits and ``_`` kept, and ``_`` for everything else; it is never
  empty.
- A toolbox does not change: its definitions are one tuple, the same object each turn, so that what a wire has made of
  them can be kept.

The arguments of a call, read from the text that the model wrote (docs/spec/codebuff.md#5, CBF-17):

- The call itself is never changed: it keeps the model's own text. What is read here goes to the tool only.
- No text, and ``null``, are no arguments. A string that holds JSON is read again: three rounds in all.
- The bare-value repair makes ``{"path": src/main.py}`` an object, for those parameters only that a tool names. Nothing
  else is repaired: whoever wants more calls ``palaver.stream.argument_repair`` and builds a new call.
- Each failure has its own message: text that is no JSON, a string that still is one, another type, and issues of the
  schema, of which the first few are listed, each with its path. A message never holds the whole input.
- JSON is taken at its word: NaN and infinities are none; a number beyond a double, and a key that stands twice in one
  object with different values, are refused, because what would be run is not what was shown.
- The arguments of a free-text tool are its text: one JSON string, or the object ``{"input": text}`` that stands for it
  where a wire has no such tools.

A name for one call of one run, the same whenever that call is run (KAI-27).

Who may call what: a policy, and what it says of a call:

- A policy says ``allow``, ``ask`` or ``deny`` for a call: one word for all tools, a table by tool name (``*`` for the
  rest), or a function. ``deny`` always holds, and ``ask`` never turns into ``allow`` because nobody is there (DAS-25).
- A tool that a table does not name, where it has no ``*``: what only reads is allowed, the rest is asked for (ADR 28).
- A table that names a tool which is not there is refused: the tool that was meant would have no rule.
- What a tool itself demands (``AgentTool.rule``) comes before what a policy allows or asks.
- Any other word than those three is an error, and allows nothing.

Calling the function of a tool, whether it is asynchronous or not:

- An asynchronous function is awaited where the call is made, so cancellation reaches it at once.
- Any other runs in a worker thread, with the context variables of the caller. A thread cannot be stopped: when the call
  is cancelled or times out it is abandoned, goes on by itself, and what it gives back is thrown away. What must not go
  on is written asynchronously, or looks at an event of its own.
- What such a function gives back is awaited, where it can be.
- A tool cannot end the program: ``SystemExit`` (a parser of arguments raises it), ``GeneratorExit`` and a cancellation
  of its own, which nobody around it asked for, are failures of its call. So is ``KeyboardInterrupt`` in a worker
  thread, where no Ctrl-C arrives. Elsewhere it may be the user's, and goes through.
- A generator is no tool: what it would say on the way goes through ``ctx.emit``.

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
    """Make one asynchronous function of either kind. Raises ``MessageError`` for a generator."""
    inner = called(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise MessageError("a generator is no tool; return the result, and show progress with ctx.emit")
    if inspect.iscoroutinefunction(inner):
        return function

    async def in_thread(*args: Any, **kwargs: Any) -> Any:
        def work() -> tuple[Any]:  # in a tuple: trio refuses a thread that gives back what can be awaited
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
    """What a call of ``function`` runs: behind partials, and behind an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function):
        return function
    return function if inspect.isclass(function) else cast("Callable[..., Any]", getattr(type(function), "__call__"))  # noqa: B004, B009


@contextmanager
def own_exits() -> Generator[None]:
    """Raise ``ToolError`` where the tool inside raises what would end more than its call."""
    try:
        yield
    except (SystemExit, GeneratorExit) as error:
        raise _ended(error) from error
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise ToolError("What the tool waited for was cancelled.") from error


def _ended(error: BaseException) -> ToolError:
    return ToolError(f"The tool ended itself: {type(error).__name__} {error}".rstrip())


def _is_cancelled() -> bool:
    """Whether somebody around the running code cancelled it: a scope, or whoever holds its task."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another event loop, whose cancellations this is none of
        return False
    return task is None or task.cancelling() > 0


# -- policy ----------------------------------------------------------------------------------------


Judgement: TypeAlias = Literal["allow", "ask", "deny"]
DecisionKind: TypeAlias = Literal["approve", "edit", "reject", "answer"]
CHOICES: Final[tuple[DecisionKind, ...]] = ("approve", "edit", "reject", "answer")
_JUDGEMENTS: Final[tuple[Judgement, ...]] = get_args(Judgement)


class Rule(Struct, frozen=True, kw_only=True):
    """What a policy says of a call; ``reason`` is for whoever decides, or for the model when it is denied."""

    judgement: Judgement
    reason: str = ""
    text: str = ""
    """What the model is told when it is denied, in place of the usual sentence."""
    choices: tuple[DecisionKind, ...] = CHOICES

    def __post_init__(self) -> None:
        """Refuse choices that nobody can make. Raises ``MessageError``."""
        check_arguments("Rule", Rule, structs.asdict(self))
        given = cast("object", self.choices)
        listed = cast("Sequence[object]", given) if isinstance(given, tuple | list) else ()
        if not listed or not all(each in CHOICES for each in listed):
            raise MessageError(f"choices: {excerpt(repr(self.choices))} is not one or several of {', '.join(CHOICES)}")


_ALLOWED: Final = Rule(judgement="allow")
_NOT_NAMED: Final = Rule(judgement="ask", reason="The policy does not name this tool.")

Judged: TypeAlias = Judgement | Rule
Judge: TypeAlias = Callable[[ToolCall], Judged | Awaitable[Judged]]
Policy: TypeAlias = Judgement | Mapping[str, Judged] | Judge


def rule_of(policy: Policy, call: ToolCall, tool: str, *, reads: bool) -> Rule | Awaitable[Judged]:
    """What a policy says of a call of a tool. A function may be async; then what it gives must be awaited.

    ``reads`` says that the tool changes nothing.
    """
    if callable(policy):
        said = policy(call)
        return said if isinstance(said, Awaitable) else as_rule(said)
    if isinstance(policy, Mapping):
        if tool in policy or "*" in policy:
            return as_rule(policy.get(tool, policy.get("*")))
        return _ALLOWED if reads else _NOT_NAMED
    return as_rule(policy)


def as_rule(said: object) -> Rule:
    """A rule for a word; a rule as it is. Raises ``MessageError`` for anything else."""
    if isinstance(said, Rule) and said.judgement in _JUDGEMENTS:
        return said
    for word in _JUDGEMENTS:
        if said == word:
            return Rule(judgement=word)
    raise MessageError(f"a policy says {', '.join(_JUDGEMENTS)}, or a Rule; not {excerpt(repr(said))}")


def check_policy(policy: Policy, names: Collection[str]) -> None:
    """Raise ``MessageError`` for a word that means nothing, and for a tool that is not among ``names``."""
    if callable(policy):
        return
    if not isinstance(policy, Mapping):
        as_rule(policy)
        return
    for name, said in policy.items():
        as_rule(said)
        if name != "*" and name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise MessageError(f"policy: there is no tool {excerpt(repr(name))}; there is: {known}")


# --- tool -------------------------------------------------------------------------------------------------------------


Effect: TypeAlias = Literal["read", "write"]
TIMEOUT = 120.0
"""Seconds that a tool may take, where it does not say otherwise."""


class InvalidArgumentsError(ToolError):
    """The arguments of a call do not fit its tool. The text names the place, and is what the model is told."""

    error_code = "invalid_arguments"


class Output(Struct, frozen=True, kw_only=True):
    """What a tool gave back: parts for the model, and data of the application that the model is not sent."""

    content: tuple[ToolPart, ...] = ()
    is_error: bool = False
    metadata: Mapping[str, Any] = {}
    whole: str | None = None
    """All of its text, where ``content`` is a shortened form of it: kept beside the result, in a record."""

    def __post_init__(self) -> None:
        """Refuse values of another type. Raises ``MessageError``, which names the field.

        ``content`` is made of whatever a tool gives, when the call ends.
        """
        given = {"is_error": self.is_error, "metadata": self.metadata, "whole": self.whole}
        check_arguments("Output", Output, given)


class ToolContext(Struct, frozen=True, kw_only=True, weakref=True):
    """What a tool may know of the run that calls it. A function that has a parameter of this type gets it.

    ``path`` is the conversation so far, ``deps`` what was given to ``run(deps=…)``, ``values`` a dictionary that the
    tools and the middleware of a run share. ``emit`` shows progress (any value) to whoever watches the run.
    ``idempotency_key`` is the same whenever this call of this run is run.
    """

    call: ToolCall
    agent: str
    run: str
    thread: str
    path: Sequence[Entry]
    values: dict[str, Any]
    emit: Callable[[Any], None]
    show: Callable[[Any], None]
    """Shows an ``AgentEvent`` as it is; for tools that run agents."""
    idempotency_key: str
    deps: Any = None
    host: Any = None
    """The ``RunContext`` of the run that calls it; what a tool asks of models itself, it tells ``host.spend``."""


class AgentTool(Struct, frozen=True, kw_only=True):
    """A tool that the loop can run. Made by ``function_tool``, ``schema_tool``, ``mcp_tools``, or by hand.

    ``timeout`` is in seconds (``None``: none). ``limit`` is the most characters of text that the model is sent of a
    result; ``None`` leaves it to the agent.
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
    """What this tool demands, whatever the policy says: one that asks the user can only be answered."""
    scope: str | None = None
    """Where it comes from: the name of an MCP server, of a middleware."""

    def __post_init__(self) -> None:
        """Refuse values of another type, and sizes below 0. Raises ``MessageError``, which names the field."""
        check_arguments("AgentTool", AgentTool, structs.asdict(self))
        for name, size in (("timeout", self.timeout), ("limit", self.limit)):
            if size is not None and not size >= 0:
                raise MessageError(f"{name}: {size}: expected a number from 0 on, or None")

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.definition.name

    @property
    def is_repeatable(self) -> bool:
        """Whether a call may be run again without being asked."""
        return (self.repeatable or self.effect == "read") and not self.once


# --- tool names -------------------------------------------------------------------------------------------------------


_LEGAL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_OTHER: Final = re.compile(r"[^a-z0-9_]")
_LOWER: Final = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})


def legal(name: str) -> str:
    """Give ``name`` back, where every wire takes it. Raises ``MessageError`` where one does not."""
    if not _LEGAL.fullmatch(name):
        msg = (
            f"{excerpt(name, 40)!r} is no name for a tool: a name is a letter or “_”, and up to 63 letters, digits, "
            "“_” and “-” behind it"
        )
        raise MessageError(msg)
    return name


def normalized(name: str) -> str:
    """``Read-File`` and ``read file`` are ``read_file``."""
    return _OTHER.sub("_", name.translate(_LOWER)) or "_"


def unknown_tool(name: str, names: Iterable[str]) -> str:
    """What a model is told that calls a tool that is not there (DAS-24)."""
    available = ", ".join(names)
    return f"Unknown tool {excerpt(name)!r}. Available tools: {available or 'none'}."


def check_names(field: str, names: Iterable[str], known: Iterable[str], kind: str) -> None:
    """Raise ``MessageError`` for a name that is none of those that are known."""
    available = sorted(known)
    if isinstance(names, str):
        raise MessageError(f"{field}: {excerpt(repr(names))} is a text; give a list of names")
    for name in names:
        if name not in available:
            listed = ", ".join(available) or "none"
            raise MessageError(f"{field}: there is no {kind} {excerpt(repr(name))}; there is: {listed}")


@final
class Toolbox:
    """The tools of an agent, in order, each once. Raises ``MessageError`` when two have one name."""

    __slots__ = ("_alike", "_by_name", "definitions", "tools")

    def __init__(self, tools: Iterable[AgentTool] = ()) -> None:
        """Take the tools."""
        self.tools = tuple({id(tool): tool for tool in tools}.values())
        self.definitions: tuple[Tool, ...] = tuple(tool.definition for tool in self.tools)
        self._by_name: dict[str, AgentTool] = {}
        self._alike: dict[str, AgentTool | None] = {}
        for tool in self.tools:
            if tool.name in self._by_name:
                raise MessageError(f"two tools are called {tool.name!r}{_whence(self._by_name[tool.name], tool)}")
            self._by_name[tool.name] = tool
            key = normalized(tool.name)
            self._alike[key] = None if key in self._alike else tool

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._by_name)

    def find(self, name: str) -> AgentTool | None:
        """The tool that ``name`` means: of that name, else the only one spelled alike; ``None`` where there is none."""
        return self._by_name.get(name) or self._alike.get(normalized(name))

    def unknown(self, name: str) -> str:
        """What a model is told when ``find`` gave nothing."""
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
    """JSON that cannot be taken at its word."""


def invalid(call: ToolCall, issues: Iterable[str]) -> InvalidArgumentsError:
    """The error that says what is wrong with a call; of many issues the first few."""
    listed = list(issues)
    text = "; ".join(excerpt(issue, 300) for issue in listed[:_SHOWN])
    more = f"; and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return InvalidArgumentsError(f"Invalid arguments for {excerpt(call.name)!r}: {text}{more}")


def read_arguments(call: ToolCall, repairs: Sequence[str] = ()) -> dict[str, Any]:
    """Read the arguments of a call as an object. Raises ``InvalidArgumentsError``.

    ``repairs`` names the parameters whose value may stand bare, without quotes.
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
    """Read the text of a call of a free-text tool. What is no JSON is the text itself."""
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
                raise _UnfitError(f"the key {excerpt(key, 40)!r} stands twice in one object, with different values")
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
    """32 hexadecimal digits; ``index`` is the place of the call among those of its step."""
    return hashlib.sha256(f"{run}:{step}:{index}".encode()).hexdigest()[:_DIGITS]
