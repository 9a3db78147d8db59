"""The endpoint of each wire on loopback, and its provider's answers, written by our own encoders."""

from palaver import wires
from palaver.models.endpoint import Endpoint
from palaver.models.providers.row import endpoint_for, standard_wires
from palaver.stream.replay_events import replay_events

TYPES = {"bedrock_converse": "application/vnd.amazon.eventstream", "ollama_chat": "application/x-ndjson"}
"""The content type of a stream, if it is not ``text/event-stream``."""


def endpoint(wire, base):
    """Return the endpoint of a wire; Bedrock's names the model in its own way."""
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
