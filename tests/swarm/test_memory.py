"""Session memory, and values as text."""

import sqlite3
from contextlib import closing

import anyio
import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec import Struct

from palaver.core.errors import SwarmError, UnavailableError
from palaver.swarm.extras.memory import Memory, describe


@pytest.mark.anyio
async def test_a_write_is_merged_one_level_deep_and_there_after_a_restart(place):
    memory = Memory(await place.open())
    assert await memory.read() == {}
    await memory.write({"name": "Ann", "cart": {"tea": 1}})
    assert await memory.write({"cart": {"milk": 2}, "age": None}) == {"name": "Ann", "cart": {"milk": 2}, "age": None}
    again = Memory(await place.open())
    assert await again.read() == {"name": "Ann", "cart": {"milk": 2}, "age": None}
    await again.clear()
    assert await Memory(await place.open()).read() == {}


@pytest.mark.anyio
async def test_concurrent_writes_are_all_kept(place):
    memory = Memory(await place.open())
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(memory.write, {str(number): number})
    assert await memory.read() == {str(number): number for number in range(20)}


@pytest.mark.anyio
async def test_a_write_that_fails_leaves_nothing(disk):
    memory = Memory(await disk.open())
    await memory.write({"a": 1})
    with pytest.raises(SwarmError, match="session memory"):
        await memory.write({"a": 2, "b": object()})
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # now nobody can write
        with pytest.raises(UnavailableError):
            await memory.write({"a": 2})
        assert await memory.read() == {"a": 1}
    await memory.write({"b": 2})
    assert await memory.read() == {"a": 1, "b": 2}


@pytest.mark.anyio
async def test_nobody_can_change_the_memory_by_what_he_was_given(place):
    memory = Memory(await place.open())
    given = {"tags": ["a"]}
    for each in (await memory.write(given), await memory.read(), given):
        each["tags"].append("b")
    assert await memory.read() == {"tags": ["a"]}


class Guest(Struct):
    first_name: str
    room: int | None = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"first_name": "Ann", "age": 7}, "First name: Ann\nAge: 7"),
        (Guest("Ann", 12), "First name: Ann\nRoom: 12"),
        ([Guest("Ann"), Guest("Bob", 3)], "First name: Ann\n\nFirst name: Bob\nRoom: 3"),
        ({"a": None, "b": {"c": None}, "d": []}, ""),
        ({"ok": True, "zero": 0, "none": ""}, "Ok: True\nZero: 0\nNone: "),
        ({"address": {"city": "Rome"}, "tags": ["new", "old"]}, "Address city: Rome\nTags 1: new\nTags 2: old"),
        ({"text": "x" * 60}, "Text: " + "x" * 50),
        ({"text": "one\ntwo"}, "Text: one two"),
        ([{"a": 1}, {"a": None}, {"a": 2}], "A: 1\n\nA: 2"),
        (["one", 2], "one\n\n2"),
        ({"": "bare"}, ": bare"),
    ],
)
def test_describe(value, text):
    assert describe(value) == text


def test_describe_cuts_where_it_is_told_to_and_refuses_what_is_not_json():
    assert describe({"a": "xyz"}, limit=2) == "A: xy"
    with pytest.raises(SwarmError, match="a description"):
        describe({"a": object()})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
    )
)
def test_no_line_says_none_or_more_than_it_may(value):
    for line in describe({"told": value}).splitlines():
        title, _, text = line.partition(": ")
        assert title.startswith("Told")
        assert len(text) <= 50
        assert "None" not in title
