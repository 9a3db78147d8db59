"""Many runs, or many conversations, in a process of their own: ``python crowd.py runs palaver 1000``.

Rules:

- The process imports everything and makes one run before it looks at its memory the first time. Memory is what the
  kernel counts as resident (``/proc/self/status``); what Python keeps for later use is in it.
- Runs at once: each tool gives way to the others, so all are under way together. All that they made is kept to the end.
- A session is a thread, its last run, and what its model encoded. First each has one turn with one call behind it;
  then each is asked again, and its tool waits.
- The result is one line of JSON. Time is CPU time of the process.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CALLS = 10


def start(what: str, name: str, count: int) -> dict[str, float]:
    """Start such a process, and give what it found. Raises ``RuntimeError`` with its complaint."""
    done = subprocess.run(
        [sys.executable, __file__, what, name, str(count)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(lines[-1])
    return json.loads(done.stdout.splitlines()[-1])


def _resident(field: str = "VmRSS") -> float:
    """Megabytes of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith(field)).split()[1]) / 1024


async def _runs(name: str, count: int) -> dict[str, float]:
    import runners

    runner = next(each for each in (*runners.OURS, *runners.PEERS) if each.name == name)
    play = runner.play(runners.Script(CALLS, gives_way=True))
    await play()
    gc.collect()
    before = _resident()
    began = time.process_time()
    made: list[Any] = await asyncio.gather(*(play() for _ in range(count)))
    seconds = time.process_time() - began
    grown = _resident("VmHWM") - before
    if any(runner.answer(each) != runners.FOUND for each in made):
        msg = "a run did not come to its answer"
        raise RuntimeError(msg)
    return {"milliseconds": seconds * 1e3 / count / (CALLS + 1), "grown": grown}


async def _sessions(count: int) -> dict[str, float]:
    import runners

    script = runners.Script(1)
    agent = runners.agent(script, runners.Wired(runners.scripted(script)))
    await agent.run(runners.ASKED)
    gc.collect()
    before = _resident()
    kept = [await agent.run(f"{runners.ASKED} This is session {number}.") for number in range(count)]
    gc.collect()
    behind = _resident()
    script.gate = asyncio.Event()
    script.calls = 2
    tasks = [asyncio.create_task(agent.run("Once more.", previous=each)) for each in kept]
    for _ in tasks:
        await script.arrived.acquire()
    gc.collect()
    waiting = _resident()
    script.gate.set()
    ended: list[Any] = await asyncio.gather(*tasks)
    if any(each.text != runners.FOUND for each in (*kept, *ended)):
        msg = "a session did not come to its answer"
        raise RuntimeError(msg)
    each_kept, each_waiting = ((size - before) * 1024 / count for size in (behind, waiting))
    return {"kept": behind, "waiting": waiting, "kept_each": each_kept, "waiting_each": each_waiting}


def main() -> None:
    """Measure what the arguments say."""
    what, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    work = _runs(name, count) if what == "runs" else _sessions(count)
    print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
