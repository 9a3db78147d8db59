"""Measure what it costs to recognise a file: CPU of ``convert`` and ``show`` without ``--from`` and with it.

``python tools/detection_cost.py [--runs 5] [FORM ...]`` makes a file of about 1 MB for each form (a transcript format,
whose sample is repeated, or ``openai_chat``), runs each command in processes of their own, in turn, and prints the
least CPU time, user and system, of each, and the difference. Goal: at most 30 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SIZE = 1 << 20
SAMPLES = Path(__file__).parent.parent / "tests" / "transcripts" / "files"
FORMS = ("openai_chat", "claude_code", "codex", "deepagents", "langchain", "pi")
COMMANDS = {"convert": ("--to", "openai_chat", "-o", os.devnull), "show": ()}


def chat() -> bytes:
    """Return a request of 1 MB, as agents send it: calls with their results."""
    messages: list[dict[str, object]] = [{"role": "system", "content": "You know the tides."}]
    size = 0
    while size < SIZE:
        name = f"call_{len(messages)}"
        call = {"id": name, "type": "function", "function": {"name": "tide", "arguments": '{"harbour":"Husum"}'}}
        turn: list[dict[str, object]] = [
            {"role": "user", "content": "When can we enter Husum? " * 20},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": name, "content": "high water in Husum at 18:42 " * 30},
            {"role": "assistant", "content": "High water is at 18:42. " * 20},
        ]
        messages += turn
        size += len(json.dumps(turn))
    return json.dumps({"model": "gpt-5", "messages": messages}).encode()


def made(form: str) -> tuple[bytes, str]:
    """Return a file of about 1 MB of a form, and the end of its name: the first sample's messages over and over."""
    if form == "openai_chat":
        return chat(), ".json"
    path = next(each for each in sorted((SAMPLES / form).glob("*")) if each.suffix in {".jsonl", ".json"})
    data = path.read_bytes()
    if path.suffix == ".jsonl":
        lines = data.rstrip(b"\n") + b"\n"
        return lines * (SIZE // len(lines) + 1), path.suffix
    value = json.loads(data)
    if isinstance(value, list):
        return json.dumps(value * (SIZE // len(data) + 1)).encode(), path.suffix
    value["messages"] *= SIZE // len(data) + 1
    return json.dumps(value).encode(), path.suffix


def cpu(command: list[str]) -> float:
    """Run a command; return its CPU seconds. Raises ``RuntimeError`` with what it said when it fails."""
    before = os.times()
    done = subprocess.run(command, capture_output=True, check=False)
    after = os.times()
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    return after.children_user + after.children_system - before.children_user - before.children_system


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure what it costs to recognise a file.")
    parser.add_argument("forms", nargs="*", default=FORMS, metavar="FORM")
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args(arguments)
    print(f"{'form':<18}{'command':<10}{'with --from':>12}{'without':>10}{'more':>8}")
    palaver = [sys.executable, "-c", "from palaver.cli import run; run()"]
    with tempfile.TemporaryDirectory() as folder:
        for form in chosen.forms:
            data, suffix = made(form)
            path = Path(folder) / f"{form}{suffix}"
            path.write_bytes(data)
            for name, rest in COMMANDS.items():
                plain = [*palaver, name, str(path), *rest]
                pairs = [(cpu([*plain, "--from", form]), cpu(plain)) for _ in range(chosen.runs)]
                named, without = (min(each) for each in zip(*pairs, strict=True))
                print(f"{form:<18}{name:<10}{named:>11.2f}s{without:>9.2f}s{without / named - 1:>+8.0%}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
