"""What fills a window is said, and a conversation is made shorter, from the command line."""

import io
import json
import re

import pytest
from rich.console import Console
from rich.text import Text

import palaver as p
from palaver.cli import context, run_renderer, stores
from palaver.cli.run_renderer import RunRenderer
from palaver.context import Change, Failure, contents
from palaver.core import jsontext
from palaver.core.errors import SummaryError
from palaver.threads.view import for_model
from palaver.turn.events import ContextCompacted
from tests.cli.provider import MODEL, provider, says
from tests.cli.terminal import Terminal

BODY = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 2000,
    "system": "You are brief. " * 20,
    "tools": [{"name": "tide", "description": "Say the tide.", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "when?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "tide", "input": {"at": "Husum"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "18:42 " * 300}]},
    ],
}


def looked(steps, *, model="claude-sonnet-4-5"):
    made = [p.user("Move billing to the new queue.")]
    for at in range(steps):
        call = p.tool_call("read", {"path": str(at)}, id=f"c{at}")
        made += [
            p.assistant(f"step {at}", call, model=model, usage=p.Usage(input=500 + at * 900, output=20)),
            p.tool(f"line {at} \x1b[2J" * 300, tool_call_id=f"c{at}", tool_name="read"),
        ]
    return made


@pytest.fixture
def watch(kept):
    """A thread of an agent whose last call is open."""
    kept(lambda store: store.open("watch").append(*looked(20), p.assistant(p.tool_call("send", {}, id="open"))))
    return "watch"


def test_a_request_is_shown_by_kind_and_the_kinds_add_up(run, saved):
    done = run("context", saved(BODY), "--json", "--window", "50000")
    told = done.json
    kinds = {each["kind"]: each for each in told["kinds"]}
    assert list(kinds) == ["system", "tools", "user", "calls", "results"]
    assert sum(each["tokens"] for each in told["kinds"]) == told["tokens"]
    assert kinds["results"]["tokens"] == max(each["tokens"] for each in told["kinds"])
    assert (kinds["calls"]["count"], kinds["tools"]["count"]) == (1, 1)
    assert [(each["tool"], each["count"]) for each in told["results"]] == [("tide", 1)]
    assert (told["window"], told["window_known"], told["reserved"]) == (50_000, True, 2_000)
    assert told["capacity"] + told["reserved"] + told["margin"] == told["window"]
    assert told["left"] == told["capacity"] - told["tokens"]
    assert told["largest"][0]["role"] == "tool"


def test_a_thread_is_shown_with_the_last_report_and_the_next_stage(run, watch):
    told = run("context", watch, "--json", "--window", "60000").json
    assert told["model"] == "anthropic/claude-sonnet-4-5"
    assert told["report"]["tokens"] == 500 + 19 * 900
    assert told["tokens"] > told["report"]["tokens"]
    assert told["pressure"] == pytest.approx(told["tokens"] / told["capacity"], abs=1e-4)
    by_name = {each["stage"]: each for each in told["stages"]}
    assert by_name["partial"]["due"] == (told["tokens"] >= by_name["partial"]["tokens"])
    out = run("context", watch, "--window", "60000").out
    assert "next stage: " in out
    assert "last report: 17,600" in out


@pytest.mark.parametrize("columns", [40, 60, 80, 140])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_nothing_is_wider_than_the_terminal_nor_steers_it(process, watch, columns, encoding):
    done = process("context", watch, COLUMNS=str(columns), PYTHONIOENCODING=encoding)
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= columns
    assert "\x1b" not in done.out
    if encoding == "ascii":
        assert done.out.isascii()
    bar = next(line for line in done.out.splitlines() if re.fullmatch(r"[A-Z]+[.]*-+\s*", line))
    assert bar.count("T") > bar.count("A")


def test_with_colour_the_bar_is_blocks(tmp_path, watch, fork_server):
    at = Terminal(fork_server, "context", watch, cwd=tmp_path, env={"PALAVER_STORE": str(tmp_path / "palaver.db")})
    at.expect("█").expect("largest")
    assert at.end() == 0
    at.close()


def test_a_conversation_that_names_no_model_wants_one(run, kept, monkeypatch):
    monkeypatch.delenv("PALAVER_MODEL", raising=False)
    kept(lambda store: store.open("bare").append(p.user("hi")))
    done = run("context", "bare")
    assert (done.code, done.out) == (1, "")
    assert "--model provider/id" in done.err
    assert run("context", "bare", "--model", "demo").code == 0
    assert run("context", "bare", "--model", "nobody/x").code == 2
    monkeypatch.setenv("PALAVER_MODEL", "openai/gpt-5")
    assert run("context", "bare", "--json").json["model"] == "openai/gpt-5"


def test_branches_and_what_is_not_there(run, kept, watch):
    kept(lambda store: store.fork(watch, "short", at=store.path(watch)[0].id))
    for args in (("watch@short",), ("watch", "--branch", "short")):
        assert run("context", *args, "--json", "--model", "demo").json["messages"] == 1
    assert run("context", "nowhere").code == 1
    assert run("context", watch, "--branch", "nowhere").code == 1


def test_an_exact_count_that_nobody_can_give_is_one_line(run, watch):
    with provider() as there:
        done = run("context", watch, "--exact", "--model", "demo")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "count" in done.err
    assert there.asked == []


# -- compact -------------------------------------------------------------------------------------------------------


