"""What answers used: pains 14 and 17, and what a run says of its own."""

from __future__ import annotations

import pytest

import palaver as p
from palaver.agent.agent import Agent
from palaver.agent.usage import usage_of
from palaver.core.request import Response
from palaver.models.scripted import Broken, ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.threads.thread import Thread
from tests.agent.scripts import call, noting


def said(text, tokens=None, *, response=None, agent=None, model="m"):
    usage = None if tokens is None else p.Usage(input=tokens, output=1)
    return p.assistant(text).replace(usage=usage, response_id=response, agent=agent, model=model)


def thread_of(*messages):
    thread = Thread()
    thread.append(*messages)
    return thread


def test_each_answer_counts_once_wherever_it_stands():
    thread = thread_of(p.user("hi"), said("a", 10, response="r1", agent="one"), said("b", 20, agent="two"))
    thread.fork("other")
    thread.append(said("c", 40, response="r2", agent="one", model="n"), branch="other")
    copy = Thread()
    copy.add(thread.entries)
    again = thread_of(*[entry.message for entry in thread.entries])
    for threads in ((thread,), (thread, copy), (thread, copy, again), (thread.entries,), (thread, thread.path())):
        used = usage_of(*threads)
        assert used.answers == 3
        assert used.rows == {
            ("one", "m"): p.Usage(input=10, output=1),
            ("two", "m"): p.Usage(input=20, output=1),
            ("one", "n"): p.Usage(input=40, output=1),
        }
        assert used.by_agent == {"one": p.Usage(input=50, output=2), "two": p.Usage(input=20, output=1)}
        assert used.by_model == {"m": p.Usage(input=30, output=2), "n": p.Usage(input=40, output=1)}
        assert used.total == p.Usage(input=70, output=3)


def test_a_snapshot_that_grows_is_counted_at_its_largest():
    thread = thread_of(
        said("a", 10, response="r"), said("ab", 12, response="r"), said("a", 11, response="r"), said("x")
    )
    assert (usage_of(thread).answers, usage_of(thread).total) == (1, p.Usage(input=12, output=1))
    assert usage_of(Thread()).total == p.Usage()


@pytest.mark.anyio
async def test_the_usage_of_a_run_is_that_of_its_answers_in_the_thread(anyio_backend):
    def turn(tokens, **how):
        return said("ok", tokens, **how)

    script = [turn(5).replace(content=[call(to="ann")]), turn(7), turn(100)]
    agent = Agent(ScriptedModel(script, name="x/m"), tools=[noting([])], prices=lambda _, usage: usage.total / 1000)
    with MemoryStore() as store:
        run = await agent.run("go", thread=store.open("t"))
        assert run.usage == p.Usage(input=12, output=2)
        assert run.usage_by_model == {"x/m": run.usage}
        assert run.cost == pytest.approx(0.014)
        assert usage_of(run.thread).by_agent == {"agent": run.usage}
        more = await agent.replace(name="other").run("on", previous=run)
        assert more.usage == p.Usage(input=100, output=1)
        assert usage_of(more.thread).by_agent == {"agent": run.usage, "other": more.usage}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "usage", "cost"),
    [
        ("openai/gpt-5.4", p.Usage(input=1_000_000), "known"),
        ("openai/gpt-5.4", None, None),
        ("nobody/knows", p.Usage(input=1_000_000), None),
    ],
)
async def test_a_cost_is_known_or_none_and_never_guessed(anyio_backend, name, usage, cost):
    answer = Response(p.assistant("ok").replace(usage=usage, finish_reason="stop"))
    run = await Agent(ScriptedModel([answer], name=name)).run("go")
    assert (run.cost is None) == (cost is None)
    assert run.cost is None or run.cost > 0


@pytest.mark.anyio
async def test_an_answer_that_broke_off_is_counted_too_and_silence_makes_the_cost_unknown(anyio_backend):
    def price(_, usage):
        return usage.total / 1000

    broken = Broken(said("half", 10))
    run = await Agent(ScriptedModel([broken, said("whole", 20)], name="x/m"), prices=price).run("go")
    assert (run.outcome, run.usage) == ("completed", p.Usage(input=30, output=2))
    assert run.cost == pytest.approx(0.032)
    silent = said("half").replace(content=[call(to="ann")])
    run = await Agent(ScriptedModel([silent, said("whole", 20)]), tools=[noting([])], prices=price).run("go")
    assert (run.usage.total, run.cost) == (21, None)
