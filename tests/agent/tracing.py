"""A model, tools and hooks that pass a counter at every await, so that a run can be cancelled at any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from msgspec import Struct

import palaver as p
from palaver.agent.agent import Agent
from palaver.agent.functions import function_tool
from palaver.core.errors import TransportError
from palaver.models.language_model import LanguageModel
from palaver.models.scripted import Broken, ScriptedModel
from palaver.turn.approvals import approve, reject
from palaver.turn.limits import Limits
from palaver.turn.middleware import Middleware
from palaver.turn.tool import ToolContext


class Points:
    """Counts awaits; at the ``stop``-th it calls ``then``."""

    def __init__(self, stop: int = 0, then: Callable[[], Any] = lambda: None) -> None:
        self.count, self.stop, self.then = 0, stop, then
        self.stopped_at = ""

    def touch(self, where: str) -> None:
        """Mark a place where an outside event may happen although nothing is awaited."""
        self.count += 1
        if self.count == self.stop:
            self.stopped_at = where
            self.then()

    async def __call__(self, where: str) -> None:
        self.touch(where)
        await checkpoint()


class TracedModel(LanguageModel):
    """Another model, with a point at each await."""

    def __init__(self, inner: ScriptedModel, points: Points) -> None:
        self.inner, self.points = inner, points

    name = property(lambda self: self.inner.name)
    capabilities = property(lambda self: self.inner.capabilities)

    def session(self) -> Any:
        return _Session(self)


class _Session:
    def __init__(self, model: TracedModel) -> None:
        self.model, self.inner = model, model.inner.session()

    def ask(self, prompt: Any, **how: Any) -> Any:
        return _Answer(self.model.points, self.inner.ask(prompt, **how))


class _Answer:
    def __init__(self, points: Points, inner: Any) -> None:
        self.points, self.inner = points, inner

    async def __aenter__(self) -> Any:
        await self.points("model: entered")
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.inner.__aexit__(*error)

    def __aiter__(self) -> Any:
        self.events = self.inner.__aiter__()
        return self

    async def __anext__(self) -> Any:
        event = await self.events.__anext__()
        await self.points("model: event")
        return event

    async def finish(self) -> Any:
        await self.points("model: finish")
        reply = await self.inner.finish()
        self.points.touch("model: finished")
        return reply

    so_far = property(lambda self: self.inner.so_far)


class Hooks(Middleware):
    """A point in every hook; raises at the ``fails``-th call of one."""

    def __init__(self, points: Points, fails: int = 0) -> None:
        self.points, self.fails, self.calls = points, fails, 0

    async def _hook(self, name: str) -> None:
        self.calls += 1
        await self.points(f"hook: {name}")
        if self.calls == self.fails:
            raise ValueError(f"{name} fails")

    async def before_agent(self, context: Any) -> None:
        await self._hook("before_agent")

    async def before_model(self, context: Any) -> None:
        await self._hook("before_model")

    async def after_model(self, context: Any) -> None:
        await self._hook("after_model")

    async def after_agent(self, context: Any) -> None:
        await self._hook("after_agent")

    async def wrap_model_call(self, prompt: Any, context: Any, call: Any) -> Any:
        await self.points("hook: wrap_model")
        reply = await call(prompt)
        await self.points("hook: wrapped_model")
        return reply

    async def wrap_tool_call(self, request: Any, context: Any, call: Any) -> Any:
        await self.points("hook: wrap_tool")
        return await call(request)


class Scene(Struct, frozen=True, kw_only=True):
    """The course of a run: turns of the model, decisions, a failing hook, and added messages."""

    turns: tuple[Any, ...]
    decides: str = "approve"
    fails: int = 0
    steers: tuple[int, ...] = ()
    repeats: str = "run"


def turn(kind: Any) -> Any:
    """Return a turn of the script, from values of hypothesis."""
    what, parts = kind
    if what == "error":
        return TransportError("nobody answered")
    message = p.AssistantMessage(content=tuple(parts))
    if what == "broken":
        return Broken(message)
    calls = any(isinstance(each, p.ToolCall) for each in parts)
    return message.replace(finish_reason="tool_calls" if calls else "stop")


def tools(points: Points, finished: list[str]) -> list[Any]:
    """Return tools that read, write, raise and sleep. ``finished`` gets the result of each."""

    def done(context: ToolContext, x: int) -> str:
        said = f"<{context.call.name} {context.call.id} {x} {len(finished)}>"
        finished.append(said)
        points.touch("tool: done")
        return said

    async def look(x: int, context: ToolContext) -> str:
        """Look."""
        await points("tool: look")
        return done(context, x)

    async def note(x: int, context: ToolContext) -> str:
        """Write."""
        await points("tool: note")
        return done(context, x)

    async def boom(x: int) -> str:
        """Raise."""
        await points("tool: boom")
        raise ValueError(f"boom {x}")

    async def slow(x: int) -> str:
        """Sleep for ever."""
        await points("tool: slow")
        await anyio.sleep(60)
        return "never"

    return [
        function_tool(look, effect="read"),
        function_tool(note),
        function_tool(boom, effect="read"),
        function_tool(slow, timeout=0.002),
    ]


def agent(scene: Scene, points: Points, finished: list[str]) -> Agent:
    """Return the agent of a scene."""
    model = ScriptedModel([turn(each) for each in scene.turns], then="The end.")

    async def policy(call: p.ToolCall) -> str:
        await points("policy")
        return "ask" if call.name == "note" and call.arguments_json == '{"x": 2}' else "allow"

    async def decide(requests: Any) -> Any:
        await points("decide")
        does = {"approve": approve, "reject": reject}.get(scene.decides)
        return {} if does is None else {each.call.id: does() for each in requests}

    return Agent(
        TracedModel(model, points),
        tools=tools(points, finished),
        policy=policy,
        decide=decide,
        middleware=[Hooks(points, scene.fails)],
        limits=Limits(iterations=8, recoveries=2, repeats=scene.repeats),
    )
