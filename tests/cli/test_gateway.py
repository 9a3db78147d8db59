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
    assert "{url}" not in ran.out
    assert "{model}" not in ran.out
    assert "openai/gpt-5.5" in ran.out or "api_key" in ran.out


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
        ("[model]\n", "there is no field 'model'; did you mean models?"),
        ("[models]\na = 'openai/x'\nb = 3", "models.b: expected a text, a table or a list, got a whole number"),
        ("[models]\n'c-*' = ['openai/x', {model = 'openai/x', timout = 1}]", 'models."c-*"[1]: there is no field'),
        ("[models]\na = []", "models.a: it names no model"),
        ("[models]\na = 'openaii/x'", "did you mean openai?"),
        ("[models]\na = {model = 'openai/x', key = 'UNSET_KEY'}", "models.a: the variable UNSET_KEY is not set"),
        ("[log]\nwhen_full = 'explode'", 'log.when_full: that is none of "drop", "refuse"'),
        ("[log]\nredact = ['(a']", "log.redact[0]"),
        ("[log]\nmax_spool = -1", "max_spool: -1 is below zero"),
        ("[[limits]]\nper = 'user'", 'limits[0].per: that is none of "all", "key", "model", "team"'),
        ("[[limits]]\ntokens = '10/eon'", "limits[0].tokens"),
        ("[listen]\nhosts = ['x']", "listen.hosts"),
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


def test_a_database_that_is_none_is_refused_before_anything_is_announced(run, tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text("database = 'mysql://name:secret@x'\n[keys]", "utf-8")
    ran = run("gateway", str(file), "--port", "0")
    assert (ran.code, ran.out) == (1, "")
    assert "postgresql://" in ran.err
    assert "secret" not in ran.err


def test_a_key_that_stands_in_a_configuration_is_not_repeated(run, tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text("[models]\na = {model = 'openai/x', key = 'sk-real-1'}", "utf-8")
    ran = run("gateway", str(file), "--port", "0")
    assert (ran.code, ran.out) == (1, "")
    assert "gateway.toml: models.a: key is the name of a variable" in ran.err
    assert "sk-real-1" not in ran.err


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


PROGRAM = """#!{python}
import json, os, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"]
body = json.dumps({{"model": sys.argv[2], "max_tokens": 9, "messages": [{{"role": "user", "content": sys.argv[-1]}}]}})
request = urllib.request.Request(url + "/v1/messages", body.encode(), {{"anthropic-version": "2023-06-01"}})
print(json.load(urllib.request.urlopen(request))["content"][0]["text"], sys.argv[3:])
sys.exit(7)
"""


def test_a_program_runs_behind_a_gateway_that_ends_with_it(tmp_path):
    program = tmp_path / "claude"
    program.write_text(PROGRAM.format(python=sys.executable), "utf-8")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "NO_PROXY": "127.0.0.1"}
    with upstream() as provider:
        provider.headers = {"content-type": "application/json"}
        said = b'{"role": "assistant", "content": "Calm."}'
        provider.body = b'{"choices": [{"message": %b, "finish_reason": "stop"}]}' % said
        target = f'{{ model = "local/m", url = "{provider.url}/v1", wire = "openai_chat" }}'
        (tmp_path / "gateway.toml").write_text(f'[models]\n"far/m" = {target}\n', "utf-8")
        given = ["gateway", "run", "-m", "far/m", "--config", str(tmp_path / "gateway.toml"), "claude-code"]
        command = [sys.executable, "-m", "palaver", *given, "-m", "Is it calm?"]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert (ran.returncode, ran.stdout) == (7, "Calm. ['-m', 'Is it calm?']\n"), ran.stderr
        assert b"Is it calm?" in provider.asked[0][2]


def test_a_program_that_is_not_installed_says_what_to_install(run, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = run("gateway", "run", "codex")
    assert (ran.code, ran.out) == (1, "")
    assert "npm install -g @openai/codex" in ran.err


def test_a_gateway_that_cannot_start_is_told_in_its_own_words(run, monkeypatch, tmp_path):
    (tmp_path / "claude").write_text("", "utf-8")
    (tmp_path / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = run("gateway", "run", "--config", str(tmp_path / "none.toml"), "claude-code")
    assert (ran.code, ran.out) == (1, "")
    assert "none.toml" in ran.err


def test_a_database_that_is_away_at_the_start_is_told_in_one_line(tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text('database = "postgresql://postgres@127.0.0.1:1/x"\n[keys]\nrequired = true\n', "utf-8")
    command = [sys.executable, "-m", "palaver", "gateway", str(file), "--port", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 1
    assert "127.0.0.1" in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr
