"""Pipelines, advisors, and models that take turns."""

import anyio
import pytest

import palaver as p
from palaver.core.errors import MessageError, NavigationError, SwarmError, UnavailableError
from palaver.models.language_model import Prompt
from palaver.models.scripted import ScriptedModel
from palaver.swarm.extras.advisor import Advisor, ask, chat
from palaver.swarm.extras.pipeline import Pipeline
from palaver.swarm.extras.round_robin import RoundRobin
from tests.swarm.scripts import agent, at_work

pytestmark = pytest.mark.anyio


def named(name):
    return agent(name, lambda _: f"from {name}")


def watched(heard, function, **more):
    return Pipeline(
        "import",
        function,
        on_start=lambda session, payload: heard.append(("start", session.agent, payload)),
        on_error=lambda _, payload, error: heard.append(("error", payload, str(error))),
        on_end=lambda session, payload, failed: heard.append(("end", session.agent, payload, failed)),
        **more,
    )


async def say(session, payload):
    return await session.complete(payload)


@pytest.mark.row("ASK-28")
async def test_a_pipeline_goes_to_its_agent_and_back():
    heard = []
    pipeline = watched(heard, say, agent="B")
    async with at_work(named("A"), named("B")) as it:
        for _ in range(3):  # the route guard does not count it as going round in a circle
            assert await pipeline.run(it.session, "go") == "from B"
            assert it.session.agent == "A"
        assert await it.session.complete("go") == "from A"
    assert heard == [("start", "A", "go"), ("end", "A", "go", False)] * 3


@pytest.mark.row("ASK-28")
async def test_a_pipeline_that_fails_gives_nothing_and_goes_back():
    heard = []

    async def broken(session, payload):
        assert session.agent == "B"
        raise ValueError(f"no {payload}")

    async with at_work(named("A"), named("B")) as it:
        assert await watched(heard, broken, agent="B").run(it.session, "go") is None
        assert it.session.agent == "A"
    assert heard == [("start", "A", "go"), ("error", "go", "no go"), ("end", "A", "go", True)]


async def test_a_pipeline_leaves_the_route_as_it_was():
    async with at_work(named("A"), named("B"), named("C")) as it:
        await it.session.change_to("C")
        await Pipeline("x", lambda _session, _payload: None, agent="B").run(it.session)
        assert list(it.session.navigator.route) == ["C"]
        assert it.session.agent == "C"
        with pytest.raises(NavigationError, match="recursion"):
            await it.session.change_to("C")


async def test_a_pipeline_without_an_agent_stays_where_it_is():
    async with at_work(named("A"), named("B")) as it:
        assert await Pipeline("x", say).run(it.session, "hi") == "from A"
        assert not it.session.navigator.stack


async def test_a_pipeline_of_an_agent_that_is_not_there():
    async with at_work(named("A")) as it:
        with pytest.raises(NavigationError, match="'x' is for the agent 'Z'"):
            await Pipeline("x", say, agent="Z").run(it.session)
    with pytest.raises(SwarmError, match="a pipeline needs a name"):
        Pipeline("", say)


@pytest.mark.row("ASK-30")
async def test_observers_of_a_pipeline_that_raise_disturb_nothing(caplog):
    def broken(*_):
        raise OSError("disk full")

    async with at_work(named("A"), named("B")) as it:
        pipeline = Pipeline("x", say, agent="B", on_start=broken, on_error=broken, on_end=broken)
        assert await pipeline.run(it.session, "go") == "from B"
        assert await pipeline.replace(function=broken).run(it.session, "go") is None
        assert it.session.agent == "A"
    assert caplog.text.count("the error is ignored") == 5


async def test_a_pipeline_whose_session_closes_ends():
    async def leave(session, _):
        await session.close()
        return "left"

    async with at_work(named("A"), named("B")) as it:
        assert await Pipeline("x", leave, agent="B").run(it.session) == "left"


async def test_a_pipeline_that_is_cancelled_goes_back():
    async def never(_session, _payload):
        await anyio.sleep_forever()

    async with at_work(named("A"), named("B")) as it:
        async with anyio.create_task_group() as group:
            group.start_soon(Pipeline("x", never, agent="B").run, it.session)
            await anyio.wait_all_tasks_blocked()
            assert it.session.agent == "B"
            group.cancel_scope.cancel()
        assert it.session.agent == "A"


