"""Writes the recordings that tests and the demonstration play: one invented conversation, as each wire would carry it.

Three calls of a model and two tools. The answers are written by Palaver's own encoders, the requests by its models. Run
it after changing the conversation: `python tools/recordings.py`.
"""

from __future__ import annotations

from pathlib import Path

import palaver as p
from palaver import wires
from palaver.models import names
from palaver.models.encoded_prompt import PromptEncoder
from palaver.models.http_model import Model
from palaver.models.language_model import Prompt
from palaver.models.recording import Exchange, Recording, recorded_headers
from palaver.models.redaction import bare_path
from palaver.models.replay import recorded_model
from palaver.stream.replay_events import replay_events

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests/models/recordings"
DEMO = ROOT / "demo/recordings"

MODELS = {
    "openai_chat": "openai-chat/example",
    "openai_responses": "openai/example",
    "anthropic_messages": "anthropic/example",
    "google_generate": "google/example",
    "bedrock_converse": "bedrock/example.model-v1:0",
    "cohere_chat": "cohere/example",
    "ollama_chat": "ollama/example",
}
CONTENT_TYPES = {"bedrock_converse": "application/vnd.amazon.eventstream", "ollama_chat": "application/x-ndjson"}

SYSTEM = p.system("You are the harbour office of Skerry Point. Use the tools; answer in one or two sentences.")
QUESTION = p.user("The ketch Marigold draws 2.1 m. When can she come in today, and is there a berth for her?")


def _schema(**fields: str) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in fields.items()},
        "required": list(fields),
    }


TOOLS = (
    p.Tool.of("tide_table", "High and low water of one day, in metres over chart datum.", _schema(date="string")),
    p.Tool.of("free_berths", "Berths that are free from an hour on, deep enough for a draught in metres.",
              _schema(hour="string", draught="number")),
)  # fmt: skip
RESULTS = {
    "tide_table": '{"high": [["11:40", 4.2]], "low": [["05:25", 0.9], ["17:50", 1.1]]}',
    "free_berths": '{"berths": ["B7", "C2"]}',
}
TURNS = (
    p.assistant(
        "Let me look at the tides first.",
        p.tool_call("tide_table", {"date": "2031-05-04"}, id="call00001"),
        usage=p.Usage(input=212, output=31),
        finish_reason="tool_calls",
    ),
    p.assistant(
        p.tool_call("free_berths", {"hour": "10:00", "draught": 2.1}, id="call00002"),
        usage=p.Usage(input=288, output=27),
        finish_reason="tool_calls",
    ),
    p.assistant(
        "Marigold can come in from about ten, with the flood: high water is at 11:40. "
        "Berths B7 and C2 are deep enough; “B7” is nearer the fuel quay.",
        usage=p.Usage(input=331, output=48),
        finish_reason="stop",
    ),
)


def recorded(wire: str) -> Recording:
    """The conversation, as one wire carries it."""
    found = names.resolve(MODELS[wire], url="http://recorded")
    model = Model(name=found.name, id=found.id, endpoint=found.endpoint)
    spoken = wires.get(model.endpoint.wire)
    written = PromptEncoder(
        spoken,
        model.endpoint,
        id=model.id,
        settings=model.settings,
        capabilities=model.capabilities,
        missing=model.missing,
    )
    messages: list[p.Message] = [QUESTION]
    exchanges: list[Exchange] = []
    for number, turn in enumerate(TURNS, 1):
        body = written.encode(Prompt(messages=tuple(messages), system=(SYSTEM,), tools=TOOLS), stream=True).body
        answer = turn.replace(model=model.id, response_id=f"answer-{number}")
        encoder = spoken.stream_encoder()
        chunks = [*map(encoder.feed, replay_events(p.Response(answer))), encoder.finish()]
        url = model.endpoint.stream_url or model.endpoint.url
        exchanges.append(
            Exchange(
                method="POST",
                path=bare_path(url.replace("{model}", model.id.replace(":", "%3A"))),
                request_headers={"content-type": "application/json", **recorded_headers(model.endpoint.headers)},
                body=body,
                headers={"content-type": CONTENT_TYPES.get(wire, "text/event-stream")},
                chunks=tuple(chunk for chunk in chunks if chunk),
            )
        )
        decoder = spoken.stream_decoder()
        for chunk in chunks:
            decoder.feed(chunk)
        said = decoder.finish().message
        results = (p.tool(RESULTS[call.name], tool_call_id=call.id, tool_name=call.name) for call in said.tool_calls)
        messages += [said, *results]
    return Recording(exchanges=tuple(exchanges), model=recorded_model(model))


def main() -> None:
    """Write them all."""
    for wire in MODELS:
        recorded(wire).write(TESTS / f"harbour.{wire}.json")
    recorded("anthropic_messages").write(DEMO / "harbour.anthropic_messages.json")


if __name__ == "__main__":
    main()
