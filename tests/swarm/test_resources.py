"""States, storages, derived values and policies, as a session gives them to its agents."""

import pytest

from palaver.core.errors import SwarmError
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Call, Compute, Policy, State, Storage, Swarm, tool
from tests.swarm.scripts import agent, at_work, calling, last

pytestmark = pytest.mark.anyio

CART = State("cart", [], type=list[str])
TILL = State("till", 0, type=int, shared=True)


async def by_length(text):
    return [float(len(text)), 1.0]


NOTES = Storage("notes", embed=by_length, index=lambda item: item["text"])


@tool
async def buy(call: Call) -> None:
    """Put a pear into the cart."""
    await call.session.state(CART).set(lambda cart: [*cart, "pear"])
    await call.session.state("till").set(lambda till: till + 1)
    await call.emit(f"{await call.session.state(CART).get()}")


@tool
async def peek(call: Call) -> None:
    """Look into what is not this agent's."""
    await call.session.state("till").get()


def shopping(prompt):
    return calling("peek" if last(prompt).text == "peek" else "buy")


@pytest.mark.row("ASK-24")
async def test_a_tool_uses_the_states_that_its_agent_lists(tmp_path):
    listing = agent("A", shopping, tools=[buy, peek], states=[CART, TILL])
    with SQLiteStore(tmp_path / "shop.db") as store:
        async with at_work(listing, states=[CART, TILL], store=store) as it:
            assert await it.session.complete("a pear") == "['pear']"
            assert await it.session.complete("a pear") == "['pear', 'pear']"
            async with it.live.session("bob") as other:
                assert await other.complete("a pear") == "['pear']"
                assert await other.state(TILL).get() == 3
            (first, *_) = await it.heard("state", "set-state")
            assert (first.client, first.name) == ("ann", "cart")
            shared = [event for event in await it.heard("state", "set-state") if event.name == "till"]
            assert {event.client for event in shared} == {"shared"}
        async with at_work(listing, states=[CART, TILL], store=store) as it:
            assert await it.session.state(CART).get() == ["pear", "pear"]
            assert await it.session.state(TILL).get() == 3


@pytest.mark.row("ASK-24")
async def test_an_agent_uses_no_state_that_it_does_not_list():
    async with at_work(agent("A", shopping, tools=[buy, peek], states=[CART]), states=[CART, TILL]) as it:
        assert await it.session.complete("peek") == "PLACEHOLDER"
        (error,) = await it.heard("agent", "tool-error")
        assert "the agent 'A' does not list the state 'till'" in error.output["error"]
        with pytest.raises(SwarmError, match="no state 'other'"):
            it.session.state("other")


def test_k16_dangling_references_are_errors_when_a_swarm_is_made():
    compute = Compute("sum", lambda _, cart: len(cart), depends_on=(CART,))
    with pytest.raises(SwarmError, match=r"state 'cart'.*storage 'notes'.*compute 'sum'.*state 'cart'"):
        Swarm("shop", [agent("A", states=[CART], storages=[NOTES])], computes=[compute])


@pytest.mark.row("ASK-25")
async def test_a_storage_and_a_derived_value():
    compute = Compute("size", lambda _, cart: len(cart), depends_on=(CART,))
    async with at_work(agent(), states=[CART], storages=[NOTES], computes=[compute]) as it:
        session = it.session
        await session.storage(NOTES).upsert({"id": "1", "text": "pears"})
        assert await session.storage("notes").take("apple") == ({"id": "1", "text": "pears"},)
        assert await session.compute(compute).get() == 0
        await session.state(CART).set(["pear"])
        assert await session.compute("size").get() == 1
        await session.memory.write({"name": "Ann"})
        assert await session.memory.read() == {"name": "Ann"}


BAN = "I am not going to discuss it!"


@pytest.mark.row("ASK-26", "ASK-15")
async def test_s17_a_policy_stands_before_and_behind_the_agents():
    policy = Policy(
        "manners",
        validate_input=lambda text, _: text != "bad",
        validate_output=lambda text, _: "secret" not in text,
    )
    async with at_work(agent("A", lambda prompt: last(prompt).text), policies=[policy]) as it:
        assert await it.session.complete("bad") == BAN
        assert it.log == []
        assert await it.session.complete("secret") == BAN
        assert it.log == ['user/user"secret"', 'assistant"secret" #discarded', f'assistant"{BAN}" #placeholder']
        assert await it.session.complete("good") == "good"
        assert await it.events("policy", "session") == [
            "policy validate-input",
            "policy validate-input",
            "policy validate-output",
            "policy validate-input",
            "policy validate-output",
            "session execute",
        ]
        prompt = it.session.swarm.agents["A"].model.asked[-1]
        assert [message.text for message in prompt.messages] == ["PA", "secret", "good"]


@pytest.mark.row("ASK-26")
async def test_a_client_who_is_banned_hears_so_and_no_other():
    policy = Policy("manners", validate_input=lambda text, _: text != "bad", auto_ban=True)
    async with at_work(agent(), policies=[policy]) as it, it.live.session("bob") as other:
        assert await it.session.complete("bad") == BAN
        assert await it.session.complete("good") == BAN
        assert await other.complete("good") == "echo:good"
        await it.live.shared.policies.unban("ann")
        assert await it.session.complete("good") == "echo:good"
