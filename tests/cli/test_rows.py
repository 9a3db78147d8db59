"""Listings for other programs: one line of names for CSV, also without rows, and no value that is not JSON."""

import json

import pytest

import palaver as p
from palaver.store import open_store


@pytest.fixture
def location(tmp_path):
    place = str(tmp_path / "palaver.db")
    with open_store(place) as store:
        store.open("t")
    return place


@pytest.mark.parametrize(
    ("listing", "none"),
    [
        (("threads",), ("threads", "--tag", "nope")),
        (("search", "ferry"), ("search", "nope")),
        (("logs",), ("logs", "-q", "nope")),
        (("models", "claude"), ("models", "nope")),
    ],
)
def test_an_empty_listing_has_the_names_of_a_full_one(run, location, listing, none):
    with open_store(location) as store:
        store.open("t").append(p.user("Is there a ferry?"), p.assistant("Yes."))
    names, *rows = run(*listing, "--csv").out.splitlines()
    assert rows
    assert run(*none, "--csv").out.splitlines() == [names]


LISTINGS = "threads", "search x", "logs", "context x", "verify", "models", "formats", "wires", "keys list"


@pytest.mark.parametrize(
    ("commands", "flags"),
    [(LISTINGS, ("--json", "--csv")), (("run x", "logs"), ("--extract", "--extract-last"))],
    ids=["rows", "blocks"],
)
def test_two_forms_at_once_are_wrong_usage(run, commands, flags):
    for command in commands:
        done = run(*command.split(), *flags)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert done.err.startswith(f"palaver: {' and '.join(flags)} exclude each other")


def test_a_sound_store_has_a_line_of_names_for_its_damage(run, location):
    assert run("verify", "--csv", "--store", location).out == "kind,place,reason,thread,entry\n"


def test_events_as_json_have_only_fields_that_are_set(process):
    ran = process("run", "hi", "-m", "demo", "-n", "--approve", "allow", "--json")
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert {"run_started", "text_delta", "run_finished"} <= {event["event"] for event in events}
    assert "UNSET" not in ran.out


def test_the_last_answer_is_that_of_the_thread_that_changed_last(run, location):
    with open_store(location) as store:
        store.open("a").append(p.user("one"), p.assistant("first"))
        store.open("b").append(p.user("two"), p.assistant("second\n\n```\ncode\n```"))
    assert run("logs", "-r", "--store", location).out == "second\n\n```\ncode\n```\n"
    assert run("logs", "-x", "--store", location).out == "code\n"
    assert run("logs", "-x", "-n", "2", "--store", location).out == "code\n"
    assert run("logs", "-r", "-n", "2", "--store", location).out.endswith("first\n")
