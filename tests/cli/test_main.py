"""What goes wrong is one line and an exit code, never a traceback."""

import fcntl
import os
import signal
import subprocess
import sys
import termios

import pytest

HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ('{"a":', "not JSON: expecting value: line 1 column 6 (char 5)"),
        ('{"a": 1}', "neither a request nor a response of a known wire (it is an object with a)"),
        ("{}", "neither a request nor a response of a known wire (it is an empty object)"),
        ("[1, 2]", "neither a request nor a response of a known wire (it is a list of 2)"),
        ("17", "neither a request nor a response of a known wire (it is a number)"),
        ('{"model":"gpt-5","messages":[{"role":"user","content":7}]}', "openai_chat: messages[0].content"),
        ('data: {"novel":1}\n\n', "a recorded stream of an unknown wire; choose one with --from"),
        ('{"request":{"model":"gpt-5","messages":[{"content":[]}]}}', "openai_chat: request.messages[0]"),
        ('{"palaver":99}\n', "palaver: line 1, palaver: canonical form version 99"),
        ('{"error":{"message":"no credit","type":"x","param":null,"code":null}}', "an error of openai_chat"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
@pytest.mark.parametrize("command", [("convert", "--to", "palaver"), ("show",)], ids=["convert", "show"])
def test_a_wrong_file_is_one_line_with_place_and_cause(run, saved, text, cause, command):
    file = saved(text)
    done = run(*command, file)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert done.err.startswith(f"palaver: {file}: {cause}")


def test_the_file_is_missing_or_a_folder_or_binary(run, tmp_path):
    missing = run("show", "none.json").err
    assert missing == f"palaver: none.json: no such file, and there is no store at {tmp_path / 'palaver.db'}\n"
    assert run("show", "none.json", "--from", "ollama_chat").err == "palaver: none.json: no such file or directory\n"
    assert run("show", tmp_path).err == f"palaver: {tmp_path}: is a directory\n"
    (tmp_path / "binary").write_bytes(b"\x7fELF\x02\xff")
    assert run("show", "binary").err == "palaver: binary: not UTF-8 at byte 5\n"


def test_a_file_of_another_wire_than_named_says_so(run, saved):
    done = run("show", saved({"model": "gpt-5", "choices": []}), "--from", "ollama_chat")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "neither a request nor a response of ollama_chat" in done.err


@pytest.mark.parametrize(
    ("args", "cause"),
    [
        (["convert", "x"], "Missing option '--to' (see palaver convert --help)"),
        (["convert", "x", "--to", "klingon"], "no wire or transcript format is named 'klingon'"),
        (["convert", "x", "--to", "openai_chat:klingon"], "openai_chat has no variant 'klingon'; there are groq"),
        (["convert", "x", "--to", "palaver", "--from", "klingon"], "no wire 'klingon'"),
        (["convert", "x", "--to", "palaver", "--losses", "hide"], "Invalid value for '--losses'"),
        (["show"], "Missing argument 'FILE|THREAD[@POSITION]' (see palaver show --help)"),
        (["logs", "-n", "x"], "Invalid value for '-n' / '--count': 'x' is not a whole number of at least 1"),
        (["threads", "--limit", "0"], "Invalid value for '-n' / '--limit': '0' is not a whole number of at least 1"),
        (["gc", "--older-than", "x"], "Invalid value for '--older-than': 'x' is not a number of at least 0"),
        (["serve", "f.py", "--port", "1.5"], "Invalid value for '--port': '1.5' is not a whole number from 0 to 65535"),
        (
            ["mcp", "--http", "127.0.0.1:99999"],
            "--http 127.0.0.1:99999: expected HOST:PORT, with a port from 0 to 65535",
        ),
        (
            ["mcp", "--http", "127.0.0.1:\N{ARABIC-INDIC DIGIT THREE}"],
            "--http 127.0.0.1:\N{ARABIC-INDIC DIGIT THREE}: e",
        ),
        (["mcp", "--http", "127.0.0.1"], "--http 127.0.0.1: expected HOST:PORT"),
        (["mcp", "--http", "0.0.0.0:1"], "--http 0.0.0.0:1 is reachable from other machines"),
        (["run", "hi", "-m", "vllm/\udcff"], "Invalid value for '-m' / '--model': 'vllm/\\udcff' is not UTF-8 text"),
        (["run", "hi", "-o", "stop", "\udcff"], "Invalid value for '-o' / '--option': '\\udcff' is not UTF-8 text"),
        (["run", "hi", "--schema", '{"\udcff": 1}'], "Invalid value for '--schema': '{\"\\udcff\": 1}' is not UTF-8"),
        (["run", "hi", "--schema", "a: \udcff"], "Invalid value for '--schema': 'a: \\udcff' is not UTF-8 text"),
        (["sing"], "No such command 'sing' (see palaver --help)"),
        (["--sing"], "No such option: --sing"),
    ],
)
def test_wrong_usage_is_exit_code_2(run, args, cause):
    done = run(*args)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"palaver: {cause}".replace("option: -", "option")[: len(cause)])


def test_a_name_cannot_steer_the_terminal(run):
    for args in (["\x1b[2J"], ["convert", "\x1b[2J", "--to", "palaver"], ["wires", "--\x9b2J"]):
        done = run(*args)
        assert done.code
        assert not {"\x1b", "\x9b"} & set(done.err)


def test_help_and_version(run):
    assert "convert" in run("--help").out
    assert "receipt" in run("convert", "-h").out
    assert run("--version").out.startswith("palaver ")
    assert (run().code, "Usage" in run().err) == (2, True)


def test_the_schema_is_json(run):
    assert run("schema").json["$id"] == "urn:palaver:schema:1"


# -- the real process ----------------------------------------------------------------------------------------------


def test_the_real_process_converts_standard_input(process):
    body = b'{"model":"gpt-5","messages":[{"role":"user","content":"hi","name":"ada"}]}'
    done = process("convert", "-", "--to", "ollama_chat", data=body)
    assert done.code == 0
    assert done.json["messages"] == [HI]
    assert done.err.startswith("openai_chat → ollama_chat")
    assert process("convert", "-", "--to", "ollama_chat", "--losses", "raise", data=body).code == 1
    assert process("show", "-", data=b"{").err == (
        "palaver: standard input: not JSON: expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)\n"
    )


def test_a_command_that_does_not_draw_does_not_import_rich(process, saved, chat):
    code = (
        "import sys; from palaver.cli import main; main(); print([m for m in ('rich', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "convert", saved(chat), "--to", "ollama_chat", "-o", os.devnull],
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"[]\n"


def test_the_list_of_commands_imports_none_of_them(process):
    code = (
        "import sys; from palaver.cli import main; main(); names = ('httpx', 'anyio', 'mcp', 'rich', 'palaver.agent', "
        "'palaver.models', 'palaver.store'); print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"[]"


def test_nothing_is_said_when_the_reader_goes_away(saved, chat):
    chat["messages"] *= 2_000
    command = f"{sys.executable} -m palaver show {saved(chat)} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (141, b"")
    assert done.stdout.startswith(b"openai_chat")


def test_ctrl_c_is_quiet():
    running = subprocess.Popen(
        [sys.executable, "-m", "palaver", "show", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell starts what it puts in the background deaf to Ctrl-C, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
    )
    running.stdin.write(b"{")
    running.stdin.flush()
    left = b"\x01"
    while any(left):  # until it reads, and so is past its imports
        left = fcntl.ioctl(running.stdin, termios.FIONREAD, bytes(4))
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err.strip()) == (130, b"")
