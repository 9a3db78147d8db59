"""A swarm without ``await``."""

import asyncio

import pytest

from palaver.core.errors import ClosedError, SwarmError
from palaver.models import ScriptedModel
from palaver.store import open_store
from palaver.swarm import Swarm, SwarmAgent
from palaver.swarm.sync import SyncSession


def swarm(*answers):
    return Swarm("shop", [SwarmAgent("desk", ScriptedModel(answers))])


def test_a_session_answers():
    with swarm("Hello.").sync.start() as live, live.session("ann") as session:
        assert session.complete("Hi") == "Hello."
        assert session.agent == "desk"
        assert live.clients == ("ann",)
        assert session.pending() == ()
    assert session.closed


MEMBERS = {
    "agent": lambda session: session.agent,
    "pending": lambda session: session.pending(),
    "complete": lambda session: session.complete("Hi"),
    "execute": lambda session: session.execute("Hi"),
    "run": lambda session: session.run("Hi"),
    "consult": lambda session: session.consult("desk", "Hi"),
    "emit": lambda session: session.emit("Hi"),
    "cancel": lambda session: session.cancel(),
    "decide": lambda session: session.decide({}),
    "change_to": lambda session: session.change_to("desk"),
    "change_to_default": lambda session: session.change_to_default(),
    "change_to_previous": lambda session: session.change_to_previous(),
    "messages": lambda session: session.wrapped.messages,
    "memory": lambda session: session.wrapped.memory,
    "state": lambda session: session.wrapped.state("s"),
}
KNOWN_AFTERWARDS = {"agent": "desk", "pending": (), "messages": ()}


def test_a_session_that_is_not_open_says_so_whatever_is_asked():
    public = {name for name in dir(SyncSession) if not name.startswith("_")}
    assert public - set(MEMBERS) == {"close", "closed"}
    with swarm().sync.start() as live:
        session = live.session("ann")
        session.close()
        for use in MEMBERS.values():
            with pytest.raises(ClosedError, match="the session of 'ann' is not open yet"):
                use(session)
        with session:
            pass
        for name in public & set(MEMBERS) - set(KNOWN_AFTERWARDS):
            with pytest.raises(ClosedError, match="is closed"):
                MEMBERS[name](session)
        assert {name: MEMBERS[name](session) for name in KNOWN_AFTERWARDS} == KNOWN_AFTERWARDS
        with pytest.raises(ClosedError, match="is closed; make a new one"), session:
            pass
        assert live.clients == ()
        assert not hasattr(session.wrapped, "unknown")


def test_a_session_answers_where_an_event_loop_runs():
    async def cell():
        with swarm("Hello.").sync.start() as live, live.session("ann") as session:
            return session.complete("Hi")

    assert asyncio.run(cell()) == "Hello."


def test_a_store_keeps_what_was_said(tmp_path):
    with open_store(tmp_path / "s.db") as store:
        with swarm("Hello.").sync.start(store=store) as live, live.session("ann") as session:
            session.complete("Hi")
        texts = [message.text for thread in store.threads() for message in store.open(thread.id).path().messages]
    assert texts == ["Hi", "Hello."]


def test_what_is_wrong_is_raised():
    with swarm().sync.start() as live, pytest.raises((SwarmError, TypeError)):
        live.session(5)


def test_a_swarm_agent_takes_the_name_of_a_model():
    assert SwarmAgent("desk", "anthropic/claude-opus-4-8").model.name == "anthropic/claude-opus-4-8"
