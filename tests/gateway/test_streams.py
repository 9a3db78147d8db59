"""Streams: nothing waits, what breaks is told in the wire of the client, and who goes away is not worked for."""

import json
from queue import Queue

import anthropic
import httpx
import openai
import pytest

from palaver.core.events import Finish, PartStart, Start, TextDelta
from palaver.core.factories import assistant
from palaver.core.parts import Text
from palaver.core.request import Response
from palaver.wires import get
from tests.gateway.running import PROVIDERS
from tests.gateway.test_wires import STREAM_TYPES, body_of, path_of

MODELS = ("anthropic_messages", "openai_chat", "google_generate")
HEAD = Start(Response(assistant(model="model-1")))


def pieces_of(wire, *words):
    """A stream in pieces: the first has a word already, each of the others one, and the last ends it."""
    encoder = get(wire).stream_encoder()
    first = b"".join(map(encoder.feed, [HEAD, PartStart(0, Text("")), TextDelta(0, words[0])]))
    return [
        first,
        *(encoder.feed(TextDelta(0, each)) for each in words[1:]),
        encoder.feed(Finish("stop")) + encoder.finish(),
    ]


@pytest.mark.row("GW-10")
@pytest.mark.parametrize("model_wire", MODELS)
@pytest.mark.parametrize("client_wire", PROVIDERS)
def test_each_word_leaves_before_the_next_one_came(gateway, provider, client_wire, model_wire):
    words = ["alpha ", "beta ", "gamma"]
    provider.headers, provider.pieces = {"content-type": STREAM_TYPES[model_wire]}, Queue()
    *parts, end = pieces_of(model_wire, *words)
    body = body_of(client_wire, model_wire, stream=True)
    got = b""
    provider.pieces.put(parts[0])
    with httpx.stream("POST", f"{gateway}{path_of(client_wire, model_wire, stream=True)}", content=body) as response:
        chunks = response.iter_raw()
        for place, word in enumerate(words):
            while word.strip().encode() not in got:
                got += next(chunks)
            provider.pieces.put(parts[place + 1] if place + 1 < len(parts) else end)
        provider.pieces.put(b"")
        got += b"".join(chunks)
    assert response.status_code == 200


@pytest.mark.parametrize("client_wire", ["anthropic_messages", "openai_chat"])
def test_a_client_that_goes_away_cancels_what_the_model_is_asked(gateway, provider, client_wire):
    provider.headers, provider.pieces = {"content-type": "text/event-stream"}, Queue()
    provider.pieces.put(pieces_of("anthropic_messages", "alpha")[0])
    body = body_of(client_wire, "anthropic_messages", stream=True)
    url = f"{gateway}{path_of(client_wire, 'anthropic_messages', stream=True)}"
    with httpx.stream("POST", url, content=body) as response:
        assert response.status_code == 200, response.read()
        next(response.iter_raw())
    assert provider.gone.wait(30)


def test_a_stream_that_breaks_off_is_an_error_of_the_official_clients(gateway, provider):
    provider.headers, provider.pieces = {"content-type": "text/event-stream"}, Queue()
    provider.pieces.put(pieces_of("anthropic_messages", "alpha")[0])
    provider.pieces.put(None)
    said = [{"role": "user", "content": "Hi"}]
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key="k", max_retries=0) as client:
        stream = client.chat.completions.create(model="anthropic_messages", messages=said, stream=True)
        with pytest.raises(openai.APIError):
            list(stream)


def test_an_official_client_streams_from_a_model_of_another_wire(gateway, provider):
    provider.headers = {"content-type": "text/event-stream"}
    provider.body = b"".join(pieces_of("openai_chat", "alpha ", "beta"))
    said = [{"role": "user", "content": "Hi"}]
    with (
        anthropic.Anthropic(base_url=gateway, api_key="k", max_retries=0) as client,
        client.messages.stream(model="openai_chat", messages=said, max_tokens=9) as stream,
    ):
        assert "".join(stream.text_stream) == "alpha beta"
        assert stream.get_final_message().stop_reason == "end_turn"


OLLAMA = [
    {"message": {"role": "assistant", "content": "Before."}, "done": False},
    {
        "message": {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call00001", "function": {"name": "f", "arguments": {}}}],
        },
        "done": False,
    },
    {"message": {"role": "assistant", "content": "Behind."}, "done": False},
    {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"},
]


@pytest.mark.row("GW-10")
def test_a_text_before_a_call_ends_before_it(gateway, provider):
    """Programs put the items of an answer in the order in which they end."""
    provider.headers = {"content-type": "application/x-ndjson"}
    provider.body = b"".join(json.dumps({"model": "m", **each}).encode() + b"\n" for each in OLLAMA)
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
    body = {"model": "ollama_chat", "input": "Go.", "stream": True, "tools": tools}
    got = httpx.post(f"{gateway}/v1/responses", json=body)
    events = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: {")]
    ended = [each["item"] for each in events if each["type"] == "response.output_item.done"]
    assert [each["type"] for each in ended] == ["message", "function_call", "message"]
    assert [each["content"][0]["text"] for each in ended if each["type"] == "message"] == ["Before.", "Behind."]
    assert events[-1]["response"]["output"] == ended
