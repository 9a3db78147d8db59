"""Virtual keys: how they are made and stored, where clients send them, and what a gateway refuses."""

import json
import logging
import re
import threading
import uuid
from contextlib import closing

import anthropic
import boto3
import botocore.config
import cohere
import httpx
import ollama
import openai
import pytest
from google import genai

from palaver.core.errors import ConflictError, MessageError, NotFoundError
from palaver.gateway import GatewayConfig, Listen, Target, authentication, gateway, gateway_app
from palaver.gateway.apis import APIS
from palaver.gateway.authentication import Authentication
from palaver.gateway.client_api import RefusedError
from palaver.gateway.component import Component
from palaver.gateway.credentials import Credential
from palaver.gateway.database import open_database
from palaver.gateway.keys import GatewayKeys, KeySettings, new_secret, secret_hash
from palaver.gateway.limits import Limit
from palaver.threads.ids import now_ms
from tests.gateway.databases import KINDS, location
from tests.gateway.running import PROVIDERS, running, targets
from tests.gateway.test_errors import message_of
from tests.gateway.test_wires import answer_of, body_of, path_of

DAY = 86_400_000


@pytest.fixture(params=KINDS)
def keys(request, tmp_path):
    with location(request.param, tmp_path) as place, closing(open_database(place)) as database:
        yield GatewayKeys(database)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return str(tmp_path_factory.mktemp("keys") / "gateway.db")


@pytest.fixture(scope="module")
def stored(place):
    """Keys that the test changes while a gateway uses them."""
    with closing(open_database(place)) as database:
        yield GatewayKeys(database)


@pytest.fixture(scope="module")
def guarded(provider, place):
    """A gateway that requires keys."""
    with running(GatewayConfig(models=targets(provider.url), database=place, keys=KeySettings())) as url:
        yield url


@pytest.fixture
def secret(stored):
    return stored.create(uuid.uuid4().hex).secret


@pytest.fixture
def anyio_backend():
    return "asyncio"


def ask(url, wire, *, headers=None, query="", name=None):
    path = path_of(wire, name or wire, stream=False)
    return httpx.post(f"{url}{path}{query}", content=body_of(wire, name or wire, stream=False), headers=headers)


# -- what is stored ------------------------------------------------------------------------------------------------


@pytest.mark.row("GW-30")
def test_a_key_is_found_by_its_hash_until_it_is_revoked(keys):
    limit = Limit("requests", 60, "minute")
    secret, made = keys.create("ci", team="dev", models=["fast", "claude-*"], limits=[limit], expires=now_ms() + DAY)
    found = keys.find(secret_hash(secret))
    assert found == made
    assert (found.caller.name, found.caller.team, found.caller.limits) == ("ci", "dev", (limit,))
    assert found.is_valid(now_ms())
    assert not found.is_valid(now_ms() + 2 * DAY)
    assert keys.find(secret_hash(new_secret())) is None
    assert keys.revoke("ci").revoked is not None
    assert not keys.find(secret_hash(secret)).is_valid(now_ms())
    with pytest.raises(NotFoundError, match="'ci'"):
        keys.revoke("ci")


def test_a_name_is_free_again_when_its_key_is_revoked(keys):
    first = keys.create("ci").key
    with pytest.raises(ConflictError, match="'ci'"):
        keys.create("ci")
    keys.revoke(first.caller.key_id)
    second = keys.create("ci").key
    assert [each.caller.key_id for each in keys.list()] == [first.caller.key_id, second.caller.key_id]


def test_a_rotated_key_keeps_its_id_and_its_old_secret_for_a_while(keys):
    old, made = keys.create("ci")
    new, rotated = keys.rotate("ci", keep=DAY)
    assert rotated.caller == made.caller
    assert {keys.find(secret_hash(each)).caller.key_id for each in (old, new)} == {made.caller.key_id}
    last, _ = keys.rotate("ci")
    assert [keys.find(secret_hash(each)) is None for each in (old, new, last)] == [True, True, False]


