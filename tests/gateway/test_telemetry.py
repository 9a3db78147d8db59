"""Metrics, the access log and spans: what they count, and that nothing of clients or keys gets into them."""

import json
import logging
from queue import Queue

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from palaver.gateway import GatewayConfig, Target
from palaver.gateway.config import Telemetry
from palaver.gateway.telemetry import AccessLog, Metrics, Spans
from tests.gateway.running import PROVIDERS, running, targets
from tests.gateway.test_routes import JSON, at, scripted
from tests.gateway.test_streams import pieces_of
from tests.gateway.test_wires import answer_of, body_of, path_of


def samples(url):
    text = httpx.get(f"{url}/metrics").text
    return {  # the labels are in the order of their names
        (sample.name.removeprefix("palaver_gateway_"), *dict(sorted(sample.labels.items())).values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith(("_created", "_bucket"))
    }


@pytest.mark.row("GW-38")
def test_metrics_count_requests_tokens_retries_and_losses(provider):
    scripted(provider, 503, 200)
    with running(GatewayConfig(models={"gpt-*": at(provider, "*", retries=1)})) as url:
        for name in ("gpt-1", "gpt-2"):
            assert httpx.post(
                f"{url}/v1/messages", content=body_of("anthropic_messages", name, stream=False)
            ).is_success
        httpx.post(f"{url}/v1/chat/completions", content=b'{"model": "no/such", "messages": []}')
        found = samples(url)
    wire, route, target = "anthropic_messages", "gpt-*", "local/*"
    assert found["requests_total", wire, route, "answered", target] == 2
    assert found["request_seconds_count", wire, route] == 2
    assert found["retries_total", target] == 1
    assert found["attempts_total", "answered", target] == 2
    assert found["tokens_total", "input", route, target] == 20
    assert found["tokens_total", "output", route, target] == 8
    assert found["exchanges_in_progress",] == 0
    assert found["target_open", target] == 0
    assert not any("gpt-1" in key or "no/such" in key for key in found), "a client must not choose labels"


@pytest.mark.row("GW-38")
def test_metrics_have_cost_first_token_and_models_that_rest(provider):
    provider.headers, provider.body = {"content-type": "text/event-stream"}, answer_of("openai_chat", stream=True)
    priced = Target(model="openai/gpt-5", wire="openai_chat", url=f"{provider.url}/v1", key="PALAVER_TEST_KEY")
    down = Target(model="local/down", url="http://127.0.0.1:1/v1", wire="openai_chat", key="PALAVER_TEST_KEY")
    with running(GatewayConfig(models={"m": [down, priced]})) as url:
        httpx.post(f"{url}/v1/chat/completions", content=body_of("openai_chat", "m", stream=True))
        found = samples(url)
    assert found["cost_usd_total", "m", "openai/gpt-5"] > 0
    assert found["first_token_seconds_count", "openai_chat", "m"] == 1
    assert found["target_open", "local/down"] == 1
    assert found["attempts_total", "transport", "local/down"] == 1


@pytest.mark.row("GW-38")
def test_metrics_may_be_left_out(provider):
    with running(GatewayConfig(models=targets(provider.url), telemetry=Telemetry(metrics=False))) as url:
        assert httpx.get(f"{url}/metrics").status_code == 404
        assert httpx.get(f"{url}/metrics", headers={"host": "evil.example"}).status_code == 421


@pytest.mark.row("GW-38")
@pytest.mark.parametrize("form", ["text", "json"])
def test_each_exchange_is_one_line_of_the_access_log(provider, caplog, form):
    caplog.set_level(logging.INFO, "palaver.gateway.access")
    scripted(provider, 200)
    config = GatewayConfig(models={"*": at(provider, "m")}, telemetry=Telemetry(access_log=form))
    name = "a\nforged=1"
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "secret words"}]}).encode()
    with running(config) as url:
        got = httpx.post(f"{url}/v1/chat/completions", content=body)
    (line,) = [each.getMessage() for each in caplog.records if each.name == "palaver.gateway.access"]
    assert got.headers["palaver-exchange"] in line
    assert "\n" not in line
    assert "secret words" not in line
    if form == "json":
        found = json.loads(line)
        assert (found["status"], found["outcome"], found["api"]) == (200, "answered", "openai_chat")
        assert (found["model"], found["input_tokens"], found["output_tokens"]) == ("local/m", 10, 4)
    else:
        assert " status=200 outcome=answered api=openai_chat stream=false " in line


