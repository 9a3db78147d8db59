"""A process that runs an agent over SQLite, to be killed: ``python crashing.py database side-file thread how``.

Write tools add one line to the side file each time that they run. Every message that the store has acknowledged is
printed on standard output.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio

import palaver as p
from palaver.agent.agent import Agent
from palaver.agent.functions import function_tool
from palaver.models.language_model import Prompt
from palaver.models.scripted import ScriptedModel
from palaver.store.sqlite import SQLiteStore
from palaver.turn.approvals import approve, reject
from palaver.turn.tool import ToolContext

ROUNDS = 4


def next_turn(prompt: Prompt) -> Any:
    """Return the model's next turn, derived from the conversation, so that any process continues the same script."""
    done = sum(1 for each in prompt.messages if isinstance(each, p.AssistantMessage) and each.tool_calls)
    if done >= ROUNDS:
        return "All written."
    calls = [
        p.ToolCall(f"w{done}a", "write", f'{{"line": "w{done}a"}}'),
        p.ToolCall(f"r{done}", "read", f'{{"number": {done}}}'),
        p.ToolCall(f"x{done}", "again", f'{{"line": "x{done}"}}'),
        p.ToolCall(f"w{done}b", "write", f'{{"line": "w{done}b"}}'),
    ]
    return p.assistant(p.Text(f"Round {done}."), *calls)


def written(side: Path, line: str, key: str) -> None:
    """Write a line each time that a tool runs, on the disk before the tool continues."""
    with side.open("a") as file:
        file.write(f"{line} {key}\n")
        file.flush()
        os.fsync(file.fileno())


def agent(side: Path, pause: float = 0.0) -> Agent:
    """Return the agent that is killed, and that continues."""

    async def write(line: str, context: ToolContext) -> str:
        """Write a line."""
        await anyio.sleep(pause)
        written(side, line, context.idempotency_key)
        await anyio.sleep(pause)
        return f"wrote {line}"

    async def again(line: str, context: ToolContext) -> str:
        """Write a line; a second time does no harm."""
        written(side, line, context.idempotency_key)
        return f"wrote {line}"

    async def read(number: int) -> str:
        """Read."""
        await anyio.sleep(pause)
        return f"read {number}"

    tools = [function_tool(write), function_tool(again, repeatable=True), function_tool(read, effect="read")]
    return Agent(ScriptedModel([], then=next_turn, delay=pause), tools=tools)


def lines(side: str) -> list[str]:
    """Return the lines written so far."""
    return Path(side).read_text().splitlines() if Path(side).exists() else []


async def killed(database: str, side: str, thread: str) -> None:
    """Start a run, and print stored messages, until the process is killed."""
    with SQLiteStore(database) as store:
        handle = store.open(thread)
        known = handle.append

        def told(*messages: Any, **how: Any) -> Any:
            entries = known(*messages, **how)
            for entry in entries:
                os.write(1, f"{entry.id}\n".encode())
            return entries

        class Told(type(handle)):  # type: ignore[misc]
            __slots__ = ()
            append = staticmethod(told)

        watched = Told.__new__(Told)
        for name in ("_store", "tree", "branch", "_seen"):
            setattr(watched, name, getattr(handle, name))
        await agent(Path(side), 0.002).run("Write four rounds.", thread=watched)
        os.write(1, b"over\n")


async def resumed(database: str, side: str, thread: str) -> None:
    """Continue to the end; decide pending calls: those in the side file have run, and are not run again."""
    with SQLiteStore(database) as store:
        asked = []
        run = await agent(Path(side)).run(thread=store.open(thread))
        before = lines(side)
        while run.outcome == "waiting":
            run = await agent(Path(side)).run(thread=store.open(thread))  # without decisions, nothing runs
            assert run.outcome == "waiting", run.outcome
            assert lines(side) == before, "something ran while it was waiting"
            asked += [each.call.id for each in run.pending]
            ran = {line.split(" ")[0] for line in lines(side)}
            decisions = {each.call.id: reject("It ran.") if each.call.id in ran else approve() for each in run.pending}
            run = await agent(Path(side)).run(thread=store.open(thread), decisions=decisions)
        os.write(1, f"{run.outcome} {','.join(asked)}\n".encode())


if __name__ == "__main__":
    anyio.run({"killed": killed, "resumed": resumed}[sys.argv[4]], *sys.argv[1:4])
