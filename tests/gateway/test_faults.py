"""Providers that answer what no provider should, and defects: each exchange ends once, with one clear error."""

import json
import socket
import time
from contextlib import closing
from queue import Queue

import httpx
import pytest

from palaver.core.errors import DecodeError, NotFoundError
from palaver.gateway import GatewayConfig, Listen, limiter, response_table, stored_responses
from palaver.gateway.apis import API_OF
from palaver.gateway.component import Component
from palaver.gateway.config import Breaker
from palaver.gateway.database import open_database
from palaver.gateway.health import Health
from palaver.gateway.limits import LimitRule
from palaver.gateway.response_table import ResponseTable
from palaver.gateway.router import Router
from palaver.gateway.stored_responses import ResponseOptions
from palaver.gateway.translation import Translator
from palaver.gateway.usage import UsageLedger
from tests.gateway.running import running, targets
from tests.gateway.test_errors import message_of
from tests.gateway.test_streams import pieces_of
from tests.gateway.test_wires import answer_of, body_of, path_of

CLIENTS = ["openai_chat", "anthropic_messages"]


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", [204, 302, 304, 600, 999])
def test_a_status_that_is_no_answer_and_no_error_is_a_502(gateway, provider, client, status, stream):
    provider.status, provider.body = status, b""
    provider.headers = {"location": "http://169.254.169.254/"} if status == 302 else {}
    body = body_of(client, "openai_chat", stream=stream)
    got = httpx.post(f"{gateway}{path_of(client, 'openai_chat', stream=stream)}", content=body)
    assert got.status_code in ({502, 503} if status >= 600 else {502})
    assert "location" not in got.headers
    assert message_of(client, got.json())


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_that_does_not_end_is_broken_off(provider, client):
    config = GatewayConfig(models=targets(provider.url), listen=Listen(max_answer=100_000))
    body = body_of(client, "openai_chat", stream=True)
    with running(config) as url:
        provider.headers, provider.pieces = {"content-type": "text/event-stream"}, Queue()
        first, more, _ = pieces_of("openai_chat", "alpha ", "beta " * 1000)
        provider.pieces.put(first)
        for _ in range(100):
            provider.pieces.put(more)
        got = httpx.post(f"{url}{path_of(client, 'openai_chat', stream=True)}", content=body, timeout=30)
        assert "more than 100,000 bytes" in got.text
        assert len(got.content) < 250_000
        provider.pieces, provider.headers = None, {"content-type": "application/json"}
        provider.body = answer_of("openai_chat", stream=False).replace(b"It will.", b"a" * 200_000)
        body = body_of(client, "openai_chat", stream=False)
        got = httpx.post(f"{url}{path_of(client, 'openai_chat', stream=False)}", content=body, timeout=30)
        assert got.status_code == 502, got.text[:500]
        assert "more than 100,000 bytes" in message_of(client, got.json())


class _Noted(Component):
    """Counts the ends of exchanges."""

    def __init__(self):
        self.ends = []

    async def ended(self, record):
        self.ends.append((record.outcome, record.status))


def test_a_defect_ends_the_exchange_and_is_told_in_the_shape_of_the_client(provider, monkeypatch):
    noted = _Noted()

    async def broken(*_):
        raise KeyError("secret-of-a-defect")

    monkeypatch.setattr(Translator, "ask", broken)
    monkeypatch.setattr("palaver.gateway.gateway._components", lambda _: [noted])
    with running(GatewayConfig(models=targets(provider.url))) as url:
        got = httpx.post(f"{url}/v1/messages", content=body_of("anthropic_messages", "openai_chat", stream=False))
    assert (got.status_code, got.json()["error"]["type"]) == (500, "api_error")
    assert "secret" not in got.text
    assert noted.ends == [("failed", 500)]


# -- health ----------------------------------------------------------------------------------------


@pytest.mark.row("GW-28")
def test_a_model_that_a_client_makes_up_does_not_make_the_gateway_fail(provider, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("OLLAMA_HOST", f"http://127.0.0.1:{port}")
    with running(GatewayConfig(models={"m": targets(provider.url)["openai_chat"]})) as url:
        asked = {"model": "ollama/made-up", "messages": [{"role": "user", "content": "Hi"}]}
        assert httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=60).status_code >= 500
        assert httpx.get(f"{url}/health").status_code == 200


