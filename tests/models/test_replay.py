"""Recording a model, and playing what was recorded (server and model)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
from hypothesis import given, strategies as st
from msgspec import structs

import palaver as p
from palaver import wires
from palaver.core.errors import AuthenticationError, MessageError
from palaver.models import names
from palaver.models.endpoint import ApiKey, HttpCall
from palaver.models.failures import Retry
from palaver.models.http_model import Model
from palaver.models.language_model import Prompt, Reply, complete
from palaver.models.recording import Exchange, Recording
from palaver.models.redaction import Masker
from palaver.models.replay import Recorder, replay, serve
from palaver.stream import event_stream
from palaver.stream.replay_events import replay_events
from tests.loopback import serve as answering

KEY = "sk-a/very+secret=key"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def model(url: str, name: str = "openai-chat/gpt-x", **more: Any) -> Model:
    found = names.resolve(name, key=KEY, url=url)
    made = Model(name=found.name, id=found.id, endpoint=found.endpoint, credentials=found.credentials)
    return structs.replace(made, retry=Retry(attempts=1), **more)


def answer(text: str) -> bytes:
    return wires.get("openai_chat").encode_response(p.Response(p.assistant(text, finish_reason="stop"))).body


async def asked(model: Any, text: str = "Hi?", *, stream: bool = False) -> Reply:
    return await complete(model, p.Request(messages=(p.user(text),)), stream=stream)


# -- both ways -----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_what_was_recorded_is_played(tmp_path):
    file = tmp_path / "talk.json"
    with answering(answer("One."), answer("Two."), content_type="application/json", piece=7) as server:
        async with Recorder(file) as recorder:
            heard = recorder.model(model(server.url, settings=p.Settings(temperature=0.5)))
            before = [await asked(heard), await asked(heard, "And?")]
    async with replay(file) as again:
        after = [await asked(again), await asked(again, "And?")]
        assert again.server.unplayed == ()
    assert again.name == "openai-chat/gpt-x"
    assert [reply.response for reply in after] == [reply.response for reply in before]
    assert [reply.response.message.text for reply in after] == ["One.", "Two."]
    first, _ = Recording.read(file).exchanges
    assert json.loads(first.body)["temperature"] == 0.5
    assert b"".join(first.chunks) == answer("One.")
    assert len(first.chunks) > 1
    assert first.request_headers == {"content-type": "application/json"}


def test_a_model_is_played_without_an_event_loop_around(tmp_path):
    recording = Recording(exchanges=(_exchange("Hi?", "One."), _exchange("Hi?", "Two.")))
    with replay(recording, model("http://recorded")) as again:
        texts = [anyio.run(asked, again, backend=backend).response.message.text for backend in ("asyncio", "trio")]
    assert texts == ["One.", "Two."]


@pytest.mark.anyio
async def test_a_model_starts_its_server_when_it_is_asked_first():
    again = replay(Recording(exchanges=(_exchange("Hi?", "One."),)), model("http://recorded"))
    assert not again.server.running
    assert (await asked(again)).response.message.text == "One."
    assert again.server.running
    again.close()
    again.close()
    assert not again.server.running


@pytest.mark.anyio
async def test_a_proxy_is_not_asked_for_what_is_on_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with replay(Recording(exchanges=(_exchange("Hi?", "One."),)), model("http://recorded")) as again:
        assert (await asked(again)).response.message.text == "One."


@pytest.mark.anyio
async def test_what_wraps_a_stream_is_known_again(tmp_path):
    """Bedrock's ``invoke``: a recording keeps the frames, and plays them to what takes them apart."""
    encoder = wires.get("anthropic_messages").stream_encoder()
    told = [*replay_events(p.Response(p.assistant("Hi.", finish_reason="stop")))]
    plain = b"".join(encoder.feed(event) for event in told) + encoder.finish()
    lines = [line.removeprefix(b"data: ") for line in plain.splitlines() if line.startswith(b"data: ")]
    frames = [json.dumps({"bytes": base64.b64encode(line).decode()}).encode() for line in lines]
    framed = b"".join(event_stream.write(frame, "chunk") for frame in frames)
    with answering(framed, content_type="application/vnd.amazon.eventstream") as server:
        async with Recorder(tmp_path / "invoke.json") as recorder:
            heard = recorder.model(model(server.url, "bedrock-anthropic/m:0"))
            await asked(heard, stream=True)
    assert KEY.encode() not in recorder.file.read_bytes()
    async with replay(recorder.file) as again:
        assert (await asked(again, stream=True)).response.message.text == "Hi."


@pytest.mark.anyio
async def test_a_stream_that_broke_off_breaks_off_again(tmp_path):
    file = tmp_path / "broken.json"
    encoder = wires.get("openai_chat").stream_encoder()
    begun = b"".join(encoder.feed(event) for event in [*replay_events(p.Response(p.assistant("Half of it.")))][:-1])
    exchange = structs.replace(
        _exchange("Hi?", ""),
        body=_body("Hi?", stream=True),
        headers={"content-type": "text/event-stream"},
        chunks=(begun,),
        broken=True,
    )
    source = Recording(exchanges=(exchange,))
    with pytest.raises(p.StreamError) as first:
        async with replay(source, model("http://recorded")) as again, Recorder(file) as recorder:
            await asked(recorder.model(again._model), stream=True)
    assert Recording.read(file).exchanges[0].broken
    with pytest.raises(p.StreamError) as second:
        async with replay(file) as again:
            await asked(again, stream=True)
    assert second.value.response == first.value.response


def _body(text: str, *, stream: bool = False) -> bytes:
    written = model("http://recorded").session()._encoder
    return written.encode(Prompt(messages=(p.user(text),)), stream=stream).body


def _exchange(text: str, said: str) -> Exchange:
    return Exchange(
        method="POST",
        path="/chat/completions",
        body=_body(text),
        headers={"content-type": "application/json"},
        chunks=(answer(said),),
    )


# -- secrets -------------------------------------------------------------------------------------------


def _spellings(secret: str, *, whole: bool = False) -> list[bytes]:
    """Ways to write it; in base64 within something else, of which only what nothing else can be."""
    raw = secret.encode()
    found = [raw, quote(secret, safe="").encode(), json.dumps(secret)[1:-1].encode(), raw.hex().encode()]
    for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            written = alphabet(b"x" * before + raw + b"tail")
            found.append(written if whole else written[4 if before else 0 : -8])
    return found


@pytest.mark.anyio
async def test_no_secret_reaches_the_file(tmp_path):
    told = answer(" ".join(spelled.decode() for spelled in _spellings(KEY, whole=True)) + " and a-second-secret")
    with answering(told, content_type="application/json", piece=5) as server:
        async with Recorder(tmp_path, secrets=("a-second-secret",)) as recorder:
            secretive = recorder.model(
                model(f"{server.url}", credentials=ApiKey(KEY, header="x-mine", prefix="Token "))
            )
            await asked(secretive, f"My key is {KEY}, {quote(KEY)} and {base64.b64encode(KEY.encode()).decode()}.")
    data = recorder.file.read_bytes()
    assert recorder.file.name == "recording-0001.json"
    for spelled in (*_spellings(KEY), b"a-second-secret", b"x-mine"):
        assert spelled not in data
    (exchange,) = Recording.read(recorder.file).exchanges
    assert sum(map(len, exchange.chunks)) == len(told)
    whole = b"".join(exchange.chunks)
    for spelled in (*_spellings(KEY), b"a-second-secret"):
        assert spelled not in whole
        assert spelled not in exchange.body
    assert "REDACTED" in wires.get("openai_chat").decode_response(whole).message.text


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ({"Authorization": "Bearer the-secret-value"}, "the-secret-value"),
        ({"Authorization": f"Basic {base64.b64encode(b'me:the-secret-value').decode()}"}, "the-secret-value"),
        ({"x-api-key": "the-secret-value"}, "the-secret-value"),
        ({"api-key": "the-secret-value"}, "the-secret-value"),
        ({"x-goog-api-key": "the-secret-value"}, "the-secret-value"),
        ({"Cookie": "a=1; sid=the-secret-value"}, "the-secret-value"),
        ({"X-Amz-Security-Token": "the-secret-value"}, "the-secret-value"),
        ({"Authorization": "AWS4-HMAC-SHA256 Credential=AKIDSECRET/2/r/s/aws4_request, Signature=beef"}, "AKIDSECRET"),
    ],
)
def test_headers_that_hold_secrets(headers, secret, tmp_path):
    recorder = Recorder(tmp_path / "r.json")
    url = f"https://host/v1/x?alt=sse&key={'k' * 12}"
    call = HttpCall("POST", url, {**headers, "content-type": "a/b"}, (f"{secret} {'k' * 12}".encode(),))
    recorder.note(call.url, call.headers)
    heard = recorder.begin(call)
    heard.answered(200, {"set-cookie": "x", "request-id": f"r-{secret}"})
    heard.chunk(secret[:5].encode())
    heard.chunk(secret[5:].encode())
    recorder.close()
    data = recorder.file.read_bytes()
    assert secret.encode() not in data
    assert b"kkkk" not in data
    (exchange,) = Recording.read(recorder.file).exchanges
    assert exchange.path == "/v1/x?alt=sse"
    assert exchange.request_headers == {"content-type": "a/b"}
    assert exchange.headers.keys() == {"request-id"}
    assert [len(chunk) for chunk in exchange.chunks] == [5, len(secret) - 5]
    assert secret.encode() not in b"".join(exchange.chunks)


