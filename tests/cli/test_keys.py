"""`palaver keys`: keys are stored privately, and never shown unless asked for."""

import io
import json
import stat
import sys

import keyring.backend
import pytest

from palaver.models import providers
from tests.cli.provider import provider, says


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for row in providers.PROVIDERS.values():
        for name in row.keys:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config"


def test_a_key_is_stored_for_its_owner_only(process, folder):
    done = process("keys", "set", "groq", data=b"secret-key\n")
    assert (done.code, done.out) == (0, "")
    assert "secret-key" not in done.err
    file = folder / "keys.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert process("keys", "get", "groq").out == "secret-key\n"
    assert process("keys", "path").out.strip() == str(file)


def test_a_listing_shows_no_key(process):
    process("keys", "set", "groq", data=b"secret-key\n")
    done = process("keys", "list", "--json", OPENAI_API_KEY="other-secret")
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"name": "openai", "source": "OPENAI_API_KEY", "stored": False},
        {"name": "openai-chat", "source": "OPENAI_API_KEY", "stored": False},
        {"name": "groq", "source": "stored", "stored": True},
    ]
    assert "secret" not in process("keys", "list").out


def test_a_key_is_removed(process):
    process("keys", "set", "groq", data=b"k\n")
    assert process("keys", "remove", "groq").code == 0
    assert process("keys", "remove", "groq").code == 1
    assert process("keys", "get", "groq").code == 1


@pytest.mark.parametrize(("name", "data", "code"), [("grok", b"k\n", 2), ("groq", b"\n", 1), ("groq", b"k\nl\n", 1)])
def test_an_unknown_provider_an_empty_key_and_several_lines_are_refused(process, name, data, code):
    assert process("keys", "set", name, data=data).code == code
    assert process("keys", "get", "groq").code == 1


@pytest.mark.parametrize("text", ["{", "[1]", '{"groq": 1}', pytest.param("[" * 200_000, id="deep")])
def test_a_damaged_file_is_an_error_and_stays(run, folder, monkeypatch, text):
    folder.mkdir()
    (folder / "keys.json").write_text(text)
    monkeypatch.setattr("sys.stdin", io.StringIO("k\n"))
    for args in (("set", "groq"), ("list",), ("get", "groq")):
        done = run("keys", *args)
        assert (done.code, done.err.count("\n"), "cannot be read" in done.err) == (1, 1, True)
    assert (folder / "keys.json").read_text() == text


def test_a_stored_key_is_sent_where_the_environment_has_none(process):
    with provider(says("ok"), says("ok")) as there:
        process("keys", "set", "groq", data=b"stored\n")
        env = {"GROQ_BASE_URL": there.url, "NO_PROXY": "*"}
        assert process("run", "hi", "-m", "groq/m", **env).code == 0
        assert process("run", "hi", "-m", "groq/m", **env, GROQ_API_KEY="set").code == 0
    assert there.keys == ["Bearer stored", "Bearer set"]


class Memory(keyring.backend.KeyringBackend):
    """A keyring that lasts as long as a test."""

    priority = 9

    def __init__(self):
        super().__init__()
        self.keys = {}

    def get_password(self, service, username):
        return self.keys.get((service, username))

    def set_password(self, service, username, password):
        self.keys[service, username] = password

    def delete_password(self, service, username):
        del self.keys[service, username]


def test_the_keyring_of_the_platform_is_used_where_there_is_one(run, monkeypatch, folder):
    monkeypatch.delenv("PALAVER_CONFIG")
    before, ring = keyring.get_keyring(), Memory()
    keyring.set_keyring(ring)
    try:
        monkeypatch.setattr(sys, "stdin", io.StringIO("secret-key\n"))
        done = run("keys", "set", "groq")
        assert (done.code, "the keyring" in done.err) == (0, True)
        assert ring.keys["palaver", "groq"] == "secret-key"
        assert json.loads(run("keys", "list", "--json").out)["name"] == "groq"
        assert run("keys", "get", "groq").out == "secret-key\n"
        assert run("keys", "remove", "groq").code == 0
        assert run("keys", "list", "--json").out == ""
    finally:
        keyring.set_keyring(before)
    assert not folder.exists()


def test_a_key_that_is_typed_as_an_argument_is_not_shown(run):
    ran = run("keys", "set", "openai", "sk-typed-by-mistake")
    assert ran.code == 2
    assert "sk-typed" not in ran.err
