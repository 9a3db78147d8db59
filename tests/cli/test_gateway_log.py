"""The log of a gateway on the command line: exchanges, threads, and an exchange that is sent again."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing

import httpx
import pytest
from msgspec import structs

from palaver import Response, Usage, assistant, tool_call, wires
from palaver.core.parts import Text
from palaver.gateway.database import open_database
from palaver.gateway.keys import GatewayKeys, KeySettings
from palaver.gateway.log.exchanges import Exchanges
from tests.gateway.log.logs import Places, answered
from tests.gateway.running import running, targets, upstream
from tests.gateway.test_wires import body_of

MODEL = "anthropic_messages"


@pytest.fixture(scope="module")
def provider():
    with upstream() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALAVER_TEST_KEY", "secret-1")
        patch.setenv("AWS_REGION", "eu-central-1")
        yield server


@pytest.fixture(scope="module")
def logged(provider, tmp_path_factory):
    """A log with a conversation of three turns, and a refusal; the ids of the exchanges."""
    places = Places(tmp_path_factory.mktemp("logged"))
    messages, ids = [], []
    with running(places.config(targets(provider.url))) as url:
        for asked, answer in [("Is it raining?", "No."), ("And tomorrow?", "Ja."), ("Why?", "Wind.")]:
            provider.body = wires.get(MODEL).encode_response(answered(answer, model="claude-sonnet-4-5")).body
            messages.append({"role": "user", "content": asked})
            body = {"model": MODEL, "messages": messages, "frequency_penalty": 0.5}
            got = httpx.post(f"{url}/v1/chat/completions", json=body)
            ids.append(got.headers["palaver-exchange"])
            messages.append({"role": "assistant", "content": answer})
        provider.status, provider.body = 429, b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}'
        got = httpx.post(f"{url}/v1/messages", content=body_of(MODEL, MODEL, stream=False))
        ids.append(got.headers["palaver-exchange"])
        provider.status = 200
    return places, ids


@pytest.fixture
def config(logged, provider):
    places, _ = logged
    lines = [f'database = "{places.database}"', "[models]"]
    for name, each in targets(provider.url).items():
        lines.append(
            f'{name} = {{ model = "{each.model}", wire = "{each.wire}", url = "{each.url}", key = "{each.key}" }}'
        )
    google = targets(provider.url)["google_generate"]
    lines.append(f'priced = {{ model = "google/gemini-2.5-flash", url = "{google.url}", key = "{google.key}" }}')
    file = places.folder / "gateway.toml"
    file.write_text("\n".join(lines), "utf-8")
    return str(file)


@pytest.mark.row("GW-33")
def test_exchanges_are_listed_the_newest_first(run, logged, config):
    places, ids = logged
    ran = run("gateway", "log", "--database", places.database)
    assert (ran.code, ran.err) == (0, "")
    assert [ran.out.index(each[-12:]) for each in reversed(ids)] == sorted(ran.out.index(each[-12:]) for each in ids)
    listed = [json.loads(line) for line in run("gateway", "log", "--config", config, "--json").out.splitlines()]
    assert [each["id"] for each in listed] == ids[::-1]
    assert [each["status"] for each in listed] == [429, 200, 200, 200]
    assert {each["input"] for each in listed[1:]} == {1000}
    thread = listed[1]["thread"]
    assert len(run("gateway", "log", "--config", config, "--thread", thread, "--csv").out.splitlines()) == 4
    assert run("gateway", "log", "-n", "1", "--config", config, "--json").out.count("\n") == 1


@pytest.mark.row("GW-33")
def test_the_list_shows_tokens_cost_and_losses_in_80_columns(run, logged, monkeypatch):
    places, _ = logged
    monkeypatch.setenv("COLUMNS", "80")
    head, *_ = [line for line in run("gateway", "log", "--database", places.database).out.splitlines() if line.strip()]
    assert head.split()[:8] == ["exchange", "at", "model", "status", "in", "out", "USD", "losses"]
    out = run("gateway", "log", "--database", places.database).out
    assert out.splitlines()[-1].endswith("asked: in a wider terminal, or with --json")
    monkeypatch.setenv("COLUMNS", "150")
    assert "wider terminal" not in run("gateway", "log", "--database", places.database).out


def test_keys_have_their_names_in_log_and_stats(run, tmp_path, provider):
    places = Places(tmp_path)
    with closing(open_database(places.database)) as database:
        secret, key = GatewayKeys(database).create("ci")
    provider.body = wires.get(MODEL).encode_response(answered("No.", model="claude-sonnet-4-5")).body
    config = structs.replace(places.config(targets(provider.url)), keys=KeySettings())
    with running(config) as url:
        body = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        assert httpx.post(f"{url}/v1/messages", json=body, headers={"x-api-key": secret}).status_code == 200
    (row,) = map(json.loads, run("gateway", "log", "--database", places.database, "--json").out.splitlines())
    assert (row["key"], row["caller"]) == ("ci", key.caller.key_id)
    shown = run("gateway", "log", row["id"], "--database", places.database).out
    assert ["key", "ci"] in [line.split() for line in shown.splitlines()]
    stats = run("gateway", "stats", "--by", "key", "--database", places.database)
    assert "ci" in stats.out.split()
    assert key.caller.key_id not in stats.out
    (row,) = map(
        json.loads, run("gateway", "stats", "--by", "key", "--json", "--database", places.database).out.split()
    )
    assert (row["key"], row["key_id"]) == ("ci", key.caller.key_id)


@pytest.mark.row("GW-09")
def test_one_exchange_is_shown_with_its_receipt(run, logged, config):
    _, ids = logged
    ran = run("gateway", "log", ids[0][-12:], "--config", config)
    assert ran.code == 0
    assert "frequency_penalty" in ran.out
    assert "anthropic/model-1 (anthropic_messages)" in ran.out
    row = json.loads(run("gateway", "log", ids[0], "--config", config, "--json").out)
    assert "frequency_penalty" in [each["what"] for each in row["losses"]]
    assert row["bytes"]["request"] > 0
    refused = run("gateway", "log", ids[3], "--config", config)
    assert "slow" in refused.out


@pytest.mark.row("GW-33")
def test_the_bytes_of_one_side_are_written_as_they_were(run, logged, config, provider):
    _, ids = logged
    body = run("gateway", "log", ids[1], "--config", config, "--body", "request").out
    assert [each["content"] for each in json.loads(body)["messages"]] == ["Is it raining?", "No.", "And tomorrow?"]
    assert '"claude-sonnet-4-5"' in run("gateway", "log", ids[1], "--config", config, "--body", "received").out
    assert "chat.completion" in run("gateway", "log", ids[1], "--config", config, "--body", "returned").out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nothing-like-it"], 1, "no exchange is named"),
        (["--body", "sent"], 2, "--body needs an ID"),
        (["x", "--body", "told"], 2, "request"),
    ],
)
def test_what_cannot_be_shown_is_one_line(run, config, arguments, code, said):
    ran = run("gateway", "log", "--config", config, *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


@pytest.mark.row("GW-33")
def test_the_commands_of_stores_work_on_the_threads(run, logged):
    places, _ = logged
    option = ("--store", places.store)
    assert "Is it raining?" in run("threads", *option).out
    (row,) = [json.loads(line) for line in run("logs", *option, "--json").out.splitlines()]
    assert (row["prompt"], row["answer"], row["model"]) == ("Why?", "Wind.", "claude-sonnet-4-5")
    assert row["cost"] > 0
    whole = run("logs", *option, "-t", row["thread"]).out
    assert whole.index("raining") < whole.index("tomorrow") < whole.index("Wind")
    assert "Ja." in run("search", "ja", *option).out
    assert "Wind." in run("show", row["thread"], *option).out
    assert run("verify", *option).code == 0


@pytest.mark.row("GW-37")
@pytest.mark.parametrize("name", ["exchange", "thread"])
def test_an_exchange_is_sent_again_to_another_model(run, logged, config, provider, name):
    places, ids = logged
    with places.opened_store() as store:
        (info,) = store.threads()
    content = Text("Rain."), tool_call("weather", {"city": "Husum"}, id="call00001")
    answer = Response(assistant(*content, model="m", usage=Usage(input=7, output=3), finish_reason="tool_calls"))
    provider.body = wires.get("google_generate").encode_response(answer).body
    provider.asked.clear()
    asked = ids[1] if name == "exchange" else info.id
    ran = run("replay", asked, "--to", "google_generate", "--config", config, "--store", places.store)
    assert (ran.code, ran.err) == (0, "")
    assert "Rain." in ran.out
    assert ("Ja." if name == "exchange" else "Wind.") in ran.out
    request = wires.get("google_generate").decode_request(provider.asked[0][2])
    assert request.messages[2].text == "And tomorrow?"
    row = json.loads(
        run("replay", asked, "--to", "google_generate", "--config", config, "--store", places.store, "--json").out
    )
    old, new = row["answers"]
    assert (old["model"], new["model"]) == ("anthropic/model-1", "google/model-1")
    assert (new["text"], new["input_tokens"], new["output_tokens"]) == ("Rain.", 7, 3)
    priced = run("replay", asked, "--to", "priced", "--config", config, "--store", places.store, "--json").out
    assert json.loads(priced)["answers"][1]["cost"] > 0
    assert new["calls"] == [{"name": "weather", "arguments": '{"city":"Husum"}'}]


@pytest.mark.row("GW-37")
def test_input_tokens_are_those_of_the_log(run, logged, config, provider):
    places, ids = logged
    counted = Usage(input=10, cache_read=85, cache_write=5, output=3)
    answer = Response(assistant("Rain.", model="m", usage=counted, finish_reason="stop"))
    provider.body = wires.get(MODEL).encode_response(answer).body
    ran = run("replay", ids[1], "--to", MODEL, "--config", config, "--store", places.store, "--json")
    assert json.loads(ran.out)["answers"][1]["input_tokens"] == 100


@pytest.mark.row("GW-37")
def test_the_new_answer_is_saved_as_a_branch(run, logged, config, provider):
    places, ids = logged
    provider.body = wires.get("google_generate").encode_response(answered("Rain.")).body
    ran = run(
        "replay", ids[1], "--to", "google_generate", "--config", config, "--store", places.store, "--save", "--json"
    )
    row = json.loads(ran.out)
    with places.opened_store() as store:
        path = store.path(row["thread"], row["branch"])
        assert [each.message.text for each in path] == ["Is it raining?", "No.", "And tomorrow?", "Rain."]
        assert path[-1].message.metadata["replay_of"] == ids[1]
        assert store.path(row["thread"])[-1].message.text == "Wind."


def test_an_exchange_that_the_log_does_not_have_is_one_line(run, config, tmp_path):
    ran = run("replay", "nothing", "--to", "google_generate", "--config", config)
    assert (ran.code, ran.out) == (1, "")
    assert "nothing" in ran.err


def test_a_gateway_without_a_configuration_logs_in_the_users_own_store(tmp_path):
    data = {"XDG_DATA_HOME": str(tmp_path), "PALAVER_STORE": str(tmp_path / "store.db")}
    ran = subprocess.Popen(
        [sys.executable, "-m", "palaver", "gateway", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **data, "NO_PROXY": "127.0.0.1"},
    )
    try:
        url = ran.stdout.readline().split()[0]
        got = httpx.post(f"{url}/v1/chat/completions", content=b'{"model": "nobody/model", "messages": []}')
        assert got.status_code == 404  # there is no such provider
    finally:
        ran.send_signal(signal.SIGTERM)
        ran.communicate(timeout=60)
    with closing(open_database(str(tmp_path / "palaver" / "gateway.db"))) as database:
        assert [each.asked for each in Exchanges(database).recent()] == ["nobody/model"]


def test_exchanges_are_summed_up(run, logged):
    places, ids = logged
    ran = run("gateway", "stats", "--database", places.database, "--json")
    (row,) = [json.loads(each) for each in ran.out.splitlines()]
    assert (row["exchanges"], row["answered"]) == (len(ids), len(ids) - 1)
    assert row["output"] > 0
    assert row["losses"] >= 3, "frequency_penalty, in each translated exchange"
    outcomes = run("gateway", "stats", "--database", places.database, "--by", "outcome", "--csv").out
    assert outcomes.splitlines()[1:] != []
    assert "refused" in outcomes
    for by in ("name", "api", "key", "team", "day"):
        assert run("gateway", "stats", "--database", places.database, "--by", by).code == 0
    assert run("gateway", "stats", "--database", places.database, "--since", "2200-01-01").out == ""
