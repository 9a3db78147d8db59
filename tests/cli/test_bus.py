"""``palaver bus`` shows what happens in swarms."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

import palaver as p
from palaver.core.parts import ToolCall
from palaver.swarm.events import Event
from tests.swarm.nats_server import URL, fresh_stream, open_bus


@pytest.fixture
def stream():
    with fresh_stream() as options:
        yield options


def asked(stream, *more):
    return ("bus", "--bus", URL, "--stream", stream["stream"], "--prefix", stream["prefix"], *more)


def publish(stream, *events):
    async def work():
        async with open_bus(stream) as bus:
            for event in events:
                bus.publish(event)
            await bus.flush()

    asyncio.run(work())


PUSH = Event(
    source="history",
    type="push",
    client="ann",
    agent="sales",
    input={"message": p.user("is it raining\n in \x1b[2J Husum?")},
    sent_at=1_700_000_000_123,
)
CALL = Event(
    source="history",
    type="push",
    client="ann",
    agent="sales",
    input={"message": p.assistant("let me see", ToolCall("c1", "forecast", '{"city":"Husum"}'))},
)
STATE = Event(
    source="state",
    type="set-state",
    client="shared",
    name="cart",
    input={"value": [1, {"x": None}]},
    output={"result": "x" * 5000},
)
ODD = Event(source="", type="t\x07", client="bob \x1b]0;x\x07", swarm="s")


@pytest.mark.server
def test_events_are_a_line_each_and_cannot_steer_the_terminal(run, stream):
    publish(stream, PUSH, CALL, STATE, ODD)
    done = run(*asked(stream, "--since", "all", "--count", "4"))
    assert (done.code, done.err) == (0, "")
    first, second, third, fourth = done.out.splitlines()
    assert "ann  history push  sales  user: is it raining␊ in ␛[2J Husum?" in first
    assert first[12:14] == "  "
    assert first[:12].endswith(".123")
    assert 'assistant: let me see [forecast {"city":"Husum"}]' in second
    assert 'shared  state set-state  cart  value=[1,{"x":null}] → result=xxx' in third
    assert len(third) <= 100
    assert 'bob ␛]0;x␇  "" t␇' in fourth
    assert "\x1b" not in done.out


@pytest.mark.server
def test_events_are_json_with_their_places(run, stream):
    publish(stream, PUSH, STATE)
    done = run(*asked(stream, "--since", "all", "--count", "2", "--json"))
    first, second = map(json.loads, done.out.splitlines())
    assert (first["place"], first["id"], second["place"]) == (1, PUSH.id, 2)
    assert second["output"] == {"result": "x" * 5000}
    assert "place" in first
    (after,) = run(*asked(stream, "--since", "1", "--count", "1", "--json")).out.splitlines()
    assert json.loads(after) == second
    (since,) = run(*asked(stream, "--since", "24h", "--count", "1", "--json")).out.splitlines()
    assert json.loads(since) == second  # the first says that it was sent years ago


@pytest.mark.server
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--client", "bob"), "bob"),
        (("--source", "state"), "bob"),
        (("--type", "set-state"), "bob"),
        (("--agent", "tech"), "bob"),
        (("--swarm", "two"), "bob"),
        (("--client", "ann", "--type", "push"), "ann"),
    ],
)
def test_events_are_filtered(run, stream, options, expected):
    publish(
        stream,
        Event(source="history", type="push", client="ann", agent="sales", swarm="one"),
        Event(source="state", type="set-state", client="bob", agent="tech", swarm="two"),
    )
    done = run(*asked(stream, "--since", "all", "--count", "1", "--json", *options))
    assert json.loads(done.out)["client"] == expected


@pytest.mark.server
def test_ctrl_c_ends_it_with_a_count(tmp_path, stream):
    publish(stream, PUSH, CALL)
    watching = subprocess.Popen(
        [sys.executable, "-m", "palaver", *asked(stream, "--since", "all")],
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
    )
    kept = [watching.stdout.readline() for _ in range(2)]
    publish(stream, STATE)
    live = watching.stdout.readline()  # shown at once, not at the end
    watching.send_signal(signal.SIGINT)
    out, err = watching.communicate(timeout=60)
    assert all(b"ann" in line for line in kept)
    assert b"set-state" in live
    assert (watching.returncode, out, err) == (130, b"", b"3 events\n")


@pytest.mark.server
def test_a_reader_that_goes_away_ends_it(tmp_path, stream):
    publish(stream, *(Event(source="s", type="t", client="c") for _ in range(2000)))
    command = " ".join([sys.executable, "-m", "palaver", *asked(stream, "--since", "all")])
    done = subprocess.run(
        f"{command} | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout.count(b"\n"), done.stderr) == (141, 1, b"")


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("nats://127.0.0.1:1", "nats://127.0.0.1:1: no NATS server"),
        ("nats://127.0.0.1:99999", "Port out of range 0-65535"),
        ("nats://[::1", "Invalid IPv6 URL"),
    ],
)
def test_a_bus_that_is_absent_is_one_line(run, url, cause):
    done = run("bus", "--bus", url)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert cause in done.err


@pytest.mark.parametrize(
    "options",
    [("--bus", "redis://x"), ("--bus", ""), ("--since", "soon"), ("--count", "0"), ("--bus", "nats://a,b")],
    ids=" ".join,
)
def test_wrong_usage_is_reported(run, options):
    done = run("bus", *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
