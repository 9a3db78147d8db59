"""What one client may do to another, and what no spelling of a request gets around."""

import gc
import json
from contextlib import closing

import httpx
import pytest
from msgspec import structs

from palaver.gateway import GatewayConfig, Target
from palaver.gateway.apis import API_OF
from palaver.gateway.conversations import Conversations
from palaver.gateway.database import open_database
from palaver.gateway.health import Health
from palaver.gateway.keys import GatewayKeys, KeySettings
from palaver.gateway.limits import LimitRule
from palaver.gateway.request_body import with_model
from palaver.gateway.router import Router
from palaver.models.names import model
from tests.gateway.running import running, targets
from tests.gateway.test_wires import answer_of, body_of

JSON = {"content-type": "application/json"}
MESSAGES = [{"role": "user", "content": "Hi"}]


def asked(name, **more):
    return {"model": name, "messages": MESSAGES, **more}


# -- another model than the one that is allowed ----------------------------------------------------

TWICE = [
    '{"model": "dear", "model": "m", "messages": []}',
    '{"model": "m", "Model": "dear", "messages": []}',
    '{"MODEL": "dear", "messages": [], "model": "m"}',
    '{"mod\\u0065l": "dear", "messages": [], "model": "m"}',
    '{"model": "m", "\\u004dodel": "dear", "messages": [{"model": 1}]}',
]


@pytest.mark.row("GW-30")
@pytest.mark.parametrize("body", TWICE)
@pytest.mark.parametrize("name", ["m", "other"])
def test_a_body_that_names_two_models_is_sent_with_one(body, name):
    pairs = json.loads(with_model(body.encode(), name), object_pairs_hook=list)
    assert [(key, value) for key, value in pairs if key.lower() == "model"] == [("model", name)]
    assert [key for key, _ in pairs if key.lower() != "model"] == ["messages"]


@pytest.mark.row("GW-08")
def test_a_body_that_names_a_model_inside_other_values_is_sent_as_it_is():
    body = b'{"tools": [{"model": {"Model": 1}}],  "model":"m", "text": "a \\"model\\": b \\u00e9"}'
    assert with_model(body, "m") == body
    assert with_model(body, "x") == body.replace(b'"m"', b'"x"')


# -- limits ----------------------------------------------------------------------------------------


def limited(provider, folder, rule, models):
    return GatewayConfig(models=models, limits=(rule,), database=str(folder / "gateway.db"))


@pytest.mark.row("GW-31")
@pytest.mark.parametrize("per", ["all", "model"])
def test_names_that_a_client_makes_up_have_one_limit(provider, tmp_path, per):
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    fixed = structs.replace(targets(provider.url)["openai_chat"], model="openai/gpt-5.5")
    rule = LimitRule(per=per, model="claude-*", requests="1/month")
    with running(limited(provider, tmp_path, rule, {"claude-*": fixed})) as url:
        names = ["claude-1", "claude-2", f"claude-{'x' * 300}"]
        got = [httpx.post(f"{url}/v1/chat/completions", json=asked(each)).status_code for each in names]
    assert got == [200, 429, 400]
    assert len(provider.asked) == 1


@pytest.mark.row("GW-31")
def test_a_name_without_its_provider_has_the_limit_of_the_provider(provider, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    rule = LimitRule(per="model", model="openai/*", requests="1/month")
    star = Target(model="openai/*", wire="openai_chat", url=f"{provider.url}/v1")
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    router = Router(GatewayConfig(), lambda _: None, Health(GatewayConfig().breaker))
    api = API_OF["openai_chat"]
    assert router.counted_name("gpt-5.5", api) == router.counted_name("openai/gpt-5.5", api) == "openai/gpt-5.5"
    with running(limited(provider, tmp_path, rule, {"openai/*": star})) as url:
        got = [httpx.post(f"{url}/v1/chat/completions", json=asked(each)) for each in ("openai/a", "openai/a", "a")]
    assert [each.status_code for each in got] == [200, 429, 429]


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("name", ["key", "%6bey", "k%65y", "key%20", "+key"])
def test_a_key_in_a_query_goes_to_no_provider(provider, tmp_path, name):
    place = str(tmp_path / "gateway.db")
    with closing(open_database(place)) as database:
        secret = GatewayKeys(database).create("ci").secret
    provider.headers, provider.body = JSON, answer_of("google_generate", stream=False)
    config = GatewayConfig(models=targets(provider.url), database=place, keys=KeySettings())
    with running(config) as url:
        path = f"{url}/v1beta/models/google_generate:generateContent"
        content = body_of("google_generate", "google_generate", stream=False)
        httpx.post(f"{path}?{name}={secret}&x=1", content=content)
        httpx.post(f"{path}?{name}={secret}&x=1", content=content, headers={"x-goog-api-key": secret})
    assert provider.asked
    assert secret not in repr(provider.asked)


# -- conversations ---------------------------------------------------------------------------------


def test_a_conversation_is_not_continued_for_another_key():
    known, asks = Conversations(), model("local/m", url="http://127.0.0.1:1/v1", wire="openai_chat")
    body = body_of("anthropic_messages", "m", stream=False)
    begun = known.take(asks, "anthropic_messages", body, "key-1")
    begun.request(body)
    known.give_back(asks, "anthropic_messages", begun, "key-1")
    assert known.take(asks, "anthropic_messages", body, "key-2") is not begun
    assert known.take(asks, "anthropic_messages", body, "key-1") is begun


def test_a_conversation_is_not_continued_with_another_model():
    known, body = Conversations(), body_of("anthropic_messages", "m", stream=False)

    def made(number):
        return model(f"local/m{number}", url="http://127.0.0.1:1/v1", wire="openai_chat")

    for number in range(50):  # as reloads do: a model that is gone leaves its address in memory to the next
        asks = made(number)
        conversation = known.take(asks, "anthropic_messages", body)
        assert conversation.model is asks
        conversation.request(body)
        known.give_back(asks, "anthropic_messages", conversation)
        del asks, conversation
        gc.collect()
