"""From what a tool gave back, or raised, to what the model is sent."""

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import types
import uuid

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

from palaver import wires
from palaver.core.errors import MessageError, ToolError
from palaver.core.factories import assistant, tool, tool_call, user
from palaver.core.parts import Audio, File, Image, Json, Reasoning, Text, ToolCall
from palaver.core.request import Request
from palaver.turn.tool import InvalidArgumentsError, Output
from palaver.turn.tool_output import NO_OUTPUT, error_output, output_of, plain

PNG = b"\x89PNG\r\n\x1a\n...."


@dataclasses.dataclass
class Point:
    x: int
    y: float = 2.0


class Place(msgspec.Struct, tag="place"):
    name: str
    at: Point | msgspec.UnsetType = msgspec.UNSET


@attrs.define
class Road:
    length: int


class Town(pydantic.BaseModel):
    name: str
    founded: dt.date


class Colour(enum.Enum):
    RED = "red"


NOTHING = (Text(NO_OUTPUT),)
VALUES = {
    "None": (None, NOTHING),
    "empty text": ("", NOTHING),
    "blank text": (" \n", NOTHING),
    "text": ("hello", (Text("hello"),)),
    "integer": (2**70, (Json.of(2**70),)),
    "float": (2.0, (Json.of(2.0),)),
    "boolean": (False, (Json.of(value=False),)),
    "list": ([1, "a", None], (Json.of([1, "a", None]),)),
    "empty list": ([], (Json.of([]),)),
    "tuple": ((1, 2), (Json.of([1, 2]),)),
    "set": ({3, 1, 2}, (Json.of([1, 2, 3]),)),
    "dict": ({"a": {"b": Colour.RED}, Colour.RED: 1}, (Json.of({"a": {"b": "red"}, "red": 1}),)),
    "mapping": (types.MappingProxyType({"a": 1}), (Json.of({"a": 1}),)),
    "dataclass": (Point(1), (Json.of({"x": 1, "y": 2.0}),)),
    "struct": (Place("Husum", Point(1)), (Json.of({"type": "place", "name": "Husum", "at": {"x": 1, "y": 2.0}}),)),
    "struct, unset": ([Place("Husum")], (Json.of([{"type": "place", "name": "Husum"}]),)),
    "attrs": (Road(3), (Json.of({"length": 3}),)),
    "pydantic": (Town(name="Kiel", founded=dt.date(1233, 1, 1)), (Json.of({"name": "Kiel", "founded": "1233-01-01"}),)),
    "date": (dt.date(2024, 1, 2), (Json.of("2024-01-02"),)),
    "uuid": ({"id": uuid.UUID(int=1)}, (Json.of({"id": "00000000-0000-0000-0000-000000000001"}),)),
    "decimal": ([decimal.Decimal("1.10")], (Json.of(["1.10"]),)),
    "part": (Text("a"), (Text("a"),)),
    "parts": (["a", Image.from_bytes(PNG), {"b": 1}], (Text("a"), Image.from_bytes(PNG), Json.of({"b": 1}))),
    "image bytes": (PNG, (Image.from_bytes(PNG),)),
    "sound bytes": (b"ID3..", (Audio.from_bytes(b"ID3.."),)),
    "document bytes": (b"%PDF-1.7", (File.from_bytes(b"%PDF-1.7"),)),
    "text bytes": ("grüß".encode(), (Text("grüß"),)),
    "other bytes": (b"\xff\x00", (File.from_bytes(b"\xff\x00", "application/octet-stream"),)),
    "bytes in a list": ([PNG, "a"], (Image.from_bytes(PNG), Text("a"))),
    "message": (tool("done", tool_call_id="c1"), (Text("done"),)),
}  # fmt: skip


@pytest.mark.parametrize(("value", "content"), VALUES.values(), ids=VALUES)
def test_a_returned_value_becomes_the_output(value, content):
    output = output_of(value)
    assert output.content == content
    assert not output.is_error


def test_an_output_is_itself_and_an_error_message_stays_one():
    output = Output(content=(Text("a"),), metadata={"k": 1})
    assert output_of(output) is output
    assert output_of(Output(metadata={"k": 1})) == Output(content=NOTHING, metadata={"k": 1})
    assert output_of(tool("no", tool_call_id="c1", is_error=True)).is_error


