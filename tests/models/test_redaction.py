"""A key is nowhere but in the request: everything that comes out of a model is searched for it."""

import json
import logging
import traceback
from base64 import b64encode
from urllib.parse import quote, unquote

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from palaver.agent import Agent
from palaver.core.errors import MessageError, PalaverError, TransportError
from palaver.models import Http, Retry, Timeouts, model
from palaver.models.endpoint import Endpoint, HttpCall
from palaver.models.http_model import Model
from palaver.models.redaction import bare_url, shown_url, without_secrets
from palaver.models.replay import Recorder
from palaver.turn.tracing import Tracing
from tests.models.asking import HI
from tests.models.faults import DONE, Step, delta, says, serve, sse, streams

KEY = "sk-t/est+0123456789abcdefghij"
LONG = "k" * 150 + "0123456789"
NAMES = ("openai", "openai-chat", "anthropic", "google", "azure", "cohere", "openrouter")
QUICK = Timeouts(connect=2, write=2, first_token=2, idle=2, whole=2)


def spellings(key):
    yield from (key, json.dumps(key)[1:-1], quote(key, safe=""), quote(key), key.encode().hex())
    yield b64encode(key.encode()).decode().rstrip("=")


def raw(data: bytes) -> Step:
    def step(connection):
        connection.send(data)
        connection.close()

    return step


def told_back(key) -> dict[str, Step]:
    """What a server may do with a key that it was shown."""
    wrong = {"type": "error", "error": {"message": f"Incorrect API key: {key}", "type": key, "code": key}}
    line = key.encode()
    return {
        "401": says(wrong, 401),
        "429": says(wrong, 429, retry_after="0"),
        "500": says(wrong, 500),
        "400 in other spellings": says({"error": " ".join(spellings(key))}, 400),
        "html": says(f"<html>{key}</html>".encode(), 403, content_type="text/html"),
        "text": says(f"no such key {key}".encode(), 403, content_type="text/plain"),
        "an id": says({"error": "x"}, 400, x_request_id=key),
        "a reason": raw(b"HTTP/1.1 401 " + line + b"\r\ncontent-length: 0\r\n\r\n"),
        "no status": raw(line + b" " + line + b"\r\n\r\n"),
        "an echo": raw(b"POST /v1?key=" + line + b" HTTP/1.1\r\nauthorization: " + line + b"\r\n\r\n"),
        "a bad header": raw(b"HTTP/1.1 200 OK\r\nbad header " + line + b"\r\n\r\n"),
        "a bad chunk": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + line + b"\r\n"),
        "a redirect": says({}, 307, location=f"http://127.0.0.1:9/{key}"),
        "an error in a 200": says(wrong),
        "an error in a stream": streams(sse(wrong, "error"), DONE),
        "an error behind content": streams(delta("Hel"), sse(wrong, "error"), DONE),
        "no JSON": says(f"{{{key}".encode()),
        "no stream": streams(f"event: x\ndata: {{{key}\n\n".encode()),
        "a cut text": says({"error": {"message": "x" * 190 + key}}),
        "a body at the limit": says({"error": {"message": "x" * 65_500 + key}}, 400),
    }


def searched(error) -> str:
    """All that an error says, holds and came from."""
    said, waiting, seen = [], [error], set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        said += [str(each), repr(each), repr(each.args), *map(repr, vars(each).values())]
        said += getattr(each, "__notes__", [])
        waiting.append(each.__cause__)
        if not each.__suppress_context__:
            waiting.append(each.__context__)
    return "\n".join([*said, *traceback.format_exception(error)])


def assert_hidden(text, key):
    for way in spellings(key):
        assert way not in text, text[max(0, text.index(way) - 200) : text.index(way) + 100]


