"""Limits: how they are written, which apply, what exchanges are counted as, and when they are refused."""

import datetime as dt
import json
import re
from contextlib import closing, suppress
from queue import Queue

import anthropic
import anyio
import anyio.lowlevel
import httpx
import openai
import pytest
from msgspec import structs

from palaver import Request, Response, Usage, assistant, user, wires
from palaver.core.errors import DecodeError, TimedOutError
from palaver.core.parts import Text
from palaver.core.request import Settings
from palaver.gateway import GatewayConfig, gateway_app, spending
from palaver.gateway.apis import APIS
from palaver.gateway.client_api import RefusedError
from palaver.gateway.counters import Charge, Counters, LimitReachedError
from palaver.gateway.database import open_database
from palaver.gateway.keys import Caller, GatewayKeys, KeySettings
from palaver.gateway.limiter import Limiter
from palaver.gateway.limits import USD, Limit, LimitRule, LimitTable, ScopedLimit, parse_limit, period_of
from palaver.gateway.record import Attempt, ClientRequest, Record
from palaver.gateway.spending import expected
from palaver.gateway.usage import UsageLedger
from palaver.models.catalogue import FILE
from palaver.models.language_model import Notice
from tests.gateway.running import running, targets
from tests.gateway.test_errors import message_of
from tests.gateway.test_wires import answer_of, body_of, path_of

PRICES = """
[[models]]
providers = ["openai", "anthropic"]
prefix = "model-1"
source = "https://example.org"
checked = 2026-01-01
prices = { input = 1000.0, output = 2000.0 }
"""
JSON = {"content-type": "application/json"}
PERIODS = ["minute", "hour", "day", "month"]


# -- written -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measure", "text", "amount", "period"),
    [
        ("requests", "60/minute", 60, "minute"),
        ("tokens", "1M/day", 10**6, "day"),
        ("tokens", " 1.5k / hour ", 1500, "hour"),
        ("cost", "$5/month", 5 * USD, "month"),
        ("cost", "0.25/day", USD // 4, "day"),
        ("requests", "0/day", 0, "day"),
    ],
)
def test_a_limit_is_an_amount_in_a_period(measure, text, amount, period):
    assert parse_limit(measure, text) == Limit(measure, amount, period)


@pytest.mark.parametrize("text", ["", "60", "60/", "/day", "-1/day", "60/week", "1e3/day", "60/day x", "9999999B/day"])
def test_what_is_no_limit_names_its_place(text):
    with pytest.raises(DecodeError, match=r"limits\[1\]\.tokens"):
        gateway_app(GatewayConfig(limits=(LimitRule(requests="1/day"), LimitRule(tokens=["1/day", text]))))


def test_a_rule_without_a_limit_is_an_error():
    with pytest.raises(DecodeError, match=r"limits\[0\]"):
        gateway_app(GatewayConfig(limits=(LimitRule(),)))


@pytest.mark.parametrize("period", PERIODS)
def test_periods_follow_each_other_and_begin_at_whole_times_of_utc(period):
    now = dt.datetime(2027, 12, 31, 23, 59, 59, tzinfo=dt.UTC).timestamp()
    start, ends = period_of(period, now)
    assert start <= now < ends
    assert ends == dt.datetime(2028, 1, 1, tzinfo=dt.UTC).timestamp()
    assert period_of(period, start) == (start, ends)
    assert period_of(period, ends)[0] == ends