@given(
    secret=st.text(st.characters(codec="utf-8", exclude_characters="R"), min_size=8, max_size=40),
    before=st.binary(max_size=8),
    after=st.binary(max_size=8),
)
def test_a_secret_is_found_in_whatever_way_it_is_written(secret, before, after):
    raw, mask = secret.encode(), Masker((secret,))
    for spelled in (raw, quote(secret, safe="").encode(), raw.hex().encode()):
        covered = mask(before + spelled + after)
        assert len(covered) == len(before + spelled + after)
        assert spelled not in covered
    assert raw not in base64.b64decode(mask(base64.b64encode(before + raw + after)))


def test_what_is_too_short_is_no_secret():
    assert Masker(("short", ""))(b"short") == b"short"


# -- the file ------------------------------------------------------------------------------------------

EXCHANGES = st.builds(
    Exchange,
    method=st.sampled_from(["POST", "GET"]),
    path=st.text(min_size=1, max_size=9),
    request_headers=st.dictionaries(st.sampled_from(["accept", "content-type"]), st.text(max_size=9)),
    body=st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    status=st.integers(200, 599),
    headers=st.dictionaries(st.sampled_from(["request-id", "content-type"]), st.text(max_size=9)),
    chunks=st.lists(st.binary(min_size=1, max_size=9), max_size=4).map(tuple),
    broken=st.booleans(),
)


@given(exchanges=st.lists(EXCHANGES, max_size=3))
def test_a_recording_is_read_as_it_was_written(exchanges, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / "any.json"
    recording = Recording(exchanges=tuple(exchanges))
    recording.write(file)
    assert Recording.read(file) == recording


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"recording": 2, "exchanges": []}',
        b'{"recording": 1, "exchanges": [{}]}',
        b'{"recording":1,"exchanges":[{"request":{"method":"P","path":"/","body":{"base64":"?"}},"response":{"status":2}}]}',
    ],
)
def test_a_file_that_is_no_recording_is_named(data, tmp_path):
    (tmp_path / "odd.json").write_bytes(data)
    with pytest.raises(p.DecodeError, match=r"^odd\.json: "):
        Recording.read(tmp_path / "odd.json")


def test_a_recording_that_names_no_model_needs_one():
    with pytest.raises(MessageError, match="does not name its model"):
        replay(Recording())
    with pytest.raises(MessageError, match="served only inside its"):
        _ = serve(Recording()).url


# -- the server ----------------------------------------------------------------------------------------


