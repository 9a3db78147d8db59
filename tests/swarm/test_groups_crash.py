"""Acceptance group crashrecovery: killed without a word, a swarm goes on where its store says (row ASK-29)."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.swarm.log import Records, open_log
from palaver.swarm.navigation_tools import KIND
from tests.swarm.crashing import CLIENTS, shop, talk
from tests.swarm.scripts import told

pytestmark = [pytest.mark.anyio, pytest.mark.row("ASK-29")]

ROOT = Path(__file__).resolve().parents[2]


class Recording(MemoryStore):
    """A store that says what is kept after each append."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def append(self, thread, *arguments, **named):
        done = super().append(thread, *arguments, **named)
        self.kept.append([entry.message for entry in self.read(thread)])
        return done


def standing(messages):
    """The log as told, and where the conversation is, as the messages of a thread say."""
    spoken = [message for message in messages if "record" not in message.tags]
    navigation = [message.payload["value"] for message in messages if (message.payload or {}).get("kind") == KIND]
    return told(spoken), (navigation or [{"active": "desk", "stack": []}])[-1]


async def reference():
    """What is kept before the first append, and after each, when nothing happens."""
    store = Recording()
    await talk(store)
    return [standing(messages) for messages in [[], *store.kept]]


def run(*arguments):
    command = [sys.executable, "-m", "tests.swarm.crashing", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, encoding="utf-8")


async def killed(path, append, when, expected):
    """Kill at one append, and see what is there, and that it is gone on with."""
    child = run(path, append, when)
    assert child.wait(60) == -signal.SIGKILL
    child.stdout.close()
    log, where = expected[append if when == "after" else append - 1]
    with SQLiteStore(path) as store:
        swarm = shop()
        async with swarm.start(store=store) as live, live.session("ann") as session:
            assert told(session.messages) == log
            assert {"active": session.agent, "stack": session.navigator.stack} == where
            answer = await session.complete("again")
            assert answer == ("answer:again" if where["active"] == "desk" else "sold:again")
            sent = swarm.agents[session.agent].model.asked[-1].messages
            calls = {call.id for message in sent for call in getattr(message, "tool_calls", ())}
            assert calls == {message.tool_call_id for message in sent if message.role == "tool"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.share(3)
async def test_killed_at_an_append_everything_before_it_is_there(seed, when, tmp_path, anyio_backend_name):
    expected = await reference()
    append = random.Random(f"{seed} {when} {anyio_backend_name}").randrange(1, len(expected))
    await killed(tmp_path / "threads.sqlite", append, when, expected)


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_each_append(when, tmp_path):
    expected = await reference()
    assert len(expected) > 20
    for append in range(1, len(expected)):
        await killed(tmp_path / f"{append}.sqlite", append, when, expected)


async def test_the_reference_run_passes_through_both_agents():
    """The runs that are killed hand over, come back, and call a tool: all of it is what a kill may hit."""
    expected = await reference()
    assert {where["active"] for _, where in expected} == {"desk", "sales"}
    assert any(line.startswith("tool(re:price)") for line in expected[-1][0])
    assert expected[-1][1] == {"active": "sales", "stack": ["sales", "desk", "sales"]}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.share(2)
async def test_killed_among_many_clients_nobody_loses_an_answer(seed, tmp_path):
    path = tmp_path / "threads.sqlite"
    lines, wanted = [], random.Random(seed).randrange(5, 60)
    with run(path, "crowd") as child:
        for line in child.stdout:
            lines.append(line)
            if len(lines) == wanted:
                break
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
    heard = [line.rstrip("\n").split("|") for line in lines if line.endswith("\n")]
    with SQLiteStore(path) as store:
        async with shop().start(store=store) as live:
            for client in CLIENTS:
                own = [(text, answer) for name, text, answer, _ in heard if name == client]
                agents = [active for name, _, _, active in heard if name == client]
                async with live.session(client) as session:
                    texts = [message.text for message in session.messages]
                    assert [text for pair in own for text in pair] == texts[: 2 * len(own)]
                    assert all(client in text for text in texts)
                    assert len(texts) <= 2 * len(own) + 2
                    stack = session.navigator.stack
                    assert stack[: len(agents)] == agents
                    assert len(stack) <= len(agents) + 1
                    assert await session.complete("hi") in {"echo:hi", "sold:hi"}


@pytest.mark.share(2)
async def test_the_same_client_in_another_swarm_begins_at_its_default_and_shares_the_log(tmp_path):
    child = run(tmp_path / "threads.sqlite", 12, "after")
    assert child.wait(60) == -signal.SIGKILL
    child.stdout.close()
    with SQLiteStore(tmp_path / "threads.sqlite") as store:
        async with shop().start(store=store) as first, shop("other").start(store=store) as second:
            ann, also = await first.open("ann"), await second.open("ann")
            bob = await second.open("bob")
            assert (ann.agent, also.agent) == ("sales", "desk")
            assert told(ann.messages) == told(also.messages) != []
            assert bob.messages == ()
            records = Records(await open_log(store, "shop/ann"))
            assert list(records.all(KIND)) == ["shop"]
            await also.change_to("sales")
            assert list(Records(ann.log).all(KIND)) == ["shop", "other"]
