"""Which model is asked: weights, sessions, retries, time-outs, and models that rest."""

from collections import Counter
from queue import Queue

import httpx
import pytest

from palaver.core.errors import DecodeError, OverloadedError, PalaverError, RateLimitError
from palaver.gateway import GatewayConfig, Target, gateway_app, read_config
from palaver.gateway.apis import APIS
from palaver.gateway.config import Breaker, TargetTimeout
from palaver.gateway.health import Health, TargetHealth
from palaver.gateway.record import ClientRequest
from palaver.gateway.router import Router
from tests.gateway.running import running
from tests.gateway.test_streams import pieces_of
from tests.gateway.test_wires import answer_of, body_of, path_of

API = {each.wire: each for each in APIS}
CHAT = API["openai_chat"]
JSON = {"content-type": "application/json"}


def router(*targets, **others):
    health = Health(others.pop("breaker", Breaker()))
    return Router(GatewayConfig(models={"m": list(targets)}, **others), lambda _: None, health), health


def share(name, weight, **others):
    return Target(model=f"local/{name}", url="http://127.0.0.1:1/v1", weight=weight, **others)


def firsts(found, sessions=2000):
    return [found.find("m", CHAT).order(lambda each=each: f"s{each}")[0].model.id for each in range(sessions)]


def at(provider, name, **others):
    return Target(model=f"local/{name}", url=f"{provider.url}/v1", wire="openai_chat", key="PALAVER_TEST_KEY", **others)


@pytest.mark.row("GW-25")
def test_weights_share_the_sessions_and_the_rest_follows_in_order():
    found, _ = router(share("a", 3), share("b", 1), Target(model="openai/last"))
    counted = Counter(firsts(found))
    assert 0.70 < counted["a"] / 2000 < 0.80
    for each in range(50):
        order = [each.model.id for each in found.find("m", CHAT).order(lambda each=each: f"s{each}")]
        assert sorted(order[:2]) == ["a", "b"]
        assert order[2] == "last"


@pytest.mark.parametrize(
    ("name", "model", "asked", "found"),
    [
        ("x-*", "local/x-*", "x-small", "local/x-small"),
        ("x-*", "local/*", "x-small", "local/small"),
        ("*", "openrouter/*", "z-ai/glm-5", "openrouter/z-ai/glm-5"),
        ("*-at-*", "local/*_*", "a-at-b", "local/a_b"),
        ("*-at-*", "local/*", "a-at-b", "local/a"),
        ("x-*", "local/fixed", "x-small", "local/fixed"),
    ],
)
def test_a_star_in_a_model_is_what_the_star_of_the_name_matched(name, model, asked, found):
    target = Target(model=model, url="http://127.0.0.1:1/v1", wire="openai_chat")
    router = Router(GatewayConfig(models={name: target}), lambda _: "k", Health(Breaker()))
    assert router.find(asked, CHAT).places[0][0].model.name == found


@pytest.mark.parametrize("name", ["x", "x-*"])
def test_a_model_with_more_stars_than_its_name_is_refused_at_the_start(name):
    router = Router(GatewayConfig(models={name: "openai/*-*"}), lambda _: None, Health(Breaker()))
    with pytest.raises(DecodeError, match=r"has more \* than the name"):
        router.check()


@pytest.mark.row("GW-25")
def test_weights_of_another_order_are_another_place():
    found, _ = router(share("a", 1), share("b", 1), share("c", 1, order=1), share("d", 1, order=1))
    orders = {tuple(each.model.id for each in found.find("m", CHAT).order(lambda n=n: f"s{n}")) for n in range(200)}
    assert {frozenset(each[:2]) for each in orders} == {frozenset("ab")}
    assert len(orders) == 4


@pytest.mark.row("GW-25")
def test_without_a_session_chance_chooses():
    found, _ = router(share("a", 1), share("b", 1))
    assert {found.find("m", CHAT).order(lambda: None)[0].model.id for _ in range(200)} == {"a", "b"}