def test_when_a_key_was_used_only_moves_forward(keys):
    key_id = keys.create("ci").key.caller.key_id
    keys.note_used({key_id: 2000, "nobody": 1})
    keys.note_used({key_id: 1000})
    assert keys.list()[0].last_used == 2000


def test_a_name_that_could_be_something_else_is_refused(keys):
    for name in ["", "a b", "a\r\nb", "-a", "é", "x" * 65, "a\x00"]:
        with pytest.raises(MessageError):
            keys.create(name)
        with pytest.raises(MessageError):
            keys.create("fine", team=name)
    assert keys.list() == ()


@pytest.mark.row("GW-30")
def test_a_typo_in_a_key_is_seen_without_a_database():
    secret = new_secret()
    assert re.fullmatch(r"plv-[0-9A-Za-z]{49}", secret)
    for index in range(len(secret)):
        other = "a" if secret[index] != "a" else "b"
        assert secret_hash(secret[:index] + other + secret[index + 1 :]) is None
    assert secret_hash(secret) is not None
    assert not any(map(secret_hash, ("", "plv-", secret + "\n", secret[:-1], f" {secret}", secret * 1000)))


@pytest.mark.row("GW-30")
def test_the_database_holds_no_key(tmp_path):
    path = tmp_path / "gateway.db"
    with closing(open_database(str(path))) as database:
        keys = GatewayKeys(database)
        made = [keys.create("ci"), keys.rotate("ci", keep=DAY), keys.create("other")]
        files = [each.read_bytes() for each in tmp_path.iterdir()]
    files += [each.read_bytes() for each in tmp_path.iterdir()]
    shown = repr(made)
    for secret, key in made:
        assert any(key.shown.encode() in data for data in files)
        assert not any(secret[8:20].encode() in data for data in files)
        assert secret[8:20] not in shown


# -- who may ask ---------------------------------------------------------------------------------------------------


def places():
    for api in APIS:
        for place in api.keys:
            yield pytest.param((api, place.header, place.prefix + "{key}" + place.end), id=f"{api.wire}-{place.prefix}")
            if place.prefix == "Bearer ":
                yield pytest.param((api, place.header, "bearer {key}"), id=f"{api.wire}-lower")
        if api.key_parameter is not None:
            yield pytest.param((api, None, f"?a=1&{api.key_parameter}={{key}}"), id=f"{api.wire}-parameter")


@pytest.mark.row("GW-02")
@pytest.mark.parametrize("place_of_key", list(places()))
def test_a_key_is_read_where_clients_of_the_api_send_it_and_goes_no_further(guarded, provider, secret, place_of_key):
    api, header, text = place_of_key
    provider.headers, provider.body = {"content-type": "application/json"}, answer_of(api.wire, stream=False)
    sent = text.replace("{key}", secret)
    headers, query = ({header: sent}, "") if header else ({}, sent)
    got = ask(guarded, api.wire, headers=headers, query=query)
    assert got.status_code == 200, got.text
    ((path, arrived, body),) = provider.asked
    assert secret not in f"{path} {arrived} {body} {got.headers} {got.text}"
    assert arrived.get("x-api-key", "secret-1") == "secret-1"
    got = ask(guarded, api.wire, headers={header: sent.replace("plv-", "plx-")} if header else {})
    assert got.status_code == 401
    assert len(provider.asked) == 1


