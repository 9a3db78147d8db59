"""A client of a swarm has one session, whoever uses it: pages, the plain HTTP API, or both."""

from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint

from palaver.serve.http import HttpApp
from palaver.serve.ui import AiSdkEndpoint, swarm_turns
from palaver.serve.workers import LocalDispatcher
from palaver.store.memory import MemoryStore
from tests.serve.ui.test_endpoints import chunks
from tests.serve.ui.test_limits import CHAT, V1, Slow, posts, swarm, web
from tests.serve.ui.test_messages_behind_decisions import deltas

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@asynccontextmanager
async def shop(model=None, *, store=None, **how):
    async with (
        swarm(model).start(store=store) as live,
        LocalDispatcher(live, **how) as dispatcher,
        web(HttpApp(dispatcher, routes=AiSdkEndpoint(live, prefix="").routes(CHAT))) as http,
    ):
        yield http, live, dispatcher


async def until(is_so):
    with anyio.fail_after(60):
        while not is_so():
            await checkpoint()


@pytest.mark.parametrize("kinds", [("ai sdk", "v1"), ("v1", "ai sdk")])
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_page_and_a_program_write_to_one_client(kinds, at_once):
    answers = []

    async def send(kind):
        answers.append((await posts(http, "ann")[kind]()).text)

    async with shop(store=MemoryStore()) as (http, live, _):
        async with anyio.create_task_group() as tasks:
            for kind in kinds:
                if at_once:
                    tasks.start_soon(send, kind)
                else:
                    await send(kind)
        assert all("well" in each for each in answers)
        assert [each.text for each in live.get("ann").messages] == ["hi", "well"] * 2


async def test_an_answer_of_a_page_outlives_a_program_that_wrote_before():
    slow, answers = Slow(), []

    async def answer(prompt):
        return "quick" if prompt.messages[-1].text == "quick" else await slow(prompt)

    async def ask():
        answers.append(await posts(http, "ann")["ai sdk"]())

    async with shop(answer, idle=0.01) as (http, _, dispatcher), anyio.create_task_group() as tasks:
        await http.post(V1.format("ann"), json={"text": "quick"})
        tasks.start_soon(ask)
        with anyio.fail_after(60):
            await slow.asked.wait()
        await until(lambda: not dispatcher._queues.clients)
        slow.let.set()
    assert deltas(chunks(answers[0])) == "well"


async def test_sessions_of_pages_are_closed_when_idle_where_a_store_has_the_conversation(monkeypatch):
    monkeypatch.setattr(swarm_turns, "IDLE", 0)
    async with shop(store=MemoryStore()) as (http, live, _):
        for name in ("ann", "bob", "ann"):
            await posts(http, name)["ai sdk"]()
            await until(lambda: not live.clients)
        assert len((await http.get(f"{CHAT}/ann")).json()) == 4
    async with shop() as (http, live, _):
        await posts(http, "ann")["ai sdk"]()
        assert len((await http.get(f"{CHAT}/ann")).json()) == 2
