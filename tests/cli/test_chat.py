"""`palaver chat` at a terminal of its own, against a provider on loopback."""

import json

import pytest

from palaver.store import open_store
from tests.cli.provider import HOLD, MODEL, calls, provider, says
from tests.cli.terminal import Terminal


@pytest.fixture
def chat(tmp_path, monkeypatch, fork_server):
    monkeypatch.setenv("PALAVER_STORE", str(tmp_path / "palaver.db"))
    opened = []

    def chat_(there, *args, **env):
        how = ("--model", MODEL, "--thread", "talk", *args)
        opened.append(Terminal(fork_server, "chat", *how, cwd=tmp_path, env={**there.env, **env}))
        return opened[-1].expect("/help")

    yield chat_
    for each in opened:
        each.close()


def said(asked):
    return [each["content"] for each in asked["messages"]]


def test_turns_of_one_thread_and_another_process_goes_on(chat):
    with provider(says("one"), says("two"), says("three")) as there:
        at = chat(there).expect("> ").line("first").expect("one").expect("> ").line("second").expect("two")
        at.expect("> ").line("/quit").expect(f"continue: palaver chat --thread talk --model {MODEL}")
        assert at.end() == 0
        at = chat(there).expect("> ").line("third").expect("three").expect("> ").type("\x04")
        assert at.end() == 0
        assert "thread talk, 4 messages" in at.text
    assert said(there.asked[2]) == ["first", "one", "second", "two", "third"]


def test_ctrl_c_stops_the_turn_and_keeps_it_and_leaves_at_the_prompt(chat, location):
    with provider(says("half", HOLD), says("whole")) as there:
        at = chat(there).expect("> ").line("first").expect("half").interrupt().expect("cancelled")
        at.expect("> ").line("go on").expect("whole").expect("> ").interrupt()
        assert at.end() == 130
    assert said(there.asked[1])[:2] == ["first", "half"]
    with open_store(location) as store:
        assert store.path("talk")[1].message.text == "half"


def test_the_window_of_a_chat_has_only_the_tools_that_are_sent(process):
    with provider(says("ok")) as there:
        done = process("chat", "--model", MODEL, data=b"first\n/context\n", **there.env)
    assert "tools" not in there.asked[0]
    assert "user" in done.err
    assert "tool definitions" not in done.err


def test_the_help_is_whole_in_a_narrow_terminal(chat):
    with provider() as there:
        at = chat(there, COLUMNS="40").expect("> ").line("/help").expect("stops a turn\n> ").type("\x04")
        assert at.end() == 0
    assert "the original stays as a branch" in " ".join(at.text.split())


def test_lines_that_end_in_a_backslash_go_on(chat):
    with provider(says("ok")) as there:
        at = chat(there).expect("> ").line("one \\").expect("… ").line("two").expect("ok").expect("> ").type("\x04")
        assert at.end() == 0
    assert said(there.asked[0]) == ["one \ntwo"]


def test_a_turn_is_taken_back(chat):
    with provider(says("one"), says("two"), says("other")) as there:
        at = chat(there).expect("> ").line("/undo").expect("nothing to undo")
        at.expect("> ").line("first").expect("one").expect("> ").line("second").expect("two")
        at.expect("> ").line("/undo").expect("undone: second").expect("> ").line("instead").expect("other")
        assert at.expect("> ").type("\x04").end() == 0
    assert said(there.asked[2]) == ["first", "one", "instead"]


def test_a_branch_is_begun_and_the_old_one_stays(chat, location):
    with provider(says("one"), says("there"), says("here")) as there:
        at = chat(there).expect("> ").line("first").expect("one").expect("> ").line("/fork").expect("on branch chat-2")
        at.expect("> ").line("/fork chat-2").expect("branch chat-2 exists already").expect("> ").line("/fork b")
        at.expect("on branch b").expect("> ").line("second").expect("there").expect("> ").type("\x04")
        at.expect("--thread talk@b")
        assert at.end() == 0
    with open_store(location) as store:
        assert [entry.message.text for entry in store.path("talk")] == ["first", "one"]
        assert [entry.message.text for entry in store.path("talk", "b")] == ["first", "one", "second", "there"]