def test_a_rule_is_for_what_it_matches_and_counts_it_together_or_by_itself():
    rules = [
        LimitRule(requests="100/day"),
        LimitRule(per="key", requests="10/day"),
        LimitRule(per="team", team="dev*", tokens="1k/day"),
        LimitRule(per="model", model="claude-*", cost="1/day"),
    ]
    table = LimitTable(rules)
    own = Caller("id-1", "ci", "dev-1", (), (Limit("requests", 5, "minute"),))

    def labels(caller, model):
        return [f"{each.label}: {each.limit}" for each in table.find(caller, model)]

    assert labels(None, "gpt") == ["this gateway: 100 requests a day"]
    assert labels(own, "CLAUDE-x") == [
        "the key ci: 5 requests a minute",
        "this gateway: 100 requests a day",
        "the key ci: 10 requests a day",
        "the team dev-1: 1,000 tokens a day",
        "the model CLAUDE-x: 1 USD a day",
    ]
    assert len(labels(own, "anthropic/claude-x")) == 5
    others = (Caller("id-2", "ci"), "m"), (Caller("id-3", "x", "ops"), "m")
    names = [{each.name for each in table.find(*other)} for other in (*others, (own, "m"))]
    assert [len(each) for each in names] == [2, 2, 4]
    assert len(names[0] & names[1]) == 1  # what counts together


def test_a_name_that_a_client_made_up_stays_short_in_a_counter():
    (found,) = LimitTable([LimitRule(per="model", requests="1/day")]).find(None, "x\r\n\x00\ud800" * 10**5)
    assert re.fullmatch(r"model:sha256:[0-9a-f]{64} [ -~]+", found.name)


# -- counted -------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "gateway.db")


@pytest.fixture
def anyio_backend():
    return "asyncio"


def ask(url, wire="openai_chat", *, key=None, stream=False, **settings):
    body = body_of(wire, wire, stream=stream)
    if settings:
        asked = wires.get(wire).decode_request(body)
        asked = asked.replace(settings=asked.settings.replace(**settings))
        body = wires.get(wire).encode_request(asked).body
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.post(f"{url}{path_of(wire, wire, stream=stream)}", content=body, headers=headers)


def answer_with(wire, usage, text="It will."):
    made = Response(assistant(Text(text), model="model-1", usage=usage, finish_reason="stop"))
    return wires.get(wire).encode_response(made).body


def limited(provider, place, *rules, **options):
    return running(GatewayConfig(models=targets(provider.url), database=place, limits=rules, **options))


def used(place, measure):
    with closing(open_database(place)) as database:
        rows = database.run(lambda it: it.rows("SELECT name, used FROM {s}.counters"))
    return [row[1] for row in rows if f" {measure}/" in row[0]]


@pytest.mark.row("GW-31")
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages", "google_generate", "bedrock_converse"])
def test_a_request_over_the_limit_is_refused_in_the_shape_of_the_client(provider, place, wire):
    provider.headers, provider.body = JSON, answer_of(wire, stream=False)
    with limited(provider, place, LimitRule(requests="3/month")) as url:
        codes = [ask(url, wire).status_code for _ in range(3)]
        got = ask(url, wire)
    assert codes == [200] * 3
    assert (got.status_code, len(provider.asked)) == (429, 3)
    assert "this gateway has a limit of 3 requests a month, of which 3 requests are used" in message_of(
        wire, got.json()
    )
    assert re.search(r"anew at \d{4}-\d\d-01T00:00:00Z", got.text)
    assert int(got.headers["retry-after"]) > 0
    assert used(place, "requests") == [3]


@pytest.mark.row("GW-31")
def test_a_key_a_team_and_a_model_are_counted_by_themselves(provider, place):
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    with closing(open_database(place)) as database:
        keys = GatewayKeys(database)
        one = keys.create("one", team="dev", limits=[Limit("requests", 2, "month")]).secret
        two = keys.create("two", team="dev").secret
        three = keys.create("three", team="ops").secret
    rules = LimitRule(per="team", requests="3/month"), LimitRule(model="cohere*", requests="0/month")
    with limited(provider, place, *rules, keys=KeySettings()) as url:
        assert [ask(url, key=one).status_code for _ in range(3)] == [200, 200, 429]
        assert [ask(url, key=two).status_code for _ in range(2)] == [200, 429]
        assert [ask(url, key=three).status_code for _ in range(3)] == [200] * 3
        assert ask(url, "cohere_chat", key=three).status_code == 429


