"""`palaver run`: real processes against a provider on loopback, at a terminal and without one."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import palaver as p
from palaver.cli.attachments import attachments
from palaver.store import open_store
from tests.cli.provider import HOLD, MODEL, calls, provider, says
from tests.cli.terminal import Terminal

TOOLS = """
def book(berth: int) -> str:
    "Book a berth."
    with open("booked", "a") as file:
        file.write(f"{berth} ")
    return f"berth {berth} is yours"

def note(text: str) -> str:
    return text

def _helper(): ...
"""
KEYS = re.compile(r"_(API_KEY|BASE_URL|TOKEN_BEDROCK|HOST)$|^(PALAVER_MODEL|CO_API_URL)$")


@pytest.fixture
def terminal(tmp_path, monkeypatch, fork_server):
    """A command at a terminal of its own."""
    monkeypatch.setenv("PALAVER_STORE", str(tmp_path / "palaver.db"))
    opened = []

    def terminal_(*args, env=None):
        opened.append(Terminal(fork_server, *args, cwd=tmp_path, env=env))
        return opened[-1]

    yield terminal_
    for each in opened:
        each.close()


@pytest.fixture
def bare(monkeypatch):
    """No key, no server, no model."""
    for name in [name for name in os.environ if KEYS.search(name)]:
        monkeypatch.delenv(name)
    for name in ("OLLAMA_HOST", "VLLM_BASE_URL", "LLAMA_BASE_URL", "LMSTUDIO_BASE_URL", "OLLAMA_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.fixture
def tools(saved, tmp_path):
    """A file of tools, and what was booked with them."""
    saved(TOOLS, "tools.py")
    booked = saved("", "booked")
    return booked.read_text


@pytest.fixture
def threads(tmp_path):
    """The messages of each thread of the store."""

    def threads_():
        with open_store(tmp_path / "palaver.db") as store:
            return {info.id: [entry.message for entry in store.path(info.id)] for info in list(store.threads())}

    return threads_


@pytest.mark.finding("F-16")
@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ("5", "TOOLS: expected a list of tools or functions, got int"),
        ("'abc'", "TOOLS: expected a list of tools or functions, got str"),
        ("{'a': 1}", "TOOLS: expected a list of tools or functions, got dict"),
        ("[5]", "TOOLS[0]: 5 is neither a tool nor a function"),
        ("[print, 'note']", "TOOLS[1]: 'note' is neither a tool nor a function"),
    ],
)
def test_a_list_of_tools_that_is_none_is_one_error(process, saved, listed, told):
    saved(f"TOOLS = {listed}", "odd.py")
    done = process("run", "hi", "--model", MODEL, "--tools", "odd.py")
    assert done.code == 1
    assert done.err.strip().splitlines() == [f"palaver: odd.py: {told}"]


def test_the_answer_is_on_standard_output_and_the_thread_goes_on(real_process, threads):
    with provider(says("Hel", "lo"), says("Again")) as there:
        done = real_process("run", "hi", "--model", MODEL, "--thread", "harbour", "--system", "Be brief.", **there.env)
        assert (done.code, done.out) == (0, "Hello\n")
        assert "thread harbour" in done.err
        done = real_process("run", "and now?", "--model", MODEL, "--thread", "harbour", **there.env)
        assert (done.code, done.out) == (0, "Again\n")
    assert [(each["role"], each["content"]) for each in there.asked[0]["messages"]] == [
        ("system", "Be brief."),
        ("user", "hi"),
    ]
    assert [each["content"] for each in there.asked[1]["messages"]] == ["hi", "Hello", "and now?"]
    assert [each.text for each in threads()["harbour"]] == ["hi", "Hello", "and now?", "Again"]
    assert real_process("threads", "--json").json["title"] == "hi"


def test_the_answer_is_seen_as_it_comes(terminal):
    with provider(says("first", HOLD, " second")) as there:
        at = terminal("run", "hi", "--model", MODEL, env=there.env)
        at.expect("first")  # the rest has not been sent
        there.go.set()
        at.expect(" second").expect("■ thread")
        assert at.end() == 0


def test_what_is_waited_for_is_said_and_taken_away(terminal):
    with provider([HOLD, *says("now")]) as there:
        at = terminal("run", "hi", "--model", MODEL, env=there.env)
        at.expect("the model · 0 s").expect("the model · 1 s")
        there.go.set()
        at.expect("now")
        assert at.end() == 0
        assert "\r\x1b[2Know" in at.raw


@pytest.mark.parametrize(
    ("typed", "code", "booked", "told"),
    [
        (["a"], 0, "7 ", "berth 7 is yours"),
        (["nonsense", "approve"], 0, "7 ", "berth 7 is yours"),
        (["r too dear"], 0, "", "too dear"),
        (["t it is taken"], 0, "", "it is taken"),
        (["e", '\x15{"berth": "x"}', '\x15{"berth": 9}'], 0, "9 ", "berth 9 is yours"),
        (["\x04"], 3, "", ""),
    ],
    ids=["approve", "words", "reject", "answer", "edit", "end-of-input"],
)
def test_an_approval_is_typed_at_the_terminal(terminal, tools, typed, code, booked, told):  # noqa: PLR0917 (its table)
    with provider(calls("book", {"berth": 7}), says("Done.")) as there:
        at = terminal("run", "book", "--model", MODEL, "--tools", "tools.py", env=there.env)
        at.expect("? book wants to run").expect("berth: 7")
        for each in typed:
            at.expect("all\n? " if "berth" not in each else "(JSON): ").type(each if each == "\x04" else f"{each}\n")
        assert at.end() == code
    assert tools() == booked
    assert told in json.dumps(there.asked[-1]["messages"][-1])


def test_an_editor_opens_the_arguments(terminal, saved, tools):
    editor = saved("import sys; p = sys.argv[1]; t = open(p).read(); open(p, 'w').write(t.replace('7', '8'))", "ed.py")
    with provider(calls("book", {"berth": 7}), says("Done.")) as there:
        env = {**there.env, "EDITOR": f"{sys.executable} {editor}"}
        at = terminal("run", "book", "--model", MODEL, "--tools", "tools.py", env=env)
        at.expect("all\n? ").line("e")
        assert at.end() == 0
    assert tools() == "8 "


def test_the_choices_of_an_approval_are_whole_in_a_narrow_terminal(terminal, tools):
    with provider(calls("book", {"berth": 7}), says("Done.")) as there:
        at = terminal("run", "book", "--model", MODEL, "--tools", "tools.py", env={**there.env, "COLUMNS": "40"})
        at.expect("[t] text").expect("[v]iew all\n? ").line("a")
        assert at.end() == 0


def test_after_an_editor_that_fails_the_decision_is_asked_for_again(terminal, tools):
    with provider(calls("book", {"berth": 7}), says("Done.")) as there:
        env = {**there.env, "EDITOR": "no-such-editor"}
        at = terminal("run", "book", "--model", MODEL, "--tools", "tools.py", env=env)
        at.expect("all\n? ").line("e").expect("all\n? ").line("a")
        assert at.end() == 0
    assert tools() == "7 "


def test_without_a_terminal_it_waits_and_another_process_decides(process, tools):
    with provider(calls("book", {"berth": 7}), says("Done.")) as there:
        done = process("run", "book", "--model", MODEL, "--tools", "tools.py:book", **there.env)
        assert (done.code, done.out) == (3, "")
        assert tools() == ""
        go_on = re.search(r"^continue: palaver (.*)$", done.err, re.MULTILINE)[1].split()
        assert go_on[-2:] == ["--decide", "call_1=approve"]
        done = process(*go_on, **there.env)
        assert (done.code, done.out) == (0, "Done.\n")
    assert tools() == "7 "


@pytest.mark.parametrize(
    ("decision", "booked"), [("call_1=reject:no", ""), ('call_1=edit:{"berth":3}', "3 "), ("call_1=answer:a=b", "")]
)
def test_decisions_can_be_typed_beforehand(process, tools, decision, booked):
    how = ("--model", MODEL, "--tools", "tools.py", "--thread", "berths")
    with provider(calls("book", {"berth": 7}), says("Done.")) as there:
        assert process("run", "book", *how, **there.env).code == 3
        assert process("run", *how, "--decide", "call_9=approve", **there.env).code == 1
        assert process("run", *how, "--decide", decision, **there.env).code == 0
    assert tools() == booked


def test_a_call_whose_tool_is_not_given_still_waits(run, tools, monkeypatch):
    with provider(calls("book", {"berth": 7}), says("Done."), says("Well.")) as there:
        how = ("-m", "m", "--url", f"{there.url}/v1", "-t", "berths")
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.setattr("sys.stdin", io.StringIO())
        assert run("run", "book", *how, "--tools", "tools.py").code == 3
        for command in ("run", "chat"):
            done = run(command, *how)
            assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
            assert "book waits for a decision (call_1)" in done.err
            assert "--tools" in done.err
        assert run("run", *how, "--tools", "tools.py", "--decide", "call_1=approve").code == 0
        assert tools() == "7 "


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ((), "✗ book Not run: there was no decision about this call"),
        (("-x",), "palaver: book (call_1) is not run: it waited for a decision, and the new prompt closes it"),
    ],
)
def test_a_prompt_that_closes_a_call_says_so(run, tools, monkeypatch, how, told):
    with provider(calls("book", {"berth": 7}), says("Well.")) as there:
        server = ("-m", "m", "--url", f"{there.url}/v1", "-t", "berths")
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.setattr("sys.stdin", io.StringIO())
        assert run("run", "book", *server, "--tools", "tools.py").code == 3
        done = run("run", "never mind", *server, *how)
    assert (done.code, done.out, tools()) == (0, "Well.\n", "")
    assert told in done.err


@pytest.mark.parametrize(("mode", "booked"), [("allow", "7 "), ("deny", "")])
def test_a_policy_decides_where_it_is_told_to(process, tools, mode, booked):
    with provider(calls("book", {"berth": 7}), says("Done.")) as there:
        done = process("run", "book", "--model", MODEL, "--tools", "tools.py", "--approve", mode, **there.env)
        assert (done.code, done.out) == (0, "Done.\n")
    assert tools() == booked


def test_ctrl_c_keeps_what_was_said_and_says_how_to_go_on(terminal, threads):
    with provider(says("half of", HOLD), says("the rest")) as there:
        at = terminal("run", "hi", "--model", MODEL, "--thread", "talk", env=there.env)
        at.expect("half of").interrupt().expect("cancelled")
        at.expect(f"stopped; continue: palaver run --thread talk --model {MODEL}")
        assert at.end() == 130
        assert [each.text for each in threads()["talk"]][:2] == ["hi", "half of"]
        there.go.set()
        at = terminal("run", "go on", "--model", MODEL, "--thread", "talk", env=there.env)
        at.expect("the rest")
        assert at.end() == 0
    assert "half of" in json.dumps(there.asked[1])


def test_an_interrupt_without_a_terminal_does_the_same(tmp_path, threads):
    env = {**os.environ, "PALAVER_STORE": str(tmp_path / "palaver.db")}
    with provider(says("half of", HOLD)) as there:
        command = [sys.executable, "-m", "palaver", "run", "hi", "--model", MODEL, "--thread", "talk"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**env, **there.env}) as at:
            assert at.stdout.read(7) == b"half of"
            at.send_signal(signal.SIGINT)
            _, said = at.communicate(timeout=60)
            assert at.returncode == 130
            assert b"continue: palaver run --thread talk" in said
    assert threads()["talk"][1].text == "half of"


def test_ctrl_c_at_a_question_leaves_it_pending(terminal, tools):
    how = ("--model", MODEL, "--tools", "tools.py", "--thread", "berths")
    with provider(calls("book", {"berth": 7}), says("Done.")) as there:
        at = terminal("run", "book", *how, env=there.env)
        at.expect("all\n? ").interrupt().expect("continue: palaver run --thread berths")
        assert at.end() == 130
        at = terminal("run", *how, env=there.env)
        at.expect("all\n? ").line("a").expect("Done.")
        assert at.end() == 0
    assert tools() == "7 "


def test_events_are_objects_one_a_line(process, tools):
    with provider(calls("book", {"berth": 7}), says("Done\x1b.")) as there:
        how = ("--model", MODEL, "--tools", "tools.py", "--approve", "allow", "--json")
        done = process("run", "book", *how, **there.env)
    events = [json.loads(line) for line in done.out.splitlines()]
    names = [each["event"] for each in events]
    assert done.code == 0
    assert (names[0], names[-1]) == ("run_started", "run_finished")
    assert names.index("tool_started") < names.index("tool_finished")
    assert events[names.index("tool_started")]["call"]["name"] == "book"
    assert events[-1]["result"]["outcome"] == "completed"
    assert events[-1]["result"]["text"] == "Done\x1b."
    assert "\x1b" not in done.out


WICKED = "\x1b]0;owned\x07\x1b[2J\x9b2J"


def test_what_a_model_says_cannot_steer_the_terminal(terminal, tools):
    calling = calls("note", {"text": f"first\n{WICKED}"}, id=f"c{WICKED}")
    with provider(calling, calls(WICKED, {WICKED: WICKED}), says("half \x1b", f"]0;x{WICKED}")) as there:
        at = terminal("run", "hi", "--model", MODEL, "--tools", "tools.py", env=there.env)
        at.expect("? note wants to run").expect("owned").expect("all\n? ").line("a")
        at.expect("→ note(text: first").expect("← note").expect("✗ ").expect("half ").expect("■ thread")
        assert at.end() == 0
    shown = re.sub(r"\x1b\[[0-9;]*m|\r\x1b\[2K|\x1b\[\?2004[hl]", "", at.raw)
    assert not re.search(r"[\x07\x1b\x80-\x9f]", shown)


def test_what_waits_cannot_steer_the_terminal(process, tools):
    with provider(calls("note", {"text": WICKED}, id=f"c{WICKED}")) as there:
        done = process("run", "hi", "--model", MODEL, "--tools", "tools.py", **there.env)
    assert done.code == 3
    assert not re.search(r"[\x07\x1b\x80-\x9f]", done.err)


def test_what_fails_is_one_line_and_exit_code_1(process):
    with provider([b'{"error": {"message": "no such model"}}'], status=404) as there:
        done = process("run", "hi", "--model", MODEL, **there.env)
    assert (done.code, done.out) == (1, "")
    assert "failed: " in done.err
    assert "no such model" in done.err


def test_without_key_and_server_it_says_what_to_set(process, bare):
    done = process("run", "hi")
    assert (done.code, done.out) == (2, "")
    assert "no model is given" in done.err
    assert "ANTHROPIC_API_KEY" in done.err
    assert "--model demo" in done.err
    assert done.err.count("\n") <= 6
    done = process("run", "hi", "--model", "anthropic/claude-x")
    assert done.code == 2
    assert "set ANTHROPIC_API_KEY" in done.err
    done = process("run", "hi", ANTHROPIC_API_KEY="k")
    assert "--model anthropic/…" in done.err


def test_the_demo_plays_without_key_and_network(process, bare, threads):
    done = process("run", "When can we enter Husum?", "--model", "demo", "--thread", "husum")
    assert done.code == 3
    done = process("run", "--thread", "husum", "--model", "demo", "--decide", "toolu_1_berth=approve")
    assert done.code == 0
    assert "berth 7 in Husum is kept" in done.out
    assert [each.role for each in threads()["husum"] if "record" not in each.tags] == [
        *("user", "assistant", "tool", "tool", "assistant", "tool", "assistant")
    ]


@pytest.mark.parametrize(
    ("args", "cause"),
    [
        ((), "give a PROMPT, or --thread"),
        (("hi", "--model", "nobody/x"), "no provider 'nobody'"),
        (("hi", "--model", "demo", "--tools", "nothing"), "neither FILE.py"),
        (("hi", "--model", "demo", "--decide", "x"), "is not CALL=approve"),
        (("hi", "--model", "demo", "--decide", "x=edit:[]"), "arguments must be a JSON object"),
        (("hi", "--model", "demo", "--max-steps", "0"), "--max-steps"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(run, args, cause):
    done = run("run", *args)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert cause in done.err


@pytest.mark.parametrize(
    ("text", "tools", "cause"),
    [
        (None, "none.py", "no such file"),
        ("1 /", "bad.py", "SyntaxError"),
        ("X = 1", "bad.py", "there are no tools in it"),
        ("X = 1", "bad.py:book", "there is no tool 'book' in it"),
        ("def f(*x): 'what a model cannot call'", "bad.py", "x"),
    ],
)
def test_a_file_without_tools_is_one_line_and_exit_code_1(run, saved, text, tools, cause):
    if text is not None:
        saved(text, "bad.py")
    done = run("run", "hi", "--model", "demo", "--tools", tools)
    assert run("threads").err.startswith("no thread in")
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert cause in done.err


def test_a_thread_that_is_not_there_cannot_go_on(run):
    done = run("run", "--model", "demo", "--thread", "nowhere")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "nowhere" in done.err


def test_an_entry_is_gone_on_from_on_a_branch_of_its_own_each_time(run, location, threads, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with provider(*map(says, ("one", "two", "other", "another", "more"))) as there:

        def ask(prompt, at):
            assert run("run", prompt, "-m", "m", "--url", f"{there.url}/v1", "-t", at).code == 0
            return [each["content"] for each in there.asked[-1]["messages"]]

        ask("first", "talk")
        ask("second", "talk")
        with open_store(location) as store:
            entry, end = (store.path("talk")[at].id for at in (1, -1))
        assert ask("instead", f"talk@{entry}") == ["first", "one", "instead"]
        assert ask("or so", f"talk@{entry}") == ["first", "one", "or so"]
        assert ask("third", f"talk@{end}") == ["first", "one", "second", "two", "third"]
    with open_store(location) as store:
        assert len(store.info("talk").branches) == 3
    assert [each.text for each in threads()["talk"]] == ["first", "one", "second", "two", "third", "more"]


def test_a_prompt_that_failed_is_repeated_and_not_doubled(run, monkeypatch, tmp_path, threads):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (tmp_path / "a.gif").write_bytes(b"GIF89a\x01\x00\x01\x00\x00\x00\x00;")
    refused = [[b'{"error": {"message": "no such model"}}']] * 3
    with provider(says("one"), says("two"), says("three")) as there, provider(*refused, status=404) as failing:

        def ask(server, prompt, *more):
            return run("run", prompt, "-m", "m", "--url", f"{server.url}/v1", "-t", "talk", *more).code

        for prompt, more in (("hi", ()), ("hi", ()), ("what is it?", ("-a", "a.gif"))):
            assert ask(failing, prompt, *more) == 1
            assert ask(there, prompt, *more) == 0
    assert [each.text for each in threads()["talk"]] == ["hi", "one", "hi", "two", "what is it?", "three"]
    assert [len(each["messages"]) for each in there.asked] == [1, 3, 5]


def test_an_image_is_shown_to_the_model(process, tmp_path):
    (tmp_path / "a.gif").write_bytes(b"GIF89a\x01\x00\x01\x00\x00\x00\x00;")
    with provider(says("a dot")) as there:
        assert process("run", "hi", "--model", MODEL, "--attachment", "none.gif", **there.env).code == 1
        how = ("-a", "a.gif", "-a", "https://a.example/b.png")
        assert process("run", "what is it?", "--model", MODEL, *how, **there.env).code == 0
    text, image, linked = there.asked[0]["messages"][0]["content"]
    assert (text["type"], image["type"]) == ("text", "image_url")
    assert linked == {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}


def test_documents_keep_their_names_and_their_types(saved):
    made = attachments([str(saved("tide", "note.txt")), str(saved("all:", "Makefile"))])
    assert [(type(each), each.name, each.media_type) for each in made] == [
        (p.File, "note.txt", "text/plain"),
        (p.File, "Makefile", "text/plain"),
    ]


@pytest.mark.parametrize(
    ("name", "data", "cause"),
    [("bin.dat", b"\xff\x00\x01", "not known"), ("a.pdf", b"", "is empty"), ("nul", b"a\x00b", "not known")],
)
def test_a_file_that_says_nothing_is_an_error_before_the_call(run, tmp_path, monkeypatch, name, data, cause):  # noqa: PLR0917 (its table)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (tmp_path / name).write_bytes(data)
    with provider() as there:
        done = run("run", "hi", "-m", "m", "--url", f"{there.url}/v1", "-a", name)
    assert (done.code, done.out, done.err.count("\n"), there.asked) == (1, "", 1, [])
    assert done.err.startswith(f"palaver: {name}: ")
    assert cause in done.err


class Told(BaseHTTPRequestHandler):
    def do_HEAD(self):
        path, _, kind = self.path.partition("?")
        self.send_response({"/moved": 302, "/none": 404}.get(path, 200))
        self.send_header("Location", "/there?image/webp")
        self.send_header("Content-Type", kind)
        self.end_headers()

    def log_message(self, format, *args):
        """Log nothing."""


def test_an_attachment_may_be_a_url(run, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Told) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        asked = [f"{url}/a?image/png", f"{url}/b?audio/mpeg", f"{url}/c?application/pdf;x=y", f"{url}/moved"]
        found = attachments(["http://127.0.0.1:9/a.JPG?b=c", "https://a.example/b.pdf", *asked])
        refused = [
            run("run", "hi", "-m", "demo", "-n", "-a", each)
            for each in (
                f"{url}/none",
                f"{url}/?",
                f"{url}/?application/octet-stream",
                "http://127.0.0.1:99999/a",
                "http://",
            )
        ]
        server.shutdown()
        thread.join()
    assert [(type(each), each.media_type) for each in found] == [
        (p.Image, "image/jpeg"),
        (p.File, "application/pdf"),
        (p.Image, "image/png"),
        (p.Audio, "audio/mpeg"),
        (p.File, "application/pdf"),
        (p.Image, "image/webp"),
    ]
    assert [each.source.url for each in found[2:]] == asked
    for done, cause in zip(refused, ("HEAD: 404", "not told", "octet-stream", "beyond 65535", "http://"), strict=True):
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), done.err
        assert "what is there is not known" in done.err
        assert cause in done.err


def test_a_prompt_comes_from_standard_input(process):
    with provider(says("ok")) as there:
        assert process("run", "-", "--model", MODEL, data=b"from a pipe\n", **there.env).code == 0
    assert there.asked[0]["messages"][0]["content"] == "from a pipe"


@pytest.mark.finding("F-60")
@pytest.mark.parametrize(
    ("arguments", "asked"),
    [(["Summarise"], "rain until six\n\nSummarise"), (["-"], "rain until six"), ([], "rain until six")],
)
def test_what_is_piped_stands_before_the_prompt(process, threads, arguments, asked):
    with provider(says("done")) as there:
        done = process("run", *arguments, "--model", MODEL, data=b"rain until six\n", **there.env)
    assert (done.code, done.out) == (0, "done\n")
    assert [each["content"] for each in there.asked[0]["messages"]] == [asked]
    assert process("threads", "--json").json["title"] == (arguments if "Summarise" in arguments else [asked])[0]


@pytest.mark.finding("F-60")
def test_a_file_is_redirected_and_the_null_device_is_not_read(process, saved, tmp_path):
    saved("tide at nine", "log")
    with provider(says("a"), says("b")) as there:
        for source in ("log", os.devnull):
            with (tmp_path / source).open("rb") as stdin:
                command = [sys.executable, "-m", "palaver", "run", "When?", "--model", MODEL]
                env = {**os.environ, "PALAVER_STORE": str(tmp_path / "palaver.db"), **there.env}
                subprocess.run(command, cwd=tmp_path, stdin=stdin, env=env, check=True, capture_output=True)
    assert [each["messages"][-1]["content"] for each in there.asked] == ["tide at nine\n\nWhen?", "When?"]


@pytest.mark.finding("F-60")
def test_piped_bytes_that_are_no_text_are_refused(process, bare):
    done = process("run", "What is it?", "--model", "demo", data=b"\x89PNG\xff")
    assert done.code == 2
    assert "standard input is not UTF-8 text" in done.err


@pytest.mark.finding("F-61")
def test_a_file_gives_its_decorated_and_its_plain_functions(process, saved):
    lines = (
        "from palaver.agent import function_tool",
        "@function_tool",
        "def dry(): ''",
        "def wet(): ''",
        "def _own(): ''",
    )
    saved("\n".join(lines), "t.py")
    with provider(says("ok")) as there:
        assert process("run", "hi", "--model", MODEL, "--tools", "t.py", **there.env).code == 0
    offered = {each["function"]["name"] for each in there.asked[0]["tools"]}
    assert {"dry", "wet"} <= offered
    assert "_own" not in offered


def test_tools_of_an_mcp_server(process):
    server = f"mcp:{sys.executable} {Path(__file__).parents[1] / 'agent/mcp_server.py'}"
    with provider(says("ok")) as there:
        done = process("run", "hi", "--model", MODEL, "--tools", server, **there.env)
        assert done.code == 0, done.err
        assert there.asked[0]["tools"]
        done = process("run", "hi", "--model", MODEL, "--tools", "mcp:/bin/false", **there.env)
        assert (done.code, done.err.count("\n")) == (1, 1), done.err
