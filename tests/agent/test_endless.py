"""A run without an end stays within its window, breaks nothing, and can be asked about its beginning (issue 6).

``endless.Provider`` holds every prompt to that; what is left is to look at the end.
"""

from __future__ import annotations

import pytest

import palaver as p
from palaver.context.compaction import CODEBUFF, DEFAULT, SUMMARY_ONLY
from palaver.context.rewrite import is_record
from palaver.store.sqlite import SQLiteStore
from palaver.threads import Thread, for_model
from tests.agent.endless import FACT, LOCKER, OUTPUT, TASK, WINDOW, Provider, asked, walk
from tests.agent.wholeness import broken_pairs


@pytest.fixture(params=["asyncio"])
def anyio_backend(request):
    return request.param


def must_hold(provider, thread, run):
    """What holds of a walk when the question was answered."""
    assert provider.wrong == []
    assert provider.compactions
    assert provider.overflows <= provider.turns // 1_000, "the window is known before the provider refuses"
    assert provider.largest <= WINDOW - OUTPUT
    assert provider.checked >= len(provider.compactions) // provider.every // 2
    assert all(event.after < event.before for event in provider.compactions if event.changes)
    tree = getattr(thread, "tree", thread)
    assert broken_pairs(for_model(run.path)) == []
    assert [m.text for m in for_model(run.path) if m.verbatim] == [FACT]
    assert run.path[0].message.text == TASK
    assert len(run.path) < 1_000, "the conversation that is sent does not grow"
    played = {m.tool_call_id for m in tree_messages(tree) if isinstance(m, p.ToolMessage)}
    assert len(played) > provider.turns * 0.9, "everything is still in the thread"
    rebased = sum(1 for event in provider.compactions if event.changes)
    assert set(tree.branches) == {"main", *(f"main/before-{n + 1}" for n in range(rebased))}
    assert any(map(is_record, run.path.records))


def tree_messages(tree):
    return (entry.message for entry in tree.entries)


def answered(run):
    """The answer came from what was read in the thread, which the prompt did not say any more."""
    assert run.ok, run.reason
    assert run.text == f"It was {LOCKER}."
    found, read = [m for m in run.messages if isinstance(m, p.ToolMessage)]
    assert found.tool_name == "search_history"
    assert read.tool_name == "read_result"
    assert LOCKER in read.text
    before = [entry.message for entry in run.path if entry.message.id not in {m.id for m in run.messages}]
    assert not any(LOCKER in m.text for m in before)


@pytest.mark.anyio
@pytest.mark.law(9)
@pytest.mark.row("KAI-05", "KAI-06", "KAI-10")
@pytest.mark.parametrize(
    ("turns", "every", "stages"),
    [
        pytest.param(180, 5, DEFAULT, id="180"),
        pytest.param(10_000, 100, DEFAULT, id="10000", marks=pytest.mark.long),
        pytest.param(100, 1, DEFAULT, id="default"),
        pytest.param(120, 1, (SUMMARY_ONLY,), id="summarise"),
        pytest.param(400, 1, (SUMMARY_ONLY,), id="summarise-400", marks=pytest.mark.long),
        pytest.param(120, 8, CODEBUFF, id="codebuff"),
        pytest.param(300, 8, CODEBUFF, id="codebuff-300", marks=pytest.mark.long),
    ],
)
async def test_a_run_without_an_end_stays_in_its_window_and_remembers(turns, every, stages):
    provider, thread = Provider(turns, every=every, stages=stages), Thread()
    run = await walk(provider, thread, until=turns, first=True)
    run = await asked(provider, run)
    answered(run)
    must_hold(provider, thread, run)
    assert provider.summaries > 0 or stages != (SUMMARY_ONLY,)


@pytest.mark.anyio
@pytest.mark.law(9)
@pytest.mark.row("KAI-05", "KAI-06", "KAI-10")
@pytest.mark.parametrize("processes", [3, pytest.param(6, marks=pytest.mark.long)])
async def test_a_stored_run_goes_on_in_one_process_after_the_other(processes, tmp_path):
    provider = Provider(30 * processes)
    for until in range(30, provider.turns + 1, 30):
        with SQLiteStore(tmp_path / "palaver.db") as store:
            await walk(provider, store.open("t"), until=until, first=until == 30)
    with SQLiteStore(tmp_path / "palaver.db") as store:
        thread = store.open("t")
        run = await asked(provider, thread=thread)
        answered(run)
        must_hold(provider, thread, run)
        assert store.verify().ok
        assert store.open("t").messages == run.path.messages
