"""Threads of clients: no two clients share one by their names."""

import itertools

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.agent import ToolContext
from palaver.core.errors import SwarmError
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Policy, State, Swarm, result_tool
from palaver.swarm.events import SHARED
from palaver.swarm.names import client_thread, joined
from tests.swarm.scripts import agent, branching

pytestmark = [pytest.mark.finding("F-41")]

REALMS = ["a", "a/b", "a%2Fb", "a/b/c", "shared", "a/shared", "/", "%"]
CLIENTS = ["b/c", "c", "b%2Fc", "b/c/d", "b/shared", "%2F", "/", "%", "c/"]


def test_threads_of_different_clients_have_different_names():
    names = [client_thread(realm, client) for realm in REALMS for client in (*CLIENTS, SHARED)]
    assert len(set(names)) == len(names)


def test_a_plain_name_is_written_as_it_is():
    assert client_thread("shop", "ann@example.org") == "shop/ann@example.org"


@given(
    st.lists(st.lists(st.text("a/%25F", max_size=4), min_size=1, max_size=3), min_size=2, max_size=2, unique_by=tuple)
)
def test_different_lists_of_names_are_joined_differently(names):
    assert joined(*names[0]) != joined(*names[1])


@pytest.mark.anyio
@pytest.mark.row("ASK-02")
@pytest.mark.finding("F-50")
@pytest.mark.parametrize("durable", [False, True])
async def test_clients_and_swarms_with_slashes_never_read_each_other(tmp_path, durable):
    store = SQLiteStore(tmp_path / "threads.sqlite") if durable else MemoryStore()
    places = list(itertools.product(("a", "a/b", "a%2Fb"), ("b/c", "c", "b/shared", "b%2Fc")))
    try:
        for time in ("first", "second"):
            for realm, client in places:
                state = State("mine", [])
                async with (
                    Swarm(realm, [agent("A")], states=[state]).start(store=store) as live,
                    live.session(client) as session,
                ):
                    await session.complete(f"{time} {realm} {client}")
                    await session.state(state).set(lambda kept, said=f"{time} {realm} {client}": [*kept, said])
        for realm, client in places:
            said = [f"{time} {realm} {client}" for time in ("first", "second")]
            async with (
                Swarm(realm, [agent("A")], states=[state]).start(store=store) as live,
                live.session(client) as session,
            ):
                assert [message.text for message in session.user_history] == said
                assert await session.state(state).get() == said
    finally:
        store.close()


@pytest.mark.anyio
async def test_no_client_writes_into_what_a_swarm_shares():
    store = MemoryStore()
    policy = Policy("polite", validate_input=lambda text, _: text != "bad", auto_ban=True)
    one, other = Swarm("a", [agent("A")]), Swarm("a/b", [agent("A")], policies=[policy])
    async with one.start(store=store) as first, other.start(store=store) as second:
        async with second.session("bob") as bob:
            await bob.complete("bad")
        async with first.session("b/shared") as session:
            assert session.messages == ()
            assert await session.complete("hello") == "echo:hello"
        assert await second.shared.policies.is_banned("bob")
        with pytest.raises(SwarmError, match="a client cannot have the name 'shared'"):
            await first.open("shared")


@pytest.mark.anyio
async def test_two_clients_with_a_turn_of_the_same_name_have_different_idempotency_keys():
    keys = []

    def pay(context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        return "paid"

    script = branching(go=p.assistant(tool_calls=[p.tool_call("pay", {}, id="call-1")]))
    async with Swarm("shop", [agent("A", script, tools=[result_tool(pay)])]).start() as live:
        for client in ("ann", "bob"):
            async with live.session(client) as session:
                await session.complete("go", run="1")
    assert len(set(keys)) == 2
