"""Every source of an image on every wire: in its place in the body, or on the receipt, and never both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import palaver as p
from palaver import transcripts, wires
from palaver.agent import Agent
from palaver.core.parts import Blob, FileId, Inline, Url
from palaver.models.scripted import ScriptedModel
from palaver.store.sqlite import SQLiteStore
from palaver.testing import rules
from tests.folding import over

pytestmark = [pytest.mark.row("DAS-08"), pytest.mark.finding("F-50")]

TARGETS = [*wires.names(), *(f"openai_chat:{name}" for name in wires.variants("openai_chat"))]
PNG = p.Image.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(60)))
DATA = PNG.source.data if isinstance(PNG.source, Inline) else ""
SOURCES: dict[str, tuple[Any, str]] = {
    "url": (Url("https://a.example/cat.png"), "https://a.example/cat.png"),
    "data URI": (Url(f"data:image/png;base64,{DATA}"), DATA),
    "bytes": (Inline(DATA), DATA),
    "own file": (None, "file_77"),
    "another's file": (FileId("file_77", "nobody"), "file_77"),
    "stored hash": (Blob("sha256:" + "ab" * 32), "abababab"),
}
BESIDE = {"ollama_chat": '"images":["'}
"""Wires that have a field of its own for images, beside the text."""
CARRIED = {
    "openai_chat": {"url", "data URI", "bytes"},
    "openai_responses": {"url", "data URI", "bytes", "own file"},
    "anthropic_messages": {"url", "data URI", "bytes", "own file"},
    "google_generate": {"url", "data URI", "bytes", "own file"},
    "bedrock_converse": {"data URI", "bytes"},
    "cohere_chat": {"url", "data URI", "bytes"},
    "ollama_chat": {"data URI", "bytes"},
}
"""What each wire takes, by its provider's document (docs/spec/wires.md#9)."""


@pytest.mark.parametrize("target", TARGETS)
@over("kind", SOURCES)
def test_an_image_is_in_its_place_or_on_the_receipt(target: str, kind: str) -> None:
    wire, _, variant = target.partition(":")
    source, sign = SOURCES[kind]
    image = p.Image(source or FileId("file_77", wire), "image/png")
    messages = (p.user("Begin."), p.assistant("Yes?"), p.user("<before>", image, "<after>"))
    encoded = wires.get(target).encode_request(p.Request(messages=messages, model="m"))
    body = encoded.body.decode()
    assert rules.check_request(wire, encoded.body, variant or None) == []
    lost = [loss.kind for loss in encoded.losses if (loss.message, loss.part) == (2, 1)]
    if sign not in body:
        assert lost == ["dropped"]
        assert variant or kind not in CARRIED[wire]
        return
    assert "dropped" not in lost
    assert kind in CARRIED[wire]
    assert body.count(sign) == 1
    place, before, after = body.index(sign), body.index("<before>"), body.index("<after>")
    assert before < place < after or (wire in BESIDE and body[:place].endswith(BESIDE[wire]))


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_that_a_store_keeps_by_its_hash_is_sent_by_a_later_run(target: str, tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "t.db") as store:
        Agent(ScriptedModel(["A cat."])).sync.run(p.user("See", PNG), thread=store.open("t"))
    model = ScriptedModel(["Yes."])
    with SQLiteStore(tmp_path / "t.db") as store:
        Agent(model).sync.run("Sure?", thread=store.open("t"))
    encoded = wires.get(target).encode_request(p.Request(messages=tuple(model.asked[0].messages), model="m"))
    lost = [loss for loss in encoded.losses if loss.what == "image"]
    assert (DATA in encoded.body.decode()) != bool(lost)
    assert bool(lost) == (target in {"openai_chat:deepseek", "openai_chat:cerebras"})


@pytest.mark.parametrize("rest", [("url", "base64", "fileID"), ("base64", "fileID"), ("fileID",)])
def test_of_several_sources_the_url_comes_first_then_the_bytes(rest: tuple[str, ...]) -> None:
    given = {"url": "https://a.example/cat.png", "base64": DATA, "fileID": "file_77"}
    image = {"mimeType": "image/png", **{name: given[name] for name in reversed(rest)}}
    record = {"role": "human", "content": [{"type": "image", "image": image}]}
    (transcript,) = transcripts.get("deepagents").read(json.dumps([record]).encode())
    path = transcript.thread.path()
    (part,) = [part for entry in path if entry.message.role == "user" for part in entry.message.content]
    assert isinstance(part, p.Image)
    assert isinstance(part.source, {"url": Url, "base64": Inline, "fileID": FileId}[rest[0]])
