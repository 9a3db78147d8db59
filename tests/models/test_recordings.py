"""The project's own recordings: every wire's model plays them, and every official client reads them from the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import botocore.session
import cohere
import httpx
import ollama
import openai
import pytest
from botocore.config import Config
from google import genai
from google.genai import types
from msgspec import structs
from tools import recordings

import palaver as p
from palaver import wires
from palaver.models.language_model import Prompt
from palaver.models.recording import Exchange, Recording
from palaver.models.replay import Recorder, replay, serve
from palaver.testing.tables import row

FOLDER = Path(__file__).parent / "recordings"
FINAL = recordings.TURNS[-1].text


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def file(wire: str) -> Path:
    return FOLDER / f"harbour.{wire}.json"


@pytest.mark.parametrize("wire", wires.names())
def test_the_files_are_what_the_script_writes(wire):
    assert recordings.recorded(wire).encode() == file(wire).read_bytes()


def test_the_demonstration_plays_one_of_them():
    (played,) = recordings.DEMO.glob("*.json")
    assert played.read_bytes() == file("anthropic_messages").read_bytes()


@pytest.mark.anyio
@pytest.mark.parametrize("wire", wires.names())
async def test_a_conversation_with_tools_is_played_by_every_wire(wire, tmp_path):
    """And heard while it is played, it is recorded again as it was."""
    messages: list[p.Message] = [recordings.QUESTION]
    async with replay(file(wire)) as again, Recorder(tmp_path / "again.json") as recorder:
        assert again.name == row(recordings.MODELS, wire, "MODELS in tools/recordings.py")
        session = recorder.model(again._model).session()
        while not isinstance(messages[-1], p.AssistantMessage):
            prompt = Prompt(messages=tuple(messages), system=(recordings.SYSTEM,), tools=recordings.TOOLS)
            async with session.ask(prompt) as answer:
                said = (await answer.finish()).response.message
            messages += [
                said,
                *(p.tool(recordings.RESULTS[call.name], tool_call_id=call.id) for call in said.tool_calls),
            ]
        assert again.server.unplayed == ()
    assert messages[-1].text == FINAL
    assert [call.name for each in messages for call in getattr(each, "tool_calls", ())] == ["tide_table", "free_berths"]
    heard, source = Recording.read(recorder.file), Recording.read(file(wire))
    assert [_joined(each) for each in heard.exchanges] == [_joined(each) for each in source.exchanges]
    assert heard.model == source.model


def _joined(exchange: Exchange) -> Exchange:
    """How TCP cut the bytes is not the same each time."""
    return structs.replace(exchange, chunks=(b"".join(exchange.chunks),), request_headers={})


# -- official clients ----------------------------------------------------------------------------------


def _openai_chat(url: str, body: dict[str, Any]) -> str:
    with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        chunks = list(client.chat.completions.create(**body))
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def _openai_responses(url: str, body: dict[str, Any]) -> str:
    with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        return [*client.responses.create(**body)][-1].response.output_text


def _anthropic(url: str, body: dict[str, Any]) -> str:
    body.pop("stream")
    with (
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client,
        client.messages.stream(**body) as stream,
    ):
        message = stream.get_final_message()
    return "".join(block.text for block in message.content if block.type == "text")


def _google(url: str, body: dict[str, Any]) -> str:
    config = types.GenerateContentConfig(
        system_instruction=types.Content.model_validate(body["systemInstruction"]),
        tools=[types.Tool.model_validate(each) for each in body["tools"]],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    contents = [types.Content.model_validate(each) for each in body["contents"]]
    with genai.Client(api_key="dummy", http_options={"base_url": url, "api_version": "v1beta"}) as client:
        chunks = list(client.models.generate_content_stream(model="example", contents=contents, config=config))
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
    return "".join(part.text or "" for part in parts)


def _bedrock(url: str, body: dict[str, Any]) -> str:
    client = botocore.session.Session().create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="nobody",
        aws_secret_access_key="nothing",
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )
    with closing(client):
        stream = client.converse_stream(modelId="example.model-v1:0", **body)["stream"]
        with closing(stream):
            deltas = [event["contentBlockDelta"]["delta"] for event in stream if "contentBlockDelta" in event]
    return "".join(delta.get("text", "") for delta in deltas)


def _cohere(url: str, body: dict[str, Any]) -> str:
    body.pop("stream")
    with httpx.Client() as http:
        client = cohere.ClientV2(api_key="none", base_url=url, httpx_client=http)
        events = list(client.chat_stream(**body))
    return "".join(event.delta.message.content.text or "" for event in events if event.type == "content-delta")


def _ollama(url: str, body: dict[str, Any]) -> str:
    client = ollama.Client(host=url)
    with client._client:
        # ``chat`` leaves the id of a call out, so the body goes as it is
        chunks = client._request(ollama.ChatResponse, "POST", "/api/chat", json=body, stream=True)
        return "".join(chunk.message.content or "" for chunk in chunks)


CLIENTS: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic_messages": _anthropic,
    "google_generate": _google,
    "bedrock_converse": _bedrock,
    "cohere_chat": _cohere,
    "ollama_chat": _ollama,
}


def _as_the_client_says(wire: str, exchange: Exchange) -> Exchange:
    """google-genai spells one field in snake case and sends an empty one."""
    if wire != "google_generate":
        return exchange
    body = exchange.body.replace(b'"parametersJsonSchema"', b'"parameters_json_schema"')
    return structs.replace(exchange, body=body[:-1] + b',"generationConfig":{}}')


@pytest.mark.law(4)
@pytest.mark.parametrize("wire", wires.names())
def test_the_official_client_reads_the_recording_from_the_server(wire):
    recording = Recording.read(file(wire))
    played = Recording(exchanges=tuple(_as_the_client_says(wire, each) for each in recording.exchanges))
    with serve(played) as server:
        texts = [
            row(CLIENTS, wire, "CLIENTS in tests/models/test_recordings.py")(server.url, json.loads(exchange.body))
            for exchange in recording.exchanges
        ]
        assert server.unplayed == ()
    assert texts[-1] == FINAL


def test_an_official_client_gets_an_error_for_what_was_not_recorded():
    with (
        serve(file("openai_chat")) as server,
        openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
        pytest.raises(
            openai.NotFoundError,
            match=r'differs from the next recorded one in body\.model: recorded "example", asked "other"',
        ),
    ):
        client.chat.completions.create(model="other", messages=[])