@pytest.mark.row("GW-31")
def test_tokens_are_reserved_and_then_counted_as_the_provider_says(provider, place):
    provider.headers, provider.body = JSON, answer_with("openai_chat", Usage(input=100, output=50))
    with limited(provider, place, LimitRule(tokens="1000/month", input_tokens="10k/month")) as url:
        got = ask(url, max_tokens=900)
        assert got.status_code == 200, got.text
        assert ask(url, max_tokens=900).status_code == 429  # 150 are used
        assert ask(url, max_tokens=700).status_code == 200
        got = ask(url, max_tokens=2000)
        assert got.status_code == 429
        assert re.search(r"this request may use 2,\d\d\d tokens", got.text)
    assert (used(place, "tokens"), used(place, "input_tokens")) == ([300], [200])


@pytest.mark.row("GW-31")
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages"])
def test_money_is_counted_at_the_prices_of_the_catalogue(provider, place, tmp_path, monkeypatch, wire):
    (tmp_path / "prices.toml").write_text(PRICES, "utf-8")
    monkeypatch.setenv(FILE, str(tmp_path / "prices.toml"))
    provider.headers, provider.body = JSON, answer_with(wire, Usage(input=100, output=450))
    with limited(provider, place, LimitRule(cost="2/month"), keys=KeySettings(required=False)) as url:
        assert [ask(url, wire, max_tokens=1).status_code for _ in range(3)] == [200, 200, 429]
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client, pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(model=wire, messages=[{"role": "user", "content": "Hi"}], max_tokens=100)
        assert caught.value.code == "insufficient_quota"
        with anthropic.Anthropic(base_url=url, api_key="k") as client, pytest.raises(anthropic.RateLimitError):
            client.messages.create(model=wire, messages=[{"role": "user", "content": "Hi"}], max_tokens=100)
        assert len(provider.asked) == 2
    assert used(place, "cost") == [2 * USD]
    with closing(open_database(place)) as database:
        (found,) = UsageLedger(database).sums()
    assert (found.requests, found.input_tokens, found.output_tokens, found.cost) == (2, 200, 900, 2.0)


@pytest.mark.row("GW-31")
def test_the_clients_of_providers_do_not_retry_when_the_wait_is_long(provider, place):
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    with limited(provider, place, LimitRule(requests="0/month")) as url:
        assert ask(url).headers["x-should-retry"] == "false"  # without it these clients wait until the limit frees
        sent = []
        body = {"model": "openai_chat", "messages": []}
        for make, error in ((openai.OpenAI, openai.RateLimitError), (anthropic.Anthropic, anthropic.RateLimitError)):
            with make(base_url=url, api_key="k") as client:
                client._client.event_hooks["request"].append(sent.append)
                with pytest.raises(error):
                    client.post("/v1/chat/completions", body=body, cast_to=object)
    assert len(sent) == 2


@pytest.mark.row("GW-31")
def test_a_model_without_a_price_is_refused_or_counted_as_nothing(provider, place):
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    with limited(provider, place, LimitRule(cost="1/month")) as url:
        got = ask(url)
        assert (got.status_code, provider.asked) == (403, [])
        assert "price of openai/model-1 is not known" in got.text
    with limited(provider, place, LimitRule(cost="1/month"), unknown_price="zero") as url:
        assert ask(url).status_code == 200
    with closing(open_database(place)) as database:
        (found,) = UsageLedger(database).sums()
    assert (found.requests, found.cost, found.unpriced) == (1, 0.0, 1)


@pytest.mark.row("GW-31")
def test_what_a_provider_refuses_costs_a_request_and_no_tokens(provider, place):
    provider.status, provider.headers, provider.body = 400, JSON, b'{"error": {"message": "no", "type": "x"}}'
    with limited(provider, place, LimitRule(requests="5/month", tokens="1000/month")) as url:
        assert [ask(url, "openai_chat", max_tokens=900).status_code for _ in range(2)] == [400] * 2
    assert (used(place, "requests"), used(place, "tokens")) == ([2], [0])


