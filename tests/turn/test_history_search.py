"""What left the prompt is found in the thread, and read back."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver.agent import Agent, function_tool
from palaver.context.plan import Stage
from palaver.context.summary_stage import summarizer
from palaver.models.catalogue import Capabilities
from palaver.models.scripted import ScriptedModel
from palaver.store.sqlite import SQLiteStore
from palaver.threads import Thread
from palaver.threads.view import DISCARDED, RECORD
from palaver.turn.compaction import Compactor
from palaver.turn.results import found_in

WINDOW = Capabilities(window=12_000, max_output=1_000)
SUMMARISES = (Stage("auto", summarizer(keep=2), 0.5),)
FILLER = "and so on and so forth, as every page has it. " * 60


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def call(name, id, **arguments):
    return p.assistant(p.ToolCall(id=id, name=name, arguments_json=json.dumps(arguments)))


def summed(prompt):
    """The summary that a prompt asks for, if it does."""
    return "They looked at pages." if "<transcript>" in prompt.messages[-1].text else None


def thread_of(*messages):
    thread = Thread(clock=lambda: 1_767_225_600_000)
    thread.append(*messages)
    return thread


def asking(thread, *script, **how):
    return Agent(ScriptedModel([*script, "done"]), middleware=[Compactor()], **how).run("?", thread=thread)


async def searched(thread, **arguments):
    run = await asking(thread, call("search_history", "s", **arguments))
    (result,) = [m for m in run.messages if m.role == "tool"]
    return result.text


@pytest.mark.anyio
async def test_a_hit_is_a_handle_a_role_a_time_and_what_stands_around():
    told = p.user("The harbour master is " + "x" * 300 + " called Ilse", id="u1")
    asked = p.assistant("I look.", p.ToolCall("c7", "look", '{"place": "Harbour"}'), id="a1")
    thread = thread_of(told, asked, p.tool("HARBOUR: closed", tool_call_id="c7", tool_name="look", id="r1"))
    text = await searched(thread, find="harbour")
    lines = text.splitlines()
    assert lines[0] == "3 found:"
    assert lines[1] == "- c7 (result of look, 2026-01-01T00:00:00Z): HARBOUR: closed"
    assert lines[2].startswith("- a1 (assistant, 2026-01-01T00:00:00Z): I look. Called: look(")
    assert lines[3].startswith("- u1 (user, 2026-01-01T00:00:00Z): The harbour master is xxx")
    assert lines[3].endswith("…")
    assert len(lines[3]) < 320
    assert (await searched(thread, find="ilse harbour")).startswith("1 found:\n- u1 (user")
    assert "Nothing found" in await searched(thread, find="ilse closed")
    assert (await searched(thread, find="harbour", limit=1)).startswith("3 found; the newest 1:\n- c7 ")


@pytest.mark.anyio
@pytest.mark.parametrize("arguments", [{}, {"find": ""}, {"find": " \n"}, {"find": 3}, {"find": "x", "limit": "y"}])
async def test_invalid_arguments_of_a_search_are_an_error_result(arguments):
    run = await asking(thread_of(p.user("x")), call("search_history", "s", **arguments))
    (result,) = [m for m in run.messages if m.role == "tool"]
    assert result.is_error
    assert "expected" in result.text


def test_a_message_is_one_hit_on_however_many_branches_and_as_it_was_first():
    thread = thread_of(
        p.user("task"), p.assistant(p.ToolCall("c1", "look", "{}")), p.tool("a needle", tool_call_id="c1")
    )
    first = thread.path()
    label = first[2].message.replace(content=(p.Text("[needle gone]"),), metadata={"compaction": "micro"})
    thread.rebase([first[1].message, label], onto=first[0].id, keep="before")
    (hit,) = found_in(thread.entries, ["NEEDLE"])
    assert (hit.handle, hit.text) == ("c1", "a needle")


def test_records_summaries_unseen_answers_reasoning_and_searches_are_not_searched():
    thread = thread_of(
        p.system("", payload={"needle": 1}, tags=[RECORD]),
        p.assistant("needle", tags=[DISCARDED]),
        p.user("[summary] needle", source="compaction", mode="tool"),
        p.assistant(reasoning="needle"),
        p.assistant(p.ToolCall("s", "search_history", '{"find": "needle"}')),
        p.tool("1 found: needle", tool_call_id="s", tool_name="search_history"),
    )
    assert found_in(thread.entries, ["needle"]) == []


def test_results_of_calls_with_one_id_have_handles_of_their_own():
    rounds = [
        (p.assistant(p.ToolCall("c", "look", "{}")), p.tool(f"needle {n}", tool_call_id="c", id=f"r{n}")) for n in "ab"
    ]
    thread = thread_of(*rounds[0], *rounds[1])
    assert [hit.handle for hit in found_in(thread.entries, ["needle"])] == ["ra", "rb"]


@pytest.mark.anyio
async def test_the_whole_of_a_result_that_was_cut_is_searched():
    @function_tool(effect="read")
    def fetch() -> str:
        """Fetch."""
        return "x" * 9000 + " the needle " + "y" * 100

    run = await asking(Thread(), call("fetch", "f"), call("search_history", "s", find="needle"), tools=[fetch])
    cut, found = [m.text for m in run.messages if m.role == "tool"]
    assert "needle" not in cut
    assert found.startswith("1 found:\n- f (result of fetch")
    assert "the needle" in found


@pytest.mark.anyio
@pytest.mark.parametrize("what", ["branch", "hidden", "nobody"])
async def test_a_message_is_read_by_its_id(what):
    thread = thread_of(
        p.user("task"), p.user("one\u00e9 " * 10, p.user("x").content[0], id="u2", tags=[RECORD] * (what == "hidden"))
    )
    if what == "branch":
        thread.fork("other", at=thread.path()[0].id)
        thread.rewind(thread.path()[0].id)
    handle = "u3" if what == "nobody" else "u2"
    run = await asking(thread, call("read_result", "r", handle=handle, length=4))
    (result,) = [m for m in run.messages if m.role == "tool"]
    if what == "branch":
        assert result.text.startswith("oneé\n[Characters 0 to 4 of")
    else:
        assert result.is_error
        assert "no result and no message" in result.text


@pytest.mark.anyio
@pytest.mark.row("KAI-10")
@pytest.mark.parametrize("stored", [False, True])
async def test_what_a_summary_stands_for_is_found_and_read_in_another_process(tmp_path, stored):
    @function_tool(effect="read")
    def look(n: int) -> str:
        """Look."""
        return f"page {n} has the number {n * 7919}. {FILLER}"

    asked = iter(range(1, 13))

    def script(prompt):
        number = None if summed(prompt) else next(asked, None)
        return summed(prompt) or "done" if number is None else call("look", f"c{number}", n=number)

    made = Agent(ScriptedModel([], then=script, capabilities=WINDOW), tools=[look], middleware=[Compactor(SUMMARISES)])
    if not stored:
        thread = Thread()
        await made.run("Look at all.", thread=thread)
    else:
        with SQLiteStore(tmp_path / "palaver.db") as store:
            await made.run("Look at all.", thread=store.open("t"))
    with SQLiteStore(tmp_path / "palaver.db") as store:
        again = store.open("t") if stored else thread
        turns = iter(
            [
                call("search_history", "s", find="Page 2 number"),
                call("read_result", "r", handle="c2", length=60),
                "done",
            ]
        )
        model = ScriptedModel([], then=lambda prompt: summed(prompt) or next(turns), capabilities=WINDOW)
        run = await Agent(model, tools=[look], middleware=[Compactor(SUMMARISES)]).run("Page 2?", thread=again)
        assert not any("15838" in m.text for m in model.asked[-3].messages)
        found, read = [m.text for m in run.messages if m.role == "tool"]
        assert "- c2 (result of look" in found
        assert read.startswith("page 2 has the number 15838.")


def test_the_tools_are_the_same_for_every_agent():
    assert Compactor().tools is Compactor(SUMMARISES).tools
    assert [tool.name for tool in Compactor().tools] == ["read_result", "search_history"]


def test_what_was_flushed_is_not_found():
    thread = thread_of(
        p.user("the key is 4711", id="u1"), p.flush(reason="forget it"), p.user("the key is gone", id="u2")
    )
    assert [hit.handle for hit in found_in(thread.entries, ["key"])] == ["u2"]
    assert [hit.handle for hit in found_in(thread_of(*thread.path().messages[:1]).entries, ["key"])] == ["u1"]


@pytest.mark.anyio
async def test_a_hit_may_have_any_time():
    thread = Thread(clock=lambda: 2**63)
    thread.append(p.user("The harbour master is Ilse", id="u1", sent_at=2**70))
    assert "9999-12-31T23:59:59Z" in await searched(thread, find="harbour")
