"""`palaver swarm`: a swarm of a file, in a pipe and at a terminal of its own."""

import os
import shlex
import subprocess
import sys
import time

import pytest

from palaver.store import open_store
from palaver.threads.view import DISCARDED
from tests.cli.terminal import Terminal

DESK = '''
import anyio

import palaver as p
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Policy, Swarm, SwarmAgent, navigation, triage


def call(name, **arguments):
    return p.assistant(tool_calls=[p.tool_call(name, arguments, id="c1")])


def first(prompt):
    text = prompt.messages[-1].text
    if text == "buy":
        return call("to_sales")
    if text == "silence":
        return " "
    if text == "rude":
        return "so are you"
    if text == "fail":
        raise RuntimeError("the model is \\x1b[2J out")
    return f"triage heard {text}"


def second(prompt):
    last = prompt.messages[-1]
    if isinstance(last, p.ToolMessage):
        return f"it costs {last.text}"
    return call("price", item="pen") if last.text == "price" else "what shall it be?"


def price(item: str) -> str:
    """Say what something costs."""
    return f"{len(item)} shells"


async def patience(place):
    message = place.session.messages[-1]
    if message.text == "wait":
        await anyio.sleep_forever()
    return ()


triage_ = SwarmAgent(
    "triage",
    ScriptedModel([], then=first),
    tools=[navigation("sales")],
    description="Who comes first.",
    stream=True,
    dynamic=patience,
)
sales = SwarmAgent("sales", ScriptedModel([], then=second), tools=[price, triage()])
manners = Policy("manners", validate_output=lambda text, _: "so are you" not in text, ban_message="Mind your words.")
shop = Swarm("shop", [triage_, sales], policies=[manners])
'''

CLINIC = """
import palaver as p
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Operator, Swarm, SwarmAgent, navigation

nurse = ScriptedModel([p.assistant(tool_calls=[p.tool_call("to_doctor", {}, id="c1")])])
doctor = SwarmAgent("doctor", operator=Operator(timeout=TIMEOUT))
swarm = Swarm("clinic", [SwarmAgent("nurse", nurse, tools=[navigation("doctor")]), doctor])
"""


HARBOUR = """
import palaver as p
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Swarm, SwarmAgent

def brain(prompt):
    last = prompt.messages[-1]
    asks = last.role == "user" and last.text == "book"
    return p.assistant(tool_calls=[p.tool_call("book", {"berth": 7}, id="c1")]) if asks else f"said {last.text}"

def book(berth: int) -> str:
    return f"berth {berth}"

desk = SwarmAgent("desk", ScriptedModel([], then=brain), tools=[book], policy={"book": "ask"})
harbour = Swarm("harbour", [desk])
"""


@pytest.fixture
def desk(saved):
    return saved(DESK, "desk.py")


@pytest.fixture
def clinic(saved):
    return saved(CLINIC.replace("TIMEOUT", "None"), "clinic.py")


@pytest.fixture
def terminal(tmp_path, monkeypatch, desk, fork_server):
    monkeypatch.setenv("PALAVER_STORE", str(tmp_path / "palaver.db"))
    opened = []

    def terminal_(*args, file="desk.py", expect="/help"):
        opened.append(Terminal(fork_server, "swarm", file, *args, cwd=tmp_path))
        return opened[-1].expect(expect)

    yield terminal_
    for each in opened:
        each.close()


def test_one_message(run, desk):
    done = run("swarm", "desk.py", "--message", "hello", "--client", "ann")
    assert (done.code, done.out) == (0, "triage heard hello\n")
    assert done.err == "triage\ncontinue: palaver swarm desk.py --client ann\n"


def test_a_hand_over_and_a_call_are_lines_aside_and_the_client_goes_on(run, desk, location, tmp_path):
    done = run("swarm", "desk.py:shop", "--message", "buy", "--client", "ann", "--store", tmp_path / "other.db")
    assert (done.code, done.out) == (0, "what shall it be?\n")
    said = done.err.splitlines()
    assert said[0] == "→ to_sales()"
    assert said[1].startswith("← to_sales Successfully navigated from triage to sales.")
    assert said[2:] == [
        "⇒ sales",
        "sales",
        f"continue: palaver swarm desk.py:shop --store {tmp_path / 'other.db'} --client ann",
    ]
    again = run("swarm", "desk.py", "--message", "price", "--client", "ann", "--store", tmp_path / "other.db")
    assert (again.code, again.out) == (0, "it costs 3 shells\n")
    assert again.err.splitlines()[:3] == ["→ price(item: pen)", "← price 3 shells", "sales"]
    assert not location.exists()


def test_a_message_comes_from_standard_input_and_a_new_client_from_nowhere(process, desk, kept):
    done = process("swarm", "desk.py", "--message", "-", data="grüß dich\n".encode())
    assert (done.code, done.out) == (0, "triage heard grüß dich\n")
    client = done.err.split()[-1]
    assert f"shop/{client}" in kept(lambda store: [info.id for info in store.threads()])


