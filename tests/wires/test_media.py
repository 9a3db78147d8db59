"""Which media reach a body: only what a provider can fetch or read, and never under another's bytes."""

from __future__ import annotations

import itertools
import json

import pytest

import palaver as p
from palaver import wires
from palaver.testing import rules
from tests.folding import over
from tests.wires.histories import results_of

TARGETS = [*wires.names(), *(f"openai_chat:{name}" for name in wires.variants("openai_chat"))]
LOCAL = ["file:///etc/passwd", "FILE:///etc/passwd", "/etc/passwd", "etc/passwd.png", "ftp://a.example/passwd.png"]
MEDIA = [p.Image, p.Audio, p.Video, p.File]
TYPES = {p.Image: "image/png", p.Audio: "audio/wav", p.Video: "video/mp4", p.File: "application/pdf"}
PNG = p.Image.from_bytes(b"\x89PNG\r\n\x1a\n")


def sent(target: str, *messages: p.Message) -> tuple[str, list[p.Loss]]:
    encoded = wires.get(target).encode_request(p.Request(messages=messages, model="m"))
    wire, _, variant = target.partition(":")
    assert rules.check_request(wire, encoded.body, variant or None) == []
    return encoded.body.decode(), list(encoded.losses)


@pytest.mark.finding("F-31")
@pytest.mark.parametrize("target", TARGETS)
@over("cls, url", itertools.product(MEDIA, LOCAL))
def test_an_address_that_no_provider_fetches_is_dropped(target: str, cls: type[p.Image], url: str):
    for typed in (TYPES[cls], None):
        medium = cls(p.Url(url), typed).replace(provider={target.partition(":")[0]: {"x": 1}})
        body, losses = sent(target, p.user("see", medium))
        assert "passwd" not in body
        assert [loss.kind for loss in losses if loss.part == 1] == ["dropped"]


@pytest.mark.finding("F-31")
@pytest.mark.parametrize("target", TARGETS)
@over("url", LOCAL)
def test_an_address_in_a_tool_result_is_dropped(target: str, url: str):
    calls = p.assistant(tool_calls=[p.tool_call("f", {}, id="c12345678")])
    result = p.tool(p.Image(p.Url(url), "image/png"), tool_call_id="c12345678")
    body, losses = sent(target, p.user("q"), calls, result)
    assert "passwd" not in body
    assert any(loss.kind == "dropped" and loss.message == 2 for loss in losses)


@pytest.mark.finding("F-31")
@pytest.mark.parametrize("target", TARGETS)
@over("cls, data", itertools.product(MEDIA, ["!!!not", "a", "aGk=!", "aG k=\u00e9"]))
def test_text_that_is_no_base64_is_dropped(target: str, cls: type[p.Image], data: str):
    _, losses = sent(target, p.user("see", cls(p.Inline(data), TYPES[cls])))
    assert [loss.kind for loss in losses if loss.part == 1] == ["dropped"]


@pytest.mark.finding("F-31")
def test_base64_in_lines_is_the_same_bytes():
    data = PNG.source.data
    body, losses = sent("openai_chat", p.user(p.Image(p.Inline(f"{data[:6]}\n{data[6:]}\n"), "image/png")))
    assert f"base64,{data}" in body
    assert losses == []


@pytest.mark.finding("F-32")
@pytest.mark.row("CBF-09")
@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_a_result_of_media_alone_is_not_empty(target: str, failed: bool):
    calls = p.assistant(tool_calls=[p.tool_call("f", {}, id="c12345678")])
    result = p.tool(PNG, tool_call_id="c12345678", is_error=failed)
    body, losses = sent(target, p.user("q"), calls, result)
    assert (PNG.source.data in body) != any(loss.kind == "dropped" and loss.what == "image" for loss in losses)
    (said,) = results_of(json.loads(body))
    assert PNG.source.data in json.dumps(said) or "The result" in json.dumps(said)


DETAILED = {
    "openai_chat": {"type": "image_url", "image_url": {"url": "https://a.example/a.png", "detail": "low"}},
    "cohere_chat": {"type": "image_url", "image_url": {"url": "https://a.example/a.png", "detail": "low"}},
    "openai_responses": {"type": "input_image", "image_url": "https://a.example/a.png", "detail": "low"},
}


def detailed(name: str, part: object) -> p.Request:
    field = "input" if name == "openai_responses" else "messages"
    return wires.get(name).decode_request(json.dumps({"model": "m", field: [{"role": "user", "content": [part]}]}))


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(DETAILED, 2)))
def test_the_detail_of_an_image_goes_to_the_wires_that_have_it(source: str, target: str):
    encoded = wires.get(target).encode_request(detailed(source, DETAILED[source]), losses="raise")
    body = json.loads(encoded.body)
    assert body["input" if target == "openai_responses" else "messages"][0]["content"] == [DETAILED[target]]


@pytest.mark.parametrize("detail", ["original", 7, None])
def test_a_detail_that_the_target_may_not_know_is_dropped(detail: object):
    request = detailed("openai_responses", {**DETAILED["openai_responses"], "detail": detail})
    encoded = wires.get("openai_chat").encode_request(request)
    assert b"detail" not in encoded.body
    assert [loss.what for loss in encoded.losses] == ([] if detail is None else ["detail"])


def test_fields_of_an_image_that_are_no_objects_do_no_harm():
    image = p.Image(p.Url("https://a.example/a.png"), "image/png").replace(provider={"openai_chat": {"image_url": "x"}})
    assert sent("openai_responses", p.user(image))[1] == [
        p.Loss("dropped", "image_url", "a field of openai_chat", 0, 0)
    ]
