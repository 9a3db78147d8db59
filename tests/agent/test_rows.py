"""Rows that several modules keep together: ASK-08 of one agent, and KAI-27 of a run that is stored."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import anyio
import pytest

from palaver.agent import Agent, function_tool
from palaver.models import ScriptedModel
from palaver.store.jsonl import JsonlLog, read_log, threads_of
from palaver.store.sqlite import SQLiteStore
from tests.agent.scripts import assert_valid, call, calls, noting


@pytest.mark.anyio
@pytest.mark.row("ASK-08")
@pytest.mark.parametrize("does", ["nothing", "hangs", "raises"])
async def test_a_turn_ends_whatever_its_tool_does_and_the_next_message_is_answered(anyio_backend, does):
    async def wait() -> None:
        """Wait."""
        if does == "hangs":
            await anyio.sleep_forever()
        if does == "raises":
            raise KeyError("Husum")

    model = ScriptedModel([calls(call("wait")), "Done.", "Next."])
    agent = Agent(model, tools=[function_tool(wait, timeout=0.02)])
    first = await agent.run("Go.")
    [result] = [each for each in first.messages if each.role == "tool"]
    told = {"nothing": "(no output)", "hangs": "wait took longer than 0.02 seconds", "raises": "KeyError: 'Husum'"}
    assert (first.outcome, first.text, result.tool_name) == ("completed", "Done.", "wait")
    assert result.text.startswith(told[does])
    assert result.is_error == (does != "nothing")
    assert (await agent.run("And?", previous=first)).text == "Next."
    assert_valid(each.message for each in first.thread.path())


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A store in which an agent ran with a tool."""
    path = tmp_path_factory.mktemp("run") / "palaver.db"
    with SQLiteStore(path) as store:
        model = ScriptedModel([calls(call(to="Kim")), "Sent."])
        run = Agent(model, tools=[noting([])]).sync.run("Write.", thread=store.open(store.create().id))
        assert run.ok
        assert store.verify().damage == ()
    return path


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A run with its log, and the bytes of the log."""
    folder = tmp_path_factory.mktemp("log")
    with JsonlLog(folder) as log:
        model = ScriptedModel([calls(call(to="Kim")), "Sent."])
        run = Agent(model, tools=[noting([])], log=log).sync.run("Write.")
    [path] = folder.iterdir()
    return run, path.read_bytes()


def rebuilt(folder, data):
    """The threads of a log with these bytes, and what is known to be wrong with it."""
    path = folder / "log.jsonl"
    path.write_bytes(data)
    reader = read_log(path)
    found = threads_of(reader)
    return found.threads, (*reader.damage, *found.damage)


@pytest.mark.row("KAI-27")
@pytest.mark.row("D35")
def test_a_run_is_rebuilt_from_its_log_alone(logged, tmp_path):
    run, data = logged
    threads, damage = rebuilt(tmp_path, data)
    assert (list(threads), damage) == ([run.thread.id], ())
    path = threads[run.thread.id].path()
    assert [(each.id, each.parent, each.message) for each in path] == [
        (each.id, each.parent, each.message) for each in run.path
    ]
    assert_valid([each.message for each in path])


@pytest.mark.row("KAI-27")
@pytest.mark.row("D35")
def test_any_altered_byte_of_a_log_is_found(logged, tmp_path):
    _run, data = logged
    for place in range(len(data)):
        _threads, damage = rebuilt(tmp_path, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert damage, (place, data[max(place - 20, 0) : place + 20])


def altered(value):
    """A value with its last byte changed."""
    if value is None or isinstance(value, int):
        return (value or 0) ^ 1
    return value[:-1] + bytes([value[-1] ^ 1])


@pytest.mark.row("KAI-27")
@pytest.mark.row("D35")
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("entries", "id"),
        ("entries", "parent"),
        ("entries", "stamps"),
        ("entries", "sent_at"),
        ("entries", "body"),
        ("entries", "seal"),
        ("bodies", "digest"),
        ("bodies", "data"),
    ],
)
def test_one_altered_byte_of_any_message_of_a_run_is_found(file, tmp_path, table, column):
    for row in range(4):
        path = tmp_path / f"{row}.db"
        shutil.copy(file, path)
        key = {"entries": "place", "bodies": "id"}[table]
        with closing(sqlite3.connect(path)) as db:
            found = db.execute(f"SELECT {key}, {column} FROM {table} ORDER BY {key} LIMIT 1 OFFSET {row}").fetchone()
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (altered(found[1]), found[0]))
            db.commit()
        with SQLiteStore(path) as store:
            assert not store.verify().ok, (table, column, row)