def test_a_turn_that_fails_is_one_line_and_cannot_steer_the_terminal(run, desk):
    done = run("swarm", "desk.py", "--message", "fail", "--client", "ann")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[0] == "RuntimeError: the model is ␛[2J out"
    assert len(done.err.splitlines()) == 2


def test_an_answer_that_a_policy_refused_is_not_all_that_is_shown(run, desk, kept):
    done = run("swarm", "desk.py", "--message", "rude", "--client", "ann")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "Mind your words."
    assert "not shown: so are you" in done.err
    path = kept(lambda store: [entry.message for entry in store.path("shop/ann")])
    assert [DISCARDED in (each.tags or ()) for each in path] == [False, True, False]


def test_an_empty_answer_is_reported_once(run, desk):
    done = run("swarm", "desk.py", "--message", "silence", "--client", "ann")
    assert done.code == 0
    assert "rescued: Empty output" in done.err
    assert "not shown" not in done.err


def test_lines_of_a_pipe_are_turns(process, desk):
    done = process("swarm", "desk.py", "--client", "ann", data=b"hello\n\nbuy\n/agent\nprice\n/nothing\n/log\n")
    assert done.code == 0
    assert done.out == "triage heard hello\nwhat shall it be?\nit costs 3 shells\n"
    said = done.err.splitlines()
    assert said[0] == "swarm shop, 2 agents · client ann · /help"
    for line in ("  triage: Who comes first.", "● sales", "unknown command /nothing; /help lists the commands"):
        assert line in said
    assert "user (triage): hello" in said
    assert "assistant (sales): it costs 3 shells" in said
    assert "  → price(item: pen)" in said


@pytest.mark.parametrize("handler", ["strict", "surrogateescape"])
def test_lines_that_are_no_utf8_are_read_all_the_same(real_process, desk, handler):
    data = b"gr\xfc\xdf dich\nfine\n"
    done = real_process("swarm", "desk.py", "--client", "ann", data=data, PYTHONIOENCODING=f"utf-8:{handler}")
    assert (done.code, done.out) == (0, "triage heard gr�� dich\ntriage heard fine\n")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("closed", "out", "err"),
    [("<&-", "triage heard hi\n", "continue: "), (">&-", "", "continue: "), ("2>&-", "triage heard hi\n", "")],
)
def test_a_stream_that_is_closed_stops_nothing(desk, tmp_path, closed, out, err):
    command = shlex.join([sys.executable, "-m", "palaver", "swarm", "desk.py", "--message", "hi"])
    env = {**os.environ, "PALAVER_STORE": str(tmp_path / "palaver.db")}
    line = ["sh", "-c", f"{command} {closed}"]
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, out)
    assert err in done.stderr
    assert "Traceback" not in done.stderr


def test_events_are_lines(run, desk):
    done = run("swarm", "desk.py", "--message", "hello", "--client", "ann", "--events")
    assert done.out == "triage heard hello\n"
    kinds = [line.split("  ")[2] for line in done.err.splitlines() if "  ann  " in line]
    assert kinds == [
        "execution commit-execution-begin",
        "policy validate-input",
        "swarm get-agent-name",
        "swarm get-agent",
        "history push",
        "policy validate-output",
        "history push",
        "agent emit-output",
        "swarm get-agent-name",
        "swarm wait-for-output",
        "session execute",
        "execution commit-execution-end",
    ]


@pytest.mark.parametrize(
    ("kind", "begins"),
    [("markdown", "# Swarm `shop`\n"), ("mermaid", "flowchart LR\n"), ("plantuml", "@startuml\n")],
)
def test_a_swarm_is_drawn(run, desk, location, kind, begins):
    done = run("swarm", "desk.py", "--draw", kind)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(begins)
    assert "to_sales" in done.out
    assert not location.exists()


def test_a_drawing_cannot_steer_the_terminal(terminal, saved):
    saved('name = "sh\\u001bop"\n[agents.a]\nmodel = "openai/gpt-5.2"\ninstructions = "be \\u001b[2J"\n', "shop.toml")
    drawn = terminal("--draw", "markdown", file="shop.toml", expect="be ␛[2J")
    assert "# Swarm `sh␛op`" in drawn.raw
    assert "\x1b" not in drawn.raw


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["none.py"], 1, "none.py: no such file"),
        (["desk.txt"], 2, "neither FILE.py, FILE.py:name, nor FILE.toml"),
        (["desk.py", "--draw", "oil"], 2, "--draw"),
        (["desk.py", "--client", ""], 2, "a client needs a name"),
        (["desk.py", "--client", "shared", "--message", "x"], 1, "a client cannot have the name 'shared'"),
    ],
)
def test_what_is_wrong_is_one_line(run, desk, args, code, said):
    done = run("swarm", *args)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert said in done.err


def test_a_client_who_said_nothing_leaves_no_thread(process, desk, kept):
    done = process("swarm", "desk.py", "--client", "ann", data=b"/quit\n")
    assert done.code == 0
    assert "shop/ann" not in kept(lambda store: [info.id for info in store.threads()])


# -- at a terminal -----------------------------------------------------------------------------------------------------


