"""A list of what is to be done, which the model keeps with the tool ``write_todos``.

Rules (docs/spec/deepagents-swift.md#8.3, DAS-26):

- A call replaces the whole list; an empty list clears it. Items may be objects or text, alone or in a list, and their
  fields go by several names. A status that is not known is ``pending``. Items that cannot be read are skipped; when
  that leaves nothing of a list that was not empty, the call is refused, and the list stays as it was.
- The list is in ``values["todos"]`` of the run, and in the metadata of the result (``todos``), so that a later process
  finds it in the thread: ``last_todos``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from palaver.agent import loose
from palaver.agent.tool import AgentTool, InvalidArgumentsError, Output, ToolContext
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import Text, ToolCall
from palaver.core.tools import Tool
from palaver.threads.thread import Entry

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
    items = loose.items(given, TODOS)
    if items is None:
        raise InvalidArgumentsError("todos: expected a list of objects with content and status")
    todos = tuple([todo for item in items if (todo := _todo(item)) is not None])
    if items and not todos:
        raise InvalidArgumentsError("todos: no item has content; an empty list clears")
    return todos


def _todo(item: Any) -> Todo | None:
    content = loose.text(item, _CONTENT)
    if content is None:
        return None
    status = (loose.text(item, _STATUS) if isinstance(item, dict) else None) or ""
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
    return parse_todos(loose.arguments(call))


def todo_tool() -> AgentTool:
    """The tool ``write_todos``."""
    return AgentTool(definition=_DEFINITION, run=_run, check=_check, repeatable=True)


# -- from a thread ---------------------------------------------------------------------------------------------------


def last_todos(path: Sequence[Entry]) -> tuple[Todo, ...] | None:
    """The list as the last call of ``write_todos`` that succeeded left it; ``None`` when there was none.

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
