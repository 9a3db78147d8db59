"""Names of tools, and which tool a name means."""

import pytest
from hypothesis import given, strategies as st

from palaver.agent.functions import function_tool
from palaver.core.errors import MessageError
from palaver.turn.tool import Toolbox, legal, normalized


def made(name, scope=None):
    tool = function_tool(lambda: None, name=name)
    return (
        tool
        if scope is None
        else type(tool)(**{f: getattr(tool, f) for f in tool.__struct_fields__} | {"scope": scope})
    )


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("read_file", "read_file"),
        ("Read-File", "read_file"),
        ("functions.read file", "functions_read_file"),
        ("größe", "gr__e"),
        ("ÄB", "_b"),
        ("\u212a", "_"),  # the sign of Kelvin, whose lower case is an ASCII letter
        ("", "_"),
        ("42", "42"),
    ],
)
def test_names_are_normalised(name, normal):
    assert normalized(name) == normal


@given(st.text())
def test_a_normalised_name_is_normal(name):
    once = normalized(name)
    assert once
    assert normalized(once) == once
    assert set(once) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")


@pytest.mark.parametrize("name", ["", "1st", "a b", "grün", "a.b", "x" * 65, "a\n"])
def test_a_name_that_a_wire_refuses_is_refused(name):
    with pytest.raises(MessageError, match="is not a tool name"):
        legal(name)


def test_a_tool_is_found_by_its_name_else_by_the_only_one_spelled_alike():
    tools = Toolbox([made("read_file"), made("Read_File"), made("list-files"), made("grep")])
    assert tools.find("Read_File").name == "Read_File"
    assert tools.find("READ_FILE") is None  # two are alike
    assert tools.find("List_Files").name == "list-files"
    assert tools.find("find") is None
    assert ("grep" in tools, "Grep" in tools, len(tools)) == (True, False, 4)


@pytest.mark.row("DAS-24")
def test_a_call_of_an_unknown_tool_lists_the_tools():
    tools = Toolbox([made("a"), made("b")])
    assert tools.unknown("x") == "Unknown tool 'x'. Available tools: a, b."
    assert Toolbox().unknown("x") == "Unknown tool 'x'. Available tools: none."
    assert len(tools.unknown("x" * 10_000)) < 150


def test_definitions_are_one_object():
    tools = Toolbox([made("b"), made("a")])
    assert tools.definitions is tools.definitions
    assert [each.name for each in tools.definitions] == ["b", "a"] == list(tools.names)
    assert [each.name for each in tools] == ["b", "a"]


def test_two_tools_of_one_name_are_refused_where_they_are_put_together():
    with pytest.raises(MessageError, match=r"^two tools have the name 'a'$"):
        Toolbox([made("a"), made("a")])
    with pytest.raises(MessageError, match=r"two tools have the name 'a' \(from files and the application\)"):
        Toolbox([made("a", "files"), made("a")])
