"""The time when an answer was made goes from wire to wire.

Source: docs/adr/0007-what-a-body-must-have-and-a-request-has-not.md; docs/spec/laws.md, law 5.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from palaver import Response, assistant, wires

_MESSAGE: Final = {"role": "assistant", "content": "x"}
_CHOICE: Final = {"index": 0, "message": _MESSAGE, "finish_reason": "stop"}
ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "openai_chat": {"id": "c", "created": 1700000001, "model": "m", "choices": [_CHOICE]},
    "openai_responses": {
        "id": "c",
        "created_at": 1700000001,
        "model": "m",
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}],
    },
    "ollama_chat": {"model": "m", "created_at": "2023-11-14T22:13:21Z", "done": True, "message": _MESSAGE},
}
FIELD: Final = {"openai_chat": "created", "openai_responses": "created_at", "ollama_chat": "created_at"}


@pytest.mark.finding("S-05")
@pytest.mark.parametrize("target", ANSWERS)
@pytest.mark.parametrize("source", ANSWERS)
def test_the_time_of_an_answer_is_carried(source: str, target: str) -> None:
    answer = wires.get(source).decode_response(ANSWERS[source])
    encoded = wires.get(target).encode_response(answer)
    assert json.loads(encoded.body)[FIELD[target]] == ANSWERS[target][FIELD[target]]
    assert not [loss for loss in encoded.losses if loss.what in {"created", "created_at"}]


@pytest.mark.finding("S-05")
@pytest.mark.parametrize("value", ["yesterday", -1, 1e300, True, "2023-11-14T22:13:21.123456789Z", None])
def test_a_time_that_cannot_be_read_breaks_no_answer(value: object) -> None:
    body = {**ANSWERS["ollama_chat"], "created_at": value}
    if not isinstance(value, str):
        body = {**ANSWERS["openai_chat"], "created": value}
    answer = wires.get("openai_chat" if "created" in body else "ollama_chat").decode_response(body)
    assert json.loads(wires.get("openai_responses").encode_response(answer).body)["created_at"] in {0, 1700000001}


@pytest.mark.finding("F-102")
@pytest.mark.parametrize("time", [-1, -(2**63), 253_402_300_800_000, 2**53, 2**63, 2**70, 10**400], ids=range(7))
def test_a_time_that_no_calendar_holds_is_written_as_the_nearest(time: int) -> None:
    answer = Response(message=assistant("x", sent_at=time))
    made = json.loads(wires.get("ollama_chat").encode_response(answer).body)["created_at"]
    assert made == ("1970-01-01T00:00:00Z" if time < 0 else "9999-12-31T23:59:59Z")