@pytest.mark.row("GW-27")
def test_a_session_stays_when_another_model_leaves():
    three, _ = router(share("a", 1), share("b", 1), share("c", 1))
    two, _ = router(share("a", 1), share("b", 1))
    for before, after in zip(firsts(three), firsts(two), strict=True):
        assert before in {"c", after}


@pytest.mark.row("GW-27")
def test_models_that_differ_only_in_address_or_key_share_the_sessions():
    found, _ = router(share("a", 1, key="ONE"), share("a", 1, key="TWO"))
    chosen = [found.find("m", CHAT).order(lambda each=each: f"s{each}")[0].identity for each in range(400)]
    assert 120 < Counter(chosen)[chosen[0]] < 280


@pytest.mark.row("GW-27")
def test_a_session_leaves_a_model_that_rests_and_comes_back():
    found, _ = router(share("a", 1), share("b", 1), breaker=Breaker(rest=60))
    first, second = found.find("m", CHAT).order(lambda: "s1")
    first.health.failed(OverloadedError("w", "busy"))
    assert found.find("m", CHAT).order(lambda: "s1") == [second, first]
    first.health.answered()
    assert found.find("m", CHAT).order(lambda: "s1") == [first, second]


SESSIONS = {
    "Claude Code": ("anthropic_messages", {}, b'{"metadata": {"user_id": "user_1_session_2"}}', "user_1_session_2"),
    "Codex": ("openai_responses", {"session_id": "s-1"}, b'{"prompt_cache_key": "other"}', "s-1"),
    "a key of the cache": ("openai_responses", {}, b'{"prompt_cache_key": "s-2", "user": "u"}', "s-2"),
    "a user": ("openai_chat", {}, b'{"user": "u"}', "u"),
    "another type": ("openai_chat", {}, b'{"user": 7, "messages": []}', None),
    "metadata that is no object": ("anthropic_messages", {}, b'{"metadata": [], "messages": []}', None),
    "no JSON": ("openai_chat", {}, b"{", None),
}


@pytest.mark.row("GW-27")
@pytest.mark.parametrize(("wire", "headers", "body", "session"), SESSIONS.values(), ids=SESSIONS)
def test_a_session_is_known_by_what_programs_send(wire, headers, body, session):
    asked = ClientRequest(api=API[wire], model="m", stream=False, body=body, headers=headers)
    assert asked.session == session


@pytest.mark.row("GW-27")
@pytest.mark.parametrize("wire", ["google_generate", "openai_chat", "bedrock_converse"])
def test_else_a_session_is_known_by_how_it_opens(wire):
    def session(body):
        return ClientRequest(api=API[wire], model="m", stream=False, body=body).session

    whole = body_of(wire, "m", stream=False)
    assert session(whole) == session(whole.replace(b"And tomorrow?", b"And the day after?"))
    assert session(whole) != session(whole.replace(b"Is it raining?", b"Is it snowing?"))
    assert session(whole) != session(whole.replace(b"Be brief.", b"Be long."))


@pytest.mark.row("GW-28")
def test_a_model_that_failed_rests_and_one_request_tries_it():
    now = [0.0]
    held = TargetHealth("m", Breaker(failures=2, rest=10), clock=lambda: now[0])
    held.failed(OverloadedError("w", "busy"))
    assert (held.state, held.available) == ("closed", True)
    held.failed(OverloadedError("w", "busy"))
    assert (held.state, held.available) == ("open", False)
    now[0] = 10.0
    assert (held.state, held.available) == ("half_open", True)
    held.ask()
    assert not held.available, "another one tries it"
    held.released()
    assert held.available
    held.ask()
    held.failed(OverloadedError("w", "busy"))
    assert held.state == "open"
    now[0] = 20.0
    held.ask()
    held.answered()
    assert (held.state, held.available, held.failures) == ("closed", True, 0)
    held.failed(RateLimitError("w", "slow down", retry_after=7))
    now[0] = 26.0
    assert held.state == "open"
    now[0] = 27.0
    assert held.state == "half_open"


