"""A todo list for an agent: ``write_todos``, a section of its instructions, and the list of an earlier run.

Rules (docs/spec/deepagents-swift.md#8.3, DAS-26):

- The list is in ``values["todos"]``. A run that begins without one takes it from its thread, so that another process
  goes on with it; what the application gives in ``values`` holds.
- A call that changed the list is told as ``ValuesChanged``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palaver.agent.events import ValuesChanged
from palaver.agent.middleware import CallTool, Middleware, RunContext, Step, ToolRequest
from palaver.agent.todos import TODOS, WRITE_TODOS, last_todos, todo_tool
from palaver.agent.tool import AgentTool, Output
from palaver.core.argument_types import check_arguments

INSTRUCTIONS: Final = (
    f"For a task of several steps, keep a list with {WRITE_TODOS}: write it before you begin, have one item in "
    "progress at a time, and mark each completed as soon as it is done. A task of one step needs no list."
)


class TodoList(Middleware):
    """Offers ``write_todos`` and says when to use it."""

    def __init__(self, instructions: str = INSTRUCTIONS) -> None:
        """Set what the model is told of the list."""
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
