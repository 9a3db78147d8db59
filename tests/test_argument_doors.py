"""Every parameter of what users call refuses a value of a wrong type, by its name, where it is given."""

from __future__ import annotations

import inspect
import types
from typing import Any

import anyio
import pytest
from msgspec import Raw

import palaver as p
from palaver import agent, models, store, threads, wires
from palaver.core.errors import PalaverError
from palaver.models.providers.row import endpoint_for
from palaver.store.memory import MemoryStore

MODEL = models.ScriptedModel(["hi"])


def look(path: str = "") -> str:
    """Look."""
    return path


TOOL = agent.function_tool(look)

WIRE = wires.get("openai_chat")
STORE = MemoryStore()
STORE.create("t")

DOORS: list[tuple[Any, dict[str, Any]]] = [
    (STORE.path, {"thread": "t"}),
    (STORE.read, {"thread": "t"}),
    (STORE.search, {}),
    (STORE.threads, {}),
    (WIRE.encode_request, {"request": p.Request()}),
    (WIRE.encode_response, {"response": p.Response(p.assistant("a"))}),
    (WIRE.request_encoder, {"request": p.Request()}),
    (store.open_store, {}),
    (wires.get, {"name": "openai_chat"}),
    (p.Image.from_bytes, {"data": b""}),
    (p.Tool.of, {"name": "a"}),
    (p.content_hash, {}),
    (p.dump_conversation, {}),
    (p.dumps, {}),
    (p.hash_chain, {"payloads": ["a"]}),
    (p.loads, {"data": b"{}"}),
    (p.load_conversation, {}),
    (agent.Agent, {"model": MODEL}),
    (agent.AgentTool, {"definition": TOOL.definition, "run": TOOL.run, "check": TOOL.check}),
    (agent.Answers, {}),
    (agent.PromptCache, {}),
    (agent.Compactor, {}),
    (agent.Guardrail, {}),
    (agent.Limits, {}),
    (agent.Output, {}),
    (agent.PlanMode, {}),
    (agent.Question, {"question": "why"}),
    (agent.Rule, {"judgement": "ask"}),
    (agent.Scripted, {"script": look}),
    (agent.Offload, {}),
    (agent.Step, {}),
    (agent.TodoList, {}),
    (agent.ToolBreaker, {}),
    (agent.Tracing, {}),
    (agent.Verdict, {"kind": "deny"}),
    (agent.ask_user_tool, {}),
    (agent.call_of, {"tool": "look"}),
    (agent.compact, {"thread": threads.Thread()}),
    (agent.deny, {}),
    (agent.function_tool, {}),
    (agent.pending, {"thread": threads.Thread()}),
    (agent.schema_tool, {"name": "f", "description": None, "parameters": {"type": "object"}, "run": look}),
    (agent.subagents, {"agents": [agent.Agent(MODEL, name="kid")]}),
    (agent.undo, {"thread": threads.Thread()}),
    (agent.all_pending, {"store": MemoryStore()}),
    (agent.warn, {}),
    (models.ApiKey, {}),
    (models.Capabilities, {}),
    (models.Fallback, {"models": [MODEL]}),
    (models.FunctionModel, {"function": look}),
    (models.Http, {}),
    (models.Model, {"name": "a", "id": "a", "endpoint": endpoint_for("a", "openai_chat", "http://a.invalid")}),
    (models.Prices, {"input": 1.0, "output": 1.0}),
    (models.Retry, {}),
    (models.ScriptedModel, {"script": []}),
    (models.Timeouts, {}),
    (models.complete, {"model": MODEL, "request": p.Request()}),
    (models.model, {"name": "openai/a"}),
    (threads.AgentView, {"agent": "a"}),
    (threads.ModelView, {}),
    (threads.Thread, {}),
    (threads.repair, {"messages": [p.user("a"), p.tool("b", tool_call_id="c")]}),
]
ANYTHING = {
    ("Agent", "output"),  # whatever pydantic or msgspec reads
    ("Http", "client"),  # of httpx, which is loaded late
    ("Output", "content"),  # whatever a tool gives back
    ("ScriptedModel", "then"),  # whatever a turn may be
    ("Tracing", "tracer"),  # of an extra
    ("Verdict", "value"),  # what passes in the place of another thing
    ("decode", "data"),  # whatever JSON can say
    ("decode", "cls"),  # msgspec says what it cannot read
    ("repair", "messages"),  # long, and read on every turn
}
"""Parameters that take any type, or are read by another library."""


