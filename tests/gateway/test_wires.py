"""A client of each wire, and a model of each: the same bytes where both are one, else what the codecs make."""

import httpx
import pytest

from palaver import Request, Response, Usage, assistant, system, tool, tool_call, user, wires
from palaver.core.parts import Reasoning, Text
from palaver.gateway import GatewayConfig, Target
from palaver.gateway.apis import APIS
from palaver.stream.replay_events import replay_events
from tests.gateway.running import PROVIDERS, running

CALLS = {(api.wire, stream): call for api in APIS for call in reversed(api.calls) for stream in (call.stream,)}
STREAM_TYPES = {api.wire: api.stream_type for api in APIS}
CALL = tool_call("weather", {"city": "Husum"}, id="call00001")
ASKED = Request(
    model="fast",
    messages=(
        system("Be brief."),
        user("Is it raining?"),
        assistant(tool_calls=[CALL]),
        tool("rain until six", tool_call_id=CALL.id, tool_name="weather"),
        user("And tomorrow?"),
    ),
)
ANSWER = Response(
    assistant(
        Reasoning("It may."),
        Text("It will."),
        tool_call("weather", {"city": "Husum", "day": 2}, id="call00002"),
        model="model-1",
        usage=Usage(input=10, output=4),
        finish_reason="tool_calls",
    )
)


def path_of(wire: str, name: str, *, stream: bool) -> str:
    call = CALLS.get((wire, stream)) or CALLS[wire, None]
    events = "?alt=sse" if stream and wire == "google_generate" else ""
    return call.path.replace("{model:path}", name) + events


def body_of(wire: str, name: str, *, stream: bool) -> bytes:
    asked = ASKED.replace(model=name if wire not in {"google_generate", "bedrock_converse"} else None)
    if CALLS.get((wire, stream)) is None:
        asked = asked.replace(settings=asked.settings.replace(stream=stream))
    return wires.get(wire).encode_request(asked).body


def answer_of(wire: str, *, stream: bool) -> bytes:
    if not stream:
        return wires.get(wire).encode_response(ANSWER).body
    encoder = wires.get(wire).stream_encoder()
    return b"".join([encoder.feed(each) for each in replay_events(ANSWER)]) + encoder.finish()


def decoded(wire: str, data: bytes, *, stream: bool) -> Response:
    if not stream:
        return wires.get(wire).decode_response(data)
    decoder = wires.get(wire).stream_decoder()
    decoder.feed(data)
    return decoder.finish()


@pytest.mark.row("GW-08")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model_wire", PROVIDERS)
@pytest.mark.parametrize("client_wire", PROVIDERS)
def test_an_answer_comes_in_the_wire_of_the_client(gateway, provider, client_wire, model_wire, stream):
    body, provider.body = body_of(client_wire, model_wire, stream=stream), answer_of(model_wire, stream=stream)
    provider.headers = {"content-type": STREAM_TYPES[model_wire] if stream else "application/json"}
    got = httpx.post(f"{gateway}{path_of(client_wire, model_wire, stream=stream)}", content=body)
    assert got.status_code == 200, got.text
    assert got.headers["palaver-model"] == f"{PROVIDERS[model_wire][0]}/model-1"
    ((_, headers, sent),) = provider.asked
    assert "secret-1" in "".join(headers.values()) or model_wire == "ollama_chat"
    if client_wire == model_wire:
        assert got.content == provider.body
        assert sent == body.replace(f'"{model_wire}"'.encode(), b'"model-1"')
        return
    there = wires.get(model_wire).decode_request(sent)
    assert [each.role for each in there.messages] == [each.role for each in ASKED.messages]
    assert there.messages[-1].text == "And tomorrow?"
    back = decoded(client_wire, got.content, stream=stream)
    assert (back.message.text, [each.arguments for each in back.message.tool_calls]) == (
        "It will.",
        [{"city": "Husum", "day": 2}],
    )
    assert back.finish_reason == "tool_calls"


SENT = {
    "anthropic-beta": "context-1m",
    "anthropic-version": "2030-01-01",
    "authorization": "Bearer of-the-client",
    "x-api-key": "of-the-client",
    "cookie": "a=b",
    "x-forwarded-for": "10.0.0.1",
}


