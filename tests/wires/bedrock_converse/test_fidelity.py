"""Laws 2 and 6 on Converse bodies: what was read is written as it was, and any body gives a value or one error."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

import palaver as p
from palaver import wires
from tests.corpus import Exchange
from tests.wires.bedrock_converse.bodies import ANSWER, MARK, RICH, asking, assistant, call, image, result, text, user
from tests.wires.bedrock_converse.forms import normal
from tests.wires.bedrock_converse.service import parsed, refusal

WIRE = wires.get("bedrock_converse")


def _same(what: str, body: dict[str, Any]) -> None:
    """With the bytes the same, without them the same but for the spelling."""
    decoded = getattr(WIRE, f"decode_{what}")(json.dumps(body))
    encoded = getattr(WIRE, f"encode_{what}")(decoded)
    assert json.loads(encoded.body) == body
    assert encoded.losses == ()
    bare = getattr(WIRE, f"encode_{what}")(structs.replace(decoded, original=None))
    assert normal(json.loads(bare.body)) == normal(body)
    assert bare.losses == ()


ODD_REQUESTS = [
    asking(),
    {"promptVariables": {"a": {"text": "b"}}},
    {"messages": None, "system": None, "toolConfig": None, "inferenceConfig": None},
    asking(user()),
    asking(user(text("")), assistant(), assistant(text(" ")), user(text("a")), user(text("b"))),
    asking(assistant(text("first")), system=[]),
    asking(
        {"role": "system", "content": [text("a"), MARK], "x": 1}, user(text("b")), {"role": "system", "content": []}
    ),
    asking(user(text("hi")), toolConfig={}, inferenceConfig={}, additionalModelRequestFields={}, outputConfig={}),
    asking(user(text("hi")), toolConfig={"tools": [], "toolChoice": {"any": {}}}, system=[]),
    asking(user(text("hi")), toolConfig={"tools": None, "toolChoice": {"none": {}}, "x": [1]}),
    asking(
        user(text("hi")), toolConfig={"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": None}}}], "x": 1}
    ),
    asking(user(MARK, text("a"), result("x", text("1")), text("b"), result("y"), MARK, MARK, image())),
    asking(user({**result("x", text("1"), cachePoint={}), "beside": 1}, MARK)),
    {
        **asking(),
        "messages": [{**user(result("x"), text("a")), "cost": 1}, {**user(text("a"), result("x")), "cost": 2}],
    },
    asking(user({"text": "a", "image": None, "x": 1}), assistant({"toolUse": call()["toolUse"], "text": None})),
    asking(assistant({"toolUse": {"toolUseId": "", "name": "", "input": "text", "type": None}})),
    asking(assistant({"citationsContent": {}}, {"citationsContent": {"content": None, "citations": []}})),
    asking(
        assistant({"citationsContent": {"content": [text("a"), {"b": 1}], "citations": [5, {"location": 5}], "x": 1}})
    ),
    asking(
        assistant({"reasoningContent": {}}, {"reasoningContent": {"reasoningText": {"text": "", "signature": None}}})
    ),
    asking(assistant({"reasoningContent": {"redactedContent": "", "x": 1}, "y": 1})),
    asking(user({"document": {"name": "a", "format": None, "source": {"text": "b"}}})),
    asking(user({"document": {"name": "a", "source": {"text": "b", "x": 1}, "context": None}, "y": 2})),
    asking(user({"video": {"format": "mpg", "source": {"bytes": "", "s3Location": None}, "x": 1}})),
    asking(
        user(result("x", {"searchResult": {}}, {"json": None}, {"json": [1.50]}, {"audio": {}}), result("x", status=5))
    ),
    asking(user(text("hi")), inferenceConfig={"temperature": 5e-06, "maxTokens": 2**70, "topP": 1}),
]


@pytest.mark.law(2)
@pytest.mark.parametrize("body", [RICH, *ODD_REQUESTS], ids=lambda body: json.dumps(body)[:60])
def test_a_request_goes_back_as_it_came(body: dict[str, Any]) -> None:
    _same("request", body)


@pytest.mark.law(2)
def test_an_edit_changes_nothing_else() -> None:
    request = WIRE.decode_request(RICH)
    encoded = WIRE.encode_request(request.replace())
    assert json.loads(encoded.body) == RICH
    assert encoded.losses == ()


@pytest.mark.law(2)
def test_the_rich_request_is_one_that_the_service_takes() -> None:
    assert refusal(RICH) == ""


@pytest.mark.law(2)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"usage": {"inputTokens": "many"}},
        {"usage": []},
        {"stopReason": None},
        {"trace": {"guardrail": {}}, "additionalModelResponseFields": None, "serviceTier": {"type": "flex"}},
        {"output": {"message": {**assistant(text("a")), "role": None, "x": 1}, "y": 2}},
        {"output": {"message": {"content": []}}},
    ],
)
def test_a_response_goes_back_as_it_came(change: dict[str, Any]) -> None:
    _same("response", {**ANSWER, **change})


@pytest.mark.law(2)
def test_an_edited_response_goes_back_as_it_came() -> None:
    encoded = WIRE.encode_response(WIRE.decode_response(ANSWER).replace())
    assert json.loads(encoded.body) == ANSWER
    assert encoded.losses == ()


def test_numbers_and_arguments_keep_their_spelling() -> None:
    arguments = b'{ "b":1E2, "a":"\\u00e9", "n":12345678901234567890 }'
    use = b'{"toolUse":{"toolUseId":"a","name":"f","input":%b}}' % arguments
    body = b'{"inferenceConfig":{"temperature":5e-6},"messages":[{"role":"assistant","content":[%b]}]}' % use
    encoded = WIRE.encode_request(WIRE.decode_request(body)).body
    assert arguments in encoded
    assert b"5e-6" in encoded


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        found += _places(each, (*path, key))
    return found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def changed(draw: Any, body: dict[str, Any]) -> dict[str, Any]:
    """A body with some values deleted, replaced, renamed or doubled."""
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 3))):
        *outer, key = draw(st.sampled_from(_places(body)))
        holder: Any = body
        for step in outer:
            holder = holder[step]
        match draw(st.sampled_from(["delete", "replace", "rename", "double"])):
            case "delete":
                del holder[key]
            case "replace":
                holder[key] = draw(JSON)
            case "rename" if isinstance(holder, dict):
                holder[draw(st.sampled_from(["x_new", "text", "toolResult", "cachePoint", "format"]))] = holder.pop(key)
            case _ if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case _:
                pass
        if not _places(body):
            break
    return body


@pytest.mark.law(6)
@given(body=changed(RICH))
def test_any_request_gives_itself_or_one_error(body: dict[str, Any]) -> None:
    try:
        request = WIRE.decode_request(json.dumps(body))
    except p.DecodeError:
        return
    _same("request", body)
    WIRE.encode_request(request.replace())


@pytest.mark.law(6)
@given(body=changed(ANSWER))
def test_any_response_gives_itself_or_one_error(body: dict[str, Any]) -> None:
    try:
        WIRE.decode_response(json.dumps(body))
    except p.PalaverError:
        return
    _same("response", body)


@pytest.mark.law(6)
@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_give_one_error(data: bytes) -> None:
    for decode in (WIRE.decode_request, WIRE.decode_response):
        try:
            decode(data)
        except p.PalaverError:
            continue


@pytest.mark.law(2)
@pytest.mark.recorded("bedrock_converse")
def test_recorded_exchanges_go_back_as_they_came(exchange: Exchange) -> None:
    record = exchange.record
    request = WIRE.decode_request(record["request"])
    for each in (request, request.replace()) if record["status"] == 200 else (request,):
        encoded = WIRE.encode_request(each)
        assert json.loads(encoded.body) == record["request"]
        assert encoded.losses == ()
    if "response" not in record:
        return
    if record["status"] >= 400:
        with pytest.raises(p.ProviderError):
            WIRE.decode_response(record["response"])
        return
    encoded = WIRE.encode_response(WIRE.decode_response(record["response"]))
    assert json.loads(encoded.body) == record["response"]
    assert parsed(encoded.body)["stopReason"] == record["response"]["stopReason"]
