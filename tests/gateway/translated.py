"""Ask a model of one wire as a client of another: what the client got, and what the model was sent."""

import itertools

import httpx
import pytest

from palaver import wires
from palaver.stream.replay_events import replay_events
from tests.gateway.running import PROVIDERS
from tests.gateway.test_wires import STREAM_TYPES, path_of

PAIRS = [pair for pair in itertools.product(PROVIDERS, PROVIDERS) if pair[0] != pair[1]]
"""Each wire of a client with each other one of a model."""
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def written(wire, answer, *, stream=False):
    """An answer as a model of a wire gives it."""
    if not stream:
        return wires.get(wire).encode_response(answer).body
    encoder = wires.get(wire).stream_encoder()
    return b"".join([encoder.feed(each) for each in replay_events(answer)]) + encoder.finish()


def answers(provider, model, answer, *, stream=False):
    """Let a model of a wire answer so."""
    provider.asked.clear()
    provider.body = answer if isinstance(answer, bytes) else written(model, answer, stream=stream)
    provider.headers = {"content-type": STREAM_TYPES[model] if stream else "application/json"}


def asked(client, name, request, *, stream=False):
    """The body of a client that asks the model of that name."""
    if client in {"google_generate", "bedrock_converse"}:
        return wires.get(client).encode_request(request).body
    settings = request.settings.replace(stream=stream)
    if client == "openai_chat" and stream:  # else its streams tell no usage
        request = request.replace(provider={**request.provider, client: {"stream_options": {"include_usage": True}}})
    return wires.get(client).encode_request(request.replace(model=name, settings=settings)).body


def ask(gateway, provider, pair, request, answer, *, stream=False):
    """Ask, where the model gives that answer; return the response and the body that the model was sent."""
    client, model = pair
    answers(provider, model, answer, stream=stream)
    url = f"{gateway}{path_of(client, model, stream=stream)}"
    content = asked(client, model, request, stream=stream)
    got = httpx.post(url, content=content, verify=False)
    assert got.status_code == 200, got.text
    ((_, _, sent),) = provider.asked
    return got, sent
