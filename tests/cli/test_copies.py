"""`palaver show` and `palaver search` on threads that were compacted."""

import anyio
import pytest

import palaver as p
from palaver.agent import compact
from palaver.models.scripted import ScriptedModel
from palaver.store import open_store

pytestmark = pytest.mark.finding("F-77")


@pytest.fixture
def thread(location):
    """A thread of the store of the commands, and what it holds."""

    def thread_(*messages, then=None):
        with open_store(location) as store:
            store.create("t")
            open_ = store.open("t")
            open_.append(*messages)
            if then is not None:
                anyio.run(then, open_)

    return thread_


def test_what_a_session_file_repeats_behind_a_compaction_is_given_once(run, thread):
    kept = p.assistant("the needle is here")
    thread(
        p.user("look"),
        kept,
        p.flush(),
        p.user("They looked.", source="compaction"),
        kept.replace(source="compaction"),
        p.user("and now?"),
    )
    assert run("show", "t").out.count("the needle is here") == 1
    assert len(run("search", "needle", "--json").out.splitlines()) == 1
    assert run("search", "needle").out.count("needle") == 1


def test_what_a_compaction_of_ours_kept_is_found_once(run, thread):
    async def compacted(open_):
        done = await compact(open_, ScriptedModel(["Gist."]), to=900)
        assert done.original_branch

    talk = [m for at in range(20) for m in (p.assistant(f"answer {at} " * 60), p.user(f"question {at} " * 50))]
    thread(p.user("Task"), *talk, p.assistant("the needle is here"), p.user("go on"), then=compacted)
    assert len(run("search", "needle", "--json").out.splitlines()) == 1
    assert run("show", "t").out.count("needle") == 1


def test_the_limit_counts_messages_and_what_was_said_twice_is_found_twice(run, thread):
    said = [p.user(f"needle {at}") for at in range(4)]
    thread(*said, p.user("needle 0"), p.flush(), *[each.replace(source="compaction") for each in said])
    assert len(run("search", "needle", "--json").out.splitlines()) == 5
    done = run("search", "needle", "--json", "--limit", "4")
    assert len(done.out.splitlines()) == 4
    assert "there are more" in done.err
