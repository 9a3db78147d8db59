"""What is replaced is seen by what begins afterwards, and by nothing that is at work already."""

import anyio
import pytest

from palaver.models.scripted import ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.swarm import Hooks, Policy, State, Storage, Swarm, SwarmAgent, result_tool
from palaver.swarm.extras.advisor import Advisor, ask
from palaver.swarm.extras.compute import Compute
from palaver.swarm.extras.outline import Outline
from palaver.swarm.extras.pipeline import Pipeline
from palaver.swarm.mcp import McpSource
from tests.swarm.scripts import agent, calling, last
from tests.swarm.test_mcp import Listing

pytestmark = pytest.mark.anyio


def price() -> str:
    """Say what it costs."""
    return "one shell"


def dearer() -> str:
    """Say what it costs by now."""
    return "two shells"


def using(prompt):
    text = last(prompt).text
    return calling("price") if text == "price?" else f"{prompt.messages[0].text} {text}"


async def answer(session):
    return await session.complete("price?")


async def state(session):
    return await session.resources.state("mood").get()


async def compute(session):
    return await session.resources.compute("double").get()


async def found(session):
    cell = session.resources.storage("notes")
    await cell.upsert({"id": 1, "text": "pen"})
    return [each["text"] for each in await cell.take("pen", total=5)]


async def offered(session):
    await session.complete("hi")
    return [each.name for each in session.swarm.agents["A"].model.asked[-1].tools]


async def embed(text):
    return [float("pen" in text), 1.0]


A = agent("A", using, instructions="first", tools=[result_tool(price)])
MOOD, NUMBER = State("mood", "calm"), State("number", 2)
NOTES = Storage("notes", index=lambda item: item["text"], embed=embed, score=0.5)
DOUBLE = Compute("double", lambda _, number: number * 2, depends_on=[NUMBER])
SHOP = Swarm(
    "shop",
    [A],
    policies=[Policy("manners")],
    states=[MOOD, NUMBER],
    storages=[NOTES],
    computes=[DOUBLE],
)


def refusing(_text, _client):
    return False


def tripled(_, number):
    return number * 3


CHANGES = {
    "agent": ({"agents": [A.replace(instructions="second")]}, answer, "first one shell", "second one shell"),
    "default": (
        {"agents": [agent("B", using, instructions="other"), A], "default": "B"},
        answer,
        "first one shell",
        "PLACEHOLDER",
    ),
    "model": ({"agents": [A.replace(model=ScriptedModel([], then="new"))]}, answer, "first one shell", "new"),
    "tool": (
        {"agents": [A.replace(tools=[A.tools[0].replace(run=result_tool(dearer).run)])]},
        answer,
        "first one shell",
        "first two shells",
    ),
    "policy": (
        {"policies": [Policy("manners", validate_input=refusing, ban_message="No.")]},
        answer,
        "first one shell",
        "No.",
    ),
    "state": ({"states": [State("mood", "angry"), NUMBER]}, state, "calm", "angry"),
    "storage": (
        {"storages": [Storage("notes", index=lambda item: item["text"], embed=embed, score=1.1)]},
        found,
        ["pen"],
        [],
    ),
    "compute": ({"computes": [Compute("double", tripled, depends_on=[NUMBER])]}, compute, 4, 6),
    "mcp": ({"agents": [A.replace(sources=[McpSource(Listing())])]}, offered, ["price"], ["price", "mcp_hello"]),
}


@pytest.mark.row("ASK-28")
@pytest.mark.parametrize("what", CHANGES)
async def test_new_sessions_see_a_change_and_those_at_work_do_not(what):
    changes, probe, before, after = CHANGES[what]
    store = MemoryStore()
    async with SHOP.start(store=store) as old, old.session("ann") as ann:
        assert await probe(ann) == before
        changed = SHOP.replace(**changes)
        async with changed.start(store=store) as new, new.session("bob") as bob:
            assert await probe(bob) == after
            assert await probe(ann) == before
        async with old.session("cat") as cat:
            assert await probe(cat) == before


@pytest.mark.row("ASK-28")
async def test_a_client_goes_on_with_the_changed_swarm_where_it_was():
    store = MemoryStore()
    async with SHOP.start(store=store) as live, live.session("ann") as ann:
        await ann.complete("hi")
    changed = SHOP.replace(agents=[A.replace(instructions="second")])
    async with changed.start(store=store) as live, live.session("ann") as ann:
        assert await ann.complete("and now?") == "second and now?"
        assert [each.text for each in ann.user_history] == ["hi", "and now?"]


# -- only the new callbacks fire ---------------------------------------------------------------------------------------


def heard(name, told):
    return lambda *_: told.append(name)


class Told(Hooks):
    def __init__(self, name, told):
        self._name, self._told = name, told

    def on_output(self, place, text):
        self._told.append(self._name)


def swarm_with(told, name):
    return SHOP.replace(on_execute=heard(name, told))


async def by_swarm(told):
    return swarm_with(told, "old").replace(on_execute=heard("new", told))


async def by_agent(told):
    return SHOP.replace(agents=[A.replace(hooks=Told("old", told)).replace(hooks=Told("new", told))])


async def by_tool(told):
    priced = A.tools[0].replace(on_after_call=heard("old", told)).replace(on_after_call=heard("new", told))
    return SHOP.replace(agents=[A.replace(tools=[priced])])


@pytest.mark.row("ASK-28")
@pytest.mark.parametrize("made", [by_swarm, by_agent, by_tool])
async def test_the_later_of_two_hooks_is_called(made):
    told = []
    swarm = await made(told)
    async with swarm.start() as live, live.session("ann") as session:
        await session.complete("price?")
        await anyio.wait_all_tasks_blocked()
    assert set(told) == {"new"}


@pytest.mark.row("ASK-28")
async def test_the_later_of_two_observers_is_called():
    told = []
    old, new = heard("old", told), heard("new", told)
    advisor = Advisor("a", str.upper, on_chat=old, on_result=old).replace(on_chat=new, on_result=new)
    assert await ask(advisor, "x") == "X"
    outline = Outline("o", ScriptedModel(["{}"]), {"type": "object"}, on_attempt=old, on_document=old)
    assert (await outline.replace(on_attempt=new, on_document=new).run("x")).is_valid
    pipeline = Pipeline("p", lambda *_: "done", on_start=old, on_end=old).replace(on_start=new, on_end=new)
    async with SHOP.start() as live, live.session("ann") as session:
        assert await pipeline.run(session) == "done"
        assert await pipeline.replace(function=lambda *_: "otherwise").run(session) == "otherwise"
    assert told == ["new"] * 8


async def test_a_description_of_an_agent_is_not_changed_by_a_copy_of_it():
    copy = A.replace(instructions="second", keep=3, tools=[])
    assert (A.instructions, len(A.tools), copy.instructions, copy.keep, copy.tools) == ("first", 1, "second", 3, ())
    assert isinstance(copy, SwarmAgent)