@pytest.mark.row("GW-02")
def test_the_official_clients_send_virtual_keys(guarded, provider, secret):
    def answers(wire):
        provider.headers, provider.body = {"content-type": "application/json"}, answer_of(wire, stream=False)

    asked = [{"role": "user", "content": "Hi"}]
    answers("openai_chat")
    with openai.OpenAI(base_url=f"{guarded}/v1", api_key=secret) as client:
        assert client.chat.completions.create(model="openai_chat", messages=asked).choices
    with openai.AzureOpenAI(azure_endpoint=guarded, api_key=secret, api_version="2024-10-21") as client:
        assert client.chat.completions.create(model="openai_chat", messages=asked).choices
    answers("anthropic_messages")
    for key in ({"api_key": secret}, {"auth_token": secret}):
        with anthropic.Anthropic(base_url=guarded, **key) as client:
            assert client.messages.create(model="anthropic_messages", messages=asked, max_tokens=9).content
    answers("google_generate")
    with genai.Client(api_key=secret, http_options={"base_url": guarded}) as client:
        assert client.models.generate_content(model="google_generate", contents="Hi").candidates
    answers("cohere_chat")
    with httpx.Client() as connections:
        client = cohere.ClientV2(secret, base_url=guarded, httpx_client=connections)
        assert client.chat(model="cohere_chat", messages=asked).message
    answers("ollama_chat")
    with ollama.Client(guarded, headers={"authorization": f"Bearer {secret}"}) as client:
        assert client.chat(model="ollama_chat", messages=asked).message
    answers("bedrock_converse")
    assert converse(guarded, secret)["output"]
    assert secret not in str(provider.asked)


def converse(url, secret):
    """Ask as a client of Bedrock does without TLS: it signs, and sends the virtual key as its access key id."""
    own = {"aws_access_key_id": secret, "aws_secret_access_key": "any"}
    options = botocore.config.Config(retries={"total_max_attempts": 1})
    client = boto3.client("bedrock-runtime", region_name="eu-central-1", endpoint_url=url, config=options, **own)
    with closing(client):
        return client.converse(modelId="bedrock_converse", messages=[{"role": "user", "content": [{"text": "Hi"}]}])


@pytest.mark.row("GW-30")
@pytest.mark.parametrize("wire", PROVIDERS)
def test_a_request_without_a_valid_key_is_refused_in_the_shape_of_the_client(guarded, provider, stored, wire):
    bearer = "authorization" if wire != "google_generate" else "x-goog-api-key"
    prefix = "Bearer " if bearer == "authorization" else ""
    old = stored.create(f"old-{wire}", expires=now_ms() - 1).secret
    gone = stored.create(f"gone-{wire}").secret
    stored.revoke(f"gone-{wire}")
    cases = {"": "no key", "any": "mistyped", new_secret(): "not know", old: "expired", gone: "revoked"}
    for key, text in cases.items():
        got = ask(guarded, wire, headers={bearer: f"{prefix}{key}"} if key else {})
        assert got.status_code == 401
        assert text in message_of(wire, got.json())
        assert not key or key not in got.text
    assert provider.asked == []


@pytest.mark.row("GW-30")
def test_a_key_asks_for_the_models_in_its_scope_only(guarded, provider, stored):
    secret = stored.create("scoped", models=["OpenAI_*", "cohere_chat"]).secret
    headers = {"authorization": f"Bearer {secret}"}
    provider.headers, provider.body = {"content-type": "application/json"}, answer_of("openai_chat", stream=False)
    assert ask(guarded, "openai_chat", headers=headers).status_code == 200
    for wire in ("anthropic_messages", "bedrock_converse"):
        got = ask(guarded, wire, headers=headers)
        assert got.status_code == 403
        assert wire in message_of(wire, got.json())
    assert len(provider.asked) == 1
    with openai.OpenAI(base_url=f"{guarded}/v1", api_key=secret) as client:
        assert {each.id for each in client.models.list()} == {"openai_chat", "openai_responses", "cohere_chat"}