def scripted(provider, *answers):
    """Let the provider answer each request with the next status, and the last one from then on."""
    left = list(answers)

    def respond(_):
        status = left.pop(0) if len(left) > 1 else left[0]
        body = answer_of("openai_chat", stream=False) if status == 200 else b'{"error": {"message": "not now"}}'
        return status, JSON, body

    provider.respond = respond


@pytest.mark.row("GW-26")
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages"])
def test_what_was_refused_for_now_is_asked_again(provider, wire):
    scripted(provider, 503, 503, 200)
    with running(GatewayConfig(models={"m": at(provider, "m", retries=2)})) as url:
        got = httpx.post(f"{url}{path_of(wire, 'm', stream=False)}", content=body_of(wire, "m", stream=False))
    assert (got.status_code, len(provider.asked)) == (200, 3)


@pytest.mark.row("GW-26")
@pytest.mark.parametrize(("statuses", "asked"), [((400,), 1), ((503,), 2), ((503, 401), 2)])
def test_the_last_refusal_goes_to_the_client(provider, statuses, asked):
    scripted(provider, *statuses)
    with running(GatewayConfig(models={"m": at(provider, "m", retries=1)})) as url:
        got = httpx.post(f"{url}/v1/chat/completions", content=body_of("openai_chat", "m", stream=False))
    assert (got.status_code, len(provider.asked)) == (statuses[-1], asked)


@pytest.mark.row("GW-26")
def test_a_long_wait_is_left_to_the_client(provider):
    provider.status, provider.headers, provider.body = 429, {"retry-after": "600", **JSON}, b"{}"
    with running(GatewayConfig(models={"m": at(provider, "m", retries=1)})) as url:
        got = httpx.post(f"{url}/v1/chat/completions", content=body_of("openai_chat", "m", stream=False))
    assert (got.status_code, got.headers["retry-after"], len(provider.asked)) == (429, "600", 1)


@pytest.mark.row("GW-26")
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages"])
def test_nothing_is_asked_again_when_an_answer_has_begun(provider, wire):
    provider.headers, provider.pieces = {"content-type": "text/event-stream"}, Queue()
    provider.pieces.put(pieces_of("openai_chat", "alpha")[0])
    models = [at(provider, "m", retries=3), at(provider, "n", retries=3)]
    with (
        running(GatewayConfig(models={"m": models})) as url,
        httpx.stream(
            "POST", f"{url}{path_of(wire, 'm', stream=True)}", content=body_of(wire, "m", stream=True)
        ) as response,
    ):
        pieces, got = response.iter_raw(), b""
        while b"alpha" not in got:
            got += next(pieces)
        provider.pieces.put(None)
        got += b"".join(pieces)
    assert b"error" in got
    assert len(provider.asked) == 1


@pytest.mark.row("GW-28")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages"])
def test_a_model_that_is_silent_is_the_turn_of_the_next(provider, wire, stream):
    provider.pieces = Queue()
    slow = at(provider, "slow", timeout=TargetTimeout(first_token=0.2, whole=0.2))
    down = Target(model="local/down", url="http://127.0.0.1:1/v1", wire="openai_chat", key="PALAVER_TEST_KEY")
    with running(GatewayConfig(models={"m": slow, "n": [slow, down]})) as url:
        one = httpx.post(f"{url}{path_of(wire, 'n', stream=stream)}", content=body_of(wire, "n", stream=stream))
        two = httpx.post(f"{url}{path_of(wire, 'm', stream=stream)}", content=body_of(wire, "m", stream=stream))
    assert one.status_code == 502, "the last one cannot be connected to"
    assert two.status_code == 504
    assert "no answer within 0.2 s" in two.text


