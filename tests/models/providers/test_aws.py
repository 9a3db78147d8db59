"""Bedrock: who asks (DAS-14), the address, and what ``invoke`` wraps its stream in."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import botocore.auth
import botocore.config
import botocore.session
import httpx
import pytest
from botocore.credentials import Credentials
from hypothesis import given, settings, strategies as st
from msgspec import structs

import palaver as p
from palaver import wires
from palaver.core.errors import AuthenticationError
from palaver.models.endpoint import HttpCall
from palaver.models.failures import Retry
from palaver.models.http import Http
from palaver.models.http_model import Model
from palaver.models.language_model import Prompt, complete
from palaver.models.providers import aws, find
from palaver.stream import event_stream
from tests.generated import examples

KEYS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
VARIABLES = (
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """An environment without credentials."""
    for name in (*VARIABLES, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


@pytest.fixture
def signing(bare, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret_key)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")


# -- what Amazon checks ------------------------------------------------------------------------------


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def derived(secret: str, date: str, region: str, service: str) -> bytes:
    return _mac(_mac(_mac(_mac(f"AWS4{secret}".encode(), date), region), service), "aws4_request")


def expected_signature(method: str, target: str, headers: dict[str, str], body: bytes, key: bytes | None = None) -> str:
    """The signature as the service derives it from the request line and headers that arrived."""
    told = dict(part.split("=", 1) for part in headers["authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(", "))
    _, date, region, service, _ = told["Credential"].split("/")
    names = told["SignedHeaders"].split(";")
    canonical = "\n".join(
        [
            method,
            quote(target, safe="/-_.~"),
            "",
            *(f"{name}:{headers[name]}" for name in names),
            "",
            told["SignedHeaders"],
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{date}/{region}/{service}/aws4_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{hashed}"
    return _mac(key or derived(KEYS.secret_key, date, region, service), text).hex()


def signature(headers: dict[str, str]) -> str:
    return headers["authorization"].rpartition("Signature=")[2]


@contextlib.contextmanager
def listening() -> Iterator[tuple[str, list[tuple[str, str, dict[str, str], bytes]]]]:
    """A Bedrock on loopback that keeps each request as it arrived."""
    arrived = []
    answer = json.dumps(
        {
            "output": {"message": {"role": "assistant", "content": [{"text": "Hi."}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
        }
    ).encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            method, target, _ = self.requestline.split(" ")
            arrived.append((method, target, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", arrived
        finally:
            server.shutdown()
            thread.join()


def bedrock(url: str, id: str, name: str = "bedrock", **more: Any) -> Model:
    row = find(name)
    (endpoint,) = row.endpoints
    endpoint = structs.replace(
        endpoint, url=endpoint.url.replace("{base}", url), stream_url=endpoint.stream_url.replace("{base}", url)
    )
    credentials = more.pop("credentials", None) or row.credentials(row, None)
    retry = Retry(attempts=1)
    return Model(name=f"{name}/{id}", id=id, endpoint=endpoint, credentials=credentials, retry=retry, **more)


# -- signatures --------------------------------------------------------------------------------------


def lowered(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): text for name, text in headers.items()}


@pytest.fixture
def in_2015(monkeypatch):
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: datetime(2015, 8, 30, 12, 36, tzinfo=UTC))


@pytest.mark.row("DAS-14")
def test_the_known_signature_of_get_vanilla(in_2015):
    made = aws.sign(HttpCall("GET", "https://example.amazonaws.com/", {}, ()), KEYS, "us-east-1", "service")
    assert signature(lowered(made)) == "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    assert "SignedHeaders=host;x-amz-date," in made["Authorization"]


@pytest.mark.row("DAS-14")
def test_the_known_key_of_iam_signs(in_2015):
    key = bytes.fromhex("c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9")
    assert derived(KEYS.secret_key, "20150830", "us-east-1", "iam") == key
    call = HttpCall("POST", "https://iam.amazonaws.com/a", {}, (b"one", b"", b"two"))
    made = lowered(aws.sign(call, KEYS, "us-east-1", "iam"))
    made["host"] = "iam.amazonaws.com"
    assert signature(made) == expected_signature("POST", "/a", made, b"onetwo", key)


def test_the_token_of_a_session_is_signed():
    keys = Credentials(KEYS.access_key, KEYS.secret_key, "the-token")
    made = aws.sign(HttpCall("POST", "https://h/x%3A0", {}, ()), keys, "eu-west-1")
    assert made["X-Amz-Security-Token"] == "the-token"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token," in made["Authorization"]
    made = {**lowered(made), "host": "h"}
    assert signature(made) == expected_signature("POST", "/x%3A0", made, b"")


IDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=30).filter(
    lambda text: text.strip(".")
) | st.from_regex(r"[a-z]{2}\.[a-z]+:[a-z0-9-]+/[a-z0-9.:/~ %+=@-]+", fullmatch=True)


@pytest.mark.row("DAS-14")
@pytest.mark.hypothesis
def test_any_model_is_asked_and_signed_as_botocore_does(signing):
    with listening() as (url, arrived):
        client = botocore.session.Session().create_client(
            "bedrock-runtime",
            region_name="eu-west-1",
            endpoint_url=url,
            aws_access_key_id=KEYS.access_key,
            aws_secret_access_key=KEYS.secret_key,
            config=botocore.config.Config(retries={"max_attempts": 1}),
        )

        @settings(max_examples=examples(60))
        @given(id=IDS)
        def check(id: str) -> None:
            arrived.clear()
            client.converse(modelId=id, messages=[{"role": "user", "content": [{"text": "Hi?"}]}])
            _ask(bedrock(url, id))
            (_, theirs, their_headers, their_body), (method, ours, headers, body) = arrived
            assert ours == theirs
            assert json.loads(body) == json.loads(their_body)
            assert signature(headers) == expected_signature(method, ours, headers, body)
            assert signature(their_headers) == expected_signature(method, theirs, their_headers, their_body)

        check()
        client.close()


def _ask(model: Model, backend: str = "asyncio", *, stream: bool = False) -> p.Response:
    import anyio

    async def ask() -> p.Response:
        async with Http(httpx.AsyncClient(trust_env=False)) as http, http._given:
            asked = p.Request(messages=(p.user("Hi?"),))
            return (await complete(structs.replace(model, http=http), asked, stream=stream)).response

    return anyio.run(ask, backend=backend)


# -- who asks ----------------------------------------------------------------------------------------

CALL = HttpCall("POST", "https://bedrock-runtime.us-west-2.amazonaws.com/model/m%3A0/converse", {}, (b"{}",))


@pytest.mark.anyio
@pytest.mark.row("DAS-14")
async def test_a_bearer_token_wins_over_a_signature_and_a_given_one_over_the_environment(signing, monkeypatch):
    assert (await aws.AwsCredentials().headers(CALL))["Authorization"].startswith("AWS4-HMAC-SHA256 ")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "from-env")
    assert await aws.AwsCredentials().headers(CALL) == {"Authorization": "Bearer from-env"}
    assert await aws.AwsCredentials("given").headers(CALL) == {"Authorization": "Bearer given"}
    assert "given" not in repr(aws.AwsCredentials("given"))


@pytest.mark.anyio
async def test_the_region_signed_for_is_that_in_the_address(signing):
    made = await aws.AwsCredentials().headers(CALL)
    assert "/us-west-2/bedrock/aws4_request" in made["Authorization"]
    elsewhere = structs.replace(CALL, url="https://proxy.example/model/m/converse")
    made = await aws.AwsCredentials().headers(elsewhere)
    assert "/eu-west-1/bedrock/aws4_request" in made["Authorization"]


@pytest.mark.anyio
async def test_a_profile_signs(bare, monkeypatch):
    (bare / "credentials").write_text("[work]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    made = await aws.AwsCredentials().headers(CALL)
    assert "Credential=AKIDPROFILE/" in made["Authorization"]


@pytest.mark.anyio
async def test_missing_credentials_raise_an_error_that_names_what_to_set(bare, monkeypatch):
    with pytest.raises(AuthenticationError, match=r"^bedrock: no credentials: set AWS_BEARER_TOKEN_BEDROCK, or AWS_AC"):
        await aws.AwsCredentials().headers(CALL)
    with pytest.raises(
        AuthenticationError, match=r"^bedrock: no region for the signature: set AWS_REGION or AWS_DEFAULT_"
    ):
        await aws.AwsCredentials().headers(structs.replace(CALL, url="https://proxy.example/m"))
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(AuthenticationError, match=r"^bedrock: The config profile \(absent\) could not be found$"):
        await aws.AwsCredentials().headers(CALL)


@pytest.mark.anyio
async def test_without_botocore_one_sentence_says_so(bare, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "botocore.session", None)
    with pytest.raises(
        AuthenticationError, match=r"botocore, which is not installed: pip install 'palaver\[bedrock\]'"
    ):
        await aws.AwsCredentials().headers(CALL)


# -- invoke ------------------------------------------------------------------------------------------

SPOKEN = p.Response(
    p.assistant("Bonjour", p.tool_call("look", {"at": "it"}, id="toolu_1")).replace(
        model="claude", finish_reason="tool_calls", usage=p.Usage(input=3, output=5)
    )
)


def _wrapped(data: bytes) -> bytes:
    """A stream of the Messages wire, each event in a frame of ``invoke``."""
    lines = [line.removeprefix(b"data: ") for line in data.splitlines() if line.startswith(b"data: ")]
    payloads = [json.dumps({"bytes": base64.b64encode(line).decode(), "p": "abc"}).encode() for line in lines]
    return b"".join(event_stream.write(payload, "chunk") for payload in payloads)


def _streamed() -> bytes:
    from palaver.stream.replay_events import replay_events

    encoder = wires.get("anthropic_messages").stream_encoder()
    return b"".join(encoder.feed(event) for event in replay_events(SPOKEN)) + encoder.finish()


@pytest.mark.law(3)
@given(cuts=st.sets(st.integers(0, 5_000)))
def test_a_stream_in_frames_is_the_stream_itself_at_any_split(cuts):
    plain, framed = _streamed(), _wrapped(_streamed())
    unwrap = aws.InvokeStream()
    out = b"".join(unwrap.feed(framed[start:end]) for start, end in pairwise([0, *sorted(cuts), 10_000]))
    out += unwrap.finish()
    decoders = [wires.get("anthropic_messages").stream_decoder() for _ in range(2)]
    for decoder, told in zip(decoders, (plain, out), strict=True):
        decoder.feed(told)
    assert decoders[0].finish() == decoders[1].finish()


@pytest.mark.row("DAS-15")
@pytest.mark.parametrize("cut", [1, 15, 40])
def test_a_stream_that_ends_inside_a_frame_is_an_error(cut):
    unwrap = aws.InvokeStream()
    unwrap.feed(_wrapped(_streamed())[:-cut])
    with pytest.raises(p.DecodeError, match="ends after"):
        unwrap.finish()


@pytest.mark.row("DAS-15")
@pytest.mark.parametrize("payload", [b"{}", b"[]", b'{"bytes":3}', b'{"bytes":"?"}', b'{"bytes":"aGk="}', b"\xff"])
def test_a_frame_that_holds_no_event_is_an_error(payload):
    with pytest.raises(p.DecodeError, match="without an event"):
        aws.InvokeStream().feed(event_stream.write(payload, "chunk"))


@pytest.mark.row("DAS-15")
@pytest.mark.parametrize(
    ("payload", "message"), [(b'{"message":"Too many."}', "Too many."), (b"what?", "what?"), (b"[]", "[]")]
)
def test_an_exception_is_an_error_of_the_provider(payload, message):
    frame = event_stream.write(payload, "throttlingException", kind="exception")
    decoder = wires.get("anthropic_messages").stream_decoder()
    decoder.feed(aws.InvokeStream().feed(frame))
    with pytest.raises(p.StreamError, match=re.escape(message)) as caught:
        decoder.finish()
    assert (caught.value.kind, caught.value.code) == ("provider", "throttlingException")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_invoke_names_no_model_and_reads_its_frames(signing, backend):
    from tests.loopback import serve

    with serve(_wrapped(_streamed()), content_type="application/vnd.amazon.eventstream", piece=50) as server:
        model = bedrock(server.url, "eu.anthropic.claude-x-v1:0", "bedrock-anthropic")
        got = _ask(model, backend, stream=True)
    ((path, body),) = server.requests
    assert got.message.text == "Bonjour"
    assert got.message.tool_calls[0].arguments == {"at": "it"}
    assert path == "/model/eu.anthropic.claude-x-v1%3A0/invoke-with-response-stream"
    sent = json.loads(body)
    assert sent["anthropic_version"] == "bedrock-2023-05-31"
    assert not sent.keys() & {"model", "stream"}


def test_an_invoke_that_is_not_streamed(signing):
    from tests.loopback import serve

    with serve(wires.get("anthropic_messages").encode_response(SPOKEN).body, content_type="application/json") as server:
        got = _ask(bedrock(server.url, "m", "bedrock-anthropic"))
    assert server.requests[0][0] == "/model/m/invoke"
    assert got.message.text == "Bonjour"


def test_a_prompt_keeps_its_fields_beside_the_version(signing):
    from tests.loopback import serve

    with serve(wires.get("anthropic_messages").encode_response(SPOKEN).body, content_type="application/json") as server:
        model = bedrock(server.url, "m", "bedrock-anthropic")
        import anyio

        async def ask() -> None:
            prompt = Prompt(messages=(p.user("u"),), provider={"anthropic_messages": {"anthropic_beta": ["b"]}})
            async with Http() as http, structs.replace(model, http=http).session().ask(prompt, stream=False) as answer:
                assert (await answer.finish()).losses[0].what == "max_tokens"

        anyio.run(ask)
    sent = json.loads(server.requests[0][1])
    assert sent["anthropic_beta"] == ["b"]
    assert sent["anthropic_version"] == "bedrock-2023-05-31"
