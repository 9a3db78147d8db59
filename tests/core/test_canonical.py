"""The canonical form: law 1, law 6, unknown data, conversations, the hash."""

import contextlib
import hashlib
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec import UNSET, Raw

import palaver
from palaver import (
    AssistantMessage,
    DecodeError,
    EncodeError,
    Image,
    Inline,
    Opaque,
    ProviderTool,
    Request,
    Text,
    Tool,
    Url,
    Usage,
    UserMessage,
    assistant,
    user,
)
from palaver.core import canonical, jsontext
from palaver.core.canonical import decode, decode_many, encode, encode_many
from palaver.core.value import Extra
from palaver.testing import laws, strategies
from tests.generated import examples

slow = settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# -- law 1 -----------------------------------------------------------------------------------------


@pytest.mark.law(1)
@pytest.mark.row("MSG-04")
@slow
@given(strategies.any_messages())
def test_every_message_reads_back(message):
    laws.assert_law_1_storage(message)
    laws.assert_law_1_copies(message)


@pytest.mark.law(1)
@pytest.mark.row("MSG-04")
@slow
@given(strategies.any_messages(newer=True))
def test_what_a_newer_version_wrote_reads_back(message):
    laws.assert_law_1_storage(message)
    laws.assert_law_1_copies(message)


@pytest.mark.law(1)
@slow
@given(st.lists(strategies.any_messages() | strategies.any_messages(newer=True), max_size=4))
def test_many_messages_read_back_a_line_each(messages):
    laws.assert_law_1_many(messages)


@pytest.mark.law(1)
@slow
@given(strategies.requests() | strategies.requests(newer=True))
def test_requests_read_back_whole_and_as_conversations(request):
    laws.assert_law_1_storage(request)
    laws.assert_law_1_conversation(request)


@pytest.mark.law(1)
@slow
@given(st.one_of(strategies.responses(), strategies.usages(newer=True), strategies.media()))
def test_other_values_read_back(value):
    laws.assert_law_1_storage(value)


@pytest.mark.law(1)
@pytest.mark.parametrize(
    "text",
    [
        "\ud800",
        "\udc00\ud800",
        "\u2028\u2029",
        "\x00\x1f\x7f",
        "\U0001f600",
        "a\r\nb",
        '"\\/\\u0041',
    ],
)
def test_odd_text_survives_everywhere(text):
    laws.assert_law_1_storage(
        assistant(
            text,
            palaver.Reasoning(text, signature=text),
            palaver.tool_call(text, text, id=text),
            id=text,
            tags=(text,),
            metadata={text: text},
            payload=[text],
            provider={"x": {text: text}},
            usage=Usage(raw_json=Raw(json.dumps(text).encode())),
        )
    )


@pytest.mark.law(1)
@pytest.mark.parametrize("number", ["5e-06", "5E-6", "2.0", "2", str(2**70), "1e400", "-0.0", "1.10", "9" * 5000])
def test_numbers_stay_as_written(number):
    line = b'{"role":"user","payload":{"n":%s},"x":[%s]}' % (number.encode(), number.encode())
    message = decode(line)
    assert encode(message) == line
    laws.assert_law_1_storage(message)


@pytest.mark.law(1)
@pytest.mark.row("MSG-04")
def test_unset_null_and_empty_are_three_things():
    lines = [b"", b',"payload":null', b',"payload":{}', b',"payload":""', b',"payload":[]']
    messages = [decode(b'{"role":"user"' + each + b"}") for each in lines]
    assert [m.payload for m in messages] == [UNSET, None, {}, "", []]
    assert len({encode(m) for m in messages}) == 5
    assert all(a != b for i, a in enumerate(messages) for b in messages[:i])
    assert user() != user("")
    assert decode(encode(user(""))) == user("")


@pytest.mark.row("MSG-09")
@pytest.mark.parametrize("arguments", ["", "{}", '{ "b":1,\n "a": 5e-06 }', '{"a":1,"a":2}'])
def test_argument_text_and_ids_stay_byte_for_byte(arguments):
    call = palaver.tool_call("f", arguments, id="call_\u2028é")
    back = decode(encode(assistant(tool_calls=[call]))).tool_calls[0]
    assert (back.arguments_json, back.id) == (arguments, "call_\u2028é")


def test_line_breaks_in_kept_text_do_not_break_the_line():
    pretty = b'{\n "role": "user",\n "metadata": {\n  "a": 1\n }\n}'
    message = decode(pretty)
    assert b"\n" not in encode(message)
    assert decode_many(encode_many([message, message])) == [message, message]


# -- data of a newer version -----------------------------------------------------------------------


