"""Laws 2 and 6 on Cohere bodies: what was read is written as it was, and any body gives a value or one error."""

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
from tests.wires.cohere_chat.bodies import (
    ANSWER,
    CALLING,
    PNG,
    RICH,
    asking,
    assistant,
    call,
    cited,
    result,
    text,
    thinking,
    user,
)
from tests.wires.cohere_chat.forms import normal

WIRE = wires.get("cohere_chat")

ODD_REQUESTS = [
    asking(),
    {"messages": []},
    asking(user(), tools=[], tool_choice="AUTO", thinking={"type": "disabled"}, response_format={"type": "text"}),
    asking(user(), tools=None, thinking=None, response_format=None, stop_sequences=None, stream=None, model=None),
    asking(user(), thinking={"type": "enabled"}, response_format={"type": "xml", "x": 1}, tool_choice=5),
    asking(user(), thinking={"type": "enabled", "token_budget": 5, "x": 1}, stop_sequences=[], k=0, p=1.0),
    asking(user(), response_format={"type": "json_object", "json_schema": None, "x": {}}, temperature=5e-06),
    asking(
        user(), response_format={"type": "json_object", "schema": {}}, thinking={"type": "enabled", "token_budget": 1.5}
    ),
    asking(user(), tools=[{"function": {"name": "f"}}, {"type": "web", "x": 1}, {"type": None, "function": {}}]),
    asking(user(), tools=[{"type": "function", "function": {"name": "f", "parameters": None, "strict": 1}, "x": 2}]),
    asking({"role": "user"}, {"role": "system", "content": None}, {"role": "tool", "content": []}, user([])),
    asking(user(""), user([text("")]), user([text("a", x=1)]), user([{"type": "odd", "x": [1]}, thinking("no")])),
    asking(user([{"type": "image_url", "image_url": {"url": "", "detail": None}, "x": 1}])),
    asking(
        user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO Rw=="}}]), {"role": "assistant"}
    ),
    asking(assistant(""), assistant([]), {**assistant(), "content": None}, assistant([thinking("", x=1)])),
    asking(assistant("text", tool_calls=[call()], tool_plan="", citations=[])),
    asking(assistant([text("a"), thinking("b"), text("c")], tool_plan=None, tool_calls=None)),
    asking(assistant(tool_plan="p"), assistant("c", tool_plan="p", tool_calls=[])),
    asking(assistant(tool_calls=[call(arguments=each) for each in ("", "null", "{}", " {", None, {}, "[1]")])),
    asking(
        assistant(tool_calls=[{"function": {"name": "f"}}, {"id": "", "type": "odd", "function": {"name": "", "x": 1}}])
    ),
    asking(assistant("ab", citations=[cited("a", 0), cited("b", 1, x=1)]), result([text("a")]), result(None)),
    asking({**user(), "name": "n", "x": {"y": 1}}, {**result(), "tool_call_id": None, "is_error": False}),
]
ODD_ANSWERS = [
    {"message": {}},
    {"message": {"role": "absent"}, "id": None, "finish_reason": None, "usage": None},
    {"message": {"role": None, "content": "text"}, "usage": 5},
    {"message": {"role": "assistant", "content": None}, "usage": {}, "finish_reason": ""},
    {"message": {"role": "assistant", "content": [], "tool_calls": []}, "usage": {"tokens": {"input_tokens": "x"}}},
    {"id": "", "message": {**ANSWER["message"], "citations": [{}], "x": 1}, "model": "m", "x": [None]},
    {
        **CALLING,
        "message": {**CALLING["message"], "citations": [cited("look", 7, type="PLAN")], "content": [text("a")]},
    },
]


def _same(what: str, body: dict[str, Any]) -> None:
    """With the bytes the same, without them the same but for the spelling."""
    decoded = getattr(WIRE, f"decode_{what}")(json.dumps(body))
    encoded = getattr(WIRE, f"encode_{what}")(decoded)
    assert json.dumps(json.loads(encoded.body), sort_keys=True) == json.dumps(body, sort_keys=True)
    assert encoded.losses == ()
    bare = getattr(WIRE, f"encode_{what}")(structs.replace(decoded, original=None))
    assert _sorted(normal(json.loads(bare.body))) == _sorted(normal(body))
    assert bare.losses == ()


def _sorted(body: Any) -> str:
    return json.dumps(body, sort_keys=True)


@pytest.mark.law(2)
@pytest.mark.parametrize("body", [RICH, *ODD_REQUESTS], ids=lambda body: json.dumps(body)[:60])
def test_a_request_goes_back_as_it_came(body: dict[str, Any]) -> None:
    _same("request", body)


@pytest.mark.law(2)
@pytest.mark.parametrize("body", [ANSWER, CALLING, *ODD_ANSWERS], ids=lambda body: json.dumps(body)[:60])
def test_an_answer_goes_back_as_it_came(body: dict[str, Any]) -> None:
    _same("response", body)


@pytest.mark.law(2)
def test_an_edit_changes_nothing_else() -> None:
    encoded = WIRE.encode_request(WIRE.decode_request(RICH).replace())
    assert json.loads(encoded.body) == RICH
    assert encoded.losses == ()


@pytest.mark.law(2)
@pytest.mark.recorded("cohere_chat")
def test_recorded_requests_survive_an_edit(exchange: Exchange) -> None:
    encoded = WIRE.encode_request(WIRE.decode_request(exchange.record["request"]).replace())
    assert json.loads(encoded.body) == exchange.record["request"]
    assert encoded.losses == ()


def _spots(value: Any) -> list[tuple[Any, Any]]:
    pairs: list[Any] = list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [(value, key) for key, _ in pairs] + [spot for _, each in pairs for spot in _spots(each)]


ODD = st.sampled_from([None, True, 7, 2.5, "", "odd", [], {}, [None], {"type": "odd"}, [[1]], PNG, [text("a")]])


@pytest.mark.law(6)
@pytest.mark.parametrize(("what", "body"), [("request", RICH), ("response", ANSWER), ("response", CALLING)])
@given(data=st.data())
def test_damaged_bodies_give_the_same_back_or_one_error(what: str, body: dict[str, Any], data: st.DataObject) -> None:
    value = copy.deepcopy(body)
    for _ in range(data.draw(st.integers(1, 3))):
        node, key = data.draw(st.sampled_from(_spots(value)))
        action = data.draw(st.sampled_from(["replace", "delete", "rename"]))
        if action == "replace":
            node[key] = copy.deepcopy(data.draw(ODD))
        elif action == "delete":
            del node[key]
        elif isinstance(node, dict):
            node[f"{key}x"] = node.pop(key)
    try:
        _same(what, value)
    except p.PalaverError:
        return
