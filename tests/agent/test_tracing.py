"""Spans: docs/spec/kairo.md#7, KAI-29, D41; https://opentelemetry.io/docs/specs/semconv/gen-ai/."""

from __future__ import annotations

import json

import anyio
import anyio.lowlevel
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as convention
from opentelemetry.trace import SpanKind, StatusCode

import palaver as p
from palaver.agent import Agent, function_tool
from palaver.agent.guardrails import Guardrail, deny
from palaver.agent.subagents import subagents
from palaver.core.errors import OverloadedError, TransportError
from palaver.core.request import Settings
from palaver.core.usage import Usage
from palaver.models.language_model import Notice, Reply
from palaver.models.scripted import ScriptedModel
from palaver.turn.tracing import Tracing


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("test")
    provider.shutdown()


def call(name, id="c1", arguments="{}"):
    return p.ToolCall(id=id, name=name, arguments_json=arguments)


@function_tool(effect="read")
def look(secret: str = "") -> str:
    """Look."""
    return "a private result"


def tree(exporter):
    spans = {span.context.span_id: span for span in exporter.get_finished_spans()}
    return sorted((span.name, spans[span.parent.span_id].name if span.parent else None) for span in spans.values())


def named(exporter, name):
    (span,) = [span for span in exporter.get_finished_spans() if span.name == name]
    return span


def agent(script, tracer, *more, content=False, **how):
    how.setdefault("tools", [look])
    model = ScriptedModel(script, name="anthropic/claude-x")
    return Agent(model, middleware=[Tracing(tracer, content=content), *more], **how)


USED = Usage(input=10, cache_read=5, cache_write=2, output=7, reasoning=3)


@pytest.mark.row("KAI-29")
@pytest.mark.anyio
async def test_the_keys_of_every_span_are_exported(exporter, tracer):
    calling = p.assistant("private words", call("look", arguments='{"secret": "s3"}')).replace(
        usage=USED, model="claude-x-1", response_id="r1"
    )
    made = agent([calling, p.assistant("done").replace(usage=Usage(input=1, output=1))], tracer)
    made = made.replace(settings=Settings(max_tokens=50, temperature=0.5, stop=("x",)), prices=lambda *_: 0.25)
    run = await made.run("a private question")
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == [
        "chat claude-x",
        "execute_tool look",
        "chat claude-x",
        "invoke_agent agent",
    ]
    chat, tool, _, whole = [dict(span.attributes) for span in spans]
    common = {"gen_ai.conversation.id": run.thread.id, "gen_ai.agent.name": "agent"}
    model = {"gen_ai.provider.name": "anthropic", "gen_ai.request.model": "claude-x"}
    assert chat == common | model | {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stop_sequences": ("x",),
        "gen_ai.response.model": "claude-x-1",
        "gen_ai.response.id": "r1",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 17,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 3,
        "palaver.attempts": 1,
    }
    assert tool == common | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
    }
    assert whole == common | model | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.usage.input_tokens": 18,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 3,
        "palaver.run.id": run.id,
        "palaver.run.outcome": "completed",
        "palaver.run.iterations": 2,
        "palaver.run.cost_usd": 0.5,
    }
    known = {value for name, value in vars(convention).items() if name.startswith("GEN_AI_") and isinstance(value, str)}
    ours = {key for span in spans for key in span.attributes if not key.startswith("palaver.")}
    assert ours <= known
    assert [span.kind for span in spans] == [SpanKind.CLIENT, SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL]
    assert all(span.status.status_code is StatusCode.UNSET for span in spans)
    assert "private" not in "".join(span.to_json() for span in spans), "content is off"
    assert "s3" not in "".join(span.to_json() for span in spans)


@pytest.mark.row("KAI-29")
@pytest.mark.anyio
async def test_content_is_recorded_when_it_is_asked_for(exporter, tracer):
    script = [p.assistant(p.Reasoning("hm"), call("look", arguments='{"secret": "s"}')), "done"]
    await agent(script, tracer, content=True, instructions="Be kind.").run("question")
    first, tool, second, _ = exporter.get_finished_spans()
    read = lambda span, key: json.loads(span.attributes[key])  # noqa: E731
    assert read(first, "gen_ai.system_instructions") == [{"type": "text", "content": "Be kind."}]
    question = {"role": "user", "parts": [{"type": "text", "content": "question"}]}
    assert read(first, "gen_ai.input.messages") == [question]
    parts = [
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": '{"secret": "s"}'},
    ]
    assert read(first, "gen_ai.output.messages") == [
        {"role": "assistant", "parts": parts, "finish_reason": "tool_calls"}
    ]
    response = {"type": "tool_call_response", "id": "c1", "response": "a private result"}
    assert read(second, "gen_ai.input.messages") == [
        question,
        {"role": "assistant", "parts": parts},
        {"role": "tool", "parts": [response]},
    ]
    assert tool.attributes["gen_ai.tool.call.arguments"] == '{"secret": "s"}'
    assert tool.attributes["gen_ai.tool.call.result"] == "a private result"


