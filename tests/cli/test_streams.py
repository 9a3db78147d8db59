"""A recorded stream is shown and converted as the answer it assembles to; one that failed says so."""

import base64

import pytest

from palaver import wires
from palaver.testing.tables import row
from tests.cli import streams

HI = {"role": "user", "content": "hi"}
ANTHROPIC = streams.ANTHROPIC
ERROR = streams.sse({"type": "error", "error": {"type": "overloaded_error", "message": "too busy"}}, named=True)


@pytest.fixture
def stream(tmp_path):
    """Write bytes into a file of the folder."""

    def stream_(data, name="stream"):
        file = tmp_path / name
        file.write_bytes(data)
        return file

    return stream_


def exchange(stream):
    request = {"model": "claude-x", "max_tokens": 9, "messages": [HI]}
    return {"request": request, "stream": stream.decode()}


@pytest.mark.parametrize("wire", streams.STREAMS)
def test_a_stream_of_every_wire_is_shown(run, stream, wire):
    done = run("show", stream(row(streams.STREAMS, wire, "STREAMS in tests/cli/streams.py")))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{wire} · response")
    assert "│ I look." in done.out


@pytest.mark.parametrize("wire", streams.STREAMS)
def test_a_stream_of_every_wire_is_converted(run, stream, wire):
    done = run("convert", stream(row(streams.STREAMS, wire, "STREAMS in tests/cli/streams.py")), "--to", "palaver")
    assert (done.code, done.err.splitlines()[0]) == (0, f"{wire} → palaver: a response, nothing lost")
    answer = wires.get(wire).stream_decoder()
    answer.feed(row(streams.STREAMS, wire, "STREAMS in tests/cli/streams.py"))
    assert done.json["message"]["finish_reason"] == answer.finish().finish_reason
    assert (
        done.json["message"]["content"][0] == {"type": "text", "text": "I look."} | done.json["message"]["content"][0]
    )


def test_an_array_of_gemini_is_a_stream_too(run, stream):
    done = run("show", stream(streams.GEMINI_ARRAY))
    assert (done.code, done.err) == (0, "")
    assert "│ I look." in done.out


def test_line_ends_and_a_byte_order_mark_do_not_matter(run, stream):
    plain = run("show", stream(ANTHROPIC))
    assert run("show", stream(b"\xef\xbb\xbf" + ANTHROPIC.replace(b"\n", b"\r\n"))) == plain


def test_a_byte_order_mark_before_lines_does_not_matter(run, stream):
    assert run("show", stream(b"\xef\xbb\xbf" + streams.OLLAMA)) == run("show", stream(streams.OLLAMA))


# -- which wire ----------------------------------------------------------------------------------------------------


def test_the_wire_can_be_named_and_must_agree(run, stream):
    file = stream(ANTHROPIC)
    assert run("show", file, "--from", "anthropic_messages").code == 0
    done = run("show", file, "--from", "ollama_chat")
    assert done.code == 1
    assert done.err == f"palaver: {file}: a recorded stream of anthropic_messages, not of ollama_chat\n"


def test_a_stream_that_nothing_tells_needs_a_name(run, stream):
    file = stream(b'data: {"novel": 1}\n\n')
    assert run("show", file).err == f"palaver: {file}: a recorded stream of an unknown wire; choose one with --from\n"
    assert "the stream broke off" in run("show", file, "--from", "anthropic_messages").err


# -- streams that failed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (ANTHROPIC.partition(b"event: message_delta")[0], "the stream broke off: it ended before the answer was"),
        (
            ANTHROPIC.partition(b"event: message_delta")[0] + ERROR,
            "the provider ended the stream with an error: too busy",
        ),
        (ANTHROPIC.replace(b'"look."', b"look."), "the stream is corrupt: not JSON"),
    ],
    ids=["torn", "provider", "corrupt"],
)
def test_what_came_of_a_failed_stream_is_shown_and_not_converted(run, stream, tmp_path, data, why):
    file = stream(data)
    shown = run("show", file)
    assert shown.code == 1
    assert "│ I " in shown.out
    assert "■ error" in shown.out
    assert shown.err.startswith(f"palaver: {file}: anthropic_messages: {why}")
    assert shown.err.count("\n") == 1
    refused = run("convert", file, "--to", "openai_chat", "-o", tmp_path / "out.json")
    assert (refused.code, refused.out, refused.err) == (1, "", shown.err)
    assert not (tmp_path / "out.json").exists()


