"""An answer of the usual fields, read in one step, says what the same answer says with a new field on each level."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from msgspec import UNSET, structs

import palaver as p
from palaver import wires
from tests.corpus import Exchange
from tests.wires.openai_chat.forms import normal

WIRE = wires.get("openai_chat")
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1.0}'}}
UNTYPED = {"id": "c3", "index": 1, "function": {"name": "f", "arguments": ""}}
BAD = {"id": "c2", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}
ABSENT = object()
NEW = {"x_new": 1}


def _grown(body: dict[str, Any]) -> dict[str, Any]:
    """The body with a field that is new, so that it is read field by field, on each level."""
    grown = copy.deepcopy(body)
    for choice in grown["choices"]:
        levels = [choice, choice["message"]]
        for call in choice["message"].get("tool_calls") or ():
            levels += [call, call.get("function", {})]
        for level in levels:
            level.update(NEW)
    return grown


def _says(response: p.Response) -> Any:
    """What an answer says, without the fields that it keeps."""
    messages = (response.message, *response.alternatives)
    return [
        (
            [structs.replace(part, provider_json=UNSET) for part in message.content],
            structs.replace(message, content=(), provider_json=UNSET),
        )
        for message in messages
    ]


def _check(body: dict[str, Any]) -> None:
    response, other = WIRE.decode_response(body), WIRE.decode_response(_grown(body))
    assert _says(response) == _says(other)
    bare = WIRE.encode_response(structs.replace(other, original=None))
    assert normal(json.loads(bare.body)) == normal(_grown(body))


@pytest.mark.parametrize("logprobs", [ABSENT, None])
@pytest.mark.parametrize("annotations", [ABSENT, None, []])
@pytest.mark.parametrize("refusal", [ABSENT, None])
def test_every_common_shape(refusal: Any, annotations: Any, logprobs: Any) -> None:
    for content, calls in itertools.product([ABSENT, None, "", "hi"], [ABSENT, None, [], [CALL, UNTYPED], [CALL, BAD]]):
        message = {"role": "assistant", "content": content, "tool_calls": calls, "refusal": refusal}
        choice = {"index": 0, "message": _present({**message, "annotations": annotations}), "logprobs": logprobs}
        _check({"id": "x", "model": "m", "choices": [_present({**choice, "finish_reason": "stop"})]})


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not ABSENT}


@pytest.mark.recorded("openai_chat")
def test_recorded_answers(exchange: Exchange) -> None:
    if "response" in exchange.record and exchange.record["response"].get("choices"):
        _check(exchange.record["response"])
