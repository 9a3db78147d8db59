"""Names and commands that are typed again are shown whole, however narrow the terminal is."""

import json

import pytest

from palaver import transcripts, user, wires
from palaver.cli import stores
from palaver.cli.run_renderer import RunRenderer
from palaver.store import open_store

pytestmark = pytest.mark.finding("F-63")
LONG = "a-thread-with-a-name-that-is-longer-than-any-terminal-of-forty-columns"


def joined(text):
    """What was printed without the breaks that a narrow terminal makes."""
    return "".join(line.strip() for line in text.splitlines())


@pytest.mark.parametrize("columns", ["40", "60", "80"])
def test_names_in_tables_are_whole(run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    shown = run("formats").out
    assert all(name in shown for name in transcripts.names())
    shown = run("wires").out
    assert all(name in shown for name in wires.names())
    assert "…" not in shown


def test_headings_name_thread_and_branches_whole(run, monkeypatch, location):
    monkeypatch.setenv("COLUMNS", "40")
    with open_store(location) as store:
        store.open(LONG).append(user("rain"))
    for command in (["show", LONG], ["search", "rain"], ["context", LONG, "--model", "demo"]):
        assert LONG in joined(run(*command).out) or stores.short(LONG) in run(*command).out
    column = "".join(line.split()[0] for line in run("threads").out.splitlines() if line.split())
    assert LONG in column


def test_the_way_to_go_on_is_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    RunRenderer().command(f"continue: palaver chat --thread {LONG}")
    said = capsys.readouterr()
    assert f"--thread {LONG}\n" in said.out + said.err


def test_a_path_that_is_not_there_is_a_file(run, location):
    with open_store(location) as store:
        store.open("t").append(user("hi"))
    assert "no such file" in run("show", "nope.json").err
    assert "no thread is named 'nope'" in run("show", "nope").err


@pytest.mark.parametrize("command", ["show", "convert", "import"])
def test_an_unknown_form_lists_wires_and_formats(run, saved, chat, command):
    done = run(command, saved(chat), "--from", "claudecode", *(["--to", "codex"] if command == "convert" else []))
    assert done.code == 2
    assert "did you mean claude_code?" in done.err
    assert "openai_chat" in done.err


def test_wires_and_formats_are_listed_as_json(run):
    rows = [json.loads(line) for line in run("wires", "--json").out.splitlines()]
    assert [each["name"] for each in rows] == list(wires.names())
    assert "mistral" in rows[0]["variants"]
    rows = [json.loads(line) for line in run("formats", "--json").out.splitlines()]
    assert [each["name"] for each in rows] == list(transcripts.names())
    assert [json.loads(line)["name"] for line in run("formats", "codex", "--json").out.splitlines()] == ["codex"]


@pytest.mark.finding("S-13")
@pytest.mark.parametrize("columns", ["0", "1", "5", "8", "20", "39"])
def test_no_width_hides_what_there_is_or_cuts_a_name(run, monkeypatch, location, columns):
    with open_store(location) as store:
        store.open(LONG).append(user("rain"))
        store.create("0192f0c4-0000-7000-8000-0000deadbeef")
    monkeypatch.setenv("COLUMNS", columns)
    column = "".join(line.split()[0] for line in run("threads").out.splitlines() if line.split())
    assert LONG in column
    assert "deadbeef" in column
    for command in (
        ["show", LONG],
        ["show", LONG, "--branches"],
        ["search", "rain"],
        ["context", LONG, "--model", "demo"],
    ):
        shown = joined(run(*command).out)
        assert LONG in shown, command
        assert "rain" in shown or command[0] == "context", command
    shown = run("formats").out
    assert all(name in shown for name in transcripts.names())
    shown = run("wires").out
    assert all(name in shown for name in wires.names())
