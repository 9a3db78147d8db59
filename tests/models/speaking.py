"""Where each wire is spoken on loopback, and what its provider would say, written by our own encoders."""

from palaver import wires
from palaver.models.endpoint import Endpoint
from palaver.models.providers.row import endpoint_for, standard_wires
from palaver.stream.replay_events import replay_events

TYPES = {"bedrock_converse": "application/vnd.amazon.eventstream", "ollama_chat": "application/x-ndjson"}
"""What a stream is called, where it is not ``text/event-stream``."""


def endpoint(wire, base):
    """Where a wire is spoken; Bedrock's has its own way of naming the model."""
    if wire in standard_wires():
        row = endpoint_for("loop", wire)
        return Endpoint(
            provider_name="loop",
            wire=wire,
            url=row.url.replace("{base}", base),
            stream_url=row.stream_url and row.stream_url.replace("{base}", base),
            names_model=row.names_model,
            stream_field=row.stream_field,
            headers=row.headers,
            stream_provider=row.stream_provider,
        )
    return Endpoint(
        provider_name="loop",
        wire=wire,
        url=f"{base}/model/{{model}}/converse",
        stream_url=f"{base}/model/{{model}}/converse-stream",
        names_model=False,
        stream_field=False,
    )


def body_of(wire, response, *, stream):
    if not stream:
        return wires.get(wire).encode_response(response).body
    encoder = wires.get(wire).stream_encoder()
    return b"".join([*(encoder.feed(event) for event in replay_events(response)), encoder.finish()])
