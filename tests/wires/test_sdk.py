"""A second opinion on what is written: the official clients' own types (`tests.sdk_shapes`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

import palaver as p
from palaver import wires
from tests.corpus import Exchange
from tests.sdk_shapes import accepts_request, accepts_response
from tests.wires.histories import histories

TOOLS = (p.Tool.of("search", "Find things.", {"type": "object", "properties": {"q": {"type": "string"}}}),)


def _fits_request(target: str, body: bytes) -> None:
    accepts_request(target, _as_the_client_types_it(target, json.loads(body)))


def _as_the_client_types_it(target: str, body: dict[str, Any]) -> dict[str, Any]:
    """Undo what the provider takes and its client's types do not.

    Responses: a message of the assistant whose content is a list has `id` and `status` in the types. The service takes
    it without; a made-up id would be looked up and refused.
    """
    if target == "openai_responses":
        for item in body.get("input", ()):
            if item.get("role") == "assistant" and isinstance(item["content"], list):
                item |= {"id": item.get("id", "msg_0"), "status": item.get("status", "completed")}
    return body


@pytest.mark.law(5)
@pytest.mark.parametrize("target", wires.names())
@given(messages=histories())
def test_any_history_fits_the_types_of_the_official_client(target: str, messages: tuple[p.Message, ...]) -> None:
    request = p.Request(messages=messages, model="some-model", tools=TOOLS)
    _fits_request(target, wires.get(target).encode_request(request).body)


@pytest.mark.law(5)
@pytest.mark.recorded(share=4)
def test_recorded_requests_fit_the_types_of_every_other_client(exchange: Exchange) -> None:
    request = wires.get(exchange.wire).decode_request(exchange.record["request"])
    request = request.replace(model=request.model or "some-model")  # some wires name it in the address
    for target in wires.names():
        if target != exchange.wire:
            _fits_request(target, wires.get(target).encode_request(request).body)


@pytest.mark.law(5)
@pytest.mark.recorded(share=4)
def test_recorded_responses_fit_the_types_of_every_other_client(exchange: Exchange) -> None:
    if "response" not in exchange.record:
        return
    try:
        response = wires.get(exchange.wire).decode_response(exchange.record["response"])
    except p.ProviderError:
        return
    for target in wires.names():
        if target != exchange.wire:
            accepts_response(target, json.loads(wires.get(target).encode_response(response).body))
