"""`palaver gateway keys` and `palaver gateway usage`: what they print, what they refuse, and what they keep secret."""

import json
import subprocess
import sys
from contextlib import closing

import httpx
import pytest

from palaver.gateway.database import open_database
from palaver.gateway.keys import Caller, GatewayKeys, secret_hash
from palaver.gateway.limits import USD
from palaver.gateway.record import ClientRequest, Record
from palaver.gateway.spending import Amounts
from palaver.gateway.usage import UsageLedger
from palaver.threads.ids import now_ms

HOUR = 3_600_000


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "gateway.db")


def stored(place):
    with closing(open_database(place)) as database:
        return GatewayKeys(database).list()


@pytest.mark.row("GW-30")
def test_a_key_is_printed_once(run, place):
    made = run("gateway", "keys", "create", "ci", "--team", "dev", "--database", place)
    assert (made.code, made.out.count("\n")) == (0, 1)
    assert secret_hash(made.out.strip()) is not None
    assert "not shown again" in made.err
    for args in (["list"], ["list", "--json"], ["list", "--csv"], ["revoke", "ci"], ["list", "--all"]):
        ran = run("gateway", "keys", *args, "--database", place)
        assert ran.code == 0
        assert made.out[:8] in ran.out + ran.err
        assert made.out[8:20] not in ran.out + ran.err


def test_the_options_of_a_key_are_stored(run, place):
    limits = ["--requests", "60/minute", "--requests", "1k/day", "--output-tokens", "5k/hour", "--cost", "5/day"]
    scope = ["--models", "claude-*", "--models", "fast", "--expires", "30d"]
    made = run("gateway", "keys", "create", "ci", *limits, *scope, "--json", "--database", place).json
    assert made["secret"].startswith("plv-")
    assert (made["models"], made["team"]) == (["claude-*", "fast"], None)
    shown = ["60 requests a minute", "1,000 requests a day", "5,000 output tokens an hour", "5 USD a day"]
    assert made["limits"] == shown
    (key,) = stored(place)
    assert abs(key.expires - now_ms() - 30 * 24 * HOUR) < HOUR
    assert [str(each) for each in key.caller.limits] == shown
    listed = run("gateway", "keys", "list", "--json", "--database", place).json
    assert listed == {name: value for name, value in made.items() if name != "secret"}


def test_the_database_may_be_that_of_a_configuration(run, place, tmp_path):
    config = tmp_path / "gateway.toml"
    config.write_text(f'database = "{place}"\n', "utf-8")
    assert run("gateway", "keys", "create", "ci", "--expires", "2099-01-31", "--config", config).code == 0
    assert stored(place)[0].expires == 4_073_500_800_000


def test_a_key_is_rotated_and_the_old_one_may_stay_for_a_while(run, place):
    first = run("gateway", "keys", "create", "ci", "--database", place).out.strip()
    second = run("gateway", "keys", "rotate", "ci", "--keep", "1d", "--database", place).out.strip()
    with closing(open_database(place)) as database:
        keys = GatewayKeys(database)
        assert keys.find(secret_hash(first)).caller == keys.find(secret_hash(second)).caller


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["create"], 2, "NAME"),
        (["create", "a b"], 1, "letters"),
        (["create", "x", "--tokens", "5"], 2, "60/minute"),
        (["create", "x", "--expires", "soon"], 2, "30d"),
        (["create", "x", "--expires", "2020-01-31"], 2, "has passed"),
        (["rotate", "x", "--keep", "soon"], 2, "1d"),
        (["revoke", "nobody"], 1, "nobody"),
        (["rotate", "nobody"], 1, "nobody"),
        (["creat", "x"], 2, "create"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, place, args, code, text):
    open_database(place).close()
    own = [] if args == ["create"] else ["--database", place]
    ran = run("gateway", "keys", *args, *own)
    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.row("GW-31")
def test_usage_is_summed_for_keys_teams_and_models(run, place):
    with closing(open_database(place)) as database:
        ledger = UsageLedger(database)
        one, two = Caller("id-1", "one", "dev"), Caller("id-2", "two")
        for caller, model, cost, age in ((one, "a/x", USD, 0), (one, "a/x", USD // 2, 30), (two, "a/y", None, 0)):
            request = ClientRequest(api=None, model="m", stream=False, body=b"")
            record = Record(request=request, caller=caller, model=model, at=now_ms() - age * HOUR)
            ledger.add(record, Amounts(1, 10, 5, cost))
            ledger.write()

    def used(*args):
        return [
            (each["key"], each["requests"], each["input_tokens"], each["output_tokens"], each["cost"], each["unpriced"])
            for each in map(json.loads, run("gateway", "usage", *args, "--json", "--database", place).out.splitlines())
        ]

    assert used() == [("one", 2, 20, 10, 1.5, 0), ("two", 1, 10, 5, 0.0, 1)]
    assert used("--since", "1d") == [("one", 1, 10, 5, 1.0, 0), ("two", 1, 10, 5, 0.0, 1)]
    assert used("--team", "dev") == used("--key", "one") == used("--model", "a/x") == used()[:1]
    assert used("--since", "2099-01-01") == []
    text = run("gateway", "usage", "--database", place).out
    assert "1.5000" in text
    assert "1 unpriced" in text


def test_what_is_no_command_is_still_a_configuration(run):
    ran = run("gateway", "key", "--port", "0")
    assert (ran.code, ran.out) == (1, "")
    assert "key: no such file" in ran.err
    assert run("gateway", "--for", "codex").code == 0
    shown = run("gateway", "--help").out
    assert "keys" in shown
    assert "usage" in shown
    assert "--port" in shown


@pytest.mark.row("GW-30")
def test_other_addresses_are_served_when_keys_are_required(tmp_path, place):
    config = tmp_path / "gateway.toml"
    config.write_text(f'database = "{place}"\n[keys]\n[listen]\nhost = "0.0.0.0"\nport = 0\n', "utf-8")
    with closing(open_database(place)) as database:
        secret = GatewayKeys(database).create("ci").secret
    with subprocess.Popen(
        [sys.executable, "-m", "palaver", "gateway", config], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as ran:
        try:
            port = ran.stdout.readline().split()[0].rpartition(":")[2]
            url = f"http://127.0.0.2:{port}/v1/models"
            assert httpx.get(url).status_code == 401
            assert httpx.get(url, headers={"authorization": f"Bearer {secret}"}).status_code == 200
        finally:
            ran.terminate()
        assert secret[8:20] not in ran.stdout.read() + ran.stderr.read()


@pytest.mark.parametrize("command", [["keys", "list"], ["usage"], ["log"], ["stats"]])
def test_a_database_that_is_not_there_is_not_made(run, tmp_path, command):
    place = tmp_path / "none" / "gateway.db"
    ran = run("gateway", *command, "--database", place)
    assert (ran.code, ran.out) == (1, "")
    assert "there is no such database" in ran.err
    assert not place.parent.exists()


@pytest.mark.parametrize(("section", "counts"), [("", False), ("[keys]", True), ("[[limits]]\ncost = '1/day'", True)])
def test_usage_says_when_nothing_is_counted(run, place, tmp_path, section, counts):
    with closing(open_database(place)):
        pass
    config = tmp_path / "gateway.toml"
    config.write_text(f"database = '{place}'\n{section}", "utf-8")
    ran = run("gateway", "usage", "--config", config)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("nothing was used")
    assert ("[keys]" not in ran.err) is counts