@pytest.mark.anyio
@pytest.mark.finding("F-111")
@pytest.mark.parametrize("key", [KEY, LONG], ids=["odd", "long"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.share(4)
async def test_no_key_comes_out(name, key, anyio_backend, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    notices, said = [], []
    for step in told_back(key).values():
        with serve(step) as server:
            asked = model(f"{name}/m", key=key, url=server.url, timeouts=QUICK, retry=Retry(attempts=2, first=0.001))
            async with Recorder(tmp_path / "r.json") as recorder:
                for one in (asked, recorder.model(asked)):
                    session = one.session()
                    answer = session.ask(HI, on_notice=notices.append)
                    said += [repr(one), str(one), repr(session), repr(answer), repr(one.credentials)]
                    try:
                        async with answer:
                            await answer.finish()
                    except PalaverError as error:
                        said.append(searched(error))
            said.append((tmp_path / "r.json").read_text())
            assert all(key in "".join(each.headers.values()) for each in server.asked)
    assert len(said) > 150
    assert_hidden("\n".join([*said, *map(repr, notices), *map(searched, (each.error for each in notices))]), key)
    assert_hidden("\n".join(record.getMessage() for record in caplog.records), key)


@pytest.mark.anyio
@pytest.mark.finding("F-111")
@pytest.mark.parametrize("where", ["?api_key={}", "?sig={}&v=1"])
async def test_a_key_in_the_address_is_neither_shown_nor_logged(where, anyio_backend, caplog):
    caplog.set_level(logging.DEBUG)
    with serve(says({"error": "x"}, 400, x_echo=KEY)) as server:
        asked = model("lab/llama", url=server.url + "/v1" + where.format(quote(KEY)), key=KEY, retry=Retry(attempts=1))
        call = HttpCall("POST", asked.endpoint.url, {"authorization": KEY, "accept": "*/*"}, ())
        with pytest.raises(PalaverError):
            async with asked.session().ask(HI):
                pass
        assert KEY in unquote(server.asked[0].path)
    assert_hidden("\n".join(map(repr, (asked, asked.endpoint, call, asked.session()))), KEY)
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "HTTP Request: POST http" in logged
    assert_hidden(logged, KEY)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:pass@h:1/p?a=b&key=s#f", "https://h:1/p?a=b&key=…"),
        ("https://h/{model}:x?a", "https://h/{model}:x?a"),
        ("http://[", "…"),
    ],
)
def test_an_address_is_shown_without_what_is_secret(url, shown):
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://u:pass@h:1/p?a=b&key=s#f", "https://h:1/p?a=b"),
        ("http://h", "http://h"),
        ("http://h/?token=t", "http://h/"),
        ("http://[", "http://["),
    ],
)
def test_an_address_is_kept_without_what_is_secret(url, kept):
    assert bare_url(url) == kept


@pytest.mark.anyio
async def test_no_redirect_is_followed_with_a_key(anyio_backend):
    with serve(says({}, 200)) as thief, serve(says({}, 308, location=f"{thief.url}/v1/responses")) as server:
        async with httpx.AsyncClient(follow_redirects=True) as client, Http(client) as http:
            asked = model("openai/m", key=KEY, url=server.url, retry=Retry(attempts=1), http=http)
            with pytest.raises(PalaverError, match="308"):
                async with asked.session().ask(HI):
                    pass
    assert len(server.asked) == 1
    assert thief.asked == []


@pytest.mark.anyio
async def test_a_key_in_the_address_is_in_no_error(anyio_backend):
    steps = [says({"error": f"no such page: /v1/m?key={quote(KEY)}"}, 404), raw(b"POST /v1/m?key=" + KEY.encode())]
    for step in steps:
        with serve(step) as server:
            endpoint = Endpoint(provider_name="t", wire="google_generate", url=f"{server.url}/v1?key={quote(KEY)}")
            asked = Model(name="t/m", id="m", endpoint=endpoint, retry=Retry(attempts=1))
            with pytest.raises(PalaverError) as caught:
                async with asked.session().ask(HI):
                    pass
        assert_hidden(searched(caught.value), KEY)


@pytest.mark.anyio
async def test_no_key_is_in_a_span(anyio_backend):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for step in told_back(KEY).values():
        with serve(step) as server:
            asked = model("openai-chat/m", key=KEY, url=server.url, timeouts=QUICK, retry=Retry(attempts=1))
            agent = Agent(asked, middleware=[Tracing(provider.get_tracer("t"), content=True)])
            run = await agent.run("hi")
            assert_hidden(searched(run.error) if run.error else "", KEY)
            assert_hidden(repr(run), KEY)
    spans = "\n".join(span.to_json() for span in exporter.get_finished_spans())
    assert "error.type" in spans
    assert_hidden(spans, KEY)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("variable", "value"),
    [("HTTPS_PROXY", f"foo://user:{LONG}@h"), ("ALL_PROXY", f"http://user:{LONG}@h:port"), ("SSL_CERT_FILE", "/no")],
)
async def test_an_environment_without_connections_is_one_sentence(variable, value, anyio_backend, monkeypatch):
    monkeypatch.setenv(variable, value)
    with pytest.raises(MessageError, match="environment") as caught:
        async with Http():
            pass
    assert_hidden(searched(caught.value), LONG)


def test_an_error_and_what_led_to_it_are_masked():
    cause = ValueError(f"bad {KEY}")
    error = TransportError(f"x: {KEY}")
    error.__cause__ = cause
    without_secrets(error, [KEY])
    assert_hidden(searched(error), KEY)
    cut = TransportError(f"key {KEY[:12]}…")
    without_secrets(cut, [KEY])
    assert str(cut) == f"key {'*' * 12}…"
