"""Messages and parts are values: frozen, equal by value, copied by ``replace``, short to print."""

import copy
import pickle
import sys

import msgspec
import pytest
from msgspec import UNSET, Raw

import palaver
from palaver import (
    Citation,
    Encoded,
    File,
    FileId,
    Image,
    Inline,
    Json,
    Loss,
    MessageError,
    Opaque,
    Reasoning,
    Request,
    Response,
    Text,
    Tool,
    ToolCall,
    Usage,
    UserMessage,
    assistant,
    system,
    tool,
    user,
)
from palaver.core import canonical, messages
from palaver.core.value import Extra, Record
from palaver.testing import laws

BIG = "x" * 1_000_000
BIG_JSON = Raw(b'"' + b"x" * 1_000_000 + b'"')


def members(base=Record):
    for cls in base.__subclasses__():
        yield cls
        yield from members(cls)


# -- frozen ----------------------------------------------------------------------------------------


@pytest.mark.row("MSG-03")
@pytest.mark.conflict("C3")
@pytest.mark.parametrize(
    "value",
    [
        user("a"),
        Text("a"),
        Image(Inline("AA")),
        Inline("AA"),
        Citation(),
        Usage(),
        Tool("f"),
        Request(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_field_can_be_assigned_or_deleted(value):
    for name in type(value).__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, name, None)
        with pytest.raises(AttributeError):
            delattr(value, name)
    with pytest.raises(AttributeError):
        value.new = 1


@pytest.mark.row("MSG-03")
def test_views_are_frozen_all_the_way_down():
    message = user(metadata={"a": {"b": [1]}}, payload=[{}], provider={"x": {"y": 1}})
    for change in (
        lambda: message.metadata.update(c=1),
        lambda: message.metadata["a"]["b"].append(2),
        lambda: message.metadata["a"].pop("b"),
        lambda: message.payload[0].setdefault("a", 1),
        message.payload.sort,
        message.provider["x"].clear,
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    call = palaver.tool_call("f", {"a": []}, id="1")
    with pytest.raises(TypeError):
        call.arguments["a"].append(1)


@pytest.mark.row("MSG-03")
def test_what_went_in_can_change_without_changing_the_message():
    metadata = {"a": [1]}
    tags = ["t"]
    message = user("a", metadata=metadata, tags=tags)
    metadata["a"].append(2)
    tags.append("u")
    assert message.metadata == {"a": [1]}
    assert message.tags == ("t",)
    assert isinstance(hash(message), int)


def test_extra_is_frozen():
    extra = Extra(Raw(b'{"a":1}'))
    with pytest.raises(AttributeError):
        extra.json = Raw(b"{}")
    with pytest.raises(AttributeError):
        del extra.json


@pytest.mark.row("MSG-03")
def test_every_stored_struct_is_frozen_and_untracked():
    for cls in members():
        config = cls.__struct_config__
        assert config.frozen, cls
        assert not config.gc, cls
        assert config.forbid_unknown_fields, cls
        assert "extra" in cls.__struct_fields__


# -- closed ----------------------------------------------------------------------------------------


@pytest.mark.row("MSG-03")
@pytest.mark.conflict("C2")
@pytest.mark.parametrize("base", [*messages.MESSAGE_CLASSES, Text, ToolCall, Tool, Request])
def test_nobody_else_subclasses(base):
    with pytest.raises(TypeError, match="closed union"):
        type("Mine", (base,), {"__module__": "somewhere"})


@pytest.mark.row("MSG-03")
def test_message_fields_are_keyword_only():
    for cls in messages.MESSAGE_CLASSES:
        assert cls.__match_args__ == ()
        with pytest.raises(TypeError):
            cls(())


# -- equality --------------------------------------------------------------------------------------


@pytest.mark.row("MSG-03")
def test_equality_is_by_value_and_by_class():
    assert user("a", id="1") == user("a", id="1")
    assert user("a") != user("b")
    assert user("a") != system("a")
    assert user("a") != "a"
    assert Json.of(True) != Json.of(1)
    assert Json(Raw(b'{"a":1,"b":2}')) == Json(Raw(b'{ "b":2, "a":1 }'))
    assert Json(Raw(b"2.0")) != Json(Raw(b"2"))
    assert palaver.Settings(temperature=1) == palaver.Settings(temperature=1.0)


def test_equal_values_have_equal_hashes():
    one = user("a", metadata={"a": 1, "b": 2}, provider={"x": {}})
    two = canonical.decode(
        b'{"role":"user","provider":{"x" : {}},"metadata":{"b":2,"a":1},"content":[{"text":"a","type":"text"}]}'
    )
    assert one == two
    assert len({one, two}) == 1


# -- copies ----------------------------------------------------------------------------------------


def test_replace_gives_a_copy():
    message = user("a", id="1")
    changed = message.replace(content=["b", Image(Inline("AA"))], metadata={"a": 1}, payload=None)
    assert changed.text == "b"
    assert (changed.id, changed.metadata, changed.payload) == ("1", {"a": 1}, None)
    assert changed.replace(payload=UNSET, metadata=UNSET, content="a") == message
    assert message.text == "a"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"colour": 1}, "UserMessage has no field 'colour'"),
        ({"metadata": [1]}, "metadata: expected a dict, got list"),
        ({"provider": None}, "provider: expected a dict, got NoneType"),
        ({"metadata": {"a": float("nan")}}, r"metadata\.a: nan is not a JSON number"),
        ({"payload": {1: 2}}, "payload: the key 1 is not a string"),
        ({"payload": [object()]}, r"payload\[0\]: object is not a JSON value"),
        ({"payload": 10**5000}, "payload: Exceeds"),
        ({"content": ["a", Reasoning("b")]}, r"content\[1\]: UserMessage cannot hold Reasoning"),
    ],
)
def test_replace_refuses_what_a_message_cannot_hold(change, reason):
    with pytest.raises(MessageError, match=reason):
        user().replace(**change)


