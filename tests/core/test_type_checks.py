"""Values of wrong types: refused at every door, or equal when they come back."""

import enum
import inspect
import itertools
import json
import pickle
from uuid import uuid4

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, Raw, Struct, structs

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
    wires,
)
from palaver.core import canonical, changes, jsontext, type_checks
from palaver.core.errors import EncodeError, PalaverError
from palaver.core.messages import MESSAGE_CLASSES
from palaver.core.request import Settings
from palaver.core.value import Value
from palaver.testing import ill_typed
from palaver.threads import Thread
from tests.folding import over

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
@pytest.mark.parametrize("calls", [["read"], "read", 7, None, [{"name": "read"}], ToolCall("1", "f", "")])
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
@over("place, message", ODD, ids=[place for place, _ in ODD])
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


def _values_of(cls):
    """The classes made of a class of values."""
    return [cls, *[each for under in cls.__subclasses__() for each in _values_of(under)]]


def _structs(value, found=()):
    """A message, and all that stands in it, each with how it is put back into its message."""
    yield value
    for name in type(value).__struct_fields__:
        held = getattr(value, name)
        for each in held if isinstance(held, tuple) else [held]:
            if isinstance(each, Struct):
                yield from _structs(each, (*found, value))


def _built(build):
    """What a constructor made, or ``None`` for what it refused, which it may do in one way only."""
    try:
        return build()
    except MessageError:
        return None


SAMPLES = {type(each): each for message in ill_typed.messages() for each in _structs(message)}


@pytest.mark.finding("F-01")
@pytest.mark.parametrize("cls", SAMPLES, ids=lambda cls: cls.__name__)
def test_what_a_constructor_or_replace_takes_is_refused_by_dumps_or_comes_back_equal(cls):
    """Whether a value is right is judged by what ``loads`` gives, not by the rules of the constructor."""
    sample = SAMPLES[cls]
    fields = {name: getattr(sample, name) for name in cls.__struct_fields__}
    values = [*ill_typed.WRONG, Raw(b'"x"'), *[value for _, value in ill_typed.odd_values()]]
    taken = 0
    views = [name.removesuffix("_json") for name in fields if name.endswith("_json")]
    values = [*values, {"a": "b"}, UNSET]
    for name, wrong in itertools.product([*fields, *views], values):
        builds = [] if name in views else [lambda name=name, wrong=wrong: cls(**{**fields, name: wrong})]
        if hasattr(cls, "replace"):
            builds.append(lambda name=name, wrong=wrong: sample.replace(**{name: wrong}))
        for made in filter(None, map(_built, builds)):
            try:
                line = dumps(made)
            except EncodeError:
                continue
            taken += 1
            again = loads(line) if isinstance(made, MESSAGE_CLASSES) else canonical.decode(line, cls)
            assert again == made, f"{cls.__name__}.{name} = {type(wrong).__name__}"
    assert taken > 0


@pytest.mark.finding("F-92")
@pytest.mark.parametrize("factory", [*FACTORIES, palaver.flush], ids=lambda factory: factory.__name__)
def test_a_factory_takes_every_field_of_its_class(factory):
    cls = next(each for each in MESSAGE_CLASSES if each.__struct_config__.tag == factory.__name__)
    fields = {name.removesuffix("_json") for name in cls.__struct_fields__} - {"content", "extra"}
    missing = fields - inspect.signature(factory).parameters.keys()
    assert missing == set(), f"add {', '.join(sorted(missing))} to {factory.__name__} in src/palaver/core/factories.py"


@pytest.mark.finding("F-01")
@pytest.mark.parametrize("factory", [*FACTORIES, palaver.flush], ids=lambda factory: factory.__name__)
def test_what_a_factory_takes_comes_back_equal(factory):
    names = [each.name for each in inspect.signature(factory).parameters.values() if each.kind is each.KEYWORD_ONLY]
    assert {"id", "tags", "metadata"} <= set(names)
    values = [*ill_typed.WRONG, *[value for _, value in ill_typed.odd_values()]]
    for name, wrong in itertools.product(names, values):
        made = _built(lambda name=name, wrong=wrong: factory(**{name: wrong}))
        if made is None:
            continue
        try:
            line = dumps(made)
        except EncodeError:
            continue
        assert loads(line) == made, f"{factory.__name__}({name}={type(wrong).__name__})"


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
@pytest.mark.parametrize("cls", [*[cls for cls in _values_of(Value) if hasattr(cls, "replace")], Settings])
def test_replace_has_written_keywords_which_are_the_fields(cls):
    """An editor completes them, and a type checker checks them: ``**changes: Any`` would say neither."""
    names = cls.__struct_fields__
    expected = {*names, *[name.removesuffix("_json") for name in names]}
    annotation = inspect.signature(cls.replace).parameters["changes"].annotation
    written = getattr(changes, annotation.removeprefix("Unpack[").removesuffix("]")).__annotations__
    assert set(written) == expected


def test_a_number_that_was_read_is_taken_again():
    """A decoded `0.70` remembers how it was written: it can be set, and goes to another process."""
    body = {"model": "m", "messages": []}
    request = wires.get("openai_chat").decode_request(json.dumps(body)[:-1] + ',"temperature":0.70}')
    settings = Settings(temperature=request.settings.temperature)
    assert settings == request.settings.replace(temperature=settings.temperature)
    assert pickle.loads(pickle.dumps(request)) == request
    assert pickle.loads(pickle.dumps(request)).original == request.original


