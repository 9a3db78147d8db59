"""The items that a storage begins with, and calls that are gone on with by their ids."""

import anyio
import pytest

from palaver.core.errors import SwarmError
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Call, Storage, Swarm, tool
from tests.swarm.scripts import agent, at_work, branching, calling
from tests.swarm.slow import Callers

pytestmark = [pytest.mark.anyio, pytest.mark.finding("F-49")]


def index(item):
    return item["text"]


async def later(client):
    return [{"id": 1, "text": f"for {client}"}]


@pytest.mark.parametrize(
    ("default", "text"),
    [
        ([{"id": 1, "text": "one"}], "one"),
        (lambda client: [{"id": 1, "text": client}], "ann"),
        (later, "for ann"),
    ],
)
async def test_a_storage_begins_with_its_default_items(default, text):
    notes = Storage("notes", index=index, default=default)
    for first in ("list", "get", "numeric_index", "upsert"):
        async with at_work(agent("A"), storages=[notes]) as it:
            cell = it.session.storage(notes)
            match first:
                case "list":
                    assert await cell.list() == ({"id": 1, "text": text},)
                case "get":
                    assert await cell.get(1) == {"id": 1, "text": text}
                case "numeric_index":
                    assert await cell.numeric_index() == 2
                case _:
                    await cell.upsert({"id": 2, "text": "two"})
                    assert [item["text"] for item in await cell.list()] == [text, "two"]


@pytest.mark.parametrize("shared", [False, True])
async def test_default_items_that_were_removed_stay_removed(tmp_path, shared):
    notes = Storage("notes", index=index, default=[{"id": 1, "text": "one"}, {"id": 2, "text": "two"}], shared=shared)
    with SQLiteStore(tmp_path / "threads.sqlite") as store:
        for left in (["two"], []):
            async with (
                Swarm("shop", [agent("A")], storages=[notes]).start(store=store) as live,
                live.session("ann") as session,
            ):
                cell = session.storage(notes)
                await (cell.remove(1) if left else cell.clear())
                assert [item["text"] for item in await cell.list()] == left


@tool(defers=True)
async def ask(call: Call) -> None:
    pass


@pytest.mark.parametrize("how", ["execute", "emit"])
async def test_a_deferring_tool_is_continued_from_outside_by_the_id_of_its_call(how):
    async with at_work(agent("A", branching(go=calling("ask")), tools=[ask])) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        assert callers.got == []
        assert await it.session.commit_tool_output("call-ask", "from a webhook")
        if how == "execute":
            assert await it.session.execute("go on", call="call-ask") == "answer:go on"
            assert await callers.settled() == ["answer:go on"]
        else:
            assert await it.session.emit("go on", call="call-ask")
            assert await callers.settled() == ["go on"]
        assert await it.session.execute("late", call="call-ask") == ""
        assert not await it.session.emit("late", call="call-ask")
        with pytest.raises(SwarmError, match="no call 'call-other'"):
            await it.session.execute("x", call="call-other")
        assert await it.session.complete("next") == "answer:next"