@pytest.mark.row("GW-28")
def test_a_request_that_cannot_be_read_is_no_failure_of_a_model(provider):
    scripted(provider, 200)
    body = b'{"model": "m", "max_tokens": 5, "messages": "none"}'
    with running(GatewayConfig(models={"m": [at(provider, "a"), at(provider, "b")]})) as url:
        bad = httpx.post(f"{url}/v1/messages", content=body)
        states = {each["state"] for each in httpx.get(f"{url}/health").json()["targets"]}
        httpx.post(f"{url}/v1/messages", content=body_of("anthropic_messages", "m", stream=False))
    assert (bad.status_code, states) == (400, {"closed"})
    assert [b'"a"' in each for _, _, each in provider.asked] == [True]


@pytest.mark.row("GW-28")
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages"])
def test_an_answer_that_cannot_be_read_is_the_fault_of_the_model(provider, wire):
    provider.body, provider.headers = b"<html>Sign in</html>", {"content-type": "text/html"}
    with running(GatewayConfig(models={"m": at(provider, "m", retries=0)})) as url:
        got = httpx.post(f"{url}{path_of(wire, 'm', stream=False)}", content=body_of(wire, "m", stream=False))
    assert got.status_code == 502
    assert "cannot be read" in got.json()["error"]["message"]


@pytest.mark.row("GW-24")
def test_a_file_says_weights_timeouts_and_retries(tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text(
        """
        breaker = { failures = 3, rest = 5 }
        [models]
        "m" = [
            { model = "openai/a", weight = 3, timeout = { first_token = 20, idle = 5 }, retries = 1 },
            { model = "openai/b", weight = 1 },
            "openai/c",
        ]
        """
    )
    config = read_config(file)
    found = Router(config, lambda _: None, Health(config.breaker)).find("m", CHAT)
    assert [[each.model.id for each in place] for place in found.places] == [["a", "b"], ["c"]]
    first = found.places[0][0].model
    assert (first.timeouts.first_token, first.timeouts.idle, first.timeouts.whole) == (20, 5, 600)
    assert (first.retry.attempts, found.places[1][0].model.retry.attempts) == (2, 1)


@pytest.mark.row("GW-24")
@pytest.mark.parametrize("wrong", ["weight = 0", "timeout = { idl = 3 }", "retries = -1", 'weight = "much"'])
def test_a_file_with_a_wrong_number_or_name_names_its_place(tmp_path, wrong):
    file = tmp_path / "gateway.toml"
    file.write_text(f'[models]\nm = {{ model = "openai/a", {wrong} }}\n')
    with pytest.raises(Exception, match=r"gateway\.toml.*models"):
        read_config(file)


@pytest.mark.row("GW-24")
@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ([], "it names no model"),
        ("grok/x", "xai"),
        (Target(model="openai/x", wire="openai_chatt"), "openai_chat"),
        (Target(model="local/x", url="127.0.0.1:8000"), "URL"),
        (Target(model="openai/x", text_calls="herms"), "hermes"),
        (Target(model="openai/x", key="PALAVER_NO_SUCH_VARIABLE"), "PALAVER_NO_SUCH_VARIABLE"),
    ],
)
def test_an_entry_that_can_never_answer_is_refused_at_the_start(entry, text):
    with pytest.raises(PalaverError, match=r"models\.mine") as caught:
        gateway_app(GatewayConfig(models={"mine": entry}))
    assert text in str(caught.value)


@pytest.mark.row("GW-24")
def test_a_wrong_name_of_a_provider_sends_a_conversation_to_nobody(provider, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with running(GatewayConfig()) as url:
        got = httpx.post(f"{url}/v1/chat/completions", content=b'{"model": "antropic/claude", "messages": []}')
    assert got.status_code == 404
    assert "anthropic" in got.json()["error"]["message"]
    assert provider.asked == []
