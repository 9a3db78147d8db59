"""A progress bar is seen on a terminal, when the work takes long, and never elsewhere."""

import os
import pty
import subprocess
import sys

import pytest

import palaver as p
from palaver.cli import progress
from palaver.store import open_store


@pytest.fixture
def terminal(tmp_path, monkeypatch):
    """Run a command whose standard error is a terminal; gives what was seen there, and standard output."""

    def terminal_(code):
        ours, theirs = pty.openpty()
        env = {**os.environ, "PALAVER_STORE": str(tmp_path / "palaver.db"), "TERM": "xterm", "COLUMNS": "80"}
        script = tmp_path / "script.py"
        script.write_text(code)
        with open_store(tmp_path / "palaver.db") as store:
            store.append(store.create("x").id, [p.user("hi")] * 3)
        with subprocess.Popen(
            [sys.executable, script], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=theirs
        ) as running:
            os.close(theirs)
            seen = b""
            while chunk := _read(ours):
                seen += chunk
            out = running.stdout.read()
        os.close(ours)
        assert running.returncode == 0, seen
        return seen.decode(), out.decode()

    return terminal_


def _read(file):
    try:
        return os.read(file, 1 << 16)
    except OSError:  # Linux says so when the other end is closed
        return b""


VERIFY = "import sys; from palaver.cli import main, progress; progress._DELAY = {}; sys.exit(main({}))"


def test_a_bar_is_drawn_when_it_takes_long_and_taken_away(terminal):
    seen, out = terminal(VERIFY.format(-1, ["verify"]))
    assert "verifying" in seen
    assert seen.endswith(("\x1b[?25h", "\x1b[2K", "\r", "\x1b[1A\x1b[2K")), seen[-40:]
    assert out.startswith("1 thread, 3 messages")


def test_lines_go_to_their_file_while_a_bar_is_drawn(terminal, tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_bytes(p.dump_conversation(p.Request(messages=(p.user(str(number)),))))
    files = [f"{number}.jsonl" for number in range(3)]
    seen, out = terminal(VERIFY.format(-1, ["import", *files]))
    assert "importing" in seen
    assert [line.partition(":")[0] for line in out.splitlines()] == [*files, "3 files"]


def test_what_is_quick_is_done_without_a_bar(terminal):
    seen, out = terminal(VERIFY.format(3600, ["verify"]))
    assert (seen, out.startswith("1 thread")) == ("", True)


def test_no_progress_is_shown_without_a_terminal(capsys):
    with progress.bar("working") as told:
        assert told is None
