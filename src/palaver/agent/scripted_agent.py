"""Scripted agents: a generator says what an agent does next, and asks its model only when it wants to.

Rules (docs/spec/codebuff.md#4.6, CBF-30):

- The generator yields ``STEP`` (ask the model once, and run what it calls), ``STEP_ALL`` (until it answers without a
  call), or ``call_of(tool, …)``: a call that the script makes itself. It gets a ``Stepped`` for each.
- A call of the script stands in the thread like one of the model's, and is judged and run like one. One with
  ``hidden=True`` leaves no trace: it is judged, and runs at once; where somebody would have to be asked, it fails.
- It may call the agent's tools, those of its middleware, and ``tools`` of its own, which are offered to the model too.
- When the generator is over, so is the run. When it raises, or calls a tool that is not there, an answer says so, and
  ``values["error"]`` does; the run is ``failed``, with the exception as its error, and the thread is whole.
- Each step of the script counts like a call of the model, so that a script that never ends does.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import MessageError, ToolError, excerpt
from palaver.core.factories import assistant
from palaver.core.messages import ToolMessage
from palaver.core.parts import ToolCall
from palaver.core.request import Response
from palaver.core.type_checks import check_arguments
from palaver.models.language_model import Prompt, Reply
from palaver.threads.ids import uuid7
from palaver.threads.thread import Entry
from palaver.turn import tool_output
from palaver.turn.middleware import CallModel, Middleware, RunContext, Step, ToolRequest
from palaver.turn.tool import AgentTool, Output, Toolbox, ToolContext
from palaver.turn.tool_call import run_tool


class _Step(Struct, frozen=True):
    whole: bool


STEP: Final = _Step(whole=False)
STEP_ALL: Final = _Step(whole=True)
ERROR: Final = "error"
"""The key in the values of a run whose script failed."""


class Called(Struct, frozen=True):
    """A call that a script makes."""

    call: ToolCall
    hidden: bool


class Stepped(Struct, frozen=True):
    """What came of a step: the conversation, the result of a call, and whether the model is through."""

    path: Sequence[Entry]
    result: ToolMessage | Output | None = None
    complete: bool = False


Script: TypeAlias = Generator[_Step | Called, Stepped, None]


def call_of(tool: str, arguments: Mapping[str, Any] | None = None, *, hidden: bool = False) -> Called:
    """Make a call of the tool named ``tool``, for a script to yield.

    ``arguments`` are those of the call; ``None`` is no arguments. A ``hidden`` call leaves no trace in the thread.
    Raises ``MessageError`` for arguments that are not JSON.
    """
    check_arguments("call_of", call_of, locals())
    text = bytes(jsontext.checked(dict(arguments or {}), "arguments")).decode()
    return Called(ToolCall(f"script_{uuid7()}", tool, text), hidden)


class _State:
    """Where the script of a run is."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.begun = self.all = self.complete = False
        self.forced: ToolCall | None = None
        self.asked: ToolCall | None = None
        """The call of the script whose result is awaited."""


class Scripted(Middleware):
    """Lets a generator function lead: it gets the run's context. ``tools`` are offered besides the agent's own."""

    def __init__(self, script: Callable[[RunContext], Script], tools: Sequence[AgentTool] = ()) -> None:
        """Keep ``script``, a generator function that each run calls with its context; and ``tools``."""
        check_arguments("Scripted", Scripted.__init__, locals())
        self._script, self._toolbox = script, Toolbox(tools)

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tools of the script."""
        return self._toolbox.tools

    async def before_model(self, context: RunContext) -> Step | None:
        """Go on with the script."""
        state: _State | None = context.own.get(self)
        if state is None:
            state = context.own[self] = _State(_begun(self._script(context)))
        if state.all and not state.complete:
            return None
        try:
            return await self._advanced(state, context)
        except Exception as error:  # noqa: BLE001 (whatever a script raises ends the run)
            text = f"Error executing the script of agent {context.agent}: {excerpt(str(error) or repr(error), 200)}"
            context.values[ERROR] = text
            return Step(inject=(assistant(text).replace(source="agent"),), error=error)

    async def _advanced(self, state: _State, context: RunContext) -> Step | None:
        result: ToolMessage | Output | None = self._awaited(state, context)
        while True:
            stepped = Stepped(context.path(), result, state.complete)
            try:
                said = state.script.send(stepped) if state.begun else next(state.script)
            except StopIteration:
                return Step(jump="end")
            state.begun, state.complete, state.all = True, False, said is STEP_ALL
            if isinstance(said, _Step):
                return None
            if not isinstance(cast("object", said), Called):
                raise MessageError(f"a script yields STEP, STEP_ALL or call_of(…), not {excerpt(repr(said))}")
            tool = context.toolbox.find(said.call.name)
            if tool is None:
                raise MessageError(context.toolbox.unknown(said.call.name))
            if not said.hidden:
                state.forced = state.asked = said.call
                return None
            result = await _run(tool, said.call, context)

    @staticmethod
    def _awaited(state: _State, context: RunContext) -> ToolMessage | None:
        asked, state.asked = state.asked, None
        if asked is not None:
            for entry in reversed(context.path()):
                if isinstance(entry.message, ToolMessage) and entry.message.tool_call_id == asked.id:
                    return entry.message
        return None

    async def wrap_model_call(self, prompt: Prompt, context: RunContext, call: CallModel) -> Reply:
        """Answer in the model's place where the script calls a tool."""
        state: _State = context.own[self]
        forced, state.forced = state.forced, None
        if forced is None:
            return await call(prompt)
        return Reply(response=Response(assistant(forced).replace(finish_reason="tool_calls")), model=context.model)

    async def after_model(self, context: RunContext) -> Step | None:
        """When the model is through, the script goes on."""
        state: _State = context.own[self]
        state.complete = context.message is not None and not context.message.tool_calls
        return Step(jump="model") if state.complete else None

    async def after_agent(self, context: RunContext) -> None:
        """Close the script."""
        state: _State | None = context.own.pop(self, None)
        if state is not None:
            state.script.close()


def _begun(script: object) -> Script:
    """A script that a generator function made. Raises ``MessageError`` for anything else."""
    if not isinstance(script, Generator):
        raise MessageError(f"a script is a generator function; this one returned {excerpt(repr(script))}")
    return cast("Script", script)


async def _run(tool: AgentTool, call: ToolCall, context: RunContext) -> Output:
    """Run a hidden call, with all middleware around it."""
    try:
        arguments = tool.check(call)
        await _allowed(tool, call, context)
    except Exception as error:  # noqa: BLE001 (whatever a tool raises is told to the script)
        return tool_output.error_output(error)
    assert context.call_tool is not None  # noqa: S101 (a driver gives it)
    request = ToolRequest(tool=tool, arguments=arguments, context=_context(call, context), hidden=True)
    return (await run_tool(request, context.call_tool))[0]


async def _allowed(tool: AgentTool, call: ToolCall, context: RunContext) -> None:
    rule = None if context.judge is None else await context.judge(call, tool)
    if tool.rule is not None and (rule is None or rule.judgement != "deny"):
        rule = tool.rule
    if rule is not None and rule.judgement != "allow":
        raise ToolError(rule.text or f"The {tool.name} tool may not be called here. {rule.reason}".strip())


def _context(call: ToolCall, context: RunContext) -> ToolContext:
    return ToolContext(
        call=call,
        agent=context.agent,
        run=context.run,
        thread=context.thread,
        path=context.path(),
        values=context.values,
        emit=lambda _: None,
        show=context.emit,
        idempotency_key=call.id,
        deps=context.deps,
        host=context,
    )