def test_settings_are_replaced_and_checked():
    settings = Settings(max_tokens=5, stop=("a",))
    assert settings.replace(max_tokens=9) == Settings(max_tokens=9, stop=("a",))
    assert settings.replace(stop=["b"], max_tokens=None) == Settings(stop=("b",))
    for wrong, match in (
        (lambda: settings.replace(foo=1), "Settings has no field 'foo'"),
        (lambda: settings.replace(max_tokens="9"), "Settings: max_tokens: expected an integer"),
        (lambda: settings.replace(temperature=float("nan")), "temperature: nan"),
    ):
        with pytest.raises(MessageError, match=match):
            wrong()


@pytest.mark.finding("F-01")
def test_views_are_replaced_by_python_values():
    call = tool_call("f", {}, id="1").replace(arguments={"a": 1})
    assert (call.arguments_json, call.arguments) == ('{"a":1}', {"a": 1})
    assert user(payload=1).replace(payload=UNSET) == user()
    for wrong in (lambda: call.replace(arguments=[1]), lambda: call.replace(arguments=UNSET)):
        with pytest.raises(MessageError, match="arguments"):
            wrong()
    with pytest.raises(MessageError, match="value_json: expected JSON text"):
        Json.of(1).replace(value=UNSET)


@pytest.mark.finding("F-01")
def test_a_thread_takes_messages_and_texts_only():
    (entry,) = Thread().append("text")
    assert isinstance(entry.message, type(user("text")))
    assert entry.message.text == "text"
    for wrong in (b"text", {"role": "user"}, None, Text("a")):
        with pytest.raises(MessageError, match=r"messages\[1\]: expected a message, got"):
            Thread().append(user("a"), wrong)


def test_an_unchecked_constructor_makes_the_same_value():
    assert type_checks.unchecked(Text)("a") == Text("a")
    assert type_checks.unchecked(ToolCall)("1", "f", custom=True) == ToolCall("1", "f", custom=True)


def test_decoding_and_msgspec_replace_do_not_check_twice(monkeypatch):
    monkeypatch.setattr(type_checks, "_plans", {})
    monkeypatch.setattr(type_checks, "_plan", lambda _cls: pytest.fail("checked again"))
    message = loads(b'{"role":"user","content":[{"type":"text","text":"a"}],"tags":["t"]}')
    assert structs.replace(message, agent="b").agent == "b"


def test_errors_are_short_whatever_was_given():
    for wrong in ("x" * 10**6, 10**5000, ["x" * 10**6]):
        with pytest.raises(PalaverError) as caught:
            system("a", verbatim=wrong)
        assert len(str(caught.value)) < 200


@pytest.mark.finding("S-10")
@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: palaver.Settings(max_tokens="100"), "Settings: max_tokens"),
        (lambda: palaver.Settings(stop="END"), "Settings: stop"),
        (lambda: palaver.Settings(temperature=True), "Settings: temperature"),
        (lambda: palaver.Settings(tool_choice="auto"), "Settings: tool_choice"),
        (lambda: palaver.ToolChoice("whatever"), "ToolChoice: mode"),
        (lambda: palaver.OutputFormat("yaml"), "OutputFormat: kind"),
        (lambda: palaver.Tool(5), "Tool: name"),
        (lambda: palaver.Request(model=5), "Request: model"),
        (lambda: palaver.Request(messages=({},)), r"Request: messages\[0\]"),
        (lambda: palaver.Request(tools=[{"name": "f"}]), r"Request: tools\[0\]"),
        (lambda: palaver.Request().replace(settings={}), "Request: settings"),
        (lambda: palaver.Response("text"), "Response: message"),
    ],
)
def test_a_request_refuses_a_wrong_type_and_names_the_field(make, place):
    with pytest.raises(PalaverError, match=place):
        make()


@pytest.mark.finding("S-10")
def test_a_request_takes_lists_for_tuples():
    made = palaver.Request(messages=[palaver.user("a")], settings=palaver.Settings(stop=["END"], temperature=1))
    assert (made.messages, made.settings.stop) == ((palaver.user("a"),), ("END",))


@pytest.mark.parametrize(
    ("make", "way"),
    [
        (lambda: palaver.Json({"a": 1}), "Json.of takes Python values"),
        (lambda: palaver.Tool("f", "d", {"a": 1}), "Tool.of takes Python values"),
        (lambda: palaver.OutputFormat("json_schema", {"a": 1}), "OutputFormat.of takes Python values"),
        (lambda: palaver.user("x").replace(metadata_json={}), r"replace\(metadata=…\) takes Python values"),
    ],
)
def test_the_error_of_json_text_names_what_takes_python_values(make, way):
    with pytest.raises(MessageError, match=f"expected JSON text.*, got dict; {way}$"):
        make()


@pytest.mark.parametrize(("given", "got"), [(MessageError, "the class MessageError"), ({"type": "object"}, "dict")])
def test_the_error_of_an_output_names_what_takes_a_schema_or_a_type(given, got):
    with pytest.raises(MessageError, match=f"got {got}; OutputFormat.of.* a JSON Schema, and Agent.output=.* a type$"):
        palaver.Settings(output=given)


def test_an_output_format_is_made_of_a_schema():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = palaver.OutputFormat.of(schema, name="n", strict=True, provider={"openai_chat": {"x": 1}})
    assert (made.kind, made.name, made.strict, made.schema) == ("json_schema", "n", True, schema)
    assert made.provider == {"openai_chat": {"x": 1}}
    assert palaver.OutputFormat.of({}).schema == {}
    with pytest.raises(MessageError, match="schema"):
        palaver.OutputFormat.of({"a": object()})
