"""A wire may have no streams: it is found, reads and writes, and a model of it answers whole."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import wires
from tests.models.asking import at, told
from tests.models.faults import says, serve
from tests.wires import telegraph

pytestmark = [pytest.mark.finding("F-94")]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**{name: f"palaver.wires.{name}" for name in wires.names()}, telegraph.NAME: telegraph.__name__}
    monkeypatch.setattr(wires, "_WIRES", table)


def test_it_is_found_reads_and_writes() -> None:
    wire = wires.get("telegraph")
    assert "telegraph" in wires.names()
    assert wires.variants("telegraph") == ()
    body = {"lines": [{"who": "you", "text": "hi"}, {"who": "me", "text": "ho"}]}
    request = wire.decode_request(body)
    encoded = wire.encode_request(request)
    assert (json.loads(encoded.body), encoded.losses) == (body, ())
    foreign = wire.encode_request(p.Request(messages=(p.system("Short."), p.user("hi"))))
    assert json.loads(foreign.body) == {"about": "Short.", "lines": [{"who": "you", "text": "hi"}]}


def test_it_says_that_it_has_no_streams() -> None:
    wire = wires.get("telegraph")
    assert not wire.streams
    assert all(wires.get(name).streams for name in wires.names() if name != "telegraph")
    with pytest.raises(p.UnknownNameError, match="telegraph has no streams"):
        wire.stream_decoder()
    with pytest.raises(p.UnknownNameError, match="telegraph has no streams"):
        wire.stream_encoder()


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_of_it_answers_whole(stream: bool) -> None:
    with serve(says({"line": "ho"}, content_type="text/plain")) as server:
        events, reply = await told(at(server.url, wire="telegraph"), stream=stream)
    assert reply.response.message.text == "ho"
    assert events