def cases():
    for call, base in DOORS:
        for each in inspect.signature(call).parameters.values():
            if each.annotation != "Any" and (call.__name__, each.name) not in ANYTHING:
                yield pytest.param(call, base, each, id=f"{call.__name__}.{each.name}")


@pytest.mark.finding("F-16")
@pytest.mark.finding("F-01")
@pytest.mark.parametrize(("call", "base", "parameter"), list(cases()))
def test_a_wrong_type_is_one_error_that_names_the_parameter(call, base, parameter):
    """A module stands for what is given by mistake: it is no text, no number, no list, no function and no value."""
    wrong = types.ModuleType("wrong")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        arguments: tuple[Any, ...] = (wrong,)
        named = base
    else:
        arguments, named = (), {**base, parameter.name: wrong}

    def called():
        made = call(*arguments, **named)
        if inspect.isgenerator(made):
            return list(made)
        return anyio.run(_awaited, made) if inspect.isawaitable(made) else made

    with pytest.raises((PalaverError, TypeError), match=rf"\b{parameter.name}\b"):
        called()


async def _awaited(made):
    return await made


@pytest.mark.finding("F-16")
@pytest.mark.parametrize(
    "call",
    [
        lambda: agent.Guardrail(on_error="alow"),
        lambda: agent.Rule(judgement="alow"),
        lambda: models.model("openai/a", missing="refused"),
        lambda: models.model("openai/a", metadata="session_id"),
        lambda: agent.ToolBreaker(failures=True),
        lambda: agent.function_tool(look, effect="raed"),
        lambda: agent.function_tool(look, repairs="path"),
        lambda: p.hash_chain("abc"),
        lambda: p.load_conversation(10**15),
        lambda: WIRE.encode_request(p.Request(), losses="rais"),
        lambda: WIRE.encode_request(p.Request(), losses=True),
        lambda: WIRE.encode_request(p.Request(), takes={"imag"}),
        lambda: WIRE.encode_request(p.Request(), takes="image"),
        lambda: WIRE.encode_response(p.Response(p.assistant("a")), losses="rais"),
        lambda: WIRE.request_encoder(p.Request(), takes={"imag"}),
        lambda: WIRE.stream_encoder().feed(b"x"),
        lambda: agent.usage_of(5),
        lambda: agent.usage_of("x"),
        lambda: agent.function_tool(look, timeout=-1),
        lambda: agent.function_tool(look, timeout=float("nan")),
        lambda: agent.function_tool(look, limit=-1),
        lambda: agent.Limits(seconds=float("nan")),
        lambda: p.user(provider={"openai_chat": 5}),
        lambda: p.user().replace(provider={"openai_chat": [1]}),
        lambda: p.Tool.of("a", "b", [1]),
        lambda: models.ScriptedModel("hello"),
        lambda: store.open_store("x" * 300),
        lambda: store.open_store("nope:x"),
        lambda: store.open_store(":memory:"),
        lambda: threads.repair([p.user("a"), p.tool("b", tool_call_id="c")], orphans="kept"),
    ],
)
def test_a_word_that_means_nothing_is_refused(call):
    """What was taken for another word opened a door, or did nothing, in silence."""
    with pytest.raises(PalaverError):
        call()


def test_what_is_right_is_taken():
    assert p.loads(Raw(b'{"role":"user"}')) == p.user()
    for call, base in DOORS:
        if isinstance(call, type):
            call(**base)
