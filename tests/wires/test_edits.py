"""Edit anything of a decoded body: the edit is what goes out, and nothing of what was not edited changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
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
def test_an_edited_setting_goes_out_as_edited(exchange: Exchange) -> None:
    request = _decoded(exchange.wire, "request", exchange.record["request"])
    for change in ({"max_tokens": 777}, {"temperature": 0.125}, {"stop": ("STOP-777",)}, {"max_tokens": None}):
        edited = request.replace(settings=structs.replace(request.settings, **change))
        body = _body(exchange.wire, "request", edited)
        bare = _body(exchange.wire, "request", structs.replace(edited, original=None))
        assert _decoded(exchange.wire, "request", body) == _decoded(exchange.wire, "request", bare)


@pytest.mark.law(2)
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
        assert _decoded(exchange.wire, "response", body) == _decoded(exchange.wire, "response", bare)


@pytest.mark.law(2)
def test_a_stale_original_is_not_sent(exchange: Exchange) -> None:
    """Whoever makes a value past `replace` keeps the body of an older one, which no longer says the same."""
    request = _decoded(exchange.wire, "request", exchange.record["request"])
    stale = structs.replace(request, model="model-777")
    assert stale.original is not None
    body = _body(exchange.wire, "request", stale)
    assert _decoded(exchange.wire, "request", body) == _decoded(
        exchange.wire, "request", _body(exchange.wire, "request", structs.replace(stale, original=None))
    )
