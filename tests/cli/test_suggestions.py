"""What the command line says of misspelt names, counts and odd numbers."""

import json

import pytest
from click.shell_completion import ShellComplete

import palaver as p
from palaver import cli, wires
from palaver.core import canonical
from palaver.store import open_store
from palaver.threads.thread import RECORD

pytestmark = pytest.mark.finding("F-120")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["serch", "x"], "No such command 'serch'; did you mean search? (see palaver --help)"),
        (["xyzzy"], "No such command 'xyzzy' (see palaver --help)"),
        (["convert", "x", "--to", "openai_chat", "--from", "cluade"], "'cluade'; did you mean claude? There are "),
        (["formats", "codx"], "no transcript format 'codx'; did you mean codex? There are "),
        (["verify", "--recover"], "Option '--recover' requires an argument (see palaver verify --help)"),
    ],
)
def test_a_misspelt_name_gets_the_one_that_is_like_it(run, args, said):
    done = run(*args)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_names_of_the_library_are_like_others_too():
    with pytest.raises(p.UnknownNameError, match=r"no wire 'opnai_chat'; did you mean openai_chat\? There are"):
        wires.get("opnai_chat")
    with pytest.raises(p.UnknownNameError, match=r"no variant 'mstral'; did you mean mistral\? There are"):
        wires.get("openai_chat:mstral")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("NaN", "not JSON: NaN is not JSON"),
        ("9" * 5000, "seed: expected an integer, got one of 5,000 digits"),
        ("-" + "9" * 5000, "seed: expected an integer, got one of 5,000 digits"),
        ("1.5", "seed: expected an integer, got a number"),
    ],
)
def test_an_odd_number_is_named_as_what_it_is(run, tmp_path, number, said):
    body = '{"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": SEED}'.replace("SEED", number)
    (tmp_path / "body.json").write_text(body)
    done = run("convert", "body.json", "--from", "openai_chat", "--to", "ollama_chat")
    assert (done.code, done.out) == (1, "")
    assert said in done.err


def test_threads_counts_messages_and_not_the_records_beside_them(run, tmp_path):
    with open_store(tmp_path / "palaver.db") as store:
        record = p.SystemMessage(tags=(RECORD,), mode="tool")
        store.create("full", title="full")
        store.append("full", [p.user("a"), record, p.assistant("b"), record])
        store.create("empty", title="damaged")
        store.append("empty", [record])
    told = {each["id"]: each for each in map(json.loads, run("threads", "--json").out.splitlines())}
    assert [(told[name]["messages"], told[name]["length"]) for name in ("full", "empty")] == [(2, 4), (0, 1)]
    rows = [line.split() for line in run("threads").out.splitlines()]
    assert {row[0]: row[-3] for row in rows if row and row[0] in {"full", "empty"}} == {"full": "2", "empty": "0"}


def test_a_record_is_no_message_of_a_thread(run, tmp_path):
    """The record of a compaction or of a decision is sent by no wire: no command counts it, shows it or loses it."""
    with open_store(tmp_path / "palaver.db") as store:
        record = p.SystemMessage(tags=(RECORD,), mode="tool")
        store.create("trip")
        store.append("trip", [p.user("a"), record, p.assistant("b"), record, record])
    assert run("fork", "trip", "b2").out == "thread trip: branch b2 starts after 2 messages\n"
    for last, told in ((1, "1 message"), (2, "2 messages"), (3, "2 messages")):
        shown = run("show", "trip@b2", "--last", str(last)).out
        assert shown.startswith(f"thread trip · b2 · {told}\n")
        assert "record" not in shown
        assert ("│ a" in shown) == (last > 1)
    tree = run("show", "trip", "--branches").out
    assert tree.startswith("thread trip · 2 messages · 2 branches\n")
    assert "(2)" in tree
    done = run("export", "trip", "--as", "anthropic_messages", "--model", "m")
    assert [each["role"] for each in json.loads(done.out)["messages"]] == ["user", "assistant"]
    assert "a request of 2 messages" in done.err
    assert "system message" not in done.err
    assert run("export", "trip", "-o", "trip.jsonl").err == "thread trip: 2 messages, 2 branches\n"


def test_several_losses_are_plural(run, tmp_path):
    parts = [p.Image.from_url("https://a.b/c.png"), p.Image.from_url("https://a.b/d.png")]
    request = p.Request((p.user("hi", *parts), p.assistant("yes")))
    (tmp_path / "m.json").write_bytes(canonical.dump_conversation(request))
    assert " things not carried as they were\n" in run("convert", "m.json", "--to", "agent_swarm_kit").err


def test_counting_exactly_without_a_key_does_not_name_the_script(run, tmp_path, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    body = {"model": "claude-opus-4-8", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    done = run("context", "body.json", "--from", "anthropic_messages", "--exact")
    assert (done.code, done.err) == (
        2,
        "palaver: anthropic: no key: set ANTHROPIC_API_KEY\n  or store it: palaver keys set anthropic\n",
    )


def _completed(*args):
    complete = ShellComplete(cli.group, {}, "palaver", "_PALAVER_COMPLETE")
    return [each.value for each in complete.get_completions(list(args), "")]


def test_only_names_that_a_model_has_are_completed():
    offered = _completed("run", "-m")
    assert {"demo", "openai/gpt-5", "anthropic/claude-opus-4-8", "cohere/command-a-03-2025"} <= set(offered)
    assert not {"openai/gpt-5.", "xai/grok-4.", "openai/gpt-4o-search", "anthropic/claude-opus-4-2025"} & set(offered)


def test_the_names_of_settings_are_completed():
    assert {"temperature", "max_tokens", "effort"} <= set(_completed("run", "-o"))


def test_a_byte_order_mark_before_what_is_piped_is_not_said(process):
    done = process("run", "--model", "demo", "--json", data=b"\xef\xbb\xbfKeep us a berth.")
    said = [each for each in map(json.loads, done.out.splitlines()) if each["event"] == "message_added"]
    assert said[0]["message"]["content"][0]["text"] == "Keep us a berth."


@pytest.mark.parametrize("place", ["shop@a@b", "shop@main"])
def test_a_branch_may_have_an_at_sign_in_its_name(run, tmp_path, place):
    with open_store(tmp_path / "palaver.db") as store:
        store.create("shop")
        store.append("shop", [p.user("one"), p.assistant("two")])
        store.fork("shop", "a@b", of="main")
    assert "two" in run("show", place).out
