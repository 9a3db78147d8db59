"""Agents whose providers keep the beginning of the conversation: marks on what is sent, and none in the thread."""

from __future__ import annotations

from itertools import pairwise

import pytest

import palaver as p
from palaver import wires
from palaver.agent import Middleware, PromptCache
from palaver.core import canonical
from palaver.core.errors import MessageError
from palaver.testing.rules import check_request
from palaver.wires._engine.cache_marks import CachePlan
from palaver.wires._engine.encoder import RequestEncoder
from tests.agent.over_http import World, agent_of, grows, provider, say


def _turns(wire: str) -> list[p.Response]:
    call = p.tool_call("look", {"at": "a " * 2000}, id="call_1")
    again = p.tool_call("look", {"at": "b"}, id="call_2")
    return [
        say(wire, "~Look first.", "I look.", call, p.tool_call("note", {"text": "c"}, id="call_3")),
        say(wire, "~Enough.", "All seen."),
        say(wire, "Again.", again),
        say(wire, "Done."),
    ]


async def _bodies(wire, *middleware):
    with provider(wire, _turns(wire), stream=True) as (server, model):
        agent = agent_of(model, World(), middleware=middleware)
        first = await agent.run("Look around.")
        second = await agent.run("And now?", previous=first)
    assert second.text == "Done."
    return [body for _, body in server.requests], second


@pytest.mark.anyio
@pytest.mark.parametrize("wire", wires.names())
@pytest.mark.share(2)
async def test_an_agent_says_marks_and_keeps_none(wire):
    bodies, run = await _bodies(wire, PromptCache(step=50))
    assert [check_request(wire, body) for body in bodies] == [[]] * 4
    assert grows(wire, bodies)
    assert not any("cache_control" in canonical.encode(entry.message).decode() for entry in run.path)


@pytest.mark.anyio
async def test_the_messages_wire_is_asked_to_move_the_mark_itself():
    bodies, _ = await _bodies("anthropic_messages", PromptCache())
    for body in bodies:
        assert body.count(b"cache_control") == 3  # the top level, the tools, the system prompt
        assert b'"cache_control":{"type":"ephemeral"},"messages"' in body


@pytest.mark.anyio
async def test_the_thread_names_the_cache():
    bodies, _ = await _bodies("openai_responses", PromptCache())
    keys = {body.split(b'"prompt_cache_key":"')[1].split(b'"')[0] for body in bodies}
    assert len(keys) == 1
    assert keys != {b""}


@pytest.mark.anyio
@pytest.mark.row("CBF-15")
async def test_the_marks_of_codebuff_move_with_every_turn():
    bodies, _ = await _bodies("anthropic_messages", PromptCache("turns"))
    assert all(1 <= body.count(b"cache_control") <= 4 for body in bodies)
    assert not all(after.startswith(before.removesuffix(b"]}")) for before, after in pairwise(bodies))


@pytest.mark.anyio
@pytest.mark.row("CBF-15")
async def test_without_marks_the_bodies_are_what_they_were():
    plain, _ = await _bodies("anthropic_messages")
    off, _ = await _bodies("anthropic_messages", PromptCache(None))
    assert plain == off


@pytest.mark.anyio
async def test_a_session_encodes_what_is_new(monkeypatch):
    """The session's encoder is made once: marks that stay leave it where it was."""
    made: list[str] = []
    real = RequestEncoder.__init__

    def counted(self, *given, **more):
        made.append("encoder")
        real(self, *given, **more)

    monkeypatch.setattr(RequestEncoder, "__init__", counted)
    await _bodies("anthropic_messages", PromptCache())
    assert len(made) == 1
    await _bodies("anthropic_messages", PromptCache("turns"))
    assert len(made) > 2


@pytest.mark.anyio
async def test_a_plan_that_the_prompt_has_stays():
    class Own(Middleware):
        async def wrap_model_call(self, prompt, context, call):
            return await call(prompt.replace(cache=CachePlan(key="mine")))

    bodies, _ = await _bodies("openai_chat", Own(), PromptCache())
    assert all(b'"prompt_cache_key":"mine"' in body for body in bodies)


def test_a_step_is_at_least_one():
    with pytest.raises(MessageError):
        PromptCache(step=0)