@pytest.mark.row("GW-30")
@pytest.mark.parametrize("field", ["models", "Models", "fallbacks", "preset", "mod\\u0065ls"])
def test_a_key_with_a_scope_names_no_other_models_beside_its_own(guarded, provider, stored, field):
    provider.headers, provider.body = {"content-type": "application/json"}, answer_of("openai_chat", stream=False)
    body = f'{{"model": "openai_chat", "messages": [], "{field}": ["openai/other"]}}'
    for models, status in ([["openai_chat"], 403], [[], 200]):
        secret = stored.create(uuid.uuid4().hex, models=models).secret
        headers = {"authorization": f"Bearer {secret}"}
        got = httpx.post(f"{guarded}/v1/chat/completions", content=body, headers=headers)
        assert got.status_code == status
    assert len(provider.asked) == 1


def test_a_key_with_a_scope_may_speak_of_models(guarded, provider, stored):
    provider.headers, provider.body = {"content-type": "application/json"}, answer_of("openai_chat", stream=False)
    secret = stored.create(uuid.uuid4().hex, models=["openai_chat"]).secret
    messages = [{"role": "user", "content": 'the field "models", \x00', "models": 1}]
    body = {"model": "openai_chat", "messages": messages}
    headers = {"authorization": f"Bearer {secret}"}
    assert httpx.post(f"{guarded}/v1/chat/completions", json=body, headers=headers).status_code == 200


def test_a_model_that_a_key_may_ask_for_falls_back_to_one_that_it_may_not(provider, place, stored):
    secret = stored.create("fallback", models=["fast"]).secret
    every = targets(provider.url)
    models = {**every, "fast": [every["openai_chat"], every["cohere_chat"]]}
    tried = []

    def respond(body):
        tried.append(body)
        wire = "cohere_chat" if len(tried) > 1 else "openai_chat"
        return (
            (503, {}, b"")
            if len(tried) == 1
            else (200, {"content-type": "application/json"}, answer_of(wire, stream=False))
        )

    provider.respond = respond
    with running(GatewayConfig(models=models, database=place, keys=KeySettings())) as url:
        got = ask(url, "openai_chat", name="fast", headers={"authorization": f"Bearer {secret}"})
    assert (got.status_code, len(tried)) == (200, 2)


@pytest.mark.row("GW-40")
def test_no_route_but_the_root_and_health_answers_without_a_key(place):
    app = gateway_app(GatewayConfig(database=place, keys=KeySettings()))
    routes = [
        (method, each.path)
        for each in app.routes
        if each.path not in {"/", "/health"}
        for method in each.methods - {"HEAD"}
    ]
    assert len(routes) > 20
    with running(GatewayConfig(database=place, keys=KeySettings())) as url:
        for method, path in routes:
            got = httpx.request(method, url + re.sub(r"{[^}]*}", "x", path), content=b"{")
            assert got.status_code == 401, path


def test_lists_of_models_need_a_key_in_the_place_of_the_client(guarded, secret):
    assert httpx.get(f"{guarded}/v1/models").status_code == 401
    got = httpx.get(f"{guarded}/v1/models", headers={"anthropic-version": "1", "x-api-key": secret})
    assert {each["id"] for each in got.json()["data"]} == set(PROVIDERS)
    assert httpx.get(f"{guarded}/v1beta/models?key={secret}").status_code == 200


@pytest.mark.row("GW-40")
def test_a_body_is_not_read_before_the_key_is_known(guarded):
    with httpx.Client() as client:
        got = client.post(f"{guarded}/v1/messages", content=(b"x" for _ in [1]), headers={"x-api-key": "any"})
    assert got.status_code == 401  # and not 400: nothing looked at the body


def test_a_key_that_is_not_required_still_says_who_asks(provider, place, stored):
    secret = stored.create("optional", models=["nothing"]).secret
    provider.headers, provider.body = {"content-type": "application/json"}, answer_of("openai_chat", stream=False)
    with running(GatewayConfig(models=targets(provider.url), database=place, keys=KeySettings(required=False))) as url:
        for key, status in (("any", 200), ("", 200), (secret, 403), (new_secret(), 401)):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            assert ask(url, "openai_chat", headers=headers).status_code == status