@pytest.mark.row("GW-31")
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages"])
def test_an_answer_that_broke_off_counts_as_what_came(provider, place, wire):
    whole = answer_of(wire, stream=True)
    provider.headers, provider.pieces = {"content-type": "text/event-stream"}, Queue()
    provider.pieces.put(whole[: whole.index(b"It will.") + 200])
    provider.pieces.put(None)
    rule = LimitRule(output_tokens="10k/month", input_tokens="10k/month")
    with limited(provider, place, rule) as url, pytest.raises(httpx.HTTPError):
        ask(url, wire, stream=True, max_tokens=5000)
    ((output,), (sent,)) = used(place, "output_tokens"), used(place, "input_tokens")
    assert 0 < output < 100
    assert sent > 0


@pytest.mark.row("GW-31")
@pytest.mark.parametrize("outcome", ["cancelled", "failed", "answered"])
def test_a_provider_that_counts_at_the_end_does_not_make_the_beginning_free(outcome):
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}, "content": []}}
    start["message"] |= {"type": "message", "role": "assistant", "id": "m", "model": "m"}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word " * 700}}
    events = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in (start, block, delta)]
    api = next(each for each in APIS if each.wire == "anthropic_messages")
    request = ClientRequest(api=api, model="m", stream=True, body=b"{}")
    record = Record(request=request, model="anthropic/m", wire=api.wire, sent=b"{}", outcome=outcome)
    record.received.append("".join(events).encode())
    found = spending.used(record)
    assert (found.input, found.output) == (10, 1 if outcome == "answered" else 1000)


@pytest.mark.row("GW-31")
def test_a_stream_that_the_client_leaves_gives_back_what_was_not_used(provider, place):
    whole = answer_of("openai_chat", stream=True)
    provider.headers, provider.pieces = {"content-type": "text/event-stream"}, Queue()
    with limited(provider, place, LimitRule(tokens="10k/month")) as url:
        provider.pieces.put(whole[: whole.index(b"It will.") + 200])
        body = body_of("openai_chat", "openai_chat", stream=True).replace(b"{", b'{"max_tokens": 9000, ', 1)
        with httpx.stream("POST", f"{url}/v1/chat/completions", content=body) as response:
            assert next(response.iter_bytes())
        assert provider.gone.wait(60)
        provider.pieces = None
        provider.headers, provider.body = JSON, answer_with("openai_chat", Usage(input=1, output=1))
        assert ask(url, max_tokens=9000).status_code == 200
    assert 2 < used(place, "tokens")[0] < 200


def test_a_body_that_cannot_be_read_counts_by_its_length(provider, place):
    provider.headers, provider.body = JSON, answer_with("openai_chat", Usage())
    with limited(provider, place, LimitRule(tokens="10k/month")) as url:
        body = b'{"model": "openai_chat", "messages": 7, "x": "%b"}' % (b"x" * 1000)
        assert httpx.post(f"{url}/v1/chat/completions", content=body).status_code == 200
        body = body.replace(b"xxx", b"x" * 300)
        assert httpx.post(f"{url}/v1/chat/completions", content=body).status_code == 429


@pytest.fixture
def _priced(tmp_path, monkeypatch):
    """The prices of this file are those of the catalogue."""
    (tmp_path / "prices.toml").write_text(PRICES, "utf-8")
    monkeypatch.setenv(FILE, str(tmp_path / "prices.toml"))


@pytest.mark.row("GW-31")
@pytest.mark.usefixtures("_priced")
@pytest.mark.parametrize("measure", ["tokens", "cost"])
@pytest.mark.parametrize("asked_for", [10**18, 10**30, 10**400], ids=["1e18", "1e30", "1e400"])
def test_a_request_for_too_much_shuts_nobody_out(provider, place, measure, asked_for):
    provider.headers, provider.body = JSON, answer_with("openai_chat", Usage(input=1, output=1))
    body = body_of("openai_chat", "openai_chat", stream=False)
    huge = body.replace(b"{", b'{"max_tokens": %d, ' % asked_for, 1)
    with limited(provider, place, LimitRule(**{measure: "1000/month"})) as url:
        assert httpx.post(f"{url}/v1/chat/completions", content=huge).status_code == 429
        assert ask(url, max_tokens=400).status_code == 200
    assert used(place, measure)[0] < 100 * (USD if measure == "cost" else 1)


