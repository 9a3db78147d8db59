"""Foreign text goes to the terminal through one place, which lets nothing of it steer."""

import ast
import io
import json
import logging
import re
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import palaver as p
from palaver.cli import files, terminal
from palaver.store import open_store
from tests.cli.terminal import Terminal

pytestmark = pytest.mark.finding("F-110")

EVIL = "A\x1b]0;X\x07B\x1b[2JC\x9b31mD\u202eE\x08F\rG\x1b]8;;http://e\x1b\\H\x90I\x7fJ\u2066K"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\r?\x1b\[(?:2K|1A)|\r+(?=\n)")
"""What Rich writes for colours, the cursor and its bars, and the terminal's own line ends."""
CLI = Path(terminal.__file__).parent
WRITERS = {
    "terminal.py": {"print", "sys.stdout.write"},
    "files.py": {"sys.stdout.buffer"},
    "run_renderer.py": {"self.aside.file.write", "to.file.write"},  # a line that is cleared, and pieces as they come
}


def test_nothing_else_writes_to_the_terminal():
    found = {}
    for file in CLI.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Call(func=func):
                    name = ast.unparse(func)
                case ast.Attribute():
                    name = ast.unparse(node)
                    if name != "sys.stdout.buffer":
                        continue
                case _:
                    continue
            writes = re.fullmatch(
                r"print|click\.(echo|secho)|(rich\.)?(print|Console)|sys\.std(out|err)\.(write|buffer)", name
            )
            if writes or name.endswith(".file.write"):
                found.setdefault(file.name, set()).add(name)
    assert found == WRITERS


def request():
    call = {"id": EVIL, "type": "function", "function": {"name": EVIL, "arguments": json.dumps({EVIL: EVIL})}}
    return {
        "model": EVIL,
        "messages": [
            {"role": "user", "content": EVIL, "name": EVIL},
            {"role": "assistant", "content": EVIL, "tool_calls": [call], EVIL: EVIL},
            {"role": "tool", "tool_call_id": EVIL, "content": EVIL},
            {"role": "user", "content": [{"type": "text", "text": EVIL, EVIL: {EVIL: 1}}]},
        ],
        EVIL: {EVIL: EVIL},
    }


def session():
    """A file of pi whose records have keys that the transcript format does not foresee."""
    head = {
        "type": "session",
        "version": 3,
        "id": "s",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "cwd": EVIL,
        EVIL: EVIL,
    }
    said = {"role": "user", "content": [{"type": "text", "text": EVIL}], "timestamp": 1, EVIL: EVIL}
    line = {"type": "message", "id": "a", "parentId": None, "timestamp": "2026-01-01T00:00:00.000Z", "message": said}
    return "".join(json.dumps(each) + "\n" for each in (head, {**line, EVIL: EVIL}, {**line, "type": EVIL, "id": "b"}))


@pytest.fixture
def evil(tmp_path):
    """A folder of files, and a store, in which every text tries to steer."""
    (tmp_path / "req.json").write_text(json.dumps(request()))
    odd = {**request(), "messages": [{"role": EVIL, "content": EVIL}]}
    (tmp_path / "odd.json").write_text(json.dumps(odd, ensure_ascii=False), "utf-8")
    (tmp_path / "bad.json").write_text('{"messages":[{"role":' + json.dumps(EVIL))
    (tmp_path / "pi.jsonl").write_text(session())
    error = {"error": {"message": EVIL, "type": EVIL, "code": EVIL}}
    chunk = {"choices": [{"index": 0, "delta": {"content": EVIL, EVIL: EVIL}}], EVIL: 1}
    (tmp_path / "s.sse").write_text(
        "".join(f"event: x{EVIL[:4]}\ndata: {json.dumps(each)}\n\n" for each in (chunk, error))
    )
    (tmp_path / f"na{EVIL.replace('/', '')}.json").write_text("[" + json.dumps(EVIL))
    with open_store(tmp_path / "palaver.db") as store:
        store.create("evil", title=EVIL, tags=(EVIL,), metadata={EVIL: EVIL})
        call = p.tool_call(EVIL, {EVIL: EVIL}, id=EVIL)
        store.append("evil", [p.user(EVIL), p.assistant(EVIL, tool_calls=[call]), p.tool(EVIL, tool_call_id=EVIL)])
        store.append("evil", [p.user(EVIL, p.Image.from_url(f"http://x/{EVIL}"))])
    return tmp_path


COMMANDS = [
    *(
        ["show", file, *more]
        for file in ("req.json", "odd.json", "bad.json", "pi.jsonl", "s.sse")
        for more in ([], ["--full"])
    ),
    ["show", "s.sse", "--events", "--from", "openai_chat"],
    *(
        ["convert", "req.json", "--to", wire, "-o", "o.json"]
        for wire in ("anthropic_messages", "google_generate", "palaver")
    ),
    ["convert", "req.json", "--to", "cohere_chat", "-o", "o.json", "--losses", "json"],
    ["convert", "req.json", "--to", "cohere_chat", "-o", "o.json", "--losses", "raise"],
    ["convert", "odd.json", "--to", "bedrock_converse", "-o", "o.json"],
    ["convert", "pi.jsonl", "--to", "claude_code", "-o", "o.jsonl"],
    ["convert", "pi.jsonl", "--to", "openai_chat", "-o", "o.json"],
    ["import", "."],
    ["show", "evil"],
    ["show", "evil", "--json"],
    ["threads"],
    ["search", "A"],
    ["context", "evil"],
    ["export", "evil", "--to", EVIL],
    ["show", EVIL],
    ["fork", f"evil@{EVIL}", EVIL],
    ["run", "hi", "--model", EVIL],
    ["threads", "--tag", EVIL],
    ["verify"],
    ["serve", EVIL],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: " ".join(each)[:40].encode("ascii", "replace").decode())
def test_no_command_lets_text_steer(run, evil, command):
    ran = run(*(each.replace("/", "") if each == EVIL else each for each in command))
    for shown in (ran.out, ran.err):
        assert not STEERS.search(shown), (command, STEERS.search(shown))
    assert ran.out + ran.err or ran.code == 0


@pytest.mark.parametrize(
    "command",
    [
        ["convert", "req.json", "--to", "anthropic_messages", "-o", "o.json"],
        ["convert", "odd.json", "--to", "openai_chat"],
        ["show", "pi.jsonl"],
        ["import", "."],
    ],
)
def test_no_command_lets_text_steer_at_a_terminal(evil, command, fork_server):
    at = Terminal(fork_server, *command, cwd=evil, env={"PALAVER_STORE": str(evil / "palaver.db"), "PAGER": "cat"})
    try:
        at.end()
        assert at.text.strip()
        rest = OWN.sub("", at.raw)
        found = STEERS.search(rest)
        assert not found, rest[max(0, found.start() - 60) : found.end() + 60].encode()
    finally:
        at.close()


def test_lines_and_logs_are_harmless(capsys):
    terminal.echo(EVIL)
    terminal.echo(EVIL, err=True, nl=False)
    terminal.sanitize_logs()
    record = logging.LogRecord("x", logging.WARNING, __file__, 1, "%s", (EVIL,), None)
    assert not STEERS.search(logging.lastResort.format(record))
    shown = capsys.readouterr()
    assert shown.out == shown.err + "\n" == terminal.safe(EVIL) + "\n"


def test_drawings_are_harmless_and_keep_their_colours(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(Text(EVIL, "red"))
    terminal.console().print(table)
    drawn = sys.stdout.getvalue()
    assert "\x1b[31m" in drawn
    assert not STEERS.search(OWN.sub("", drawn))


def test_data_at_a_terminal_is_the_same_json_however_it_is_cut(monkeypatch):
    shown = io.StringIO()
    shown.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", shown)
    data = json.dumps({EVIL: EVIL}, ensure_ascii=False).encode()
    with files.open_output(files.STDIO) as out:
        for at in range(len(data)):
            assert out.write(data[at : at + 1]) == 1
    assert not STEERS.search(shown.getvalue())
    assert json.loads(shown.getvalue()) == {EVIL: EVIL}
