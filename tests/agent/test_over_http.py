"""An agent with real tools over real HTTP, on every wire, and on another one at each turn."""

from __future__ import annotations

import contextlib

import pytest

import palaver as p
from palaver import wires
from palaver.agent import Agent, approve
from palaver.store.sqlite import SQLiteStore
from palaver.testing.rules import check_request
from palaver.turn import events
from tests.agent.over_http import World, agent_of, as_read, grows, provider, raw_messages, say
from tests.agent.wholeness import broken_pairs, refused_path

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
ROUNDS = 2


def _call(name: str, number: int, **arguments: str) -> p.ToolCall:
    return p.tool_call(name, arguments, id=f"call_{number}")


def _turns(wire: str) -> list[p.Response]:
    """Two runs: several calls at once, calls that go wrong, an answer; a call, an answer."""
    return [
        say(
            wire,
            "~Look first.",
            "I look.",
            _call("look", 1, at="a ü"),
            _call("note", 2, text="b"),
            _call("look", 3, at="c"),
        ),
        say(wire, _call("look", 4, wrong="d"), _call("lock", 5, at="e"), _call("look", 6, at="f")),
        say(wire, "~Enough.", "All seen."),
        say(wire, "Again.", _call("note", 7, text="g")),
        say(wire, "Done."),
    ]


@pytest.mark.anyio
@pytest.mark.law(7)
@STREAMED
@pytest.mark.parametrize("wire", wires.names())
@pytest.mark.share(2)
async def test_an_agent_on_every_wire(wire, stream):
    answers, world = _turns(wire), World()
    with provider(wire, answers, stream=stream) as (server, model):
        agent = agent_of(model, world, stream=stream)
        first = await agent.run("Look around.")
        second = await agent.run("And now?", previous=first)
    assert (first.outcome, first.text) == ("completed", "All seen.")
    assert (second.outcome, second.text) == ("completed", "Done.")
    assert sorted(world.done[:2]) == ["look a ü", "look c"]
    assert world.done[2:] == ["note b", "look f", "note g"]
    bodies = [body for _, body in server.requests]
    assert [check_request(wire, body) for body in bodies] == [[]] * 5
    assert grows(wire, bodies)
    _is_what_was_said(second.path, [as_read(wire, each, stream=stream) for each in answers])
    assert refused_path(second.path, agent.toolbox.definitions) == {}
    assert (first.usage.input, first.usage.output) == (30, 15)


def _is_what_was_said(path, answers):
    messages = [entry.message for entry in path]
    assert [each.content for each in messages if each.role == "assistant"] == [each.content for each in answers]
    assert [each.finish_reason for each in messages if each.role == "assistant"] == [
        each.finish_reason for each in answers
    ]
    assert [each.text for each in messages if each.role == "user"] == ["Look around.", "And now?"]
    results = [each for each in messages if each.role == "tool"]
    assert [(each.tool_name, each.is_error) for each in results] == [
        ("look", False),
        ("note", False),
        ("look", False),
        ("look", True),
        ("lock", True),
        ("look", False),
        ("note", False),
    ]
    assert [each.text for each in results if not each.is_error] == [
        "Seen: a ü",
        "Noted: b",
        "Seen: c",
        "Seen: f",
        "Noted: g",
    ]
    assert broken_pairs(messages) == []


@pytest.mark.anyio
@STREAMED
@pytest.mark.parametrize("wire", wires.names())
@pytest.mark.share(2)
async def test_what_is_watched_is_what_is_said(wire, stream):
    with provider(wire, _turns(wire), stream=stream) as (_, model):
        async with agent_of(model, World(), stream=stream).stream("Look around.") as run:
            seen = [event async for event in run]
    assert "".join(e.text for e in seen if isinstance(e, events.TextDelta)) == "I look.All seen."
    assert "".join(e.text for e in seen if isinstance(e, events.ReasoningDelta)) == "".join(
        entry.message.reasoning or "" for entry in run.result.path if entry.message.role == "assistant"
    )
    added = [e.message for e in seen if isinstance(e, events.MessageAdded)]
    assert added == [entry.message for entry in run.result.path]
    assert not any(isinstance(e, events.Warned | events.Retrying) for e in seen)