@pytest.mark.row("MSG-04")
def test_unknown_fields_come_back_in_place():
    line = (
        b'{"role":"assistant","content":[{"type":"text","text":"hi","citations":[{"url":"u","new":1}],'
        b'"new":{"a":2.0}},{"type":"image","source":{"kind":"url","url":"u","new":null}}],'
        b'"usage":{"input":1,"passes":[{"kind":"k","usage":{"new":3},"new":4}],"new":5},"new":[]}'
    )
    message = decode(line)
    assert message.text == "hi"
    assert message.extra == Extra(Raw(b'{"new":[]}'))
    assert json.loads(encode(message)) == json.loads(line)
    laws.assert_law_1_storage(message)


def test_a_field_called_extra_is_an_unknown_field():
    line = b'{"role":"user","extra":{"a":1}}'
    assert encode(decode(line)) == line


@pytest.mark.conflict("C5")
def test_unknown_parts_are_kept_and_written_as_themselves():
    line = b'{"role":"user","content":[{"type":"hologram","z": [1, 2.50]},{"type":"text","text":"a"}]}'
    message = decode(line)
    kept = message.content[0]
    assert isinstance(kept, Opaque)
    assert (kept.wire, bytes(kept.raw_json)) == ("palaver", b'{"type":"hologram","z": [1, 2.50]}')
    assert encode(message) == line
    assert encode_many([message]) == line + b"\n"


def test_unknown_tools_are_kept_and_written_as_themselves():
    line = b'{"type":"request","tools":[{"type":"oracle","a":1},{"type":"function","name":"f"}]}'
    request = decode(line, Request)
    kept, known = request.tools
    assert isinstance(kept, ProviderTool)
    assert (kept.wire, bytes(kept.raw_json)) == ("palaver", b'{"type":"oracle","a":1}')
    assert known == Tool("f")
    assert encode(request) == line


def test_media_from_an_unknown_place_is_an_unknown_part():
    line = b'{"role":"user","content":[{"type":"image","source":{"kind":"ether","id":7}}]}'
    assert decode(line).content[0].wire == "palaver"
    assert encode(decode(line)) == line


def test_a_block_that_would_read_as_something_else_is_wrapped():
    hidden = Opaque("palaver", Raw(b'{"type":"text","text":"a"}'))
    message = user(hidden)
    assert decode(encode(message)) == message
    assert decode(encode(message)) != user("a")


def test_an_unknown_word_is_kept_like_an_unknown_field():
    line = b'{"role":"assistant","model":"m","finish_reason":"enlightened"}'
    message = decode(line)
    assert message.finish_reason is None
    assert encode(message) == line
    assert b"enlightened" not in encode(message.replace(finish_reason="stop"))


def test_one_odd_line_does_not_slow_the_others_down(monkeypatch):
    calls = []
    real = canonical.slow_path.read
    monkeypatch.setattr(canonical.slow_path, "read", lambda *a: calls.append(a) or real(*a))
    plain = b'{"role":"user"}\n'
    decode_many(plain * 5 + b'{"role":"user","new":1}\n' + plain * 5)
    assert len(calls) == 1


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.law(6)
@pytest.mark.parametrize(
    ("line", "path", "reason"),
    [
        ('{"role":"bot"}', "role", "unknown role 'bot'"),
        ('{"content":[]}', "role", "missing required field"),
        ('{"role":5}', "role", "expected a string, got a number"),
        ('{"role":"user","id":5}', "id", "expected a string, got a number"),
        ('{"role":"user","id":5,"new":1}', "id", "expected a string, got a number"),
        ('{"role":"user","sent_at":1.5}', "sent_at", "expected an integer"),
        ('{"role":"user","sent_at":true}', "sent_at", "expected an integer, got true"),
        ('{"role":"user","verbatim":1}', "verbatim", "expected true or false"),
        ('{"role":"user","tags":["a",1]}', "tags[1]", "expected a string"),
        ('{"role":"user","content":"hi"}', "content", "expected an array, got a string"),
        ('{"role":"user","content":["hi"]}', "content[0]", "expected an object, got a string"),
        ('{"role":"user","content":[{"type":"text"}]}', "content[0].text", "missing"),
        ('{"role":"user","content":[{"text":"a"}]}', "content[0].type", "missing"),
        ('{"role":"assistant","usage":{"input":"1"}}', "usage.input", "expected an integer"),
        ('{"role":"rescue","content":[{"type":"text","text":""}]}', "content", "expected an empty"),
        ("[]", "", "expected an object, got an array"),
        ('{"role":"user"', "", "not JSON"),
        ("", "", "not JSON"),
        ('{"role":"user"} {}', "", "not JSON"),
        ('{"role":"user","payload":NaN}', "", "not JSON"),
    ],
)
def test_errors_name_the_place_and_the_cause(line, path, reason):
    with pytest.raises(DecodeError) as caught:
        decode(line)
    assert caught.value.source == "palaver"
    assert caught.value.path == path
    assert reason in caught.value.reason


