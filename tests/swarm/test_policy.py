"""Policies: who may say what, and who is banned; by whichever process."""

import anyio
import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from palaver.core.errors import SwarmError
from palaver.store.memory import MemoryStore
from palaver.swarm.log import SharedRecords
from palaver.swarm.policy import BAN_MESSAGE, Policies, Policy, PolicyCell

pytestmark = pytest.mark.anyio


def without(word, **more):
    """A policy that refuses a word of the client, and another of the agent."""

    async def output(text, _):
        return f"secret {word}" not in text

    return Policy(word, validate_input=lambda text, _: word not in text, validate_output=output, **more)


def types(events):
    return [event.type for event in events]


@pytest.fixture
async def kept(shared):
    return await shared.open()


@pytest.mark.row("ASK-26")
async def test_what_a_validator_refuses_is_answered_by_the_policy(kept, events):
    cell = PolicyCell(without("bad", ban_message="BAN"), "desk", kept, events.append)
    assert await cell.check_input("bad", "ann") == "BAN"
    assert await cell.check_input("good", "ann") is None
    assert await cell.check_output("secret bad", "ann") == "BAN"
    assert await cell.check_output("bad", "ann") is None
    assert not await cell.is_banned("ann")
    assert [(event.source, event.type, event.client, event.swarm, event.name, event.input) for event in events] == [
        ("policy", "validate-input", "ann", "desk", "bad", {"incoming": "bad"}),
        ("policy", "validate-input", "ann", "desk", "bad", {"incoming": "good"}),
        ("policy", "validate-output", "ann", "desk", "bad", {"outgoing": "secret bad"}),
        ("policy", "validate-output", "ann", "desk", "bad", {"outgoing": "bad"}),
    ]


@pytest.mark.row("ASK-26")
async def test_a_ban_is_checked_before_the_validator(kept, events):
    asked = []
    policy = Policy("polite", validate_input=lambda text, client: not asked.append((text, client)))
    cell = PolicyCell(policy, "desk", kept, events.append)
    await cell.ban("bob")
    assert await cell.check_input("hello", "bob") == BAN_MESSAGE == "I am not going to discuss it!"
    assert await cell.check_output("hello", "bob") == BAN_MESSAGE
    assert asked == []
    assert await cell.check_input("hello", "ann") is None
    await cell.unban("bob")
    assert await cell.check_input("hello", "bob") is None
    assert asked == [("hello", "ann"), ("hello", "bob")]


@pytest.mark.row("ASK-26")
@pytest.mark.parametrize("check", ["check_input", "check_output"])
async def test_who_is_refused_is_banned_once(kept, events, check):
    bans = []
    policy = without("bad", auto_ban=True, on_ban=lambda client, swarm: bans.append((client, swarm)))
    cell = PolicyCell(policy, "desk", kept, events.append)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(getattr(cell, check), "secret bad", "bob")
    assert await getattr(cell, check)("good", "bob") == BAN_MESSAGE
    assert await getattr(cell, check)("good", "ann") is None
    assert bans == [("bob", "desk")]
    assert types(events).count("ban-client") == 1
    assert types(events)[0].startswith("validate")


@pytest.mark.row("ASK-26")
async def test_banning_the_banned_changes_nothing_and_tells_nobody(kept, events):
    seen = []
    policy = Policy(
        "p", on_ban=lambda client, _: seen.append(f"+{client}"), on_unban=lambda client, _: seen.append(f"-{client}")
    )
    cell = PolicyCell(policy, "desk", kept, events.append)
    did = [
        await cell.unban("bob"),
        await cell.ban("bob"),
        await cell.ban("bob"),
        await cell.unban("bob"),
        await cell.unban("bob"),
    ]
    assert did == [False, True, False, True, False]
    assert seen == ["+bob", "-bob"]
    assert types(events) == ["ban-client", "unban-client"]


@pytest.mark.row("ASK-26")
async def test_bans_belong_to_a_policy_and_a_swarm(kept, events):
    names = [("a", "b"), ("a", "c"), ("b", "b"), ('a", "b', ""), ("a/b", "b"), ("a", "b/b")]
    cells = [PolicyCell(Policy(name or "x"), swarm, kept, events.append) for swarm, name in names]
    await cells[0].ban("bob")
    assert [await cell.is_banned("bob") for cell in cells] == [True, False, False, False, False, False]


@pytest.mark.row("ASK-26")
async def test_concurrent_bans_are_all_kept_stored_and_enforced(shared, events):
    """By two processes at once, and seen by a third."""
    policy = Policy("p")
    cells = [PolicyCell(policy, "desk", await shared.open(), events.append) for _ in "12"]
    clients = [f"client {number}" for number in range(20)]
    async with anyio.create_task_group() as group:
        for place, client in enumerate(clients):
            group.start_soon(cells[place % 2].ban, client)
    third = PolicyCell(policy, "desk", await shared.open(), events.append)
    for cell in (*cells, third):
        assert [await cell.check_input("hello", client) for client in clients] == [BAN_MESSAGE] * 20
        assert await cell.check_input("hello", "ann") is None
    assert types(events).count("ban-client") == 20