@pytest.mark.row("GW-38")
def test_each_exchange_is_a_span_below_that_of_the_client(provider, monkeypatch):
    exporter, tracing = InMemorySpanExporter(), TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(tracing.get_tracer("test"))
    monkeypatch.setattr("palaver.gateway.gateway._components", lambda _: [spans])
    scripted(provider, 200, 401)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with running(GatewayConfig(models={"m": at(provider, "m")})) as url:
        for _ in range(2):
            body = body_of("openai_chat", "m", stream=False)
            httpx.post(f"{url}/v1/chat/completions", content=body, headers={"traceparent": parent})
    good, bad = exporter.get_finished_spans()
    assert f"{good.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{good.parent.span_id:016x}" == "b7ad6b7169203331"
    assert good.name == "chat m"
    assert good.attributes["gen_ai.usage.input_tokens"] == 10
    assert good.attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert good.end_time > good.start_time
    assert (bad.attributes["error.type"], bad.status.is_ok) == ("authentication", False)
    assert bad.attributes["http.response.status_code"] == 401


FAILURES = {
    "a wrong key": (401, JSON, b'{"error": {"message": "Incorrect API key: KEY"}}'),
    "a page": (200, {"content-type": "text/html"}, b"<html>KEY</html>"),
    "no JSON": (200, JSON, b"KEY KEY"),
    "an error with headers": (500, {"x-request-id": "r", "www-authenticate": "KEY"}, b"KEY"),
    "another place": (302, {"location": "http://127.0.0.1:1/?key=KEY"}, b"KEY"),
}
CLIENT_KEY = "of-the-client-1234567"


@pytest.mark.row("GW-40")
@pytest.mark.parametrize(("model_wire", "stream"), [("openai_chat", True), ("anthropic_messages", False)])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_keys_are_in_no_error_log_metric_or_span(provider, caplog, monkeypatch, failure, model_wire, stream):  # noqa: PLR0917 (fixtures and cases)
    caplog.set_level(logging.DEBUG)
    key = "sk-upstream-0123456789abcdef"
    monkeypatch.setenv("PALAVER_TEST_KEY", key)
    exporter, tracing = InMemorySpanExporter(), TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    made = [Metrics(), AccessLog("json"), Spans(tracing.get_tracer("test"))]
    monkeypatch.setattr("palaver.gateway.gateway._components", lambda _: made)
    provider.status, headers, body = failure
    provider.headers = {name: text.replace("KEY", key) for name, text in headers.items()}
    provider.body = body.replace(b"KEY", key.encode())
    shown = []
    with running(GatewayConfig(models=targets(provider.url))) as url:
        for client_wire in ("openai_chat", "anthropic_messages"):
            got = httpx.post(
                f"{url}{path_of(client_wire, model_wire, stream=stream)}?key={CLIENT_KEY}",
                content=body_of(client_wire, model_wire, stream=stream),
                headers={"authorization": f"Bearer {CLIENT_KEY}", "x-api-key": CLIENT_KEY},
            )
            shown += [got.text, repr(got.headers)]
        shown += [httpx.get(f"{url}{path}").text for path in ("/metrics", "/health")]
    shown += [each.getMessage() for each in caplog.records if not each.name.startswith(("httpx", "httpcore"))]
    shown += [each.to_json() for each in exporter.get_finished_spans()]
    text = "\n".join(shown)
    assert len(exporter.get_finished_spans()) == 2
    assert key not in text or failure == FAILURES["no JSON"], "what a model answers goes through byte for byte"
    assert CLIENT_KEY not in text
    assert CLIENT_KEY not in repr(provider.asked)


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("wire", PROVIDERS)
def test_a_stream_that_breaks_off_shows_no_key(provider, caplog, monkeypatch, wire):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("PALAVER_TEST_KEY", "sk-upstream-0123456789abcdef")
    provider.headers, provider.pieces = {"content-type": "text/event-stream"}, Queue()
    provider.pieces.put(pieces_of("openai_chat", "alpha")[0])
    with (
        running(GatewayConfig(models=targets(provider.url))) as url,
        httpx.stream(
            "POST",
            f"{url}{path_of(wire, 'openai_chat', stream=True)}",
            content=body_of(wire, "openai_chat", stream=True),
        ) as response,
    ):
        pieces, got = response.iter_raw(), b""
        while b"alpha" not in got:
            got += next(pieces)
        provider.pieces.put(None)
        got += b"".join(pieces)
    assert b"sk-upstream" not in got
    assert "sk-upstream" not in caplog.text