def test_the_model_changes_in_the_middle(chat):
    with provider(says("one")) as there:
        at = chat(there).expect("> ").line("first").expect("one").expect("> ").line("/model nobody/x")
        at.expect("no provider 'nobody'").expect("> ").line("/model demo").expect("demo/script")
        at.expect("> ").line("second").expect("I am a script").expect("> ").type("\x04")
        assert at.end() == 0


def test_what_there_is_is_said(chat):
    with provider(says("one")) as there:
        at = chat(there, "--tools", "files").expect("> ").line("/help").expect("/undo").expect("> ").line("/tools")
        at.expect("read_file (read): Read a text file.").expect("write_file (write)").expect("> ").line("/cost")
        at.expect("0 tokens in, 0 out").expect("> ").line("/nothing").expect("unknown command /nothing")
        assert at.expect("> ").type("\x04").end() == 0


def test_an_approval_is_asked_also_when_another_process_left_it(chat, tmp_path):
    write = calls("write_file", {"path": "a.txt", "content": "hi"})
    with provider(write, says("done")) as there:
        at = (
            chat(there, "--tools", "files")
            .expect("> ")
            .line("write")
            .expect("? write_file wants to run")
            .expect("all\n? ")
        )
        at.interrupt().expect("> ").interrupt()
        assert at.end() == 130
        assert not (tmp_path / "a.txt").exists()
        at = chat(there, "--tools", "files").expect("? write_file wants to run").expect("all\n? ").line("y")
        at.expect("done").expect("> ").type("\x04")
        assert at.end() == 0
    assert (tmp_path / "a.txt").read_text() == "hi"


def test_what_is_typed_meanwhile_is_heard_at_the_next_step(chat, saved):
    saved("hi", "a.txt")
    read = [HOLD, *calls("read_file", {"path": "a.txt"})]
    with provider(read, says("done")) as there:
        at = chat(there, "--tools", "files").expect("> ").line("read").expect("the model").line("and hurry")
        at.expect("the agent gets this")
        there.go.set()
        at.expect("done").expect("> ").type("\x04")
        assert at.end() == 0
    assert "and hurry" in json.dumps(there.asked[1])


def test_lines_of_a_pipe_are_turns(process):
    with provider(says("one"), says("two")) as there:
        done = process("chat", "--model", MODEL, data=b"first\n\nsecond\n", **there.env)
    assert (done.code, done.out) == (0, "one\ntwo\n")


def test_a_tool_that_cannot_be_stopped_does_not_hold_up_ctrl_c(chat, saved):
    saved("import time\ndef nap() -> str:\n    'Sleep.'\n    time.sleep(30)", "nap.py")
    with provider(calls("nap", {}), says("well")) as there:
        at = chat(there, "--tools", "nap.py", "--approve", "allow").expect("> ").line("sleep").expect("→ nap()")
        at.interrupt().expect("cancelled").expect("> ").line("and?").expect("well").expect("> ").type("\x04")
        assert at.end() == 0


def test_a_second_ctrl_c_in_a_turn_leaves_and_the_thread_can_go_on(chat, saved):
    nap = (
        "async def nap() -> str:\n    'Sleep.'\n    with anyio.CancelScope(shield=True):\n        await anyio.sleep(1)"
    )
    saved(f"import anyio\n{nap}", "nap.py")
    with provider(calls("nap", {}), says("well")) as there:
        at = chat(there, "--tools", "nap.py", "--approve", "allow").expect("> ").line("sleep").expect("→ nap()")
        at.interrupt().expect("^C").interrupt().expect("continue: palaver chat --thread talk")
        assert at.end() == 130
        at = chat(there).expect("> ").line("and?").expect("well").expect("> ").type("\x04")
        assert at.end() == 0


def test_nothing_said_leaves_no_thread(chat, process):
    with provider() as there:
        assert chat(there).expect("> ").type("\x04").end() == 0
    assert process("threads").err.startswith("no thread in")