@pytest.mark.row("GW-30")
@pytest.mark.anyio
async def test_a_found_key_is_remembered_for_a_bounded_time(keys, monkeypatch):
    secret, made = keys.create("ci")
    credential = Credential(secret_hash(secret))
    clock = 1000.0
    monkeypatch.setattr(authentication.time, "monotonic", lambda: clock)
    component = Authentication(lambda: keys._database, required=True)
    async with component:
        assert await component.caller(credential) == made.caller
        keys.revoke("ci")
        clock += authentication.REMEMBERED - 0.1
        assert await component.caller(credential) == made.caller
        clock += 0.2
        with pytest.raises(RefusedError, match="revoked"):
            await component.caller(credential)
    assert keys.list()[0].last_used is not None


@pytest.mark.anyio
async def test_a_key_stays_known_while_the_database_is_away(tmp_path, monkeypatch):
    database = open_database(str(tmp_path / "gateway.db"))
    secret, made = GatewayKeys(database).create("ci")
    clock = 1000.0
    monkeypatch.setattr(authentication.time, "monotonic", lambda: clock)
    component = Authentication(lambda: database, required=True)
    async with component:
        assert await component.caller(Credential(secret_hash(secret))) == made.caller
        database.close()
        clock += authentication.REMEMBERED + 1
        assert await component.caller(Credential(secret_hash(secret))) == made.caller
        with pytest.raises(RefusedError, match="cannot be checked"):
            await component.caller(Credential(secret_hash(new_secret())))
        clock += authentication.STALE
        with pytest.raises(RefusedError, match="cannot be checked") as caught:
            await component.caller(Credential(secret_hash(secret)))
        assert caught.value.answer.status == 503


@pytest.mark.row("GW-30")
@pytest.mark.anyio
async def test_keys_that_somebody_makes_up_displace_none_that_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(authentication, "_MOST", 4)
    with closing(open_database(str(tmp_path / "gateway.db"))) as database:
        secret, made = GatewayKeys(database).create("ci")
        async with Authentication(lambda: database, required=True) as component:
            assert await component.caller(Credential(secret_hash(secret))) == made.caller
            for _ in range(10):
                with pytest.raises(RefusedError, match="does not know"):
                    await component.caller(Credential(secret_hash(new_secret())))
            database.run(lambda it: it.rows("DROP TABLE {s}.keys"))
            assert await component.caller(Credential(secret_hash(secret))) == made.caller


@pytest.mark.row("GW-30")
@pytest.mark.anyio
async def test_a_key_that_is_gone_from_the_database_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(authentication, "REMEMBERED", 0.0)
    with closing(open_database(str(tmp_path / "gateway.db"))) as database:
        secret, made = GatewayKeys(database).create("ci")
        async with Authentication(lambda: database, required=True) as component:
            assert await component.caller(Credential(secret_hash(secret))) == made.caller
            database.run(lambda it: it.rows("DELETE FROM {s}.keys"))
            for _ in range(2):
                with pytest.raises(RefusedError, match="does not know"):
                    await component.caller(Credential(secret_hash(secret)))


@pytest.mark.row("GW-30")
@pytest.mark.anyio
async def test_no_request_with_a_known_key_waits_for_a_database_that_is_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(authentication, "PATIENCE", 0.01)
    monkeypatch.setattr(authentication, "REMEMBERED", 0.0)
    with closing(open_database(str(tmp_path / "gateway.db"))) as database:
        secret, made = GatewayKeys(database).create("ci")
        find, speaks, asked = GatewayKeys.find, threading.Event(), []

        def silent(self, hash):
            asked.append(hash)
            assert speaks.wait(60)
            return find(self, hash)

        async with Authentication(lambda: database, required=True) as component:
            credential = Credential(secret_hash(secret))
            assert await component.caller(credential) == made.caller
            monkeypatch.setattr(GatewayKeys, "find", silent)
            for _ in range(3):
                assert await component.caller(credential) == made.caller
            assert len(asked) == 1
            GatewayKeys(database).revoke("ci")
            speaks.set()
            monkeypatch.setattr(authentication, "PATIENCE", 60.0)
            with pytest.raises(RefusedError, match="was revoked"):
                await component.caller(credential)