def test_turns_at_a_terminal_and_another_process_goes_on(terminal):
    at = terminal("--client", "ann").expect("triage> ").line("hello").expect("triage heard hello")
    at.expect("triage> ").line("buy").expect("→ to_sales()").expect("⇒ sales").expect("what shall it be?")
    at.expect("sales> ").line("/agent triage").expect("⇒ triage").expect("triage> ")
    at.line("/agent nobody").expect("unknown agent nobody; /agent lists them").expect("triage> ").line("/quit")
    at.expect("continue: palaver swarm desk.py --client ann")
    assert at.end() == 0
    at = terminal("--client", "ann")
    assert "client ann, 7 messages" in at.text
    at.expect("triage> ").type("\x04")
    assert at.end() == 0


def test_ctrl_c_cancels_a_turn_and_leaves_at_the_prompt(terminal, location):
    at = terminal("--client", "ann").expect("triage> ").line("wait").expect("triage ·").interrupt().expect("stopped")
    at.expect("triage> ").line("hello").expect("triage heard hello").expect("triage> ").interrupt()
    assert at.end() == 130
    with open_store(location) as store:
        assert [entry.message.text for entry in store.path("shop/ann")] == ["wait", "hello", "triage heard hello"]


def test_a_line_that_ends_in_a_backslash_goes_on(terminal):
    at = terminal().expect("triage> ").line("one \\").expect("… ").line("two").expect("triage heard one")
    at.expect("two").expect("triage> ").type("\x04")
    assert at.end() == 0


def test_who_types_is_asked_in_the_place_of_a_person(terminal, clinic, location):
    at = terminal("--client", "ann", file="clinic.py").expect("nurse> ").line("a doctor, please")
    at.expect("⇒ doctor").expect("? doctor is asked: a doctor").expect("as doctor: ").line("here I am")
    at.expect("doctor\n").expect("here I am").expect("doctor> ").line("and now?")
    at.expect("? doctor is asked: and now?").expect("as doctor: ").type("\x04").expect("no answer").expect("doctor> ")
    at.line("hello?").expect("as doctor: ").interrupt().expect("stopped").expect("doctor> ").line("/quit")
    assert at.end() == 0
    with open_store(location) as store:
        path = [entry.message for entry in store.path("clinic/ann")]
        assert [(each.role, each.source) for each in path if each.text == "here I am"] == [("assistant", "operator")]


def test_one_message_at_a_terminal_is_answered_there_too(terminal, clinic):
    at = terminal("--client", "ann", "--message", "help", file="clinic.py", expect="as doctor: ").line("here I am")
    at.expect("doctor\n").expect("here I am").expect("continue: ")
    assert at.end() == 0


def test_an_answer_that_came_too_late_is_reported(terminal, saved):
    saved(CLINIC.replace("TIMEOUT", "1"), "clinic.py")
    at = terminal(file="clinic.py").expect("nurse> ").line("help").expect("as doctor: ")
    time.sleep(4)
    at.line("here I am").expect("the question was closed before the answer").expect("no answer").expect("doctor> ")


def test_in_a_pipe_nobody_is_asked(process, saved):
    saved(CLINIC.replace("TIMEOUT", "0.2"), "clinic.py")
    done = process("swarm", "clinic.py", "--client", "ann", data=b"help\nhere I am\n")
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines().count("no answer") == 2


def test_a_call_that_waits_is_reported_and_decided_by_another_command(run, saved):
    saved(HARBOUR, "harbour.py")
    how = ("swarm", "harbour.py", "--client", "ann")
    done = run(*how, "--message", "book")
    assert (done.code, done.out) == (3, "")
    assert done.err.splitlines()[1:] == [
        "book waits for a decision: c1",
        "continue: palaver swarm harbour.py --client ann --decide c1=approve",
    ]
    done = run(*how, "--decide", "c9=approve")
    assert (done.code, "nothing is pending for call 'c9'" in done.err) == (1, True)
    done = run(*how, "--decide", 'c1=edit:{"berth": 8}')
    assert (done.code, done.out) == (0, "said berth 8\n")
    assert run("swarm", "harbour.py", "--decide", "c1=approve").code == 2


def test_a_call_is_decided_at_the_terminal(terminal, saved):
    saved(HARBOUR, "harbour.py")
    at = terminal("--client", "ann", file="harbour.py").expect("desk> ").line("book")
    at.expect("? book wants to run").expect("berth: 7").expect("all\n? ").type("\x04").expect("desk> ").type("\x04")
    assert at.end() == 0
    at = terminal("--client", "ann", file="harbour.py", expect="all\n? ").line("e").expect("(JSON): ")
    at.line('\x15{"berth": "x"}').expect("(JSON): ").line('\x15{"berth": 9}').expect("said berth 9")
    at.expect("desk> ").type("\x04")
    assert at.end() == 0


def test_one_message_at_a_terminal_asks_for_the_decision(terminal, saved):
    saved(HARBOUR, "harbour.py")
    at = terminal("--message", "book", file="harbour.py", expect="all\n? ").line("r too dear")
    at.expect("said The user rejected the book tool call. Reason: too dear.")
    assert at.end() == 0
