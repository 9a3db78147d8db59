"""Values of wrong types: refused at every door, or equal when they come back."""

import enum
import inspect
from uuid import uuid4

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw, structs

import palaver
from palaver import (
    AssistantMessage,
    Image,
    Json,
    MessageError,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    UserMessage,
    assistant,
    dumps,
    loads,
    system,
    tool,
    tool_call,
    user,
)
from palaver.core import jsontext, typed
from palaver.core.errors import EncodeError, PalaverError
from palaver.testing import ill_typed
from palaver.threads import Thread

FACTORIES = (palaver.system, palaver.developer, palaver.user, palaver.assistant, palaver.tool, palaver.rescue)
ODD = list(ill_typed.ill_typed())


@pytest.mark.finding("F-01")
@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"tags": "X"}, "tags: expected a tuple"),
        ({"tags": [1]}, r"tags\[0\]: expected a string, got int"),
        ({"id": 7}, "id: expected a string or None, got int"),
        ({"id": uuid4()}, "id: expected a string or None, got UUID"),
        ({"sent_at": 1795463123591.6}, "sent_at: expected an integer or None, got float"),
        ({"sent_at": True}, "sent_at: expected an integer or None, got bool"),
        ({"verbatim": 1}, "verbatim: expected True or False, got int"),
        ({"agent": 3}, "agent: expected a string or None, got int"),
        ({"mode": "banana"}, "mode: expected one of 'user', 'tool' or None, got str 'banana'"),
        ({"metadata": 3}, "metadata: expected a dict, got int"),
        ({"payload": {1: 2}}, "payload: the key 1 is not a string"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_the_name_of_its_field(fields, place):
    for build in (*FACTORIES, palaver.flush, user().replace, assistant().replace):
        with pytest.raises(MessageError, match=place):
            build(**fields)


@pytest.mark.finding("F-01")
@pytest.mark.parametrize(
    "build",
    [
        lambda: Text(3),
        lambda: Text(text=None),
        lambda: Image("https://example.org/a.png"),
        lambda: Image.from_url(3),
        lambda: tool_call("f", {}, id=1),
        lambda: tool_call("f", [1], id="1"),
        lambda: tool_call(3, {}, id="1"),
        lambda: ToolCall("1", "f", {}),
        lambda: Json(b"{}"),
        lambda: Json(Raw(b"{odd")),
        lambda: Opaque("w", Raw(b'"\xff"')),
        lambda: UserMessage(content="a"),
        lambda: UserMessage(content=("a",)),
        lambda: UserMessage(content=(Reasoning("a"),)),
        lambda: AssistantMessage(usage={"input": 1}),
        lambda: palaver.Usage(input="1"),
        lambda: assistant(reasoning=3),
        lambda: assistant("x", finish_reason="banana"),
        lambda: user(b"bytes"),
        lambda: user("x").replace(content=3),
    ],
)
def test_constructors_and_factories_check_every_value(build):
    with pytest.raises(MessageError, match=": "):
        build()


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("calls", [["read"], "read", [{"name": "read"}], ToolCall("1", "f", "")])
def test_what_is_no_tool_call_does_not_become_text(calls):
    if isinstance(calls, ToolCall):
        assert assistant("x", tool_calls=calls).tool_calls == (calls,)
        return
    with pytest.raises(MessageError, match=r"tool_calls\[0\]: expected a ToolCall"):
        assistant("x", tool_calls=calls)


@pytest.mark.finding("F-01")
@pytest.mark.parametrize("factory", [*FACTORIES, palaver.flush, tool_call])
def test_factories_have_written_keywords(factory):
    kinds = {each.kind for each in inspect.signature(factory).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    with pytest.raises(TypeError, match="unexpected keyword"):
        factory(no_such_field=1)


def test_lists_and_enums_become_plain_values():
    class Name(enum.StrEnum):
        TRIAGE = "triage"

    class Old(str, enum.Enum):  # noqa: UP042 (as older code has it)
        TAG = "tag"

    class Time(enum.IntEnum):
        NOW = 5

    message = user("a", agent=Name.TRIAGE, tags=[Old.TAG], sent_at=Time.NOW)
    assert (type(message.agent), type(message.tags), type(message.tags[0])) == (str, tuple, str)
    assert type(message.sent_at) is int
    assert loads(dumps(message)) == message == user("a", agent="triage", tags=("tag",), sent_at=5)
    assert UserMessage(content=[Text("a")]) == user("a")


@pytest.mark.finding("F-01")
@pytest.mark.parametrize(("place", "message"), ODD, ids=[place for place, _ in ODD])
def test_every_field_of_a_wrong_type_is_refused_at_every_door(place, message):
    thread = Thread()
    with pytest.raises(MessageError, match=r"messages\[0\]: \w+: "):
        thread.append(message)
    assert len(thread) == 0
    try:
        line = dumps(message)
    except EncodeError:
        return
    assert loads(line) == message, "dumps took what loads gives otherwise"


def test_every_field_of_every_class_is_among_them():
    named = {place.partition(" ")[0] for place, _ in ODD}
    for message in ill_typed.messages():
        for part in (message, *message.content):
            for name in type(part).__struct_fields__:
                assert f"{type(part).__name__}.{name}" in named


@pytest.mark.finding("F-01")
@pytest.mark.parametrize("depth", [100, 200, 201, 400, 990, 5000])
def test_deep_values_are_refused_where_they_are_given(depth):
    deep = 0
    for _ in range(depth):
        deep = [deep]
    text = Raw(b"[" * depth + b"0" + b"]" * depth)
    builds = (lambda: user(payload=deep), lambda: tool(payload=deep), lambda: Json.of(deep), lambda: Json(text))
    for build in builds:
        if depth > jsontext.DEEPEST:
            with pytest.raises(MessageError, match="nested too deeply"):
                build()
        else:
            made = build()
            assert loads(dumps(made), type(made)) == made


@given(st.text('[]{}",:\\a', max_size=30), st.integers(1, 5))
def test_depth_is_found_whatever_stands_in_strings(text, most):
    line = jsontext.encode([text, {text: [[text]]}])
    assert jsontext.is_deep(line, most) == (most < 4)


@pytest.mark.finding("F-01")
def test_a_thread_takes_messages_only():
    for wrong in ("text", {"role": "user"}, None, Text("a")):
        with pytest.raises(MessageError, match=r"messages\[1\]: expected a message, got"):
            Thread().append(user("a"), wrong)


def test_an_unchecked_constructor_makes_the_same_value():
    assert typed.unchecked(Text)("a") == Text("a")
    assert typed.unchecked(ToolCall)("1", "f", custom=True) == ToolCall("1", "f", custom=True)


def test_decoding_and_msgspec_replace_do_not_check_twice(monkeypatch):
    monkeypatch.setattr(typed, "_plans", {})
    monkeypatch.setattr(typed, "_plan", lambda _cls: pytest.fail("checked again"))
    message = loads(b'{"role":"user","content":[{"type":"text","text":"a"}],"tags":["t"]}')
    assert structs.replace(message, agent="b").agent == "b"


def test_errors_are_short_whatever_was_given():
    for wrong in ("x" * 10**6, 10**5000, ["x" * 10**6]):
        with pytest.raises(PalaverError) as caught:
            system("a", verbatim=wrong)
        assert len(str(caught.value)) < 200