@pytest.mark.row("GW-08")
def test_of_the_headers_only_those_of_the_wire_are_handed_on(gateway, provider):
    body = body_of("anthropic_messages", "anthropic_messages", stream=False)
    provider.body = answer_of("anthropic_messages", stream=False)
    provider.headers = {"content-type": "application/json", "request-id": "req_1", "set-cookie": "c=d", "server": "x"}
    got = httpx.post(f"{gateway}/v1/messages?beta=true&key=of-the-client", content=body, headers=SENT)
    ((path, headers, _),) = provider.asked
    assert path == "/v1/messages?beta=true"
    assert (headers["anthropic-beta"], headers["anthropic-version"]) == ("context-1m", "2030-01-01")
    assert headers["x-api-key"] == "secret-1"
    assert "of-the-client" not in repr(headers)
    assert not {"cookie", "x-forwarded-for", "authorization"} & headers.keys()
    assert got.headers["request-id"] == "req_1"
    assert "set-cookie" not in got.headers


def test_names_with_patterns_and_lists_are_asked_in_their_order(provider, monkeypatch):
    monkeypatch.setenv("PALAVER_TEST_KEY", "secret-1")
    down = Target(model="local/down", url="http://127.0.0.1:1/v1", wire="openai_chat", key="PALAVER_TEST_KEY")
    star = Target(model="local/gpt-*", url=f"{provider.url}/v1", wire="openai_chat", key="PALAVER_TEST_KEY")
    provider.body, provider.headers = answer_of("openai_chat", stream=False), {"content-type": "application/json"}
    config = GatewayConfig(models={"gpt-*": [down, star], "gpt-5": "ollama/none"}, only_listed=True)
    with running(config) as url:
        body = body_of("openai_chat", "gpt-5.5-mini", stream=False)
        assert httpx.post(f"{url}/v1/chat/completions", content=body).content == provider.body
        assert b'"model":"gpt-5.5-mini"' in provider.asked[0][2]
        refused = httpx.post(f"{url}/v1/messages", content=b'{"model": "claude", "messages": []}')
    assert refused.status_code == 404
    assert refused.json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_a_refusal_that_another_model_may_not_have_is_the_turn_of_the_next(provider, monkeypatch, status):
    monkeypatch.setenv("PALAVER_TEST_KEY", "secret-1")
    models = [
        Target(model=f"local/{name}", url=f"{provider.url}/v1", wire="openai_chat", key="PALAVER_TEST_KEY")
        for name in ("refuses", "answers")
    ]
    said, refusal = answer_of("openai_chat", stream=False), b'{"error": {"message": "not now, secret-1"}}'

    def respond(body):
        refused = b'"refuses"' in body
        return status if refused else 200, {"content-type": "application/json"}, refusal if refused else said

    provider.respond = respond
    body = body_of("openai_chat", "m", stream=False)
    with running(GatewayConfig(models={"m": models})) as url:
        answers = [httpx.post(f"{url}/v1/chat/completions", content=body) for _ in range(2)]
    assert [each.content for each in answers] == [said, said]
    asked = [b'"refuses"' in body for _, _, body in provider.asked]
    assert asked == [True, False, False], "who refused rests"
    with running(GatewayConfig(models={"m": models[:1]})) as url:
        last = httpx.post(f"{url}/v1/chat/completions", content=body)
    assert last.status_code == status
    assert last.content == refusal.replace(b"secret-1", b"REDACTED")


def test_a_request_that_no_model_can_take_is_not_sent_to_the_next(provider, monkeypatch):
    monkeypatch.setenv("PALAVER_TEST_KEY", "secret-1")
    model = Target(model="local/m", url=f"{provider.url}/v1", wire="openai_chat", key="PALAVER_TEST_KEY")
    provider.status, provider.headers = 400, {"content-type": "application/json"}
    provider.body = b'{"error": {"message": "messages: wrong", "type": "invalid_request_error"}}'
    with running(GatewayConfig(models={"m": [model, model]})) as url:
        got = httpx.post(f"{url}/v1/chat/completions", content=body_of("openai_chat", "m", stream=False))
    assert (got.status_code, got.content, len(provider.asked)) == (400, provider.body, 1)
