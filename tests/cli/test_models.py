"""`palaver models` and `palaver logs`."""

import csv
import importlib
import io
import json

import click
import pytest

from tests.cli.provider import MODEL, provider, says


def test_the_catalogue_is_listed_and_selected(run):
    every = run("models", "--json").out.splitlines()
    some = [json.loads(line) for line in run("models", "claude", "opus", "--json").out.splitlines()]
    assert 0 < len(some) < len(every)
    assert all("opus" in each["name"] and each["source"].startswith("https://") and each["checked"] for each in some)


def test_a_listing_as_csv_is_read_by_others(run):
    found = list(csv.DictReader(io.StringIO(run("models", "claude", "--csv").out)))
    assert {"name", "window", "input", "output", "source", "checked"} <= found[0].keys()


@pytest.mark.parametrize("columns", ["30", "60", "100", "200"])
def test_no_name_is_cut_at_any_width(run, monkeypatch, columns):
    names = [json.loads(line)["name"] for line in run("models", "--json").out.splitlines()]
    monkeypatch.setenv("COLUMNS", columns)
    shown = run("models").out
    assert all(name in shown for name in names)


def test_nothing_that_matches_is_said(run):
    done = run("models", "nosuchmodel")
    assert (done.code, done.out, "no row matches" in done.err) == (0, "", True)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--server", "opnai"], "did you mean openai"),
        (["--server", "bedrock"], "model list is unknown"),
        (["--url", "http://127.0.0.1:99999"], "not a valid URL: port 99999 is beyond 65535"),
    ],
)
def test_a_server_that_cannot_be_asked_is_named(run, monkeypatch, arguments, cause):
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    done = run("models", *arguments)
    assert done.code in {1, 2}
    assert cause in done.err


def test_a_server_without_its_key_names_the_command_that_stores_it(run, monkeypatch, tmp_path):
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = run("models", "--server", "openai")
    cause = "openai: no key: set OPENAI_API_KEY, or palaver keys set openai"
    assert (done.code, done.out, done.err) == (1, "", f"palaver: {cause}\n")


def test_no_option_has_a_number_with_the_words_of_the_parser():
    group = importlib.import_module("palaver.cli").group
    context = click.Context(group)
    commands = [group.get_command(context, name) for name in group.list_commands(context)]
    kinds = {type(option.type) for command in commands for option in command.params}
    assert not kinds & {click.IntRange, click.FloatRange, type(click.INT), type(click.FLOAT)}


def test_logs_show_the_last_question_and_answer(process):
    with provider(says("one"), says("two\n\n```\ncode\n```")) as there:
        process("run", "first", "-m", MODEL, "-t", "a", **there.env)
        process("run", "second", "-m", MODEL, "-t", "b", **there.env)
    shown = process("logs").out
    assert shown.index("second") < shown.index("first")
    assert process("logs", "-n", "1", "-r").out == "two\n\n```\ncode\n```\n"
    assert process("logs", "-t", "b", "-x").out == "code\n"
    assert process("logs", "-t", "a", "-x").code == 1
    found = [json.loads(line) for line in process("logs", "--json").out.splitlines()]
    assert [(each["thread"], each["prompt"], each["model"]) for each in found] == [
        ("b", "second", "m"),
        ("a", "first", "m"),
    ]
    assert [json.loads(line)["thread"] for line in process("logs", "-q", "first", "--json").out.splitlines()] == ["a"]
