"""What a call says of its arguments, for people.

Source: docs/spec/deepagents-swift.md#1.5.
"""

import pytest

from palaver.core.factories import assistant, tool_call
from palaver.core.parts import ToolCall


@pytest.mark.finding("F-35")
@pytest.mark.row("DAS-07")
@pytest.mark.parametrize(
    ("arguments", "described"),
    [
        ("{}", ""),
        ("", ""),
        ('{"size":3,"path":"a.txt"}', "path: a.txt, size: 3"),
        ('{"b":["x","y"],"a":{"z":1,"k":null}}', "a: {k: null, z: 1}, b: [x, y]"),
        ('{"a":[]}', "a: []"),
        ('{"a":{}}', "a: {}"),
        ('{"a":[{"y":[1,["q"]],"x":true}]}', "a: [{x: true, y: [1, [q]]}]"),
        ('{"a":null,"b":false,"c":"","d":"null"}', "a: null, b: false, c: , d: null"),
        ('{"a":5e-06,"b":2.0,"c":1180591620717411303424}', "a: 5e-06, b: 2.0, c: 1180591620717411303424"),
        ('{"é":"ü\\u2028"}', "é: ü\u2028"),
        ("{broken", "{broken"),
        ("[1]", "[1]"),
    ],
)
def test_arguments_are_described_for_people(arguments, described):
    assert ToolCall("1", "f", arguments).described == described


@pytest.mark.row("DAS-07")
def test_deep_arguments_are_described_too():
    deep = "[" * 900 + "]" * 900
    assert ToolCall("1", "f", f'{{"a":{deep}}}').described.count("[") == 900


def test_a_call_of_values_is_described_as_one_of_text():
    assert tool_call("f", {"b": ("x",), "a": {"k": None}}, id="1").described == "a: {k: null}, b: [x]"


def test_client_tool_calls_leave_out_what_the_provider_ran() -> None:
    """A tool message for a call that the provider ran would be sent as user text."""
    search = ToolCall("srv_1", "web_search", "{}", provider_executed=True)
    call = ToolCall("call_1", "weather", "{}")
    message = assistant("a", search, call)
    assert message.tool_calls == (search, call)
    assert message.client_tool_calls == (call,)