@contextlib.contextmanager
def _all_providers(*, stream):
    with contextlib.ExitStack() as stack:
        made = {}
        for wire in wires.names():
            answers = []
            for turn in range(ROUNDS):
                answers += [
                    say(
                        wire,
                        f"~I am {wire}.",
                        f"Round {turn}.",
                        _call("look", turn, at=wire),
                        _call("note", 50 + turn, text=wire),
                    ),
                    say(wire, f"{wire} is done."),
                ]
            made[wire] = stack.enter_context(provider(wire, answers, stream=stream))
        yield made


@pytest.mark.anyio
@pytest.mark.law(5)
@pytest.mark.row("DAS-08")
@STREAMED
async def test_an_agent_that_changes_its_provider_at_each_run(stream):
    world = World()
    with _all_providers(stream=stream) as made:
        agent = Agent(made[wires.names()[0]][1], tools=world.tools(), stream=stream)
        previous = None
        for wire in wires.names() * ROUNDS:
            agent = agent.replace(model=made[wire][1])
            before = [] if previous is None else [entry.message for entry in previous.path]
            async with agent.stream("Go on.", previous=previous) as running:
                lost = [event async for event in running if isinstance(event, events.Lost)]
            previous = running.result
            assert (previous.outcome, previous.text) == ("completed", f"{wire} is done.")
            assert {event.model for event in lost} <= {f"loop/{wire}"}
            losses = [loss for event in lost for loss in event.losses]
            assert len(losses) == len(set(losses))
            foreign = {
                (index, place)
                for index, message in enumerate(before)
                if message.role == "assistant"
                for place, part in enumerate(message.content)
                if isinstance(part, p.Reasoning) and part.wire != wire
            }
            told = [(each.message, each.part) for each in losses if each.what == "reasoning" and "bound to" in each.why]
            assert sorted(told) == sorted(foreign)
        for wire, (server, _) in made.items():
            bodies = [body for _, body in server.requests]
            assert len(bodies) == 2 * ROUNDS
            for body in bodies:
                assert check_request(wire, body) == [], wire
            assert grows(wire, bodies[:2])
            assert grows(wire, bodies[2:])
            assert (
                raw_messages(wire, bodies[-1]).count(b"Go on.")
                == len(made) * (ROUNDS - 1) + wires.names().index(wire) + 1
            )
    messages = [entry.message for entry in previous.path]
    assert broken_pairs(messages) == []
    assert len(world.done) == 2 * ROUNDS * len(made)


@pytest.mark.anyio
@pytest.mark.row("DAS-25")
@pytest.mark.parametrize("wire", wires.names())
async def test_what_waits_for_a_decision_is_gone_on_with_by_another_provider_in_another_process(wire, tmp_path):
    names = wires.names()
    other = names[(names.index(wire) + 1) % len(names)]
    first = [say(wire, "~May I?", "I would like to.", _call("look", 1, at="a"), _call("note", 2, text="b"))]
    world = World()
    with provider(wire, first, stream=True) as (_, model), SQLiteStore(tmp_path / "t.db") as store:
        run = await agent_of(model, world, policy={"note": "ask"}).run("Write it down.", thread=store.open("t"))
        assert (run.outcome, world.done) == ("waiting", [])
        assert [(each.tool, each.call.arguments) for each in run.pending] == [("note", {"text": "b"})]
    with (
        provider(other, [say(other, "Written.")], stream=True) as (server, model),
        SQLiteStore(tmp_path / "t.db") as again,
    ):
        thread = again.open("t")
        asked = next(
            each for message in thread.messages for each in getattr(message, "tool_calls", ()) if each.name == "note"
        )
        run = await agent_of(model, world, policy={"note": "ask"}).run(thread=thread, decisions={asked.id: approve()})
        assert (run.outcome, run.text) == ("completed", "Written.")
        assert world.done == ["look a", "note b"]
        assert [check_request(other, body) for _, body in server.requests] == [[]]
        assert b"Noted: b" in server.requests[0][1]
    with SQLiteStore(tmp_path / "t.db") as again:
        messages = again.open("t").messages
    assert messages[-1].text == "Written."
    assert broken_pairs(messages) == []