def test_an_output_that_a_tool_made_itself_is_looked_at():
    assert output_of(Output(content="done")).content == (Text("done"),)
    assert output_of(Output(content=["a", Text("b"), 1])).content == (Text("a"), Text("b"), Json.of(1))
    assert "content[1]: object is not a JSON value" in output_of(Output(content=("a", object()))).content[0].text
    assert "metadata.k: object is not a JSON value" in output_of(Output(metadata={"k": object()})).content[0].text


CYCLE: dict = {"a": []}
CYCLE["a"].append(CYCLE)
DEEP: list = []
for _ in range(100_000):
    DEEP = [DEEP]
REFUSED = {
    "NaN": ({"a": [1, float("nan")]}, "value.a[1]: nan is not a JSON number"),
    "infinity": (float("inf"), "value: inf is not a JSON number"),
    "object": ({"a": object()}, "value.a: object is not a JSON value"),
    "function": ([print], "value[0]: builtin_function_or_method is not a JSON value"),
    "generator": ((x for x in "ab"), "value: generator is not a JSON value"),
    "key": ({"a": {1: 2}}, "value.a: the key 1 is not a string"),
    "cycle": (CYCLE, "value.a[0]: the value contains itself"),
    "path": (
        pathlib.Path("a.txt"),
        "value: a path cannot be a result; return str(path), its text, or File.from_path(path)",
    ),
    "bytes inside": ({"a": b"x"}, "value.a: bytes are not JSON; return an Image, a File, or a list of parts"),
    "part inside": (
        {"a": Text("x")},
        "value.a: a part can be a result or an element of a list of parts, not inside a value",
    ),
    "wrong part": (Reasoning("hm"), "value: Reasoning cannot be part of a tool result"),
    "in a list of parts": ([Text("a"), object()], "value[1]: object is not a JSON value"),
}


@pytest.mark.parametrize(("value", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_json_is_an_error_result_that_names_the_path(value, reason):
    output = output_of(value)
    assert output.is_error
    assert output.content == (Text(f"The tool returned a value that cannot be sent: {reason}"),)


def test_a_value_that_is_too_deep_is_an_error_result():
    assert "nested too deeply" in output_of(DEEP).content[0].text
    with pytest.raises(MessageError, match="nested too deeply"):
        plain(DEEP)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.just(object()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
)


@pytest.mark.law(5)
@given(ANY)
def test_every_result_is_one_that_every_wire_sends(value):
    output = output_of(value)
    messages = (user("go"), assistant(tool_call("look", {}, id="c1")), tool(*output.content, tool_call_id="c1"))
    for name in wires.names():
        assert wires.get(name).encode_request(Request(messages)).body


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError


ERRORS = {
    "tool error": (ToolError("No such city: Atlantis."), "No such city: Atlantis.", "tool"),
    "arguments": (InvalidArgumentsError("a: missing"), "a: missing", "invalid_arguments"),
    "other": (KeyError("b"), "KeyError: 'b'", "tool_execution_failed"),
    "ours": (MessageError("no"), "MessageError: no", "message"),
    "empty": (ValueError(), "Unknown error", "tool_execution_failed"),
    "empty tool error": (ToolError(" "), "Unknown error", "tool"),
    "mute": (MuteError(), "Unknown error", "tool_execution_failed"),
    "group": (ExceptionGroup("g", [ExceptionGroup("h", [OSError("x")])]), "OSError: x", "tool_execution_failed"),
    "text": ("stopped", "stopped", "tool"),
}


@pytest.mark.parametrize(("error", "text", "code"), ERRORS.values(), ids=ERRORS)
def test_an_exception_becomes_the_output(error, text, code):
    output = error_output(error)
    assert output.is_error
    assert output.content == (Text(text),)
    assert output.metadata["error_code"] == code


def test_a_long_error_is_shortened_but_the_text_of_a_tool_error_is_not():
    assert len(error_output(ValueError("x" * 5000)).content[0].text) == 1000
    assert len(error_output(ToolError("x" * 5000)).content[0].text) == 5000


def test_a_call_is_no_result():
    assert output_of([ToolCall("c1", "x")]).is_error
