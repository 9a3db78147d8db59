"""Cases: whole processes, started anew each time: importing palaver, and ``palaver convert``.

Rules:

- Wall time and CPU time (user and system) of the whole process, the interpreter's own start included.
  Both are held against the target.
- Memory is the peak of the process that the kernel reports to the process itself.
- One start before the first is not counted: it warms the disk and writes the byte code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import conversations
from measure import Row, Spread, describe

if TYPE_CHECKING:
    from collections.abc import Sequence

_PEAK = """
import sys
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
except OSError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
sys.stdout.write(str(peak))
"""
_PEERS = ("msgspec", "pydantic", "langchain_core.messages", "openai", "pydantic_ai", "anthropic")
_TARGETS = {"wall": 60.0, "CPU": 60.0, "memory": 25.0}
_CONVERT_MS = 150.0
_MB = 1_000_000


def _start(arguments: Sequence[str]) -> tuple[float, float, str]:
    """Run a process: wall and CPU milliseconds, and what it printed."""
    begun = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=complaints, text=True) as process,
    ):
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        complaints.seek(0)
        complaint = complaints.read()
    if process.returncode:
        lines = complaint.strip().splitlines() or [f"exit code {process.returncode}"]
        raise RuntimeError(lines[-1])
    return wall * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3, printed


def _import_rows(name: str, statement: str, rounds: int, targets: dict[str, float]) -> list[Row]:
    case = "5. Start a process"
    rows = [
        Row(case, f"{name}, {kind}", unit, target=f"≤ {targets[kind]:g} {unit}" if kind in targets else "")
        for kind, unit in (("wall", "ms"), ("CPU", "ms"), ("memory", "MB"))
    ]
    try:
        runs = [_start([sys.executable, "-c", statement + _PEAK]) for _ in range(rounds + 1)][1:]
    except (RuntimeError, OSError) as error:
        for row in rows:
            row.error = describe(str(error))
        return rows
    columns = ([run[0] for run in runs], [run[1] for run in runs], [float(run[2]) for run in runs])
    for row, kind, samples in zip(rows, ("wall", "CPU", "memory"), columns, strict=True):
        row.value = Spread(samples)
        if kind in targets:
            row.met = row.value.median <= targets[kind]
    return rows


def imports(rounds: int) -> list[Row]:
    """Measure ``import palaver``, a bare interpreter, and the imports of the peers."""
    rows = _import_rows("import palaver", "import palaver", rounds, _TARGETS)
    rows += _import_rows("bare interpreter", "", rounds, {})
    for peer in _PEERS:
        rows += [
            row
            for row in _import_rows(f"import {peer}", f"import {peer}", max(3, rounds // 3), {})
            if not row.name.endswith("wall")
        ]
    return rows


def convert(rounds: int) -> list[Row]:
    """Measure ``palaver convert`` of a request body of 1 MB."""
    case = "6. palaver convert, openai_chat to anthropic_messages"
    rows = [Row(case, f"a file of 1 MB, {kind}", "ms", target=f"≤ {_CONVERT_MS:g} ms") for kind in ("wall", "CPU")]
    rows.append(Row(case, "a file of 1 message, CPU", "ms"))
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, "large.json"), Path(folder, "small.json")
        large.write_bytes(body(_MB))
        small.write_bytes(json.dumps({"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}]}).encode())
        try:
            runs = [_start(_command(large)) for _ in range(rounds + 1)][1:]
            for row, column in zip(rows, (0, 1), strict=False):
                row.value = Spread([run[column] for run in runs])
                row.met = row.value.median <= _CONVERT_MS
            rows[2].value = Spread([_start(_command(small))[1] for _ in range(rounds)])
        except (RuntimeError, OSError) as error:
            for row in rows:
                if row.value is None:
                    row.error = describe(str(error).replace(folder, "…"))
    return rows


def _command(file: Path) -> list[str]:
    script = Path(sys.executable).with_name("palaver")
    program = [str(script)] if script.exists() else [sys.executable, "-m", "palaver.cli"]
    return [*program, "convert", str(file), "--to", "anthropic_messages", "-o", os.devnull]


def body(size: int) -> bytes:
    """Make an ``openai_chat`` request body of about ``size`` bytes."""
    tools = conversations.to_openai_tools(conversations.tools())
    length = 40
    while True:
        messages = conversations.generate(1, length, reasoning=False)[0]
        made = {"model": "gpt-5", "messages": conversations.to_openai_chat(messages), "tools": tools}
        data = json.dumps(made, ensure_ascii=False).encode()
        if len(data) >= size:
            return data
        length = max(length + 2, int(length * size / len(data) * 1.02) // 2 * 2)
