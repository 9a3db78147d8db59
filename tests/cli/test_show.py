"""A conversation is drawn: who speaks, what was called with what result, and never a byte of an image."""

import pytest

from palaver import Image, Reasoning, Request, assistant, dump_conversation, flush, rescue, tool, tool_call, user
from palaver.core.parts import Citation, MalformedToolCall, Refusal, Text
from palaver.core.usage import Usage


@pytest.fixture
def show(run, tmp_path):
    """Show messages; gives the lines."""

    def show_(*messages, args=(), **fields):
        file = tmp_path / "conversation.jsonl"
        file.write_bytes(dump_conversation(Request(messages=messages, **fields)))
        done = run("show", file, *args)
        assert (done.code, done.err) == (0, "")
        return done.out.splitlines()

    return show_


def test_speakers_and_their_words(show):
    lines = show(user("one\ntwo", agent="ada", tags=("x",)), assistant("three", model="m", source="clock"), model="m")
    assert lines == [
        "palaver · request · m · 2 messages",
        "",
        "user · ada · #x",
        "│ one",
        "│ two",
        "",
        "assistant · from clock · m",
        "│ three",
        "",
    ]


def test_a_result_stands_beneath_its_call_and_nowhere_else(show):
    calls = (tool_call("f", {"a": 1}, id="1"), tool_call("g", id="2"), tool_call("h", {"t": "x" * 80}, id="3"))
    results = (
        tool("two\nlines", tool_call_id="2", is_error=True),
        tool({"n": 1}, tool_call_id="1"),
        tool("whose?", tool_call_id="9"),
    )
    assert show(assistant("", tool_calls=calls), *results)[2:] == [
        "assistant",
        "│ ",
        "│ → f(a: 1)",
        '│ │ ← {"n": 1}',
        "│ → g()",
        "│ │ ← error",
        "│ │ │ two",
        "│ │ │ lines",
        "│ → h",
        f"│ │ t: {'x' * 80}",
        "│ │ ← no result",
        "",
        "tool",
        "│ whose?",
        "",
    ]


def test_an_id_that_is_used_twice_is_answered_twice(show):
    call = tool_call("f", id="1")
    again = (assistant(tool_calls=(call,)), tool("first", tool_call_id="1"))
    once_more = (assistant(tool_calls=(call,)), tool("second", tool_call_id="1"))
    lines = [line for line in show(*again, *once_more) if "←" in line]
    assert lines == ["│ │ ← first", "│ │ ← second"]


def test_reasoning_is_folded_until_asked_for(show):
    message = assistant(Reasoning("first\nsecond " + "x" * 200, signature="s"), Reasoning(encrypted="e"))
    assert show(message)[3:5] == ["│ ▸ reasoning (213 characters, signed): first", "│ ▸ reasoning (encrypted)"]
    assert "│ │ first" in show(message, args=("--reasoning",))
    assert sum("x" in line for line in show(message, args=("--full",))) == 3


def test_media_is_its_type_and_size(show):
    message = user(Image.from_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 2000), Image.from_url("https://x.example/y.png"))
    assert show(message)[3:5] == ["│ ▣ image · image/png · 2.0 KB", "│ ▣ image · image/png · https://x.example/y.png"]


def test_what_is_rare_is_drawn_too(show):
    message = assistant(
        MalformedToolCall(raw='{"a": ', reason="not JSON", name="f", id="1"),
        Text("words", (Citation(url="https://x.example", title="X", quote="said so"),)),
        Refusal("no"),
        Text(""),
        usage=Usage(input=1200, cache_read=0, output=5),
        finish_reason="stop",
        finish_reason_raw="end_turn",
    )
    assert show(message)[3:] == [
        "│ ✗ f malformed: not JSON",
        '│ │ {"a": ',
        "│ words",
        "│ │ [1] X · https://x.example “said so”",
        "│ refused: no",
        "│ ",
        "│ ■ stop (end_turn) · 1,200 in · 5 out",
        "",
    ]


def test_long_results_are_folded_and_say_so(show):
    messages = (assistant(tool_calls=(tool_call("f", id="1"),)), tool("line\n" * 100, tool_call_id="1"))
    assert "… 471 more characters" in "\n".join(show(*messages))
    assert sum("line" in line for line in show(*messages, args=("--full",))) == 100


def test_markers_are_rules(show):
    lines = show(user("a"), rescue("timed out"), flush())
    assert "rescue: timed out" in lines[5]
    assert "── flush ──" in lines[7]


def test_a_message_cannot_steer_the_terminal(show):
    lines = show(user("\x1b[2Jgone \x07\r\nnext \ud800 \u202e[bold]x[/bold] :smile:"))
    assert lines[3:5] == ["│ ␛[2Jgone ␇", "│ next � �[bold]x[/bold] :smile:"]


def test_colour_goes_to_terminals_only_and_width_is_kept(process, saved, chat):
    chat["messages"][0]["content"] = "word " * 100
    body = saved(chat)
    plain = process("show", body, COLUMNS="40")
    assert "\x1b" not in plain.out
    assert max(map(len, plain.out.splitlines())) <= 40
    assert "\x1b[" in process("show", body, FORCE_COLOR="1").out
    assert "\x1b[3" not in process("show", body, FORCE_COLOR="1", NO_COLOR="1").out


def test_what_the_terminal_cannot_write_is_replaced(real_process, saved, chat):
    chat["messages"][0]["content"] = "żółw"
    done = real_process("show", saved(chat), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.code, done.err) == (0, "")
    assert "????" not in done.err


def test_an_ambiguous_file_is_shown_with_a_note(run, saved):
    done = run("show", saved({"model": "m", "messages": [{"role": "user", "content": "hi"}]}))
    assert done.code == 0
    assert "│ hi" in done.out
    assert "read as openai_chat; it may also be " in done.err


@pytest.mark.parametrize("args", [(), ("--full",)])
@pytest.mark.recorded(share=8)
def test_every_recording_can_be_shown(run, exchange, args):
    done = run("show", exchange.file, "--from", exchange.wire, *args)
    assert done.code == 0, done.err
    if exchange.record.keys() & {"stream", "stream_base64"}:
        assert done.err == "" or "the provider ended the stream with an error" in done.err
        assert "■ " in done.out.splitlines()[-2]  # there is an answer, also where it failed


def test_the_wires_are_listed(run):
    done = run("wires")
    assert done.code == 0
    assert "variants of openai_chat: compatible, groq" in done.out