def test_a_thread_is_compacted_and_that_is_taken_back(run, kept, watch):
    before = kept(lambda store: [entry.message for entry in store.path(watch)])
    tried = run("compact", watch, "--dry-run", "--no-model")
    assert (tried.code, "nothing was written" in tried.out) == (0, True)
    assert kept(lambda store: list(store.info(watch).branches)) == ["main"]
    done = run("compact", watch, "--no-model")
    assert (done.code, done.err) == (0, "")
    assert "branch main/before-1" in done.out
    after = kept(lambda store: [entry.message for entry in store.path(watch)])
    assert sum(len(each.text) for each in after) < sum(len(each.text) for each in before) / 2
    assert after[-2] == before[-1]
    assert kept(lambda store: [entry.message for entry in store.path(watch, "main/before-1")]) == before
    undone = run("compact", watch, "--undo")
    assert (undone.code, "main/before-2" in undone.out) == (0, True)
    assert kept(lambda store: [entry.message for entry in store.path(watch)]) == before
    again = run("compact", watch, "--undo")
    assert (again.code, "no compaction to undo" in again.err) == (1, True)


def test_a_goal_is_kept_and_one_that_is_reached_is_nothing_to_do(run, watch):
    small = run("compact", watch, "--no-model", "--to", "6000")
    sizes = [int(size.replace(",", "")) for size in re.findall(r"([\d,]+) tokens became ([\d,]+)", small.out)[0]]
    assert sizes[1] <= 6000 < sizes[0]
    done = run("compact", watch, "--no-model", "--to", "900000")
    assert (done.code, "nothing could be compacted" in done.out) == (1, True)


def test_compact_wants_a_branch_and_undo_nothing_else(run, kept, watch):
    entry = kept(lambda store: store.path(watch)[3].id)
    assert run("compact", f"{watch}@{entry}").code == 1
    assert run("compact", watch, "--undo", "--to", "5").code == 2
    assert run("compact", "nowhere").code == 1


def test_without_a_model_to_ask_the_others_do_what_they_can(run, kept, monkeypatch):
    monkeypatch.delenv("PALAVER_MODEL", raising=False)
    talk = [each for at in range(12) for each in (p.user(f"why {at}? " * 400), p.assistant(f"because {at} " * 400))]
    kept(lambda store: store.open("talk").append(*talk))
    done = run("compact", "talk")
    assert "there is no model to ask" in done.out
    assert "Traceback" not in done.err


# -- chat ----------------------------------------------------------------------------------------------------------


def test_chat_says_what_fills_the_window_and_compacts(tmp_path, kept, watch, monkeypatch, fork_server):
    monkeypatch.setenv("PALAVER_STORE", str(tmp_path / "palaver.db"))
    kept(lambda store: store.open(watch).append(p.tool("sent", tool_call_id="open"), p.assistant("all is done")))
    with provider(says("short now")) as there:
        at = Terminal(fork_server, "chat", "--model", MODEL, "--thread", watch, cwd=tmp_path, env=there.env)
        at.expect("/help").expect("> ").line("/context").expect("tool results").expect("largest")
        at.expect("> ").line("/compact many").expect("many is not a number of tokens")
        at.expect("> ").line("/compact 8000").expect("main/before-1")
        at.expect("> ").line("go on").expect("short now").expect("> ").type("\x04")
        assert at.end() == 0
        at.close()
    sent = json.dumps(there.asked[0])
    assert len(sent) < 40_000
    assert "Move billing" in sent
    assert "read_result" in sent


def test_a_run_without_compaction_leaves_the_conversation_alone(process):
    with provider(says("hi")) as there:
        assert process("run", "hello", "--model", MODEL, "--no-compaction", **there.env).code == 0
    assert "read_result" not in json.dumps(there.asked[0])


def test_the_end_of_an_id_is_enough(run, kept):
    thread = kept(lambda store: store.create().id)
    kept(lambda store: store.open(thread).append(*looked(3)))
    assert run("context", stores.short(thread), "--json").json["messages"] == 7


def test_a_compaction_in_a_run_is_one_line_and_one_event():
    told = ContextCompacted(
        agent="a",
        run="r",
        before=90_000,
        after=20_000,
        capacity=100_000,
        changes=(Change("snip", 5, 90_000, 20_000),),
        failures=(Failure("auto", SummaryError("no \x1b[2J luck")),),
    )
    to = io.StringIO()
    RunRenderer(Console(file=io.StringIO()), Console(file=to, width=200)).show(told)
    assert to.getvalue().splitlines() == [
        "context compacted: 90,000 → 20,000 of 100,000 tokens (snip)",
        "compaction, auto: no ␛[2J luck",
    ]
    line = json.loads(jsontext.encode(run_renderer.as_json(told)))
    assert (line["event"], line["before"], line["after"]) == ("context_compacted", 90_000, 20_000)
    assert line["changes"] == [{"stage": "snip", "messages": 5, "before": 90_000, "after": 20_000}]
    assert (line["failures"][0]["stage"], line["failures"][0]["error"]["text"]) == ("auto", "no \x1b[2J luck")


def test_where_the_encoding_has_no_blocks_the_bar_is_letters_also_in_colour(kept, watch):
    path = kept(lambda store: store.path(watch))
    found = contents(path, for_model(path), window=60_000)
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    out = Console(file=file, force_terminal=True, color_system="truecolor", width=60)
    for each in context.render_contents(found, out):
        if isinstance(each, Text):
            out.print(each)
    file.flush()
    assert b"TTTTTT" in file.buffer.getvalue()