@contextmanager
def served(*exchanges: Exchange) -> Iterator[httpx.Client]:
    with serve(Recording(exchanges=exchanges)) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        yield client


ONE = Exchange(
    method="POST",
    path="/v1/a%3Ab?alt=sse",
    body=b'{"x": [1, {"y": 2.0}], "z": null}',
    headers={"content-type": "text/plain", "request-id": "r1"},
    chunks=(b"one", b"\xff", b"three"),
)


def test_bytes_come_chunk_by_chunk_with_their_status_and_headers():
    with (
        served(structs.replace(ONE, status=201)) as client,
        client.stream("POST", "/v1/a:b?alt=sse&key=k", content=b'{"z":null,"x":[1.0,{"y":2}]}') as got,
    ):
        assert got.status_code == 201
        assert got.headers["request-id"] == "r1"
        assert b"".join(got.iter_raw()) == b"one\xffthree"


def test_equal_requests_are_answered_in_their_order():
    with served(ONE, structs.replace(ONE, chunks=(b"two",))) as client:
        answers = [client.post(ONE.path, content=ONE.body) for _ in range(3)]
    assert [got.content for got in answers[:2]] == [b"one\xffthree", b"two"]
    assert answers[2].status_code == 404
    assert "all of its recorded answers have been used" in answers[2].json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("PUT", ONE.path, ONE.body, "method: recorded POST, asked PUT"),
        ("POST", "/v1/other", ONE.body, 'path: recorded "/v1/a:b?alt=sse", asked "/v1/other"'),
        ("POST", ONE.path, b'{"x":[1,{"y":3}],"z":null}', "body.x[1].y: recorded 2.0, asked 3"),
        ("POST", ONE.path, b'{"x":[1],"z":null}', 'body.x[1]: recorded {"y": 2.0}, asked nothing'),
        ("POST", ONE.path, b'{"x":[true,{"y":2}],"z":null}', "body.x[0]: recorded 1, asked true"),
        ("POST", ONE.path, b'{"x":[1,{"y":2}],"z":null,"w":"e"}', 'body.w: recorded nothing, asked "e"'),
        ("POST", ONE.path, b"hi", "body: recorded 33 bytes, asked 2, not JSON both"),
    ],
)
def test_an_unrecorded_request_names_the_first_difference(method, path, body, said):
    with served(ONE) as client:
        got = client.request(method, path, content=body)
        assert got.status_code == 404
        assert got.json()["error"]["message"].endswith(f"it differs from the next recorded one in {said}")
        assert client.post(ONE.path, content=ONE.body).status_code == 200


@pytest.mark.anyio
async def test_the_error_of_a_replay_names_what_differs():
    async with replay(Recording(exchanges=(_exchange("Hi?", "One."),)), model("http://recorded")) as again:
        with pytest.raises(
            p.ProviderError,
            match=r"differs from the next recorded one in body\.messages\[0\]\.content: recorded .Hi\?., asked .Ho",
        ):
            await asked(again, "Ho?")


def test_an_answer_that_broke_off_breaks_off():
    with served(structs.replace(ONE, broken=True)) as client, pytest.raises(httpx.RemoteProtocolError):
        client.post(ONE.path, content=ONE.body)


def test_a_server_stops_while_clients_hold_on():
    with httpx.Client(trust_env=False) as client:
        with serve(Recording(exchanges=(ONE,))) as server:
            client.post(server.url + ONE.path, content=ONE.body)
            url = server.url
        with pytest.raises(httpx.TransportError):
            client.post(url + ONE.path, content=ONE.body)


@pytest.mark.anyio
async def test_a_missing_key_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = names.resolve("openai-chat/gpt-x", url="http://127.0.0.1:9")
    bare = Model(name=found.name, id=found.id, endpoint=found.endpoint, credentials=found.credentials)
    async with Recorder(tmp_path / "none.json") as recorder:
        with pytest.raises(AuthenticationError):
            await asked(recorder.model(bare))
    assert Recording.read(recorder.file).exchanges == ()
