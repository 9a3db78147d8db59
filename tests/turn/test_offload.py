"""Results that are kept out of the context, and read back; the todo list of an agent (DAS-26)."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver.agent import Agent, function_tool
from palaver.agent.todos import INSTRUCTIONS, Todo, TodoList
from palaver.core.errors import MessageError
from palaver.models.scripted import ScriptedModel
from palaver.store.sqlite import SQLiteStore
from palaver.turn import tool_output
from palaver.turn.events import ValuesChanged
from palaver.turn.results import Offload, whole_result
from palaver.turn.tool_output import compress

TEXT = "".join(f"line {n:04} needle{n} é́ here\n" for n in range(1000))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def call(name, id="c1", **arguments):
    return p.assistant(p.ToolCall(id=id, name=name, arguments_json=json.dumps(arguments)))


@function_tool(effect="read")
def fetch() -> str:
    """Fetch."""
    return TEXT


@function_tool(effect="read")
def image() -> list[object]:
    """Fetch text and an image."""
    return ["a" * 500, p.Image.from_bytes(b"\x89PNG\r\n\x1a\n", "image/png"), "b" * 500]


def reader(*script, spilling=None, tools=(fetch, image), **how):
    return Agent(ScriptedModel([*script, "done"]), tools=tools, middleware=[spilling or Offload(600)], **how)


def results(run):
    return [m for m in run.messages if m.role == "tool"]


@pytest.mark.anyio
async def test_a_large_result_is_head_tail_and_a_note_and_kept_whole():
    made = reader(call("fetch"))
    run = await made.run("x")
    (result,) = results(run)
    head, note, tail = result.text.partition("\n[... ")[0], result.text.split("\n[... ")[1].split("]\n")[0], None
    tail = result.text.split("]\n")[-1]
    assert TEXT.startswith(head)
    assert TEXT.endswith(tail)
    assert '{"handle": "c1", "start": 400}' in note
    assert whole_result(run.path, "c1") == TEXT
    assert "needle500" not in repr(list(made.model.asked[1].messages))
    assert [[tool.name for tool in each.tools] for each in made.model.asked[:2]] == [
        ["fetch", "image"],
        ["fetch", "image", "read_result"],
    ]


@pytest.mark.anyio
async def test_all_of_it_can_be_read_stretch_by_stretch_where_the_head_ended():
    made = reader(call("fetch"), *[call("read_result", f"r{n}", handle="c1", start=400 + 6000 * n) for n in range(5)])
    run = await made.run("x")
    first, *rest = results(run)
    read = first.text.split("\n[... ")[0] + "".join(r.text.split("\n[Characters")[0] for r in rest)
    assert read == TEXT


@pytest.mark.anyio
async def test_another_process_reads_it_from_the_store(tmp_path):
    with SQLiteStore(tmp_path / "s.db") as store:
        await reader(call("fetch")).run("x", thread=store.open("t"))
    with SQLiteStore(tmp_path / "s.db") as store:
        again = reader(call("read_result", "r", handle="c1", start=0, length=10))
        run = await again.run("go on", thread=store.open("t"))
    assert results(run)[0].text == "line 0000 \n[Characters 0 to 10 of " + results(run)[0].text.partition(" of ")[2]


@pytest.mark.anyio
async def test_a_text_is_found_with_places_that_can_be_read():
    made = reader(
        call("fetch"),
        call("read_result", "r1", handle="c1", find="NEEDLE77 "),
        lambda prompt: call(
            "read_result",
            "r2",
            handle="c1",
            start=int(prompt.messages[-1].text.split("at ")[1].split(":")[0]),
            length=9,
        ),
        call("read_result", "r3", handle="c1", find="here"),
        call("read_result", "r4", handle="c1", find="(a+)+$"),
        call("read_result", "r5", handle="c1", start=10**9),
    )
    _, found, read, many, none, beyond = results(await made.run("x"))
    assert found.text.startswith("1 found.\nat ")
    assert read.text.startswith("needle77 ")
    assert many.text.startswith("1000 found; the first 20:\n")
    assert many.text.count("\n") == 20
    assert (none.text, beyond.text) == ("0 found.", "(nothing there: the result is shorter)")


@pytest.mark.anyio
async def test_what_the_loop_itself_cut_is_read_by_the_same_tool():
    made = reader(
        call("fetch"),
        call("read_result", "r", handle="c1", start=100, length=9),
        spilling=Offload(10**6),
        result_limit=100,
    )
    cut, read = results(await made.run("x"))
    assert cut.text.endswith('[To read on, call read_result with {"handle": "c1", "start": 100}.]')
    assert read.text.startswith(tool_output.cut(TEXT, 100, 9)[0])
    plain = await Agent(ScriptedModel([call("fetch"), "done"]), tools=[fetch], result_limit=100).run("x")
    assert results(plain)[0].text.endswith("characters.]"), "nobody could read on"


@pytest.mark.anyio
async def test_media_stay_and_small_results_are_left_alone():
    run = await reader(call("image"), spilling=Offload(900)).run("x")
    _, media = results(run)[0].content
    assert isinstance(media, p.Image)
    assert whole_result(run.path, "c1") == "a" * 500 + "\n" + "b" * 500
    small = await reader(call("image"), spilling=Offload(2000)).run("x")
    assert len(results(small)[0].content) == 3
    assert whole_result(small.path, "c1") == "a" * 500 + "\n" + "b" * 500, "from the message itself"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"handle": "c9"}, "there is no result and no message 'c9'"),
        ({}, "handle: expected"),
        ({"handle": "c1", "start": "x"}, "start: expected a whole number"),
        ({"handle": "c1", "find": 3}, "find: expected a text"),
    ],
)
async def test_wrong_calls_get_an_error(arguments, told):
    result = results(await reader(call("read_result", "r", **arguments)).run("x"))[0]
    assert result.is_error
    assert told in result.text


@pytest.mark.anyio
async def test_output_may_be_compressed():
    lines = "same\n" * 5000 + "end"

    @function_tool(effect="read")
    def logs() -> str:
        """Logs."""
        return lines

    made = reader(call("logs"), spilling=Offload(1000, shorten=compress), tools=[logs])
    run = await made.run("x")
    assert results(run)[0].text == (
        f"{compress(lines)}\n[Shortened from 25003 characters. "
        'To read all, call read_result with {"handle": "c1", "start": 0}.]'
    )
    assert whole_result(run.path, "c1") == lines


def test_head_and_tail_fit():
    with pytest.raises(MessageError):
        Offload(100, head=90, tail=20)


# -- the todo list -----------------------------------------------------------------------------------------------------


def write(*items, id="w1"):
    return call("write_todos", id, todos=[{"content": item, "status": "pending"} for item in items])


@pytest.mark.row("DAS-26")
@pytest.mark.anyio
async def test_a_list_is_shown_to_the_model_and_found_again_in_the_thread(tmp_path):
    made = Agent(ScriptedModel([write("a", "b"), write("a", "b", id="w2"), "ok"]), middleware=[TodoList()])
    with SQLiteStore(tmp_path / "s.db") as store:
        async with made.stream("x", thread=store.open("t")) as running:
            told = [e async for e in running if isinstance(e, ValuesChanged)]
    assert [(e.names, e.values["todos"]) for e in told] == [(("todos",), (Todo("a"), Todo("b")))]
    assert [m.text for m in made.model.asked[0].system] == [INSTRUCTIONS]
    with SQLiteStore(tmp_path / "s.db") as store:
        again = Agent(ScriptedModel(["ok"] * 2), middleware=[TodoList()])
        run = await again.run("y", thread=store.open("t"))
        assert run.values["todos"] == (Todo("a"), Todo("b"))
        given = await again.run("y", thread=store.open("t"), values={"todos": ()})
        assert given.values["todos"] == ()
