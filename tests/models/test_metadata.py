"""Metadata that a model may be sent, and the addresses that take none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palaver import user
from palaver.models import model
from palaver.models.http_model import prompt_encoder
from palaver.models.language_model import Prompt
from palaver.models.recording import Recording
from palaver.models.replay import recorded_model

pytestmark = pytest.mark.finding("F-05")

PROMPT = Prompt(messages=(user("hi", metadata={"user_id": "u-77", "trace": "t"}),))


def sent(name: str, allow: frozenset[str] = frozenset({"user_id"})) -> tuple[dict[str, Any], list[str]]:
    made = model(name, key="k", metadata=allow)
    encoded = prompt_encoder(made).encode(PROMPT, stream=False)
    return json.loads(encoded.body), [x.why for x in encoded.losses if x.what == "metadata"]


def test_a_model_sends_the_keys_that_it_was_allowed():
    body, lost = sent("anthropic/claude-x")
    assert body["metadata"] == {"user_id": "u-77"}
    assert lost == ["'trace': not among the keys that may leave"]


def test_a_model_sends_nothing_that_was_not_named():
    body, lost = sent("anthropic/claude-x", frozenset())
    assert "metadata" not in body
    assert len(lost) == 2


def test_an_address_that_takes_no_labels_gets_none():
    body, lost = sent("google/gemini-x")
    assert "labels" not in body
    assert len(lost) == 2


def test_a_recording_keeps_the_keys(tmp_path: Path) -> None:
    Recording(model=recorded_model(model("anthropic/claude-x", key="k", metadata={"user_id"}))).write(
        tmp_path / "r.json"
    )
    again = Recording.read(tmp_path / "r.json").model
    assert again is not None
    assert again.metadata == ("user_id",)
