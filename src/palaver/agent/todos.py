"""A list of what is to be done, which the model keeps with the tool ``write_todos``.

Rules (docs/spec/deepagents-swift.md#8.3, DAS-26):

- A call replaces the whole list; an empty list clears it. Items may be objects or text, alone or in a list, and their
  fields go by several names. A status that is not known is ``pending``. Items that cannot be read are skipped; when
  that leaves nothing of a list that was not empty, the call is refused, and the list stays as it was.
- The list is in ``values["todos"]`` of the run, and in the metadata of the result (``todos``), so that a later process
  finds it in the thread: ``last_todos``.

A todo list for an agent: ``write_todos``, a section of its instructions, and the list of an earlier run
(docs/spec/deepagents-swift.md#8.3, DAS-26):

- The list is in ``values["todos"]``. A run that begins without one takes it from its thread, so that another process
  goes on with it; what the application gives in ``values`` holds.
- A call that changed the list is told as ``ValuesChanged``.

Plan mode: as long as it is on, tools that write are not run (docs/spec/kairo.md#2.12, KAI-18):

- It is on while ``values["plan_mode"]`` is true; tools, middleware and the application may switch it at any time.
- A call of a tool that writes has an error result; what reads runs. Sub-agents run, and are held to the same.
- A call is judged when it is planned, before anybody is asked to approve it, and again when its turn has come.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from palaver.agent import lenient_arguments
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import Text, ToolCall
from palaver.core.tools import Tool
from palaver.core.type_checks import check_arguments
from palaver.threads.thread import Entry
from palaver.turn.events import ValuesChanged
from palaver.turn.middleware import CallTool, Middleware, RunContext, Step, ToolRequest
from palaver.turn.tool import AgentTool, InvalidArgumentsError, Output, Rule, ToolContext

# --- todos ------------------------------------------------------------------------------------------------------------


Status: TypeAlias = Literal["pending", "in_progress", "completed"]

WRITE_TODOS: Final = "write_todos"
TODOS: Final = "todos"
"""The key in the values of a run, and in the metadata of a result."""

_STATUSES: Final[Mapping[str, Status]] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
}
_MARKS: Final[Mapping[Status, str]] = {"pending": "[ ]", "in_progress": "[~]", "completed": "[x]"}
_CONTENT: Final = ("content", "task", "text", "step", "title", "description", "name")
_STATUS: Final = ("status", "state")


class Todo(Struct, frozen=True):
    """One thing to do."""

    content: str
    status: Status = "pending"


def parse_todos(given: Any) -> tuple[Todo, ...]:
    """Read the list out of parsed arguments. Raises ``InvalidArgumentsError`` when there is none."""
    items = lenient_arguments.items(given, TODOS)
    if items is None:
        raise InvalidArgumentsError("todos: expected a list of objects with content and status")
    todos = tuple([todo for item in items if (todo := _todo(item)) is not None])
    if items and not todos:
        raise InvalidArgumentsError("todos: no item has content; an empty list clears")
    return todos


def _todo(item: Any) -> Todo | None:
    content = lenient_arguments.text(item, _CONTENT)
    if content is None:
        return None
    status = (lenient_arguments.text(item, _STATUS) if isinstance(item, dict) else None) or ""
    return Todo(content, _STATUSES.get(status.lower().replace("-", "_").replace(" ", "_"), "pending"))


def render_todos(todos: Sequence[Todo]) -> str:
    """The list as text: ``[ ]`` is pending, ``[~]`` in progress, ``[x]`` completed."""
    if not todos:
        return "The todo list is empty."
    return "\n".join(f"{_MARKS[todo.status]} {todo.content}" for todo in todos)


# -- the tool --------------------------------------------------------------------------------------------------------

_DEFINITION: Final = Tool.of(
    WRITE_TODOS,
    "Keep a list of what is to be done in a task of several steps. A call replaces the whole list; an empty list "
    "clears it. Have one item in_progress at a time, and mark an item completed as soon as it is done.",
    {
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "description": "The whole list, in order.",
                "items": {
                    "type": "object",
                    "properties": {
                        "content": {"type": "string", "description": "What is to be done."},
                        "status": {"type": "string", "enum": list(_STATUSES)},
                    },
                    "required": ["content", "status"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["todos"],
        "additionalProperties": False,
    },
)


async def _run(todos: tuple[Todo, ...], context: ToolContext) -> Output:
    context.values[TODOS] = todos
    kept = [{"content": todo.content, "status": todo.status} for todo in todos]
    return Output(content=(Text(render_todos(todos)),), metadata={TODOS: kept})


def _check(call: ToolCall) -> tuple[Todo, ...]:
    return parse_todos(lenient_arguments.arguments(call))


def todo_tool() -> AgentTool:
    """The tool ``write_todos``."""
    return AgentTool(definition=_DEFINITION, run=_run, check=_check, repeatable=True)


# -- from a thread ---------------------------------------------------------------------------------------------------


def last_todos(path: Sequence[Entry]) -> tuple[Todo, ...] | None:
    """Return the list as the last successful call of ``write_todos`` in ``path`` left it; ``None`` without one.

    The metadata of a result tells its list, also where somebody edited the call; without, the arguments of the call do.
    """
    done: set[str] = set()
    for entry in reversed(path):
        match entry.message:
            case ToolMessage(tool_name=name, is_error=False) as result if name == WRITE_TODOS:
                if TODOS in result.metadata:
                    return parse_todos({TODOS: result.metadata[TODOS]})
                done.add(result.tool_call_id or "")
            case AssistantMessage() as message if done:
                for call in reversed(message.tool_calls):
                    if call.name == WRITE_TODOS and call.id in done:
                        return _check(call)
            case _:
                pass
    return None


# --- todo list --------------------------------------------------------------------------------------------------------


INSTRUCTIONS: Final = (
    f"For a task of several steps, keep a list with {WRITE_TODOS}: write it before you begin, have one item in "
    "progress at a time, and mark each completed as soon as it is done. A task of one step needs no list."
)


class TodoList(Middleware):
    """Offers ``write_todos`` and says when to use it."""

    def __init__(self, instructions: str = INSTRUCTIONS) -> None:
        """Keep ``instructions``, the section of the system prompt that says when to keep a list."""
        check_arguments("TodoList", TodoList.__init__, locals())
        self._instructions, self._tool = instructions, todo_tool()

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tool ``write_todos``."""
        return (self._tool,)

    @property
    def instructions(self) -> str:
        """When to keep a list."""
        return self._instructions

    async def before_agent(self, context: RunContext) -> Step | None:
        """Take the list from the thread."""
        if TODOS not in context.values:
            known = last_todos(context.path())
            if known is not None:
                context.values[TODOS] = known
        return None

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:
        """Tell when the list changed."""
        before = context.values.get(TODOS)
        output = await call(request)
        now = context.values.get(TODOS)
        if request.tool is self._tool and now != before:
            changed = ValuesChanged(agent=context.agent, run=context.run, names=(TODOS,), values={TODOS: now})
            context.emit(changed)
        return output


