"""`palaver gateway`: what it prints, what it refuses, and one server that starts, answers and stops."""

import os
import signal
import subprocess
import sys

import httpx
import pytest

from palaver.cli.gateway import HOST, PORT
from palaver.cli.gateway_clients import CLIENTS
from palaver.gateway import Listen
from tests.gateway.running import upstream


@pytest.mark.parametrize("client", [each.name for each in CLIENTS])
def test_how_a_client_is_pointed_at_it_names_address_and_model(run, client):
    ran = run("gateway", "--for", client, "--port", "4711", "-m", "openai/gpt-5.5")
    assert ran.code == 0
    assert "http://127.0.0.1:4711" in ran.out
    assert "{" not in ran.out.replace("={name=", "").replace('{"base_url"', "")


def test_the_address_is_that_of_an_empty_configuration(run):
    assert Listen() == Listen(host=HOST, port=PORT)
    assert f"http://{HOST}:{PORT} " in run("gateway", "--for", "claude-code").out


def test_how_a_client_is_pointed_at_it_needs_no_server(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    for name in [each for each in sys.modules if each.startswith("palaver.gateway")]:
        monkeypatch.delitem(sys.modules, name)
    assert run("gateway", "--for", "codex").code == 0


def test_an_address_of_other_machines_is_refused(run):
    ran = run("gateway", "--host", "0.0.0.0", "--port", "0")
    assert (ran.code, ran.out) == (2, "")
    assert "reachable from other machines" in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models = 1", "models"),
        ("[listen]\nport = 'x'", "listen.port"),
        ("[modles]\n", "modles"),
        ("[models]\na = { to = 'x' }", "models"),
        ("\xff", "utf-8"),
    ],
)
def test_a_configuration_that_is_wrong_names_file_and_place(run, tmp_path, text, said):
    file = tmp_path / "gateway.toml"
    file.write_bytes(text.encode("latin-1"))
    ran = run("gateway", str(file), "--port", "0")
    assert (ran.code, ran.out) == (1, "")
    assert "gateway.toml" in ran.err
    assert said in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_answers_until_a_signal_comes(tmp_path, sent, code):
    config = tmp_path / "gateway.toml"
    with upstream() as provider:
        provider.headers, provider.body = {"content-type": "application/json"}, b'{"choices": []}'
        config.write_text(
            f'[models]\n"own" = {{ model = "local/m", url = "{provider.url}", wire = "openai_chat" }}\n', "utf-8"
        )
        ran = subprocess.Popen(
            [sys.executable, "-m", "palaver", "gateway", str(config), "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_PROXY": "127.0.0.1"},
        )
        try:
            url = ran.stdout.readline().split()[0]
            got = httpx.post(f"{url}/v1/chat/completions", content=b'{"model": "own", "messages": []}')
            assert (got.status_code, got.content) == (200, provider.body)
            assert provider.asked[0][2] == b'{"model": "m", "messages": []}'
            ran.send_signal(sent)
            assert ran.wait(60) == code
        finally:
            ran.kill()
            ran.wait()
            ran.stdout.close()
