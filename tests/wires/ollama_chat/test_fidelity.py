"""Laws 2 and 6 on Ollama bodies: what was read is written as it was, and any body gives a value or one error."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

import palaver as p
from palaver import wires
from tests.wires.ollama_chat.forms import normal

WIRE = wires.get("ollama_chat")
PNG = "iVBORw0KGgo="


def _call(name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"function": {"index": 0, "name": name, "arguments": arguments}, **fields}


RICH: dict[str, Any] = {
    "model": "qwen3",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is this?", "images": [PNG]},
        {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [_call("find", {"q": 1.50}, id="c1")]},
        {"role": "tool", "content": "found", "tool_name": "find", "tool_call_id": "c1"},
        {
            "role": "assistant",
            "tool_calls": [_call("find", {}), _call("find", {"a": 1}), _call("find", {}, id="c2")],
        },
        {"role": "tool", "content": "first"},
        {"role": "tool", "content": "second", "tool_name": "find"},
        {"role": "tool", "content": "third", "tool_call_id": "c2"},
        {"role": "assistant", "content": "It is so."},
        {"role": "user", "content": "Go on."},
    ],
    "tools": [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}],
    "format": {"type": "object"},
    "options": {"temperature": 0.5, "num_predict": 9, "stop": ["END"], "num_ctx": 4096},
    "think": True,
    "stream": False,
    "keep_alive": "5m",
}
ODD_CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [_call("find", '{"a":1}'), _call("find", None), _call("find", "{broken", id="")],
}
ANSWER: dict[str, Any] = {
    "model": "qwen3",
    "created_at": "2025-01-01T00:00:00Z",
    "message": {"role": "assistant", "content": "Hi", "thinking": "Hm.", "tool_calls": [_call("find", {"q": 1e-06})]},
    "done": True,
    "done_reason": "stop",
    "total_duration": 9,
    "prompt_eval_count": 4,
    "eval_count": 5,
}


def _same(what: str, body: dict[str, Any]) -> None:
    """With the bytes the same, without them the same but for the spelling."""
    decoded = getattr(WIRE, f"decode_{what}")(json.dumps(body))
    encoded = getattr(WIRE, f"encode_{what}")(decoded)
    assert encoded.body == json.dumps(body).encode()
    assert encoded.losses == ()
    bare = getattr(WIRE, f"encode_{what}")(structs.replace(decoded, original=None))
    assert json.dumps(normal(json.loads(bare.body)), sort_keys=True) == json.dumps(normal(body), sort_keys=True)
    assert bare.losses == ()


def _spots(value: Any) -> list[tuple[Any, Any]]:
    pairs: list[Any] = list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [(value, key) for key, _ in pairs] + [spot for _, each in pairs for spot in _spots(each)]


ODD = st.sampled_from([None, True, 7, 2.5, "", "odd", [], {}, [None], {"x": [1]}, [PNG], "\ud800"])


@pytest.mark.law(2)
@pytest.mark.parametrize(
    ("what", "body"), [("request", RICH), ("request", {"messages": [ODD_CALLS]}), ("response", ANSWER)]
)
def test_a_body_goes_back_as_it_came(what: str, body: dict[str, Any]) -> None:
    _same(what, body)


@pytest.mark.law(6)
@pytest.mark.parametrize(("what", "body"), [("request", RICH), ("response", ANSWER)])
@given(data=st.data())
def test_damaged_bodies_give_the_same_back_or_one_error(what: str, body: dict[str, Any], data: st.DataObject) -> None:
    value = copy.deepcopy(body)
    for _ in range(data.draw(st.integers(1, 3))):
        node, key = data.draw(st.sampled_from(_spots(value)))
        action = data.draw(st.sampled_from(["replace", "delete", "rename", "add"]))
        if action == "replace":
            node[key] = copy.deepcopy(data.draw(ODD))
        elif action == "delete":
            del node[key]
        elif isinstance(node, dict):
            node[f"{key}x"] = node.pop(key) if action == "rename" else {"unknown": 1.50}
    try:
        _same(what, value)
    except p.PalaverError:
        return


@pytest.mark.law(2)
def test_an_edit_is_what_goes_out() -> None:
    """Each text and each call in turn: the edit is there, and all else stays as it was."""
    request = WIRE.decode_request(json.dumps(RICH))
    for index, message in enumerate(request.messages):
        for at, part in enumerate(message.content):
            if isinstance(part, p.Text) and part.text:
                new: Any = part.replace(text="an edit")
            elif isinstance(part, p.ToolCall):
                new = part.replace(arguments_json='{"q":"an edit"}')
            else:
                continue
            content = (*message.content[:at], new, *message.content[at + 1 :])
            edited: Any = message.replace(content=content)
            messages = (*request.messages[:index], edited, *request.messages[index + 1 :])
            written = json.loads(WIRE.encode_request(request.replace(messages=messages)).body)
            assert "an edit" in json.dumps(written["messages"][index])
            others = [each for place, each in enumerate(written["messages"]) if place != index]
            assert others == [each for place, each in enumerate(RICH["messages"]) if place != index]
            assert {**written, "messages": RICH["messages"]} == RICH