@pytest.mark.row("GW-28")
def test_names_that_a_client_makes_up_take_no_state_of_a_listed_model():
    config = GatewayConfig(models={"m": "openai/listed"})
    health = Health(Breaker())
    router, api = Router(config, lambda _: "k", health), API_OF["openai_chat"]
    (((listed,),), _) = router.find("m", api)
    for number in range(1500):
        router.find(f"openai/made-up-{number}", api)
    assert listed.health in health.targets
    assert len(health.targets) <= 1000


# -- the routes of stored responses ----------------------------------------------------------------

ODD = [b"[1]", b'["a"]', b"[null]", b'[{"a": "\xff"}]', b"[" * 5000, b'[{"a": "\\ud800"}]', b'{"a": 1}', b"1"]


@pytest.mark.row("GW-17")
def test_items_that_are_none_are_a_400(tmp_path, provider):

    config = GatewayConfig(models=targets(provider.url), database=str(tmp_path / "g.db"), responses=ResponseOptions())
    with running(config) as url:
        made = httpx.post(f"{url}/v1/conversations", json={"items": [{"role": "user", "content": "a"}]}).json()
        items = f"{url}/v1/conversations/{made['id']}/items"
        for each in ODD:
            for path in (f"{url}/v1/conversations", items):
                got = httpx.post(path, content=b'{"items": %b}' % each)
                assert (got.status_code, got.json()["error"]["type"]) == (400, "invalid_request_error"), each[:20]
        for limit in ("²", "0", "-1", "9" * 5000, "x", "٣"):
            got = httpx.get(items, params={"limit": limit})
            assert (got.status_code, len(got.json()["data"])) == (200, 1), limit[:9]


@pytest.mark.row("GW-40")
def test_a_history_has_a_bound(tmp_path, monkeypatch):

    monkeypatch.setattr(response_table, "_LONGEST", 10_000)
    database = open_database(str(tmp_path / "g.db"))
    table = response_table.ResponseTable(database)
    items = response_table.input_items(json.dumps([{"role": "user", "content": "a" * 4000}]).encode())
    conversation = table.create_conversation("", {})
    for _ in range(2):
        conversation = table.conversation(conversation.id, "")
        table.add_items(conversation, "", items)
    conversation = table.conversation(conversation.id, "")
    assert len(table.history(conversation.head, "")) == 2
    table.add_items(conversation, "", items)
    with pytest.raises(DecodeError, match="more than 10,000 bytes"):
        table.history(table.conversation(conversation.id, "").head, "")
    database.close()


@pytest.mark.row("GW-17")
def test_old_responses_are_deleted_while_the_gateway_runs(tmp_path, monkeypatch):

    monkeypatch.setattr(stored_responses, "_DELETED", 0.05)
    place = str(tmp_path / "g.db")
    config = GatewayConfig(database=place, responses=stored_responses.ResponseOptions(days=0))
    with running(config):
        database = open_database(place)
        table = ResponseTable(database)
        table.add("resp_1", "", own_input=[], response=b"{}")
        for _ in range(600):
            try:
                table.find("resp_1", "")
            except NotFoundError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("it is still there")
        database.close()


# -- usage that cannot be ----------------------------------------------------------------------------


@pytest.mark.row("GW-31")
@pytest.mark.parametrize(("wire", "field"), [("openai_chat", "prompt_tokens"), ("google_generate", "promptTokenCount")])
def test_a_count_that_cannot_be_breaks_nothing(provider, tmp_path, caplog, monkeypatch, wire, field):  # noqa: PLR0917 (fixtures)
    monkeypatch.setattr(limiter, "WRITTEN", 0.2)
    provider.headers = {"content-type": "application/json"}
    right = json.loads(answer_of(wire, stream=False))
    usage = right["usage" if "usage" in right else "usageMetadata"]
    rule = LimitRule(tokens="3000000000/month", requests="3/month")
    place = str(tmp_path / "gateway.db")
    with running(GatewayConfig(models=targets(provider.url), limits=(rule,), database=place)) as url:
        content, path = body_of(wire, wire, stream=False), path_of(wire, wire, stream=False)
        for count in (10**30, 2**63, -(10**30)):
            usage[field] = count
            provider.body = json.dumps(right).encode()
            assert httpx.post(f"{url}{path}", content=content).status_code == 200
            time.sleep(2 * limiter.WRITTEN)
        refused = httpx.post(f"{url}{path}", content=content)
        assert refused.status_code == 429, "the counters still count"
    assert [each for each in caplog.records if each.levelname in {"ERROR", "CRITICAL"}] == []
    with closing(open_database(place)) as database:
        (total,) = UsageLedger(database).sums()
    assert total.requests == 3
    assert 0 <= total.input_tokens <= 2 * 10**9
