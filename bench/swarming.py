"""A case of ``swarm.py`` in a process of its own: ``python swarming.py clients palaver '{"clients": 9, "turns": 5}'``.

Rules:

- The result is one line of JSON. The clock is the wall clock: it is the client's who waits. Memory is what the kernel
  counts as resident. The process has imported everything and had a short conversation before it looks at either.
- Every answer is compared with what was said. A wrong one is an error.
- ``turns``: one client asks one question after the other. The seconds of each ten turns are given, and their median.
  It stops when the time it was given has passed, or its memory is used up, and says at which turn and why.
- ``clients``: so many clients at once, each of whom opens a conversation and asks so many questions, one after the
  other. The seconds of all.
- ``idle``: so many conversations are opened, where that does something; then each has one turn. Seconds of both, and
  memory after both. All of them stay open.
- ``events``: an event to so many listeners, awaited, so many times. The median of their seconds.
- The collector is on, and has been run before the clock starts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarm_runners import Complete, Open, Party

STEP = 10
_MOST_MB = 4_000
_WARM = 20
_NODE = Path(__file__).parent / "swarm_peers"
_LOOKS_LIKE_A_KEY = ("LANGSMITH_", "LANGCHAIN_", "OPENAI_")


class Missing(Exception):  # noqa: N818 (it is no error)
    """Raised for what is not installed here; the text says what would."""


def start(what: str, name: str, given: dict[str, Any], *, most: float) -> dict[str, Any]:
    """Start such a process and give what it found. Raises ``RuntimeError`` with its complaint."""
    return _run([sys.executable, __file__, what, name, json.dumps(given)], most)


def start_node(what: str, name: str, given: dict[str, Any], *, most: float) -> dict[str, Any]:
    """The same for what runs under Node. Raises ``Missing`` too."""
    if not (_NODE / "node_modules/agent-swarm-kit").is_dir():
        raise Missing("not installed (npm install --prefix bench/swarm_peers)")
    return _run(["node", "--expose-gc", str(_NODE / "run.mjs"), what, name, json.dumps(given)], most)


def _run(words: Sequence[str], most: float) -> dict[str, Any]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_LOOKS_LIKE_A_KEY)}
    # Some keep files in the folder that they run in.
    with tempfile.TemporaryDirectory(prefix="palaver-bench-", ignore_cleanup_errors=True) as folder:
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, check=False, cwd=folder, env=kept, timeout=most
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"it did not end within {most:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(lines[-1])
    return json.loads(done.stdout.splitlines()[-1])


def _megabytes() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1000


async def _ask(complete: Complete, number: int) -> None:
    said = f"This is question {number} of this client."
    answer = await complete(said)
    if answer != f"echo:{said}":
        raise RuntimeError(f"the answer to {said!r} is {answer!r}")


async def _warmed(open_: Open) -> None:
    complete = await open_("somebody-else")
    for number in range(_WARM):
        await _ask(complete, number)
    gc.collect()


async def _turns(party: Party, turns: int, seconds: float) -> dict[str, Any]:
    medians: list[float] = []
    sums: list[float] = []
    why = ""
    async with party.talking() as open_:
        await _warmed(open_)
        complete = await open_("client")
        until = time.perf_counter() + seconds
        for first in range(0, turns, STEP):
            took: list[float] = []
            for number in range(first, first + STEP):
                began = time.perf_counter()
                await _ask(complete, number)
                took.append(time.perf_counter() - began)
            medians.append(statistics.median(took))
            sums.append(sum(took))
            if time.perf_counter() > until:
                why = f"{seconds:g} s"
            elif _megabytes() > _MOST_MB:
                why = f"{_MOST_MB / 1000:g} GB"
            if why:
                break
        return {"medians": medians, "sums": sums, "why": why, "megabytes": _megabytes()}


async def _clients(party: Party, clients: int, turns: int) -> dict[str, Any]:
    async def client(name: str, open_: Open) -> None:
        complete = await open_(name)
        for number in range(turns):
            await _ask(complete, number)

    async with party.talking() as open_:
        await _warmed(open_)
        began = time.perf_counter()
        await asyncio.gather(*(client(f"client-{number}", open_) for number in range(clients)))
        return {"seconds": time.perf_counter() - began}


async def _idle(party: Party, sessions: int) -> dict[str, Any]:
    async with party.talking() as open_:
        await _warmed(open_)
        before = _megabytes()
        began = time.perf_counter()
        open_ones = [await open_(f"client-{number}") for number in range(sessions)]
        opened = time.perf_counter() - began
        gc.collect()
        after_opening = _megabytes()
        began = time.perf_counter()
        for number, complete in enumerate(open_ones):
            await _ask(complete, number)
        asked = time.perf_counter() - began
        gc.collect()
        return {
            "before": before,
            "open_seconds": opened if party.opens else None,
            "open_megabytes": after_opening if party.opens else None,
            "turn_seconds": asked,
            "turn_megabytes": _megabytes(),
        }


async def _events(party: Party, listeners: int, events: int) -> dict[str, Any]:
    assert party.listening is not None
    took: list[float] = []
    async with party.listening(listeners) as send:
        for number in range(_WARM + events):
            began = time.perf_counter()
            await send()
            if number >= _WARM:
                took.append(time.perf_counter() - began)
    return {"seconds": statistics.median(took)}


_DOES: dict[str, Any] = {"turns": _turns, "clients": _clients, "idle": _idle, "events": _events}


def main() -> None:
    """Measure what the arguments say."""
    from swarm_runners import PARTIES

    what, name, given = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    print(json.dumps(asyncio.run(_DOES[what](PARTIES[name], **given))))


if __name__ == "__main__":
    main()
