"""One call of a model, over a run of an agent and over a turn of a swarm: middleware, limits, spending, receipts."""

from __future__ import annotations

import anyio
import pytest
from msgspec import structs
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import palaver as p
from palaver.agent import Blocked, Limits, Middleware, Step, Tracing
from palaver.core.errors import OverloadedError
from palaver.core.request import Loss
from palaver.core.usage import Usage
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Swarm, SwarmAgent
from palaver.turn import events, middleware
from palaver.turn.run import Run
from tests.swarm.scripts import at_work

pytestmark = pytest.mark.anyio

LOSS = Loss("dropped", "reasoning", "bound to another wire", 0, 0)


def spending(text, input=10, output=5):
    return p.assistant(text).replace(usage=Usage(input=input, output=output))


def prices(model, usage):
    return usage.total / 1000


class Recording(Middleware):
    """Writes down which hooks ran."""

    def __init__(self):
        self.ran = []

    async def before_agent(self, context):
        self.ran.append("before_agent")

    async def before_model(self, context):
        self.ran.append("before_model")

    async def after_model(self, context):
        self.ran.append(f"after_model {context.message.text}")

    async def after_agent(self, context):
        assert isinstance(context.ended, Run)
        self.ran.append(f"after_agent {context.ended.outcome}")

    async def wrap_model_call(self, prompt, context, call):
        self.ran.append("asks")
        reply = await call(prompt)
        self.ran.append("asked")
        return reply


async def test_every_hook_runs_in_order(over):
    each = Recording()
    done = await over(ScriptedModel(["well"]), middleware=[each])
    assert done.shown == "well"
    assert each.ran == [
        "before_agent",
        "before_model",
        "asks",
        "asked",
        "after_model well",
        "after_agent completed",
    ]


async def test_wrappers_change_prompt_and_answer(over):
    class Loud(Middleware):
        async def wrap_model_call(self, prompt, context, call):
            reply = await call(prompt.replace(system=(p.system("Shout."),)))
            message = p.assistant(reply.response.message.text.upper())
            return structs.replace(reply, response=structs.replace(reply.response, message=message))

    done = await over(ScriptedModel(["well"]), middleware=[Loud()])
    assert done.shown == "WELL"
    assert [each.text for each in done.asked[0].system] == ["Shout."]
    assert [each.text for each in done.messages if each.role == "assistant"] == ["WELL"]


async def test_a_message_that_a_hook_injects_reaches_the_model_and_the_thread(over):
    class Reminding(Middleware):
        async def before_model(self, context):
            return Step(inject=(p.user("Be brief.", mode="tool"),))

    done = await over(ScriptedModel(["well"]), middleware=[Reminding()])
    assert done.asked[0].messages[-1].text == "Be brief."
    assert "Be brief." in [each.text for each in done.messages]


async def test_a_hook_that_wants_the_model_again_gets_another_answer(over):
    class Strict(Middleware):
        async def after_model(self, context):
            if context.message.text == "bad":
                return Step(inject=(p.user("Better.", mode="tool"),), jump="model")
            return None

    done = await over(ScriptedModel(["bad", "good"]), middleware=[Strict()])
    assert done.shown == "good"
    assert done.asked[1].messages[-1].text == "Better."


@pytest.mark.parametrize("where", ["wrap_model_call", "after_model"])
async def test_a_blocked_answer_is_shown_to_nobody(over, where):
    class Guard(Middleware):
        pass

    async def wrap(self, prompt, context, call):
        reply = await call(prompt)
        raise Blocked("secret", message=reply.response.message)

    async def after(self, context):
        raise Blocked("secret", message=context.message)

    setattr(Guard, where, wrap if where == "wrap_model_call" else after)
    done = await over(ScriptedModel(["the secret"]), middleware=[Guard()])
    assert (done.run.outcome, done.run.reason) == ("blocked", "secret")
    assert "the secret" not in done.shown


async def test_a_hook_that_hangs_fails_the_run(over, monkeypatch):
    class Hanging(Middleware):
        async def before_model(self, context):
            await anyio.sleep_forever()

    monkeypatch.setattr(middleware, "HOOK_SECONDS", 0.01)
    done = await over(ScriptedModel(["well"]), middleware=[Hanging()])
    assert done.run.outcome == "failed"
    assert isinstance(done.run.error, TimeoutError)
    assert done.asked == []


async def test_what_after_agent_raises_is_a_warning(over):
    class Careless(Middleware):
        async def after_agent(self, context):
            raise ValueError("oh")

    done = await over(ScriptedModel(["well"]), middleware=[Careless()])
    assert (done.run.outcome, done.shown) == ("completed", "well")
    assert [each.text for each in done.of(events.Warned)] == ["after_agent: ValueError: oh"]


