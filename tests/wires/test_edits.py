"""Edit anything of a decoded body: the edit is what goes out, and nothing of what was not edited changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import structs

import palaver as p
from palaver import wires
from tests.corpus import Exchange

NEW = "An edit that no recording holds."


def _decoded(wire: str, what: str, value: Any) -> Any:
    return getattr(wires.get(wire), f"decode_{what}")(value)


def _body(wire: str, what: str, value: Any) -> bytes:
    """Neighbours stay apart, as they do where the original says so."""
    if what == "request":
        return wires.get(wire).encode_request(value, join_neighbors=False).body
    return wires.get(wire).encode_response(value).body


def _text(message: p.Message, at: int) -> p.Message | None:
    part = message.content[at] if at < len(message.content) else None
    if not isinstance(part, p.Text):
        return None
    return message.replace(content=(*message.content[:at], part.replace(text=NEW), *message.content[at + 1 :]))


def _arguments(message: p.Message, at: int) -> p.Message | None:
    part = message.content[at] if at < len(message.content) else None
    if not isinstance(part, p.ToolCall) or part.custom or part.provider_executed:
        return None
    edited = part.replace(arguments={"edited": NEW})
    return message.replace(content=(*message.content[:at], edited, *message.content[at + 1 :]))


def _added(message: p.Message, at: int) -> p.Message | None:
    if isinstance(message, p.ToolMessage) and not message.content:
        return None
    return message.replace(content=(*message.content[:at], p.Text(NEW), *message.content[at:]))


EDITS: dict[str, Callable[[p.Message, int], p.Message | None]] = {
    "text": _text,
    "arguments": _arguments,
    "another part": _added,
}


def _edited(message: p.Message, rng: random.Random) -> p.Message | None:
    names = rng.sample(sorted(EDITS), len(EDITS))
    places = rng.sample(range(len(message.content) + 1), len(message.content) + 1)
    found = (EDITS[name](message, at) for name in names for at in places)
    return next((each for each in found if each is not None), None)


@pytest.mark.law(2)
@pytest.mark.recorded(share=4)
def test_an_edited_message_goes_out_as_edited(exchange: Exchange) -> None:
    """Written without the original too, the body says the same: the original adds nothing but spelling."""
    rng = random.Random(exchange.file.stem)
    request = _decoded(exchange.wire, "request", json.dumps(exchange.record["request"], indent=1))
    places = [place for place, each in enumerate(request.messages) if each.content]
    rng.shuffle(places)
    for place in places[:2]:
        message = _edited(request.messages[place], rng)
        if message is None:
            continue
        messages = (*request.messages[:place], message, *request.messages[place + 1 :])
        edited = request.replace(messages=messages)
        body = _body(exchange.wire, "request", edited)
        bare = _body(exchange.wire, "request", structs.replace(edited, original=None))
        again = _decoded(exchange.wire, "request", body)
        assert again == _decoded(exchange.wire, "request", bare)
        if NEW not in json.dumps(json.loads(bare), ensure_ascii=False):
            continue  # the wire cannot say it there, and the receipt names it
        assert NEW in json.dumps(json.loads(body), ensure_ascii=False)


@pytest.mark.law(2)
@pytest.mark.recorded(share=4)
def test_an_edited_setting_goes_out_as_edited(exchange: Exchange) -> None:
    request = _decoded(exchange.wire, "request", exchange.record["request"])
    for change in ({"max_tokens": 777}, {"temperature": 0.125}, {"stop": ("STOP-777",)}, {"max_tokens": None}):
        edited = request.replace(settings=structs.replace(request.settings, **change))
        body = _body(exchange.wire, "request", edited)
        bare = _body(exchange.wire, "request", structs.replace(edited, original=None))
        assert _decoded(exchange.wire, "request", body) == _decoded(exchange.wire, "request", bare)


@pytest.mark.law(2)
@pytest.mark.recorded(share=4)
def test_an_edited_model_or_tool_goes_out_as_edited(exchange: Exchange) -> None:
    request = _decoded(exchange.wire, "request", exchange.record["request"])
    tools = tuple(
        each.replace(description=NEW) if isinstance(each, p.Tool) and place == 0 else each
        for place, each in enumerate(request.tools)
    )
    for edited in (request.replace(model="model-777"), request.replace(tools=tools), request.replace(tools=())):
        body = _body(exchange.wire, "request", edited)
        bare = _body(exchange.wire, "request", structs.replace(edited, original=None))
        assert _decoded(exchange.wire, "request", body) == _decoded(exchange.wire, "request", bare)


@pytest.mark.law(2)
@pytest.mark.recorded(share=4)
def test_an_edited_answer_goes_out_as_edited(exchange: Exchange) -> None:
    if "response" not in exchange.record:
        return
    try:
        response = _decoded(exchange.wire, "response", exchange.record["response"])
    except p.ProviderError:
        return
    message = _edited(response.message, random.Random(exchange.file.stem))
    changed = response.message.replace(finish_reason="length", finish_reason_raw=None)
    for each in [changed] if message is None else [message, changed]:
        edited = response.replace(message=each)
        body = _body(exchange.wire, "response", edited)
        bare = _body(exchange.wire, "response", structs.replace(edited, original=None))
        assert _says(_decoded(exchange.wire, "response", body)) == _says(_decoded(exchange.wire, "response", bare))


def _says(response: p.Response) -> list[Any]:
    """What an answer says, without what one without an original needs: fields, names, and ids that clients take."""
    found: list[Any] = []
    for message in (response.message, *response.alternatives):
        found += [message.finish_reason, message.usage, message.model or None]
        for part in message.content:
            if isinstance(part, p.Text) and not part.text.strip():
                continue  # an original keeps it where the wire refuses a new one
            plain = part if isinstance(part, p.Opaque) else part.replace(provider={})
            found.append(plain.replace(id="") if isinstance(plain, (p.ToolCall, p.MalformedToolCall)) else plain)
    return found


@pytest.mark.law(2)
def test_an_edited_answer_gets_no_field_that_it_did_not_have(exchange: Exchange) -> None:
    if "response" not in exchange.record:
        return
    try:
        response = _decoded(exchange.wire, "response", exchange.record["response"])
    except p.ProviderError:
        return
    for at in range(len(response.message.content)):
        message = _text(response.message, at)
        if message is None:
            continue
        encoded = wires.get(exchange.wire).encode_response(response.replace(message=message))
        assert NEW in encoded.body.decode()
        assert set(_fields(json.loads(encoded.body))) <= set(_fields(exchange.record["response"]))
        assert not encoded.losses


def _fields(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, (dict, list)):
        yield path
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _fields(each, f"{path}.{key}")
    else:
        yield path


@pytest.mark.law(2)
@pytest.mark.recorded(share=4)
def test_a_stale_original_is_not_sent(exchange: Exchange) -> None:
    """Whoever makes a value past `replace` keeps the body of an older one, which no longer says the same."""
    request = _decoded(exchange.wire, "request", exchange.record["request"])
    stale = structs.replace(request, model="model-777")
    assert stale.original is not None
    body = _body(exchange.wire, "request", stale)
    assert _decoded(exchange.wire, "request", body) == _decoded(
        exchange.wire, "request", _body(exchange.wire, "request", structs.replace(stale, original=None))
    )


BROKEN = '{"a": '


def _chat(*, calls: bool = True) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": BROKEN}}
    message: dict[str, Any] = {"role": "assistant", "content": "a", **({"tool_calls": [call]} if calls else {})}
    second = {"index": 1, "message": {"role": "assistant", "content": "b"}, "finish_reason": "stop"}
    return {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}, second]}


def _item(arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments}


ANSWERS: dict[str, dict[str, Any]] = {
    "openai_chat": _chat(),
    "openai_responses": {
        "id": "r",
        "status": "completed",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            _item(BROKEN),
        ],
    },
    "anthropic_messages": {"content": [{"type": "text", "text": "a"}], "stop_reason": "a word of tomorrow"},
    "bedrock_converse": {"output": {"message": {"role": "assistant", "content": [{"text": "a"}]}}},
    "cohere_chat": {"message": {"role": "assistant", "content": [{"type": "text", "text": "a"}]}},
    "google_generate": {"candidates": [{"content": {"parts": [{"text": "a"}]}}]},
    "ollama_chat": {
        "message": {
            "role": "assistant",
            "content": "a",
            "tool_calls": [{"function": {"name": "f", "arguments": BROKEN}}],
        }
    },
}


@pytest.mark.parametrize("wire", ANSWERS)
def test_an_edited_text_is_all_that_changes_in_an_answer(wire: str) -> None:
    """Neither fields that clients require nor another form of a call that the model wrote wrongly."""
    response = _decoded(wire, "response", ANSWERS[wire])
    message = _text(response.message, 0)
    assert isinstance(message, p.AssistantMessage)
    encoded = wires.get(wire).encode_response(response.replace(message=message), losses="raise")
    assert json.loads(encoded.body) == json.loads(json.dumps(ANSWERS[wire]).replace('"a"', json.dumps(NEW)))


def test_a_part_of_another_wire_is_fitted_into_an_edited_answer() -> None:
    response = _decoded("openai_responses", "response", ANSWERS["openai_responses"])
    added = (p.Text("b"), p.Reasoning("r", wire="anthropic_messages"), p.MalformedToolCall("{", "torn", "f", "c2"))
    message = response.message.replace(content=(*response.message.content, *added))
    encoded = wires.get("openai_responses").encode_response(response.replace(message=message))
    body = json.loads(encoded.body)
    assert body.keys() == ANSWERS["openai_responses"].keys()
    assert body["output"][:2] == ANSWERS["openai_responses"]["output"]
    assert {"id", "status"} <= body["output"][2].keys()
    assert json.loads(body["output"][3]["arguments"]) == {"INVALID_JSON": "{"}
    assert [loss.part for loss in encoded.losses] == [3, 4]


def test_an_answer_without_its_original_gets_what_clients_require() -> None:
    response = _decoded("openai_chat", "response", _chat(calls=False))
    bare = structs.replace(response.replace(), original=None)
    body = json.loads(wires.get("openai_chat").encode_response(bare).body)
    assert {"object", "created", "model"} <= body.keys()
    assert "refusal" in body["choices"][0]["message"]
