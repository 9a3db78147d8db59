"""An agent without ``await``, and an agent made with the name of a model."""

import asyncio
import inspect
import threading

import pytest

from palaver import MessageError, UnknownNameError
from palaver.agent import Agent
from palaver.core.events import TextDelta
from palaver.models import FunctionModel, ScriptedModel, sync


def test_run_returns_the_run():
    assert Agent(ScriptedModel(["Hello."])).sync.run("Hi").text == "Hello."


def test_run_works_where_an_event_loop_runs():
    async def cell():
        return Agent(ScriptedModel(["Hello."])).sync.run("Hi").text

    assert asyncio.run(cell()) == "Hello."


def test_stream_gives_the_events_and_the_run():
    with Agent(ScriptedModel(["Hello."])).sync.stream("Hi") as run:
        assert "".join(event.text for event in run if isinstance(event, TextDelta)) == "Hello."
    assert repr(run) == "ActiveRun('agent', completed).sync"
    assert run.result.ok
    assert run.path.messages[-1].text == "Hello."


def test_a_stream_can_be_waited_for_steered_and_cancelled():
    with Agent(ScriptedModel(["one", "two"], delay=0.2)).sync.stream("Hi") as run:
        next(run)
        run.steer("And then?")
        assert run.wait().text == "two"
        with pytest.raises(MessageError, match="the run has finished"):
            run.steer("late")
    with Agent(ScriptedModel(["one"], delay=3600)).sync.stream("Hi") as run:
        run.cancel("enough")
        assert run.wait().outcome == "cancelled"


def test_leaving_the_block_early_ends_the_run():
    with Agent(ScriptedModel(["one"], delay=3600)).sync.stream("Hi") as run:
        next(run)
    assert run.result.outcome == "cancelled"


def test_a_run_starts_once():
    with Agent(ScriptedModel(["one"])).sync.stream("Hi") as run:
        run.wait()
    with pytest.raises(MessageError, match="only once"), run:
        pass
    assert run.result.text == "one"


def test_the_end_of_the_process_does_not_wait_for_a_loop_that_a_task_blocks(monkeypatch):
    monkeypatch.setattr(sync, "_STOP_SECONDS", 0.05)
    loop = sync._BackgroundLoop()
    blocked, release = threading.Event(), threading.Event()

    def block():
        blocked.set()
        release.wait()

    loop.portal.start_task_soon(block)
    blocked.wait()
    stopping = threading.Thread(target=loop.stop, daemon=True)
    stopping.start()
    stopping.join(10)
    has_stopped = not stopping.is_alive()
    release.set()
    loop.thread.join()
    assert has_stopped


class Other(BaseException):
    """One that is no ``Exception``, as those by which test runners skip."""


@pytest.mark.parametrize("error", [Other(), BaseExceptionGroup("g", [Other()])])
def test_the_loop_goes_on_behind_whatever_a_call_raises(error):
    def fail(_prompt):
        raise error

    with pytest.raises(type(error)):
        Agent(FunctionModel(fail)).sync.run("Hi")
    assert Agent(ScriptedModel(["one"])).sync.run("Hi").text == "one"


@pytest.fixture
def loops(monkeypatch):
    """Loops of a test's own, as in a process that made no call yet."""
    monkeypatch.setattr(sync, "_loops", made := [])
    yield made
    for each in made:
        each.stop()


def test_a_call_behind_the_end_of_the_loop_starts_another(loops):
    agent = Agent(FunctionModel(lambda _: "one"))
    assert agent.sync.run("Hi").text == "one"
    loops[0].stop()  # as the end of the process does, before the handlers that were registered earlier
    assert agent.sync.run("Hi").text == "one"


@pytest.mark.parametrize("end", [lambda loop: loop.stop(), lambda _: sync._forget()], ids=["stopped", "forked"])
def test_a_stream_can_be_left_behind_the_end_of_its_loop(loops, end):
    with Agent(ScriptedModel(["one"])).sync.stream("Hi"):
        loop = loops[0]
        end(loop)
    loop.stop()
    assert Agent(ScriptedModel(["one"])).sync.run("Hi").text == "one"


def test_methods_have_the_parameters_of_the_async_ones():
    agent = Agent(ScriptedModel([]))
    for name in ("run", "stream"):
        assert (
            inspect.signature(getattr(agent.sync, name)).parameters.keys()
            == inspect.signature(getattr(agent, name)).parameters.keys()
        )


def test_an_agent_takes_the_name_of_a_model():
    assert Agent("anthropic/claude-opus-4-8").model.name == "anthropic/claude-opus-4-8"
    assert Agent("anthropic/claude-opus-4-8").replace(name="b").model.name == "anthropic/claude-opus-4-8"
    assert Agent(ScriptedModel([])).replace(model="openai/gpt-5").model.name == "openai/gpt-5"


def test_an_unknown_name_is_refused_at_once():
    with pytest.raises(UnknownNameError, match="provider/id"):
        Agent("claude")
