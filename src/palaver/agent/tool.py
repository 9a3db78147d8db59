"""What a tool is to the loop: its definition, what it does to the world, and how it is run.

Rules:

- ``effect`` says what a call does: ``read`` changes nothing, so several may run at once, and may be run again after a
  crash; ``write`` is everything else, and runs alone, in the model's order. What is not said is ``write``.
- ``check`` reads the arguments of a call; it raises ``InvalidArgumentsError``, whose text is what the model is told.
  ``run`` gets what ``check`` gave, and the context of the call. It gives an ``Output``; whatever it raises becomes an
  error result, and only cancellation goes through.
- ``repeatable`` says that running a call a second time does no harm. A tool that reads is repeatable, unless it says
  ``once``: it stands beside others, and is not run a second time without being asked (sub-agents).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from palaver.agent.permission import Rule
from palaver.core.argument_types import check_arguments
from palaver.core.errors import ToolError
from palaver.core.parts import ToolCall, ToolPart
from palaver.core.tools import Tool
from palaver.threads.thread import Entry

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
        """Refuse values of another type. Raises ``MessageError``, which names the field."""
        check_arguments("AgentTool", AgentTool, structs.asdict(self))

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.definition.name

    @property
    def is_repeatable(self) -> bool:
        """Whether a call may be run again without being asked."""
        return (self.repeatable or self.effect == "read") and not self.once
