"""A log of runs reads back as the thread: over processes, decisions, sub-agents, and compactions by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import palaver as p
from palaver.agent import Agent, Compactor, approve, compact, function_tool, undo
from palaver.agent.subagents import subagents
from palaver.models.catalogue import Capabilities
from palaver.models.scripted import ScriptedModel
from palaver.store.jsonl import JsonlLog, read_log, threads_of
from palaver.store.sqlite import SQLiteStore
from palaver.threads import Thread

pytestmark = pytest.mark.finding("F-02")
WINDOW = Capabilities(window=6_000, max_output=100)


@function_tool
def send(at: int) -> str:
    """Send."""
    return "sent " * 1_500


def then(name: str) -> Any:
    """Answers for ever: a task, a call to be decided, and a text; every other one of the sub-agent is a call."""
    asked: list[int] = []

    def answer(prompt: Any) -> Any:
        if "<transcript>" in prompt.messages[-1].text:
            return "They went on."
        asked.append(1)
        call = f"{name}-{len(asked)}"
        if name.startswith("kid"):
            return p.assistant(p.ToolCall(call, "send", '{"at": 1}')) if len(asked) % 2 else "Done. " * 200
        match len(asked) % 3:
            case 1:
                given = {"description": "Do it. " * 120, "agent": "kid"}
                return p.assistant(p.ToolCall(call, "task", json.dumps(given)))
            case 2:
                return p.assistant(p.ToolCall(call, "send", '{"at": 1}'), p.ToolCall(f"{call}b", "send", '{"at": 2}'))
            case _:
                return "So be it. " * 150

    return answer


def decided_by_people(call: p.ToolCall) -> Any:
    return "ask" if call.id.startswith("boss") and call.name == "send" else "allow"


def step(folder: Path, number: int) -> None:
    """One process: begins a run, or goes on with the one that waits."""

    def agent(name: str, **how: Any) -> Agent[Any]:
        model = ScriptedModel([], then=then(f"{name}{number}"), capabilities=WINDOW)
        return Agent(model, name=name, tools=[send], **how)

    kid = agent("kid", middleware=[Compactor()])
    boss = agent(
        "boss",
        middleware=[Compactor(), subagents([kid])],
        policy=decided_by_people,
        log=JsonlLog(folder / "log"),
    )
    waiting = folder / "waiting.json"
    with SQLiteStore(folder / "t.db") as store:
        decisions = {call: approve() for call in json.loads(waiting.read_text())} if waiting.exists() else {}
        said = () if decisions else ("Go on. " * 150,)
        run = boss.sync.run(*said, thread=store.open("t"), decisions=decisions)
        assert run.outcome in ("completed", "waiting"), run.reason
        waiting.write_text(json.dumps([each.call.id for each in run.pending]))


def assert_read_back(log: Path, *trees: Thread) -> None:
    rebuilt = threads_of(read_log(log))
    assert rebuilt.damage == ()
    for tree in trees:
        again = rebuilt.threads[tree.id]
        assert {each.id: each for each in again.entries} == {each.id: each for each in tree.entries}
        assert dict(again.branches) == dict(tree.branches)
        assert list(again.path()) == list(tree.path())


def test_runs_of_several_processes_with_decisions_and_sub_agents_read_back(tmp_path: Path) -> None:
    for number in range(5):
        code = f"import pathlib; from {__name__} import step; step(pathlib.Path({str(tmp_path)!r}), {number})"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
    with SQLiteStore(tmp_path / "t.db") as store:
        trees = [store.open(info.id).tree for info in store.threads()]
        assert len(trees) > 1, "sub-agents ran"
        assert any("/before-" in name for tree in trees for name in tree.branches), "something was compacted"
        sent = [each for each in store.open("t").tree.entries if each.message.role == "tool"]
        assert any(each.message.text.startswith("sent") for each in sent), "what waited was decided"
        assert_read_back(tmp_path / "log", *trees)


def test_what_is_compacted_by_hand_and_undone_reads_back(tmp_path: Path) -> None:
    thread, log = Thread(), JsonlLog(tmp_path)
    agent = Agent(ScriptedModel([], then="a" * 900), log=log)
    for _ in range(4):
        agent.sync.run("u" * 900, thread=thread)
    done = anyio.run(lambda: compact(thread, to=300, log=log))
    assert done.original_branch is not None
    assert_read_back(tmp_path, thread)
    agent.sync.run("u", thread=thread)
    assert_read_back(tmp_path, thread)
    assert anyio.run(lambda: undo(thread, log=log)) is not None
    agent.sync.run("v", thread=thread)
    assert_read_back(tmp_path, thread)
