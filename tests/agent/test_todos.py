"""The todo list: docs/spec/deepagents-swift.md#8.3, DAS-26."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.agent.todos import TODOS, Todo, last_todos, parse_todos, render_todos, todo_tool
from palaver.threads.thread import Entry
from palaver.turn.tool import InvalidArgumentsError, ToolContext


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


SHAPES = [
    (
        {"todos": [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}]},
        "a:completed b:in_progress",
    ),
    ({"todos": ["a", " b "]}, "a:pending b:pending"),
    ({"todos": ["a", {"task": "b", "state": "completed"}]}, "a:pending b:completed"),
    ({"todos": {"content": "a"}}, "a:pending"),
    ({"todos": "a"}, "a:pending"),
    ({"todos": '[{"content": "a", "status": "completed"}]'}, "a:completed"),
    ({"todos": "[broken"}, "[broken:pending"),
    ({"content": "a", "status": "completed"}, "a:completed"),
    ([{"content": "a"}], "a:pending"),
    ('{"todos": ["a"]}', "a:pending"),
    ({"todos": []}, ""),
    ({"todos": "[]"}, ""),
    ({"todos": [{"content": "a", "status": "done"}, {"content": "b", "status": 7}]}, "a:pending b:pending"),
    (
        {"todos": [{"content": "a", "status": "In Progress"}, {"content": "b", "state": "in-progress"}]},
        "a:in_progress b:in_progress",
    ),
    ({"todos": [1, None, {}, " ", {"content": ""}, {"status": "pending"}, ["x"], "a"]}, "a:pending"),
    ({"todos": [{"content": " ", "task": 3, "text": "a"}]}, "a:pending"),
]


def shown(todos):
    return " ".join(f"{todo.content}:{todo.status}" for todo in todos)


@pytest.mark.row("DAS-26")
@pytest.mark.parametrize(("given_", "expected"), SHAPES)
def test_every_shape_is_read(given_, expected):
    assert shown(parse_todos(given_)) == expected


@pytest.mark.row("DAS-26")
@pytest.mark.parametrize("alias", ["content", "task", "text", "step", "title", "description", "name"])
@pytest.mark.parametrize("state", ["status", "state"])
def test_every_name_is_read(alias, state):
    assert parse_todos({"todos": [{alias: "a", state: "completed"}]}) == (Todo("a", "completed"),)


@pytest.mark.parametrize("given_", [{}, {"todos": None}, {"todos": 3}, [None], {"todos": [1]}, {"todos": ""}, 7, None])
def test_what_holds_no_list_is_refused(given_):
    with pytest.raises(InvalidArgumentsError, match=r"^todos: "):
        parse_todos(given_)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["todos", "content", "status", "x"]), inner),
)


@given(values)
def test_anything_gives_a_list_or_one_error(given_):
    try:
        todos = parse_todos(given_)
    except InvalidArgumentsError:
        return
    assert parse_todos({"todos": [{"content": todo.content, "status": todo.status} for todo in todos]}) == todos


def context(call):
    return ToolContext(
        call=call,
        agent="a",
        run="r",
        thread="t",
        path=(),
        values={},
        emit=lambda _: None,
        show=lambda _: None,
        idempotency_key="k",
    )


def write(todos, id="1"):
    return p.tool_call("write_todos", {"todos": todos}, id=id)


@pytest.mark.anyio
@pytest.mark.row("DAS-26")
async def test_the_tool_keeps_the_list_and_answers_with_it(anyio_backend):
    tool, call = (
        todo_tool(),
        write([{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}, "c"]),
    )
    told = context(call)
    output = await tool.run(tool.check(call), told)
    assert output.content == (p.Text("[x] a\n[~] b\n[ ] c"),)
    assert told.values[TODOS] == (Todo("a", "completed"), Todo("b", "in_progress"), Todo("c"))
    cleared = await tool.run(tool.check(write([])), told)
    assert cleared.content == (p.Text("The todo list is empty."),)
    assert told.values[TODOS] == ()
    assert render_todos(()) == "The todo list is empty."


def test_arguments_that_are_no_json_are_refused():
    with pytest.raises(InvalidArgumentsError, match="not JSON"):
        todo_tool().check(p.ToolCall("1", "write_todos", "{broken"))
    with pytest.raises(InvalidArgumentsError):
        todo_tool().check(p.ToolCall("1", "write_todos", ""))
    assert todo_tool().check(p.ToolCall("1", "write_todos", json.dumps(json.dumps({"todos": ["a"]})))) == (Todo("a"),)


def path(*messages):
    return [Entry(str(index), None, message) for index, message in enumerate(messages)]


def done(id="1", **fields):
    return p.tool("ok", tool_call_id=id, tool_name="write_todos", **fields)


def called(*calls):
    return p.assistant("", tool_calls=calls)


@pytest.mark.row("DAS-26")
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([p.user("hi")], None),
        ([called(write(["a"])), done()], "a"),
        ([called(write(["a"])), done(), called(write(["b"], "2")), done("2"), p.assistant("end")], "b"),
        ([called(write(["a"])), done(), called(write(["b"], "2")), done("2", is_error=True)], "a"),
        ([called(write(["a"])), done(), called(write(["b"], "2"))], "a"),
        ([called(write(["a"]), write(["b"], "2")), done("1"), done("2")], "b"),
        ([called(write(["a"]), write(["b"], "2")), done("1"), done("2", is_error=True)], "a"),
        ([called(write(["a"])), done(), called(write([], "2")), done("2")], ""),
        ([called(write(["a"])), done(metadata={"todos": [{"content": "edited", "status": "pending"}]})], "edited"),
        ([called(write(["a"])), done(metadata={"todos": []})], ""),
    ],
)
def test_the_list_is_read_back_from_a_thread(messages, expected):
    todos = last_todos(path(*messages))
    assert (None if todos is None else " ".join(todo.content for todo in todos)) == expected