@pytest.mark.conflict("C1")
def test_an_unknown_role_is_a_typed_error_that_names_it():
    with pytest.raises(DecodeError, match="palaver: line 2, role: unknown role 'narrator'"):
        decode_many(b'{"role":"user"}\n{"role":"narrator"}\n')


def test_errors_name_the_line():
    with pytest.raises(DecodeError, match=r"palaver: line 4, content\[0\]\.text: missing"):
        decode_many(b'{"role":"user"}\n\n \r\n{"role":"user","content":[{"type":"text"}]}')


def test_errors_quote_little():
    with pytest.raises(DecodeError) as caught:
        decode('{"role":"' + "x" * 100_000 + '"}')
    assert len(str(caught.value)) < 400


@pytest.mark.law(6)
@settings(max_examples=examples(300), deadline=None)
@given(st.binary() | strategies.odd_text().map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_give_a_value_or_a_decode_error(data):
    laws.assert_law_6_totality(data)


@pytest.mark.law(6)
@slow
@given(strategies.any_messages(newer=True), st.data())
def test_broken_messages_give_a_value_or_a_decode_error(message, data):
    line = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line) - 1))
        line[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    laws.assert_law_6_totality(bytes(line))


@pytest.mark.law(6)
@slow
@given(strategies.json_objects(), st.sampled_from(["user", "assistant", "tool", "flush"]))
def test_any_object_gives_a_value_or_a_decode_error(fields, role):
    laws.assert_law_6_totality(json.dumps({**fields, "role": role}).encode())


DEEP = 100_000


@pytest.mark.law(6)
@pytest.mark.parametrize(
    "data",
    [
        b'{"role":"user","payload":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"role":"user","new":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
        b"[" * DEEP,
        b'{"role":"assistant","usage":' + b'{"passes":[{"kind":"","usage":' * 5000 + b"{}",
        b'{"role":"assistant","usage":' + b'{"passes":[{"kind":"","usage":' * 5000 + b"{}" + b"}]}" * 5000 + b"}",
        b'{"role":"user","sent_at":' + b"9" * 100_000 + b"}",
        b'{"role":"user","id":"\xff"}',
        b'{"role":"user","payload":"\xff"}',
        b'{"role":"user","\xff":1}',
        b'{"role":"user","payload":"\xed\xa0\x80"}',
        b'{"role":"user","payload":"\\ud800\\u00"}',
        b'{"role":"user","payload":Infinity}',
        b"\xef\xbb\xbf",
        b"\xff\xfe{\x00}\x00",
        b"\x00",
    ],
    ids=range(15),
)
def test_hostile_bytes(data):
    laws.assert_law_6_totality(data)
    with pytest.raises(DecodeError):
        decode(data)


@pytest.mark.parametrize("depth", [50, 200, 400, 700, 950])
def test_deep_values_are_read_or_refused_with_our_error(depth):
    line = b'{"role":"user","payload":' + b"[" * depth + b" 1" + b"]" * depth + b"}"
    with contextlib.suppress(DecodeError):
        message = decode(line)
        assert message == decode(line)
        if depth > jsontext.READABLE:
            with pytest.raises(EncodeError, match="nested too deeply, more than 500 levels"):
                encode(message)
        else:
            assert encode(message) == line
        assert message.payload is not None
        assert message == decode(line.replace(b" 1", b"1"))


def test_a_byte_order_mark_is_passed_over():
    assert decode(b'\xef\xbb\xbf{"role":"user"}') == user()
    assert decode_many(b'\xef\xbb\xbf{"role":"user"}\n') == [user()]
    assert decode_many('\ufeff{"role":"user"}\n') == [user()]
    assert decode_many(b"\xef\xbb\xbf") == []


def test_stored_fields_that_are_no_objects_are_refused_when_read():
    message = decode(b'{"role":"user","metadata":[1],"provider":null}')
    assert message.provider == {}
    with pytest.raises(DecodeError, match="palaver: metadata: expected an object, got an array"):
        _ = message.metadata


def test_what_json_cannot_say_is_an_encode_error():
    with pytest.raises(EncodeError):
        encode(user(sent_at=10**5000))
    with pytest.raises(palaver.MessageError, match="temperature"):
        palaver.Settings(temperature=float("nan"))


# -- inputs and classes ----------------------------------------------------------------------------


def test_text_bytes_and_dicts_are_taken():
    expected = user("é")
    line = encode(expected)
    for data in (line, bytearray(line), memoryview(line), line.decode(), json.loads(line)):
        assert decode(data) == expected
    for data in (line, bytearray(line), memoryview(line), line.decode()):
        assert decode_many(data) == [expected]


def test_a_class_can_be_asked_for():
    assert decode(b'{"role":"user"}', UserMessage) == user()
    assert decode(b'{"input":1}', Usage) == Usage(input=1)
    with pytest.raises(DecodeError, match="role: expected 'user', got 'tool'"):
        decode(b'{"role":"tool"}', UserMessage)


def test_a_file_is_read_line_by_line(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(encode_many([user("a"), user("b")]))
    with path.open("rb") as file:
        assert [message.text for message in canonical.iter_decode(file)] == ["a", "b"]


def test_the_facade_speaks_the_canonical_form():
    message = user("hi", Image(Url("https://example.org/a.png")))
    assert palaver.loads(palaver.dumps(message)) == message
    assert palaver.dumps(Image(Inline("AA"))).startswith(b'{"type":"image"')


# -- conversations ---------------------------------------------------------------------------------


def test_a_conversation_is_a_header_and_its_messages():
    request = Request(messages=(user("a"), assistant("b")), model="m", tools=(Tool("f"),))
    text = palaver.dump_conversation(request)
    header, *lines = text.splitlines()
    assert json.loads(header) == {
        "palaver": 1,
        "model": "m",
        "tools": [{"type": "function", "name": "f"}],
    }
    assert b"\n".join(lines) + b"\n" == encode_many(request.messages)
    assert palaver.load_conversation(text) == request


def test_a_conversation_without_a_header_has_messages_only():
    assert palaver.load_conversation(encode_many([user("a")])) == Request(messages=(user("a"),))
    assert palaver.load_conversation(b"\n\n") == Request()


def test_a_header_keeps_unknown_fields_and_refuses_a_newer_number():
    text = b'{"palaver":1,"model":"m","new":[2.0]}\n'
    assert palaver.dump_conversation(palaver.load_conversation(text)) == text
    with pytest.raises(DecodeError, match="palaver: line 2, palaver: canonical form version 2"):
        palaver.load_conversation(b'\n{"palaver":2}\n')
    with pytest.raises(DecodeError, match="line 1, model: expected a string"):
        palaver.load_conversation(b'{"palaver":1,"model":3}\n')
    with pytest.raises(DecodeError, match="line 3, role: unknown"):
        palaver.load_conversation(b'{"palaver":1}\n\n{"role":"x"}')


# -- the content hash ------------------------------------------------------------------------------


def test_the_hash_is_versioned_and_fixed():
    normal = b'{"content":[{"text":"hi","type":"text"}],"role":"user"}'
    expected = f"palaver1:sha256:{hashlib.sha256(normal).hexdigest()}"
    assert palaver.content_hash(user("hi", id="1")) == expected
    assert expected.endswith("a23ecadf5c3c1")


def test_the_hash_covers_what_is_said_and_not_the_envelope():
    said = palaver.content_hash(assistant("a"))
    envelope = assistant(
        "a",
        id="1",
        sent_at=2,
        agent="b",
        mode="tool",
        tags=("t",),
        source="s",
        verbatim=True,
        payload=1,
        metadata={"a": 1},
        provider={"x": {}},
        model="m",
        usage=Usage(input=1),
        finish_reason="stop",
        response_id="r",
    )
    assert palaver.content_hash(envelope) == said
    others = [
        assistant("b"),
        assistant("a", ""),
        assistant(),
        user("a"),
        assistant(Text("a", provider_json=Raw(b"{}"))),
        AssistantMessage(content=(Text("a", extra=Extra(Raw(b'{"n":1}'))),)),
    ]
    assert said not in {palaver.content_hash(each) for each in others}


def test_the_hash_tells_results_and_markers_apart():
    messages = [
        palaver.tool("a"),
        palaver.tool("a", tool_call_id="1"),
        palaver.tool("a", tool_name="1"),
        palaver.tool("a", is_error=True),
        palaver.flush(),
        palaver.rescue(),
        palaver.rescue("why"),
    ]
    assert len({palaver.content_hash(each) for each in messages}) == len(messages)


def test_the_hash_does_not_see_spelling():
    one = decode(b'{"role":"tool","content":[{"type":"json","value":{"a":5e-6,"b":[ 1]}}]}')
    two = decode(b'{"content":[{"value":{"b":[1],"a":5e-06},"type":"json"}],"role":"tool"}')
    assert palaver.content_hash(one) == palaver.content_hash(two)
    three = decode(b'{"role":"tool","content":[{"type":"json","value":{"a":5e-6,"b":[1.0]}}]}')
    assert palaver.content_hash(one) != palaver.content_hash(three)


@slow
@given(strategies.any_messages(newer=True))
def test_equal_messages_have_equal_hashes(message):
    laws.assert_equal_content_equal_hash(message, decode(encode(message)))