# --- plan mode --------------------------------------------------------------------------------------------------------


PLAN_MODE: Final = "plan_mode"
"""The key in the values of a run, and the ``error_code`` of a call that was not run."""


class PlanMode(Middleware):
    """Keeps tools from writing. ``allow`` names tools that may be called all the same: one that leaves plan mode."""

    def __init__(self, *, allow: Sequence[str] = ()) -> None:
        """Take the names of tools that are allowed in any mode."""
        check_arguments("PlanMode", PlanMode.__init__, locals())
        self._allow = frozenset(allow)

    async def rule(self, call: ToolCall, tool: AgentTool, context: RunContext) -> Rule | None:  # noqa: ARG002 (a hook)
        """Deny a call that writes."""
        return Rule(judgement="deny", text=_told(tool)) if self._blocks(tool, context) else None

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:
        """Keep a call from running that was planned before the mode was switched on."""
        if self._blocks(request.tool, context):
            return Output(content=(Text(_told(request.tool)),), is_error=True, metadata={"error_code": PLAN_MODE})
        return await call(request)

    def _blocks(self, tool: AgentTool, context: RunContext) -> bool:
        return bool(context.values.get(PLAN_MODE)) and tool.effect != "read" and tool.name not in self._allow


def _told(tool: AgentTool) -> str:
    return (
        f"Tool '{tool.name}' ({tool.effect}) is blocked in plan mode: nothing may be changed now. "
        "Read what you need, and say what you would do."
    )
