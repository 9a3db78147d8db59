"""Recorded traffic through the gateway: byte for byte in its own wire, and by the provider's rules in another."""

import base64
import json

import httpx
import pytest

from palaver import wires
from palaver.core.errors import PalaverError
from palaver.core.parts import Text
from palaver.testing import rules
from tests.gateway.running import PROVIDERS
from tests.gateway.test_wires import path_of

WIRES = list(PROVIDERS)
_PATH_NAMES_MODEL = {"google_generate", "bedrock_converse"}


@pytest.fixture(scope="module")
def client():
    with httpx.Client(timeout=60) as opened:
        yield opened


def recorded_answer(record):
    """The status, the media type and the bytes of a recording."""
    if "response" in record:
        return record["status"], "application/json", json.dumps(record["response"]).encode()
    data = base64.b64decode(record["stream_base64"]) if "stream_base64" in record else record["stream"].encode()
    return record["status"], record["content_type"], data


def asked(exchange, target):
    """The path and the body with which a client would ask for ``target``."""
    streamed = "response" not in exchange.record
    named = {} if exchange.wire in _PATH_NAMES_MODEL else {"model": target}
    body = json.dumps(exchange.record["request"] | named).encode()
    return path_of(exchange.wire, target, stream=streamed), body


@pytest.mark.row("GW-08")
@pytest.mark.recorded(share=4)
def test_its_own_wire_gets_the_bytes_of_both_sides(exchange, gateway, provider, client):
    if exchange.record["status"] != 200 or not isinstance(exchange.record["request"], dict):
        return
    status, media_type, provider.body = recorded_answer(exchange.record)
    provider.status, provider.headers = status, {"content-type": media_type}
    path, body = asked(exchange, exchange.wire)
    got = client.post(f"{gateway}{path}", content=body)
    assert (got.status_code, got.content) == (status, provider.body)
    sent = provider.asked.pop()[2]
    named = {} if exchange.wire in _PATH_NAMES_MODEL else {"model": "model-1"}
    assert sent == json.dumps(exchange.record["request"] | named).encode()


@pytest.mark.row("GW-09")
@pytest.mark.law(5)
@pytest.mark.recorded(share=8)
def test_another_wire_gets_what_its_provider_takes(exchange, gateway, provider, client):
    if exchange.record["status"] != 200 or not isinstance(exchange.record["request"], dict):
        return
    other = WIRES[(WIRES.index(exchange.wire) + 1 + len(exchange.name)) % len(WIRES)]
    if other == exchange.wire:
        other = WIRES[(WIRES.index(other) + 1) % len(WIRES)]
    try:
        request = wires.get(exchange.wire).decode_request(exchange.record["request"])
    except PalaverError:
        return
    provider.status, provider.body = 400, b'{"error": {"message": "enough"}}'
    provider.headers = {"content-type": "application/json"}
    path, body = asked(exchange, other)
    got = client.post(f"{gateway}{path}", content=body)
    assert got.status_code == 400, got.text
    if not provider.asked:
        return
    sent = provider.asked.pop()[2]
    assert rules.check_request(other, sent) == []
    carried = json.dumps(json.loads(sent), ensure_ascii=False)
    texts = {part.text.strip() for each in request.messages for part in each.content if isinstance(part, Text)}
    assert [each for each in texts if json.dumps(each, ensure_ascii=False)[1:-1] not in carried] == []