@pytest.mark.row("KAI-29")
@pytest.mark.anyio
async def test_spans_of_tools_and_sub_agents_are_nested(exporter, tracer):
    @function_tool(effect="read")
    async def dig() -> str:
        """Dig."""
        with tracer.start_as_current_span("mine"):
            await anyio.lowlevel.checkpoint()
        return "dug"

    child = agent([p.assistant(call("dig")), "found"], tracer, tools=[dig], name="digger")
    task = call("task", "t", '{"description": "dig", "agent": "digger"}')
    await agent([p.assistant(task, call("look", "l")), "done"], tracer, subagents([child])).run("x")
    assert tree(exporter) == [
        ("chat claude-x", "invoke_agent agent"),
        ("chat claude-x", "invoke_agent agent"),
        ("chat claude-x", "invoke_agent digger"),
        ("chat claude-x", "invoke_agent digger"),
        ("execute_tool dig", "invoke_agent digger"),
        ("execute_tool look", "invoke_agent agent"),
        ("execute_tool task", "invoke_agent agent"),
        ("invoke_agent agent", None),
        ("invoke_agent digger", "execute_tool task"),
        ("mine", "execute_tool dig"),
    ]


@pytest.mark.row("KAI-29")
@pytest.mark.anyio
async def test_failures_are_recorded_shortly(exporter, tracer):
    await agent([TransportError("refused by the server " + "x" * 500)], tracer).run("x")
    chat, whole = exporter.get_finished_spans()
    for span in (chat, whole):
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == "transport"
        (event,) = span.events
        assert event.attributes["exception.type"] == "TransportError"
        assert len(event.attributes["exception.message"]) <= 80
        assert "exception.stacktrace" not in event.attributes


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("fault", "kind"), [("raise", "RuntimeError"), ("hang", "timeout"), ("error", "ToolError"), ("cancel", "cancelled")]
)
async def test_a_tool_that_fails_is_marked(exporter, tracer, fault, kind):
    @function_tool(timeout=0.03 if fault == "hang" else None)
    async def work() -> object:
        """Work."""
        if fault == "raise":
            raise RuntimeError("no")
        if fault == "error":
            return p.agent.Output(is_error=True, content=(p.Text("x"),), metadata={"error_code": "ToolError"})
        if fault == "cancel":
            scope.cancel()
        return await anyio.sleep_forever()

    made = agent([p.assistant(call("work")), "done"], tracer, tools=[work])
    with anyio.fail_after(60), anyio.CancelScope() as scope:
        await made.run("x")
    span = named(exporter, "execute_tool work")
    assert (span.attributes["error.type"], span.status.status_code) == (kind, StatusCode.ERROR)
    whole = named(exporter, "invoke_agent agent")
    assert whole.attributes["palaver.run.outcome"] == ("cancelled" if fault == "cancel" else "completed")


@pytest.mark.anyio
async def test_what_a_guardrail_blocks_is_marked(exporter, tracer):
    await agent(["hi"], tracer, Guardrail(after_model=[lambda *_: deny("no")])).run("x")
    chat, whole = exporter.get_finished_spans()
    assert (chat.attributes["error.type"], whole.attributes["error.type"]) == ("blocked", "blocked")


@pytest.mark.row("KAI-29")
@pytest.mark.anyio
async def test_retries_and_fallbacks_are_events_of_the_call(exporter, tracer):
    class Retried(ScriptedModel):
        def session(self):
            inner = super().session()

            class Session:
                def ask(self, prompt, *, on_notice=None, **_how):
                    error = OverloadedError("w", "full", status=529)
                    on_notice(Notice(kind="retry", model="a/x", error=error, attempt=1, wait=0.5))
                    on_notice(Notice(kind="fallback", model="google/y", error=error, attempt=2))
                    return Answered(inner.ask(prompt))

            return Session()

    class Answered:
        def __init__(self, inner):
            self.inner = inner

        async def __aenter__(self):
            await self.inner.__aenter__()
            return self

        async def __aexit__(self, *exc):
            return None

        so_far = None

        async def finish(self):
            reply = await self.inner.finish()
            return Reply(response=reply.response, model="google/y", attempts=3, first_token_seconds=0.25)

    await Agent(Retried(["hi"], name="a/x"), middleware=[Tracing(tracer)]).run("x")
    span = named(exporter, "chat y")
    assert [(event.name, dict(event.attributes)) for event in span.events] == [
        (
            "palaver.retry",
            {"palaver.model": "a/x", "palaver.attempt": 1, "palaver.wait": 0.5, "error.type": "overloaded"},
        ),
        (
            "palaver.fallback",
            {"palaver.model": "google/y", "palaver.attempt": 2, "palaver.wait": 0.0, "error.type": "overloaded"},
        ),
    ]
    assert span.attributes["gen_ai.provider.name"] == "gcp.gemini"
    assert span.attributes["gen_ai.response.time_to_first_chunk"] == 0.25
    assert span.attributes["palaver.attempts"] == 3


@pytest.mark.anyio
async def test_a_hook_that_fails_leaves_no_span_open(exporter, tracer):
    class Bad(p.agent.Middleware):
        async def before_agent(self, _context):
            raise RuntimeError("bad")

    run = await agent(["hi"], tracer, Bad()).run("x")
    assert run.outcome == "failed"
    assert named(exporter, "invoke_agent agent").attributes["error.type"] == "RuntimeError"


def test_palaver_stays_light():
    import subprocess
    import sys

    code = "import sys, palaver.agent; print('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_provider_where_a_tracer_is_expected_is_refused_by_name():
    with pytest.raises(p.MessageError, match="tracer: expected a tracer"):
        Tracing(TracerProvider())
