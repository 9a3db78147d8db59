"""Common tests of an agent's run and a swarm's turn: a test with `over` runs over both."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec import Struct

from palaver.agent import Agent
from palaver.core.errors import PalaverError
from palaver.swarm import Swarm, SwarmAgent

PLACEHOLDER = "PLACEHOLDER"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class Done(Struct):
    """The result of one message: the run, the shown text, its messages, the events and the prompts."""

    run: object
    shown: str
    messages: list
    events: list
    asked: list

    def of(self, kind):
        return [each for each in self.events if isinstance(each, kind)]


def _tuple(options, events):
    return {**options, "observers": [events.append]}


class OverAgent:
    """Runs an agent."""

    name = "agent"

    async def __call__(self, model, text="hi", **options):
        events = []
        run = await Agent(model, name="A", **_tuple(options, events)).run(text)
        return Done(run, run.text, list(run.messages), events, model.asked)


class OverSwarm:
    """Runs one turn of a swarm of one agent."""

    name = "swarm"

    async def __call__(self, model, text="hi", **options):
        events, shown = [], ""
        agent = SwarmAgent("A", model, placeholders=[PLACEHOLDER], keep=None, **_tuple(options, events))
        async with Swarm("shop", [agent], nested=500).start() as live, live.session("ann") as session:
            with suppress(PalaverError, TimeoutError, RuntimeError):
                shown = await session.complete(text)
            run = session.last_run
            return Done(run, shown, list(run.messages), events, model.asked)


@pytest.fixture(params=[OverAgent(), OverSwarm()], ids=lambda each: each.name)
def over(request):
    return request.param