# -- secrets -------------------------------------------------------------------------------------------------------


class Recorder(Component):
    """Keeps the records of exchanges."""

    def __init__(self):
        self.records = []

    async def ended(self, record):
        self.records.append(record)


@pytest.mark.row("GW-40")
def test_no_key_is_in_records_logs_errors_or_the_database(provider, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    recorder, place = Recorder(), tmp_path / "gateway.db"
    made = gateway._components
    monkeypatch.setattr(gateway, "_components", lambda each: [*made(each), recorder])
    with closing(open_database(str(place))) as database:
        keys = GatewayKeys(database)
        right, wrong = keys.create("ci", models=["*_*"]).secret, new_secret()
    shown = []
    with running(GatewayConfig(models=targets(provider.url), database=str(place), keys=KeySettings())) as url:
        for place_of_key in places():
            api, header, text = place_of_key.values[0]
            for secret in (right, wrong, right[:-1]):
                sent = text.replace("{key}", secret)
                for status, name in ((200, None), (500, None), (200, "nothing")):
                    provider.status, provider.body = status, b"{}"
                    got = ask(
                        url,
                        api.wire,
                        name=name,
                        headers={header: sent} if header else {},
                        query=sent if not header else "",
                    )
                    shown.append(f"{got.headers} {got.text}")
        files = [each.read_bytes() for each in tmp_path.iterdir()]
    assert {each.caller.name for each in recorder.records} == {"ci"}
    assert {each.outcome for each in recorder.records} >= {"answered", "refused"}
    logged = [each.getMessage() for each in caplog.records if not each.name.startswith(("httpx", "httpcore"))]
    everything = f"{shown} {recorder.records} {logged} {provider.asked}"
    for secret in (right, wrong):
        assert secret[8:20] not in everything
        assert not any(secret[8:20].encode() in data for data in files)


@pytest.mark.row("GW-40")
def test_a_name_that_a_client_made_up_adds_no_header(provider):
    provider.headers, provider.body = {"content-type": "application/json"}, answer_of("openai_chat", stream=False)
    every = Target(model="local/*", url=provider.url, wire="openai_chat")
    with running(GatewayConfig(models={"*": every})) as url:
        for name in ["x\r\nset-cookie: a=b", "é", "\U0001f600", "x\x00", "\U0001f600" * 200, "x" * 10**5]:
            body = json.dumps({"model": name, "messages": []})
            got = httpx.post(f"{url}/v1/chat/completions", content=body, timeout=60)
            assert got.status_code == (400 if len(name) > 256 else 200)
            assert "set-cookie" not in got.headers
            assert len(got.headers.get("palaver-model", "")) < 1000


# -- other addresses -----------------------------------------------------------------------------------------------


def test_hosts_are_checked_and_pages_of_other_sites_refused_also_with_keys(provider, place, secret):
    listen = Listen(hosts=("gateway.example",))
    headers = {"authorization": f"Bearer {secret}"}
    with running(GatewayConfig(database=place, keys=KeySettings(), listen=listen)) as url:
        assert httpx.get(f"{url}/v1/models", headers=headers).status_code == 200
        for host, status in (("gateway.example", 200), ("gateway.example:443", 200), ("evil.example", 421)):
            assert httpx.get(f"{url}/v1/models", headers={**headers, "host": host}).status_code == status
        origin = {**headers, "origin": "https://evil.example"}
        assert httpx.get(f"{url}/v1/models", headers=origin).status_code == 403


def test_hosts_without_required_keys_are_an_error():
    for keys in (None, KeySettings(required=False)):
        with pytest.raises(Exception, match=r"listen\.hosts"):
            gateway_app(GatewayConfig(keys=keys, listen=Listen(hosts=("gateway.example",))))
