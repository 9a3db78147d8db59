"""A swarm without ``await``."""

import asyncio

import pytest

from palaver.core.errors import SwarmError
from palaver.models import ScriptedModel
from palaver.store import open_store
from palaver.swarm import Swarm, SwarmAgent


def swarm(*answers):
    return Swarm("shop", [SwarmAgent("desk", ScriptedModel(answers))])


def test_a_session_answers():
    with swarm("Hello.").sync.start() as live, live.session("ann") as session:
        assert session.complete("Hi") == "Hello."
        assert session.agent == "desk"
        assert live.clients == ("ann",)
        assert session.pending() == ()
    assert session.closed


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