# -- streams in an exchange ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("base64_", [False, True], ids=["text", "base64"])
def test_the_stream_of_an_exchange_is_its_answer(run, saved, base64_):
    record = exchange(ANTHROPIC)
    if base64_:
        record["stream_base64"] = base64.b64encode(record.pop("stream").encode()).decode()
    shown = run("show", saved(record))
    assert (shown.code, shown.err) == (0, "")
    assert "│ I look." in shown.out
    done = run("convert", saved(record), "--to", "openai_chat")
    assert [m["content"] for m in done.json["messages"]] == ["hi", "I look."]


@pytest.mark.parametrize(
    ("data", "note", "messages"),
    [
        (
            ANTHROPIC.partition(b"event: message_delta")[0],
            "the answer is incomplete: anthropic_messages: the stream br",
            2,
        ),
        (ERROR, "the answer is left out: anthropic_messages: the provider ended the stream with an error: too busy", 1),
    ],
    ids=["some", "nothing"],
)
def test_a_failed_stream_of_an_exchange_is_a_note(run, saved, data, note, messages):
    file = saved(exchange(data))
    shown = run("show", file)
    assert shown.code == 0
    assert shown.err.startswith(f"{file}: {note}")
    done = run("convert", file, "--to", "palaver")
    assert (done.code, done.out.count("\n")) == (0, 1 + messages)
    assert done.err.startswith(f"{file}: {note}")


def test_the_stream_of_an_exchange_decides_between_wires(run, saved):
    record = exchange(ANTHROPIC)
    record["request"]["model"] = "m"
    done = run("convert", saved(record), "--to", "palaver")
    assert done.code == 0
    assert done.err.splitlines()[0] == "anthropic_messages → palaver: a request of 2 messages, nothing lost"


def test_a_stream_that_is_no_base64_says_where(run, saved):
    file = saved({**exchange(b""), "stream": None, "stream_base64": "***"})
    assert run("show", file).err.startswith(f"palaver: {file}: stream_base64: not base64: ")


# -- events --------------------------------------------------------------------------------------------------------


def test_events_are_listed_one_a_line(run, stream):
    done = run("show", "--events", stream(ANTHROPIC))
    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    names = ["start", "usage", "part_start", "text_delta", "text_delta", "part_end", "usage", "finish"]
    assert [line[0] for line in lines] == names
    assert lines[3] == ["text_delta", "0", '"I', '"']
    assert lines[-1] == ["finish", "stop", "·", "end_turn"]
    assert max(map(len, done.out.splitlines())) == 100


def test_events_of_an_exchange_are_those_of_its_stream(run, saved, stream):
    assert run("show", "--events", saved(exchange(ANTHROPIC))) == run("show", "--events", stream(ANTHROPIC))


def test_the_events_of_a_failed_stream_end_in_its_failure(run, stream):
    file = stream(ANTHROPIC[:-100])
    done = run("show", "--events", file)
    assert done.code == 1
    assert done.out.splitlines()[-1].startswith("failed")
    assert done.err.startswith(f"palaver: {file}: torn: ")


def test_what_an_exchange_holds_is_read_as_the_wire_that_was_named(run, saved):
    file = saved(exchange(b"garbage"))
    assert "no recorded stream" in run("show", "--events", file).err
    assert run("show", "--events", file, "--from", "anthropic_messages").out.startswith("failed")


@pytest.mark.parametrize("body", [{"request": {"messages": [HI]}}, {"model": "m", "messages": [HI], "stream": True}])
def test_what_is_no_stream_has_no_events(run, saved, body):
    file = saved(body)
    done = run("show", "--events", file)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"palaver: {file}: there is no recorded stream in it\n"


def test_a_message_cannot_steer_the_terminal_through_its_events(run, stream):
    done = run("show", "--events", stream(ANTHROPIC.replace(b"look.", b"\\u001b[2J\\u202e\\ud800")))
    assert done.code == 0
    assert not {"\x1b", "\u202e", "\ud800"} & set(done.out)


def test_a_long_delta_is_shortened(run, stream):
    done = run("show", "--events", stream(ANTHROPIC.replace(b"look.", b"x" * 9000)))
    (line,) = [line for line in done.out.splitlines() if "xx" in line]
    assert (len(line), line[-3:]) == (100, "xx…")