async def test_usage_and_cost_are_counted(over):
    done = await over(ScriptedModel([spending("well")], name="scripted/m"), prices=prices)
    assert (done.run.usage.input, done.run.usage.output) == (10, 5)
    assert list(done.run.usage_by_model) == ["scripted/m"]
    assert done.run.cost == pytest.approx(0.015)
    assert done.run.iterations == 1


async def test_an_unknown_price_makes_the_cost_unknown(over):
    done = await over(ScriptedModel([spending("well")]), prices=lambda model, usage: None)  # noqa: ARG005
    assert done.run.cost is None
    assert done.run.usage.total == 15


async def test_what_middleware_spends_counts(over):
    class Asking(Middleware):
        async def before_model(self, context):
            context.spend({"other": Usage(input=3)}, 0.5)

    done = await over(ScriptedModel([spending("well")], name="scripted/m"), middleware=[Asking()], prices=prices)
    assert set(done.run.usage_by_model) == {"scripted/m", "other"}
    assert done.run.cost == pytest.approx(0.515)


class Lossy(Middleware):
    """Gives every answer a receipt with a loss."""

    async def wrap_model_call(self, prompt, context, call):
        return structs.replace(await call(prompt), losses=(LOSS,))


async def test_a_loss_is_published_once(over):
    class Twice(Middleware):
        async def after_model(self, context):
            return Step(jump="model") if context.message.text == "one" else None

    done = await over(ScriptedModel(["one", "two"]), middleware=[Lossy(), Twice()])
    assert [(each.model, each.losses) for each in done.of(events.Lost)] == [("scripted/model", (LOSS,))]


async def test_a_failing_model_is_the_error_of_the_run(over):
    error = OverloadedError("openai_chat", "busy")
    done = await over(ScriptedModel([error]))
    assert done.run.outcome == "failed"
    assert done.run.error is error


async def test_a_budget_ends_the_run_between_two_calls(over):
    class Again(Middleware):
        async def after_model(self, context):
            return Step(jump="model")

    model = ScriptedModel([], then=spending("more"))
    done = await over(model, middleware=[Again()], limits=Limits(tokens=30))
    assert (done.run.outcome, done.run.reason) == ("budget", "30 of 30 tokens")
    assert len(done.asked) == 2


async def test_the_last_call_that_the_limit_allows_is_made_without_tools(over):
    def look() -> str:
        """Look."""
        return "a ship"

    call = p.tool_call("look", {}, id="c1")
    model = ScriptedModel([p.assistant(tool_calls=[call]), "a ship"])
    done = await over(model, tools=[look], limits=Limits(iterations=2))
    assert (done.run.outcome, done.shown) == ("max_iterations", "a ship")
    assert [bool(each.tools) for each in done.asked] == [True, False]


async def test_observers_get_the_events_of_a_run(over):
    done = await over(ScriptedModel(["well"]))
    kinds = [type(each) for each in done.events]
    assert kinds[0] is events.RunStarted
    assert kinds[-1] is events.RunFinished
    assert kinds.count(events.IterationStarted) == 1
    assert "".join(each.text for each in done.of(events.TextDelta)) == "well"
    assert done.events[-1].result.outcome == "completed"


async def test_spans_of_a_run_and_of_the_call_of_its_model(over):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    model = ScriptedModel([spending("well")], name="anthropic/claude-x")
    done = await over(model, middleware=[Tracing(provider.get_tracer("test"))], prices=prices)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    run, chat = spans["invoke_agent A"], spans["chat claude-x"]
    assert chat.parent.span_id == run.context.span_id
    assert run.attributes["gen_ai.usage.input_tokens"] == 10
    assert run.attributes["palaver.run.outcome"] == "completed"
    assert run.attributes["palaver.run.id"] == done.run.id
    provider.shutdown()


# -- what only a swarm has ---------------------------------------------------------------------------------------------


async def test_a_swarm_publishes_receipts_and_warnings_on_the_bus():
    agent = SwarmAgent("A", ScriptedModel(["well"]), middleware=[Lossy()])
    async with at_work(agent) as watched:
        await watched.session.complete("hi")
        (event,) = await watched.heard("agent", "lost")
    assert event.output == {"model": "scripted/model", "losses": [str(LOSS)]}


async def test_a_session_counts_all_turns_and_what_leaves_no_trace():
    agent = SwarmAgent("A", ScriptedModel([], then=spending("well")), prices=prices)
    async with Swarm("shop", [agent]).start() as live, live.session("ann") as session:
        await session.complete("one")
        await session.complete("two")
        assert session.last_run.usage.total == 15
        await session.run("aside")
    assert session.spending.total.total == 45
    assert session.spending.cost == pytest.approx(0.045)