def test_a_value_that_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(MessageError, match="nested too deeply"):
        user(payload=loop)


def test_pickle_and_copy():
    message = user("a\ud800", Opaque("w", Raw(b"[1.50]")), metadata={"a": 5e-06})
    newer = canonical.decode(b'{"role":"user","new":1}')
    for value in (message, newer, Request(messages=(message,)), Usage(raw_json=Raw(b"{}"))):
        laws.assert_law_1_copies(value)
    assert copy.copy(message) is message
    assert copy.deepcopy([message])[0] is message
    assert canonical.encode(pickle.loads(pickle.dumps(message))) == canonical.encode(message)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace is new in 3.13")
def test_copy_replace():
    assert copy.replace(user("a"), id="1", metadata={"a": 1}) == user("a", id="1", metadata={"a": 1})
    assert copy.replace(Request(origin="x"), model="m") == Request(model="m")
    assert copy.replace(Usage(input=1), output=2) == Usage(input=1, output=2)


def test_an_edited_request_forgets_where_it_came_from():
    assert Request(origin="x").replace(model="m").origin is None
    assert Request(origin="x").append(user("a")).messages == (user("a"),)


# -- repr ------------------------------------------------------------------------------------------


def big_values():
    message = user(BIG, metadata={"a": BIG}, payload=BIG, tags=tuple([BIG] * 9), id=BIG)
    answer = assistant(*[Reasoning(BIG)] * 50, ToolCall(BIG, BIG, BIG), model=BIG)
    return [
        message,
        answer,
        tool(*[Json(BIG_JSON)] * 50),
        Text(BIG, tuple([Citation(quote=BIG, raw_json=BIG_JSON)] * 50)),
        File(Inline(BIG), BIG, BIG),
        Image(FileId(BIG, BIG)),
        Opaque(BIG, BIG_JSON),
        Tool(BIG, BIG, BIG_JSON),
        Request(messages=(message,) * 50, model=BIG, tools=(Tool(BIG),) * 50),
        Response(message=answer, alternatives=(answer,) * 50, origin=BIG),
        Usage(input=1, raw_json=BIG_JSON),
        palaver.UsagePass(kind=BIG, usage=Usage()),
        palaver.Settings(stop=(BIG,) * 50, effort=BIG),
        palaver.ToolChoice("auto", (BIG,) * 50),
        Loss("dropped", BIG, BIG),
        Encoded([BIG.encode()] * 50, (Loss("dropped", BIG, BIG),)),
        Extra(Raw(b"{" + b",".join(b'"%d":1' % n for n in range(100_000)) + b"}")),
        Image(Inline(BIG)).replace(provider={"x": {"y": BIG}}),
    ]


@pytest.mark.parametrize("value", big_values(), ids=lambda value: type(value).__name__)
def test_nothing_prints_a_megabyte(value):
    assert len(repr(value)) < 2_000


def test_repr_shows_what_was_set():
    assert repr(user("hi", id="1")) == "UserMessage(content=(Text('hi'),), id='1')"
    assert repr(Usage(input=1)) == "Usage(input=1)"
    assert repr(UserMessage()) == "UserMessage()"
    assert repr(Image(Inline("AAAA"))) == "Image(Inline(4 characters))"


# -- match -----------------------------------------------------------------------------------------


def test_match_reads_well():
    found = []
    for part in assistant(Reasoning("r"), "t", ToolCall("1", "f")).content:
        match part:
            case Text(text):
                found.append(text)
            case ToolCall(id, name):
                found.append((id, name))
            case Reasoning(text=text):
                found.append(text)
    assert found == ["r", "t", ("1", "f")]


def test_msgspec_itself_can_hold_messages():
    class Row(msgspec.Struct):
        message: palaver.Message

    row = Row(user("a"))
    assert msgspec.json.decode(msgspec.json.encode(row), type=Row).message == user("a")
