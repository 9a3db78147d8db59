"""``palaver import --watch`` follows files while they are written; ``palaver today`` shows what was done."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from time import time

import pytest

import palaver as p
from palaver.cli import folder_watch, main
from palaver.cli.session_places import session_folders
from tests.transcripts.samples import FOLDER

SESSION = (FOLDER / "claude_code" / "gauge.jsonl").read_bytes()


def settle(file):
    os.utime(file, (time() - 3600, time() - 3600))


@pytest.fixture
def watched(tmp_path):
    """Watch a folder by a process of its own; the first two lines say that it does."""
    pytest.importorskip("watchfiles")
    (tmp_path / "in").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "palaver", "import", "--watch", "in"],
        cwd=tmp_path,
        env={**os.environ, "PALAVER_STORE": str(tmp_path / "palaver.db"), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
    )
    try:
        assert process.stdout.readline().startswith("0 files: ")
        assert process.stdout.readline() == "watching in; Ctrl-C ends it\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_session_is_followed_while_it_is_written(watched, tmp_path, kept):
    file = tmp_path / "in" / "session.jsonl"
    lines = SESSION.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:20]) + lines[20][:9])
    assert watched.stdout.readline().startswith("in/session.jsonl: 12 messages, 12 new, thread ")
    with file.open("ab") as writing:
        writing.write(lines[20][9:] + b"".join(lines[21:]))
    settle(file)
    assert ", 13 new, thread " in watched.stdout.readline()
    watched.send_signal(signal.SIGINT)
    _, err = watched.communicate(timeout=60)
    assert watched.returncode == 130
    assert "stopped; 25 new messages in 1 thread; import again to continue" in err
    assert "palaver:" not in err
    followed = kept(lambda store: [each.id for info in store.threads() for each in store.path(info.id)])
    assert main(["import", str(file), "--into", str(tmp_path / "once.db")]) == 0
    with p.store.open_store(str(tmp_path / "once.db")) as once:
        assert followed == [each.id for info in once.threads() for each in once.path(info.id)]


def test_a_file_that_is_gone_or_replaced_is_no_error(watched, tmp_path):
    file = tmp_path / "in" / "session.jsonl"
    file.write_bytes(SESSION[:50])
    file.unlink()
    (tmp_path / "in" / ".new").write_bytes(SESSION)
    settle(tmp_path / "in" / ".new")
    (tmp_path / "in" / ".new").replace(file)
    assert watched.stdout.readline().startswith("in/session.jsonl: 25 messages, 25 new")
    watched.send_signal(signal.SIGINT)
    assert "palaver:" not in watched.communicate(timeout=60)[1]


def test_files_are_due_when_they_changed_or_are_settled(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for each in (old, new):
        each.touch()
    settle(old)
    waiting = {str(old), str(new), str(tmp_path / "gone")}
    assert list(folder_watch.due(iter([set(), {"c"}]), waiting)) == [
        [str(tmp_path / "gone"), str(old)],
        [*sorted(["c", str(tmp_path / "gone"), str(old)], key=str)],
    ]


def test_a_missing_package_names_its_extra(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    done = run("import", "--watch", tmp_path)
    assert (done.code, "pip install 'palaver[watch]'" in done.err) == (1, True)


def test_without_a_folder_the_agents_of_the_machine_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".codex" / "sessions").mkdir(parents=True)
    assert session_folders({"CLAUDE_CONFIG_DIR": "/nowhere"}) == [tmp_path / ".codex" / "sessions"]


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Write a session of Claude Code with an answer of yesterday and one of now."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    for name in ("CODEX_HOME", "GEMINI_CLI_HOME", "QWEN_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    file = tmp_path / "claude" / "projects" / "-w" / "s.jsonl"
    file.parent.mkdir(parents=True)
    lines = []
    for number, at in enumerate([datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC)]):
        usage = {"input_tokens": 1_000_000, "output_tokens": 100_000}
        answer = {"id": f"m{number}", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn"}
        answer |= {"type": "message", "content": [{"type": "text", "text": "yes"}], "usage": usage}
        about = {
            "sessionId": "5a2c0000-0000-4000-8000-000000000001",
            "cwd": "/w",
            "timestamp": f"{at:%Y-%m-%dT%H:%M:%S.000Z}",
        }
        asked = {"type": "user", "uuid": f"u{number}", "message": {"role": "user", "content": f"task {number}"}}
        up = None if not number else "a0"
        lines += [{**asked, **about, "parentUuid": up}]
        lines += [{"type": "assistant", "uuid": f"a{number}", "parentUuid": f"u{number}", "message": answer, **about}]
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return file


def test_today_has_the_messages_since_midnight_with_their_cost(run, session):
    run("import", session)
    row = run("today", "--since", "1h", "--json").json
    assert (row["agent"], row["title"], row["folder"], row["messages"]) == ("Claude Code", "task 0", "/w", 2)
    assert (row["input_tokens"], row["output_tokens"], row["cost"]) == (1_000_000, 100_000, pytest.approx(4.5))
    assert run("today", "--since", "2019-01-01", "--json").json["messages"] == 4
    done = run("today", "--since", "1h")
    assert done.out.splitlines()[-1] == "1 thread: 2 messages, 1,000,000 in, 100,000 out, $4.5000"
    assert done.err == ""


def test_today_says_when_the_store_is_behind(run, session, saved):
    run("import", saved([{"role": "user", "content": "hi"}]))
    assert "1 session file changed since the last import; palaver import --watch keeps up" in run("today").err