@pytest.mark.row("ASK-26")
async def test_another_process_s_bans_are_seen_at_the_next_check(shared, events):
    one, other = [PolicyCell(Policy("p"), "desk", await shared.open(), events.append) for _ in "12"]
    assert await one.check_input("hello", "bob") is None
    await other.ban("bob")
    assert await one.check_input("hello", "bob") == BAN_MESSAGE
    assert not await one.ban("bob")
    await one.unban("bob")
    assert await other.check_output("hello", "bob") is None
    assert not await other.unban("bob")


@pytest.mark.row("ASK-26")
async def test_the_first_of_merged_policies_that_refuses_answers(kept, events):
    cells = [PolicyCell(without(word, ban_message=word.upper()), "desk", kept, events.append) for word in "abc"]
    merged = Policies(cells)
    assert await merged.check_input("b or c", "ann") == "B"
    assert [event.name for event in events] == ["a", "b"]
    assert await merged.check_output("secret c", "ann") == "C"
    assert await merged.check_input("fine", "ann") is None
    await cells[1].ban("bob")
    assert await merged.check_input("x", "bob") == "B"
    assert await merged.is_banned("bob")
    assert [await merged.ban("bob"), await merged.ban("bob")] == [True, False]
    assert [await cell.is_banned("bob") for cell in cells] == [True] * 3
    assert await merged.check_input("x", "bob") == "A"
    assert [await merged.unban("bob"), await merged.unban("bob"), await merged.is_banned("bob")] == [True, False, False]
    assert await Policies().check_input("anything", "bob") is None


async def test_the_message_may_depend_on_the_client(kept, events):
    async def message(client):
        return None if client == "bob" else f"no, {client}"

    cell = PolicyCell(Policy("p", ban_message="BAN", get_ban_message=message), "desk", kept, events.append)
    for client in ("ann", "bob"):
        await cell.ban(client)
    assert [await cell.check_input("x", client) for client in ("ann", "bob")] == ["no, ann", "BAN"]


async def test_a_validator_that_raises_fails_the_call_and_bans_nobody(kept, events):
    policy = Policy("p", validate_input=lambda text, _: 1 // len(text), auto_ban=True)
    cell = PolicyCell(policy, "desk", kept, events.append)
    with pytest.raises(ZeroDivisionError):
        await Policies([cell]).check_input("", "ann")
    assert await cell.check_input("x", "ann") is None
    assert not await cell.is_banned("ann")


async def test_observers_can_do_no_harm(kept, events):
    def fails(client, swarm):
        raise RuntimeError("an observer")

    cell = PolicyCell(Policy("p", on_ban=fails, on_unban=fails), "desk", kept, events.append)
    assert await cell.ban("bob")
    assert await cell.unban("bob")


async def test_a_slow_validator_of_one_client_holds_up_no_other(kept, events):
    began, gate = anyio.Event(), anyio.Event()

    async def slow(text, client):
        if client == "bob":
            began.set()
            await gate.wait()
        return True

    cell = PolicyCell(Policy("p", validate_input=slow), "desk", kept, events.append)
    async with anyio.create_task_group() as group:
        group.start_soon(cell.check_input, "x", "bob")
        await began.wait()
        assert await cell.check_input("x", "ann") is None
        assert await cell.ban("eve")
        gate.set()


def test_a_policy_needs_a_name():
    with pytest.raises(SwarmError, match="needs a name"):
        Policy("")


class Machine(RuleBasedStateMachine):
    """Bans are a set, whichever of three processes changes it."""

    def __init__(self):
        super().__init__()
        self.store, self.model, self.events = MemoryStore(), set(), []
        self.cells = [self.process() for _ in range(3)]

    def process(self):
        values = anyio.run(SharedRecords.load, self.store, "shared")
        return PolicyCell(Policy("p"), "desk", values, self.events.append)

    @rule(place=st.integers(0, 2))
    def restarts(self, place):
        self.cells[place] = self.process()

    @rule(place=st.integers(0, 2), client=st.sampled_from("abc"))
    def bans(self, place, client):
        assert anyio.run(self.cells[place].ban, client) == (client not in self.model)
        self.model.add(client)

    @rule(place=st.integers(0, 2), client=st.sampled_from("abc"))
    def unbans(self, place, client):
        assert anyio.run(self.cells[place].unban, client) == (client in self.model)
        self.model.discard(client)

    @invariant()
    def holds(self):
        for cell in self.cells:
            assert {client for client in "abc" if anyio.run(cell.is_banned, client)} == self.model


TestMachine = Machine.TestCase