async def test_a_pipeline_that_cannot_get_to_its_agent_leaves_all_as_it_was(monkeypatch):
    async def full(*_):
        raise UnavailableError("the disk is full")

    async def never(*_):
        await anyio.sleep_forever()

    async with at_work(named("A"), named("B"), named("C"), on_agent_changed=never) as it:
        with anyio.move_on_after(0.02):
            await it.session.change_to("C")
        with monkeypatch.context() as broken:
            broken.setattr(type(it.session.log), "append", full)
            assert await Pipeline("x", say, agent="B").run(it.session) is None
        assert (it.session.agent, list(it.session.navigator.route)) == ("C", ["C"])


async def test_a_pipeline_that_is_cancelled_on_its_way_goes_back():
    told = anyio.Event()

    async def slow(_session, agent):
        told.set()
        if agent == "B":
            await anyio.sleep_forever()

    async with at_work(named("A"), named("B"), on_agent_changed=slow) as it:
        async with anyio.create_task_group() as group:
            group.start_soon(Pipeline("x", say, agent="B").run, it.session)
            await told.wait()
            group.cancel_scope.cancel()
        assert it.session.agent == "A"


@pytest.mark.row("ASK-28")
async def test_an_advisor_answers_and_keeps_nothing():
    heard = []

    async def think(message):
        return f"buy {message['ticker']}"

    advisor = Advisor(
        "broker", think, on_chat=heard.append, on_result=lambda message, answer: heard.append((message, answer))
    )
    assert await ask(advisor, {"ticker": "X"}) == "buy X"
    assert heard == [{"ticker": "X"}, ({"ticker": "X"}, "buy X")]
    assert await ask(advisor.replace(answer=str.upper), "sell") == "SELL"


async def test_an_advisor_may_be_a_model():
    model = ScriptedModel(["yes", "no"])
    advisor = Advisor("broker", model=model, instructions="You are a broker.")
    assert await ask(advisor, "buy?") == "yes"
    assert await ask(advisor, {"ticker": "X"}) == "no"
    assert [[(m.role, m.text) for m in prompt.messages] for prompt in model.asked] == [
        [("system", "You are a broker."), ("user", "buy?")],
        [("system", "You are a broker."), ("user", '{"ticker":"X"}')],
    ]


async def test_an_advisor_that_fails_raises_and_observers_disturb_nothing(caplog):
    def broken(*_):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await ask(Advisor("broker", broken), "buy?")
    assert await ask(Advisor("broker", str.upper, on_chat=broken, on_result=broken), "buy") == "BUY"
    assert caplog.text.count("the error is ignored") == 2
    for wrong in ({"answer": str.upper, "model": ScriptedModel([])}, {}):
        with pytest.raises(SwarmError, match="needs a function or a model"):
            Advisor("broker", **wrong)
    with pytest.raises(SwarmError, match="an advisor needs a name"):
        Advisor("", str.upper)


async def test_a_model_is_asked_once():
    model = ScriptedModel(["hello"])
    assert await chat(model, [p.system("Be brief."), p.user("hi")]) == "hello"
    assert [m.text for m in model.asked[0].messages] == ["Be brief.", "hi"]


@pytest.mark.row("ASK-28")
async def test_models_take_turns():
    a, b = ScriptedModel([], then="a", name="m/a"), ScriptedModel([], then="b", name="m/b")
    model = RoundRobin([a, b])
    assert model.name == "m/a | m/b"
    assert model.capabilities is a.capabilities
    one, other = model.session(), model.session()
    got = []
    for session in (one, one, other, one):
        async with session.ask(Prompt(messages=[p.user("hi")])) as answer:
            got.append((await answer.finish()).response.message.text)
    assert got == ["a", "b", "a", "b"]
    async with at_work(agent("A", model)) as it:
        assert [await it.session.complete("hi") for _ in range(3)] == ["a", "b", "a"]
    with pytest.raises(MessageError, match="needs at least one model"):
        RoundRobin([])