@pytest.mark.anyio
async def test_many_that_wait_for_a_share_ask_for_no_more_than_the_limit(place):
    with closing(open_database(place)) as database:
        counters = Counters(database)
        counter = counters.counter(ScopedLimit("all tokens/day", "", Limit("tokens", 1000, "day")), 1.0)
        counter.waits = 10**30
        async with anyio.create_task_group() as tasks:
            await counters.reserve([Charge(counter, 10)], tasks)
            with pytest.raises(LimitReachedError):
                await counters.reserve([Charge(counter, 1001)], tasks)
        assert counter.size <= 1000


def with_n(count, **more):
    body = {"model": "openai_chat", "messages": [{"role": "user", "content": "Hi"}], "n": count, **more}
    return json.dumps(body).encode()


@pytest.mark.row("GW-31")
@pytest.mark.parametrize("padding", ["", "x" * 20_000], ids=["short", "long"])
def test_each_of_several_answers_is_reserved_and_counted(provider, place, padding):
    choice = {"message": {"role": "assistant", "content": "word " * 700}, "finish_reason": "stop"}
    choices = [{"index": each, **choice} for each in range(3)]
    provider.headers = JSON
    provider.body = json.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": choices}).encode()
    with limited(provider, place, LimitRule(output_tokens="1M/month")) as url:
        for body in (with_n(100, max_tokens=20_000, user=padding), with_n(10**30, max_tokens=2000, user=padding)):
            assert httpx.post(f"{url}/v1/chat/completions", content=body).status_code == 429
        body = with_n(3, max_tokens=2000, user=padding)
        assert httpx.post(f"{url}/v1/chat/completions", content=body).status_code == 200
    assert used(place, "output_tokens") == [3 * 1000]


WORDS = "word " * 2000
DEEP = b"[" * 5000 + b"]" * 5000
UNREADABLE = {
    "deep": lambda made: made.replace(b"{", b'{"x":' + DEEP + b",", 1),
    "not UTF-8": lambda made: made.replace(b"word", b"\xff", 1),
    "an event": lambda made: b"data: " + made + b"\n\ndata: [DONE]\n\n",
}


@pytest.mark.row("GW-31")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_answer_that_cannot_be_read_counts_by_its_length(kind, stream):
    made = UNREADABLE[kind](answer_with("openai_chat", None, WORDS))
    request = ClientRequest(api=APIS[0], model="m", stream=stream, body=with_n(1))
    record = Record(request=request, model="openai/m", wire=APIS[0].wire, sent=b"{}", outcome="answered")
    record.received.append(made)
    assert 2500 < spending.used(record).output < 7000


@pytest.mark.row("GW-31")
def test_a_stream_that_was_not_asked_for_counts_as_it_says():
    api = next(each for each in APIS if each.wire == "ollama_chat")
    request = ClientRequest(api=api, model="m", stream=False, body=b'{"stream": false, "Stream": true}')
    record = Record(request=request, model="ollama/m", wire=api.wire, sent=b"{}", outcome="answered")
    record.received.append(answer_of("ollama_chat", stream=True))
    found = spending.used(record)
    assert (found.input, found.output) == (10, 4)


@pytest.mark.row("GW-31")
def test_a_model_that_did_not_answer_in_time_counts_with_its_input():
    request = ClientRequest(api=APIS[0], model="m", stream=False, body=with_n(1, user="x"))
    record = Record(request=request, model="openai/m", wire=APIS[0].wire, sent=b"{}", outcome="answered")
    record.received.append(answer_with("openai_chat", Usage(input=100, output=50)))
    late, away = TimedOutError("late", phase="first_token"), TimedOutError("away", phase="connect")
    tokens = spending.input_tokens(request)
    for error in (late, away):
        record.attempts.append(Attempt("openai/other", APIS[0].wire, error))
        record.note_retry(Notice(kind="retry", model="openai/m", error=error, attempt=1))
    record.attempts.append(Attempt("openai/m", APIS[0].wire))
    found = spending.used(record)
    assert (found.requests, found.input, found.output) == (1, 100 + 2 * tokens, 50)


