"""The official clients send what Palaver writes, and Palaver reads what they return, whole and streamed."""

from __future__ import annotations

import binascii
import inspect
import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from importlib import import_module
from typing import Any

import httpx
import pytest

import palaver as p
from palaver import wires
from palaver.core.request import Settings, ToolChoice
from palaver.stream.replay_events import replay_events
from palaver.wires._engine.client_call import ClientCall
from tests.loopback import serve

PNG = binascii.b2a_base64(b"\x89PNG\r\n\x1a\n" + b"\0" * 40, newline=False).decode()
CALL = p.ToolCall(id="call_1", name="look", arguments_json='{"at":"Husum"}')
REQUEST = p.Request(
    (
        p.system("Be brief."),
        p.user("What is that?", p.Image(p.Inline(PNG), "image/png")),
        p.assistant("Let me look.", CALL),
        p.tool("A mole.", tool_call_id="call_1", tool_name="look"),
        p.user("And now?"),
    ),
    model="some-model",
    tools=(p.Tool.of("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}}),),
    settings=Settings(max_tokens=99, temperature=0.5, top_p=0.9, stop=("END",), tool_choice=ToolChoice("auto")),
)
ANSWER = p.Response(
    p.assistant("A pier. ", p.ToolCall(id="call_2", name="look", arguments_json='{"at":"Büsum"}')).replace(
        model="some-model", finish_reason="tool_calls", usage=p.Usage(input=9, output=4)
    ),
)


# -- the clients, as their pages say ---------------------------------------------------------------


def call_of(wire: str) -> ClientCall:
    """The row of a wire."""
    return import_module(f"palaver.wires.{wire}.client_call").CALL


Ask = Callable[[ExitStack, str, dict[str, Any], bool], Any]


def _streamed(stream: bool) -> dict[str, Any]:
    return {"stream": True} if stream else {}


def _openai(stack: ExitStack, url: str) -> Any:
    return stack.enter_context(pytest.importorskip("openai").OpenAI(api_key="-", base_url=url, max_retries=0))


def _openai_chat(stack: ExitStack, url: str, call: dict[str, Any], stream: bool) -> Any:
    return _openai(stack, url).chat.completions.create(**call, **_streamed(stream))


def _openai_responses(stack: ExitStack, url: str, call: dict[str, Any], stream: bool) -> Any:
    return _openai(stack, url).responses.create(**call, **_streamed(stream))


def _anthropic(stack: ExitStack, url: str) -> Any:
    return stack.enter_context(pytest.importorskip("anthropic").Anthropic(api_key="-", base_url=url, max_retries=0))


def _anthropic_messages(stack: ExitStack, url: str, call: dict[str, Any], stream: bool) -> Any:
    return _anthropic(stack, url).messages.create(**call, **_streamed(stream))


def _google_generate(stack: ExitStack, url: str, call: dict[str, Any], stream: bool) -> Any:
    genai = pytest.importorskip("google.genai")
    client = stack.enter_context(genai.Client(api_key="-", http_options={"base_url": url}))
    return client.models.generate_content_stream(**call) if stream else client.models.generate_content(**call)


def _cohere_chat(stack: ExitStack, url: str, call: dict[str, Any], stream: bool) -> Any:
    http = stack.enter_context(httpx.Client())
    client = pytest.importorskip("cohere").ClientV2(api_key="-", base_url=url, httpx_client=http)
    return client.chat_stream(**call) if stream else client.chat(**call)


def _ollama_chat(stack: ExitStack, url: str, call: dict[str, Any], stream: bool) -> Any:
    client = pytest.importorskip("ollama").Client(host=url)
    stack.enter_context(client._client)
    return client.chat(**call, **_streamed(stream))


def _bedrock_converse(stack: ExitStack, url: str, call: dict[str, Any], stream: bool) -> Any:
    client = (
        pytest.importorskip("boto3")
        .Session()
        .client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=url,
            aws_access_key_id="nobody",
            aws_secret_access_key="nothing",
            config=pytest.importorskip("botocore.config").Config(retries={"total_max_attempts": 1}, proxies={}),
        )
    )
    stack.enter_context(closing(client))
    return stack.enter_context(closing(client.converse_stream(**call)["stream"])) if stream else client.converse(**call)


CLIENTS: dict[str, Ask] = {
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic_messages": _anthropic_messages,
    "google_generate": _google_generate,
    "cohere_chat": _cohere_chat,
    "ollama_chat": _ollama_chat,
    "bedrock_converse": _bedrock_converse,
}
STREAM_TYPES = {
    "ollama_chat": "application/x-ndjson",
    "bedrock_converse": "application/vnd.amazon.eventstream",
}


def spelled(sent: bytes) -> bytes:
    """google-genai writes some names of its body as its protocol's files do; Gemini takes both."""
    return sent.replace(b'"mime_type"', b'"mimeType"').replace(b"parameters_json_schema", b"parametersJsonSchema")


def without_ids(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in ("id", "tool_call_id")}


def same(read: p.Response) -> None:
    """It says what was sent. Ids of calls and texts of others are not what Gemini and Ollama say."""
    assert read.message.text.strip() == "A pier."
    (call,) = read.message.tool_calls
    assert (call.name, call.arguments) == ("look", {"at": "Büsum"})
    assert read.usage is not None
    assert (read.usage.input, read.usage.output) == (9, 4)


@pytest.mark.finding("F-33")
@pytest.mark.parametrize("wire", wires.names())
def test_a_client_sends_the_arguments_and_its_answer_is_read(wire: str):
    made = wires.get(wire)
    body = made.encode_response(ANSWER).body
    with serve(body, content_type="application/json") as server, ExitStack() as stack:
        answer = CLIENTS[wire](stack, server.url, made.client_arguments(REQUEST), False)
        (path, sent) = server.requests[0]
    same(made.decode_response(answer))
    fields = json.loads(spelled(sent))
    assert fields.pop("stream", False) is False
    expected = made.encode_request(REQUEST).fields
    if wire == "ollama_chat":  # the client's types have no id of a call
        expected["messages"] = json.loads(json.dumps(expected["messages"]), object_hook=without_ids)
    assert fields == expected
    assert "some-model" in path or fields["model"] == "some-model"


@pytest.mark.finding("F-33")
@pytest.mark.parametrize("wire", wires.names())
def test_the_chunks_of_a_client_are_read(wire: str):
    made = wires.get(wire)
    encoder, decoder = made.stream_encoder(), made.stream_decoder()
    body = b"".join([encoder.feed(event) for event in replay_events(ANSWER)]) + encoder.finish()
    with serve(body, content_type=STREAM_TYPES.get(wire, "text/event-stream")) as server, ExitStack() as stack:
        for chunk in CLIENTS[wire](stack, server.url, made.client_arguments(REQUEST), True):
            decoder.feed(chunk)
    same(decoder.finish())


def test_the_events_of_the_stream_helper_of_anthropic_are_read():
    made = wires.get("anthropic_messages")
    encoder, decoder = made.stream_encoder(), made.stream_decoder()
    body = b"".join([encoder.feed(event) for event in replay_events(ANSWER)]) + encoder.finish()
    with serve(body) as server, ExitStack() as stack_of_clients:
        client = _anthropic(stack_of_clients, server.url)
        with client.messages.stream(**made.client_arguments(REQUEST)) as stream:
            for event in stream:
                decoder.feed(event)
            final = stream.get_final_message()
    same(decoder.finish())
    same(made.decode_response(final))


@pytest.mark.parametrize("wire", wires.names())
def test_fields_that_a_call_has_no_argument_for_are_sent_where_the_client_takes_them(wire: str):
    made = wires.get(wire)
    if not call_of(wire).extra:
        pytest.skip("the client takes no further fields")
    request = REQUEST.replace(provider={wire: {"x_vendor": {"a": 1}}})
    with serve(made.encode_response(ANSWER).body, content_type="application/json") as server, ExitStack() as stack:
        CLIENTS[wire](stack, server.url, made.client_arguments(request), False)
        assert json.loads(server.requests[0][1])["x_vendor"] == {"a": 1}


def test_losses_are_raised_when_asked_for():
    request = REQUEST.replace(messages=(p.user(p.Video(p.Url("https://example.com/a.mp4"))),))
    with pytest.raises(p.LossError):
        wires.get("openai_chat").client_arguments(request, losses="raise")


# -- the tables ---------------------------------------------------------------------------------------


def _named(call: Any) -> Iterable[str]:
    return inspect.signature(call).parameters


def _signatures() -> dict[str, Callable[[], Iterable[str]]]:
    return {
        "openai_chat": lambda: _named(pytest.importorskip("openai.resources.chat").Completions.create),
        "openai_responses": lambda: _named(pytest.importorskip("openai.resources.responses").Responses.create),
        "anthropic_messages": lambda: _named(pytest.importorskip("anthropic.resources").Messages.create),
        "google_generate": lambda: _named(pytest.importorskip("google.genai.models").Models.generate_content),
        "cohere_chat": lambda: _named(pytest.importorskip("cohere.v2.client").V2Client.chat),
        "ollama_chat": lambda: _named(pytest.importorskip("ollama").Client.chat),
        "bedrock_converse": lambda: (
            pytest.importorskip("botocore.session")
            .Session()
            .get_service_model("bedrock-runtime")
            .operation_model("Converse")
            .input_shape.members
        ),
    }


@pytest.mark.parametrize("wire", wires.names())
def test_the_table_names_arguments_that_the_client_has(wire: str):
    call = call_of(wire)
    known = set(_signatures()[wire]())
    assert call.arguments <= known
    assert not call.extra or call.extra[0] in known


def test_the_config_of_google_genai_has_the_fields_of_the_table():
    from palaver.wires.google_generate.client_call import CONFIG

    fields = pytest.importorskip("google.genai.types").GenerateContentConfig.model_fields
    assert {field.alias or name for name, field in fields.items()} >= CONFIG


def test_values_of_the_application_keep_their_texts_in_the_arguments_of_boto3():
    call = p.ToolCall(id="c", name="look", arguments_json='{"bytes":"aGk="}')
    request = REQUEST.replace(messages=(p.user("Go."), p.assistant(call), p.tool({"bytes": "aGk="}, tool_call_id="c")))
    sent = wires.get("bedrock_converse").client_arguments(request)["messages"]
    assert sent[1]["content"][0]["toolUse"]["input"] == {"bytes": "aGk="}
    assert sent[2]["content"][0]["toolResult"]["content"][0]["json"] == {"bytes": "aGk="}
