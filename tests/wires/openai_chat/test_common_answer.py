"""The common answer, read in one step, is what reading it field by field gives."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.wires.openai_chat import decode
from tests.corpus import Exchange

WIRE = wires.get("openai_chat")
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1.0}'}}
UNTYPED = {"id": "c3", "index": 1, "function": {"name": "f", "arguments": ""}}
BAD = {"id": "c2", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}
ABSENT = object()


def _slowly(monkeypatch: pytest.MonkeyPatch, body: bytes) -> p.Response:
    with monkeypatch.context() as patch:
        patch.setattr(decode, "plain_answer", lambda _raw: None)
        patch.setattr(decode, "_plain_calls", lambda _raw: ())
        return WIRE.decode_response(body)


@pytest.mark.parametrize("logprobs", [ABSENT, None])
@pytest.mark.parametrize("annotations", [ABSENT, None, []])
@pytest.mark.parametrize("refusal", [ABSENT, None])
def test_every_common_shape(monkeypatch: pytest.MonkeyPatch, refusal: Any, annotations: Any, logprobs: Any) -> None:
    for content, calls in itertools.product([ABSENT, None, "", "hi"], [ABSENT, None, [], [CALL, UNTYPED], [CALL, BAD]]):
        message = {"role": "assistant", "content": content, "tool_calls": calls, "refusal": refusal}
        choice = {"index": 0, "message": _present({**message, "annotations": annotations}), "logprobs": logprobs}
        body = {"id": "x", "model": "m", "choices": [_present({**choice, "finish_reason": "stop"})]}
        data = json.dumps(body).encode()
        response = WIRE.decode_response(data)
        assert response == _slowly(monkeypatch, data)
        assert json.loads(WIRE.encode_response(response).body) == body


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not ABSENT}


@pytest.mark.recorded("openai_chat")
def test_recorded_answers(monkeypatch: pytest.MonkeyPatch, exchange: Exchange) -> None:
    if "response" not in exchange.record or not exchange.record["response"].get("choices"):
        return
    data = json.dumps(exchange.record["response"]).encode()
    assert WIRE.decode_response(data) == _slowly(monkeypatch, data)