@pytest.mark.row("GW-31")
@pytest.mark.anyio
@pytest.mark.parametrize("written", [False, True])
async def test_a_refusal_tells_what_was_used_before(place, written):
    def record():
        body = b'{"model": "m", "max_tokens": 5, "messages": []}'
        asked = ClientRequest(api=APIS[0], model="m", stream=False, body=body)
        return Record(request=asked, wire=APIS[0].wire, model="openai/m", sent=b"{}", outcome="answered")

    with closing(open_database(place)) as database:
        rules = [LimitRule(tokens="100/month")]
        async with Limiter(lambda: database, rules, unknown_price="zero", models=lambda _: []) as limiter:
            first = record()
            await limiter.admit(first)
            await anyio.lowlevel.checkpoint()  # a further share may be taken now: wait until it is there
            for each in limiter._counters._known.values():
                async with each.lock:
                    pass
            first.received.append(answer_with("openai_chat", Usage(input=0, output=160)))
            await limiter.ended(first)
            if written:
                await limiter._counters.balance()
            with pytest.raises(RefusedError, match="of which 160 tokens are used"):
                await limiter.admit(record())


@pytest.mark.parametrize("api", APIS, ids=[each.wire for each in APIS])
def test_a_long_request_is_not_read_for_a_limit_that_it_is_a_small_part_of(api):
    asked = Request(model="m", messages=(user("It rains. " * 5000),), settings=Settings(max_tokens=77))
    request = ClientRequest(api=api, model="m", stream=False, body=wires.get(api.wire).encode_request(asked).body)
    rough = expected(request, [], [Limit("tokens", 10**9, "day")])
    assert "decoded" not in vars(request)
    exact = expected(request, [], [Limit("tokens", 10**5, "day")])
    assert (rough.output, exact.output) == (77, 77)
    assert exact.input <= rough.input < 2 * exact.input
    odd = structs.replace(request, body=request.body.replace(b"77", b'"77"'))
    assert expected(odd, [], [Limit("tokens", 10**9, "day")]).output == 0


@pytest.mark.row("GW-31")
@pytest.mark.anyio
@pytest.mark.parametrize("limit", ["0/month", "100/month"])
async def test_a_request_that_sends_nothing_is_refused_when_the_limit_is_reached(place, limit):
    database = open_database(place)
    rules = [LimitRule(tokens=limit)]
    answer = answer_with("openai_chat", Usage(input=0, output=160))

    def record():
        asked = ClientRequest(api=APIS[0], model="m", stream=False, body=b'{"model": "m", "messages": []}')
        return Record(request=asked, wire=APIS[0].wire, model="openai/m", sent=b"{}", outcome="answered")

    async with Limiter(lambda: database, rules, unknown_price="zero", models=lambda _: []) as limiter:
        for _ in range(0 if limit.startswith("0") else 1):
            first = record()
            await limiter.admit(first)
            first.received.append(answer)
            await limiter.ended(first)
        for _ in range(5):  # what is left of a share that was taken before
            await limiter._counters.balance()  # what was used beyond the share is now in the database
            with suppress(RefusedError):
                await limiter.admit(record())
        with pytest.raises(RefusedError):
            await limiter.admit(record())
    database.close()


def test_limits_are_what_they_were_after_a_restart(provider, place):
    provider.headers, provider.body = JSON, answer_of("openai_chat", stream=False)
    rule = LimitRule(requests="100/month", tokens="1M/month")
    for _ in range(2):
        with limited(provider, place, rule) as url:
            assert [ask(url).status_code for _ in range(3)] == [200] * 3
    assert used(place, "requests") == [6]
    assert used(place, "tokens") == [6 * 14]


def test_a_limit_that_cannot_be_checked_is_a_503(provider, place):
    with limited(provider, place, LimitRule(requests="1/month")) as url:
        with closing(open_database(place)) as database:
            database.run(lambda it: it.rows("DROP TABLE {s}.counters"))
        got = ask(url)
    assert (got.status_code, got.headers["retry-after"]) == (503, "1")
    assert provider.asked == []
