"""What compaction promises, held to the loop: whatever a thread was, and whatever happens.

Source: docs/spec/kairo.md#3.7; laws 7, 9.
"""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import palaver as p
from palaver import wires
from palaver.agent import Agent, function_tool
from palaver.context import plan_of
from palaver.context.compaction import CODEBUFF, DEFAULT, SUMMARY_ONLY
from palaver.context.labels import preserved
from palaver.context.rewrite import plan_undo
from palaver.context.summary_stage import HEAD
from palaver.core import canonical
from palaver.core.errors import ContextOverflowError
from palaver.core.pairs import Placed, whole
from palaver.core.request import Request
from palaver.models.catalogue import Capabilities
from palaver.models.scripted import Broken, ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.tokens.estimate import estimate
from palaver.turn.compaction import Compactor
from palaver.turn.events import ContextCompacted
from palaver.turn.journal import ReplayView
from tests.agent.wholeness import refused_request
from tests.context.conversations import conversations
from tests.generated import examples
from tests.threads.logs import logs

STAGES = {"default": DEFAULT, "summarise": (SUMMARY_ONLY,), "codebuff": CODEBUFF}
each_pipeline = pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
SUMMARY = "## State\nThey went on."
FAILURES = {
    "raises": RuntimeError("down"),
    "too long": ContextOverflowError("scripted", "too long"),
    "empty": "",
    "headings": "## State\nNone.",
    "torn": Broken(p.assistant("They")),
    "cut off": p.assistant("They went", finish_reason="length"),
    "calls": p.assistant(p.ToolCall("z", "look", "{}")),
    "no shorter": "They went on. " * 50_000,
}
"""What becomes of the question for a summary."""
THREADS = st.one_of(conversations(), conversations(), logs())


@function_tool(effect="read")
def look(size: int) -> str:
    """Look."""
    return "seen " * size


class Played:
    """A thread, and what a run of two turns with compaction made of it."""

    def __init__(self, log: Any, stages: Any, share: float, size: int = 400, summary: Any = SUMMARY) -> None:
        self.store = MemoryStore()
        self.thread = self.store.open(self.store.create("t").id)
        self.thread.append(*log)
        self.before = self.thread.path()
        self.stages, self.summary = stages, summary
        self.events: list[ContextCompacted] = []
        self.prompts: list[Any] = []
        self.at: list[int] = []
        weight = sum(map(estimate, ReplayView()(self.before)))
        can = Capabilities(window=max(int(weight * share * 4 / 3), 400), max_output=1)
        answer = p.assistant(
            p.Reasoning("hm " * 50, signature="sig", wire="anthropic_messages"),
            p.ToolCall("new-1", "look", json.dumps({"size": size})),
        )
        self.turns = iter([answer, "done"])
        self.agent = Agent(
            ScriptedModel([], then=self.turn, capabilities=can), tools=[look], middleware=[Compactor(stages)]
        )
        self.run = anyio.run(lambda: self.agent.run("And now?", thread=self.thread, on_event=self.saw))

    def turn(self, prompt: Any) -> Any:
        if prompt.messages[-1].text.endswith("</transcript>") or "<transcript>" in prompt.messages[-1].text:
            return self.summary
        self.prompts.append(prompt)
        self.at.append(sum("/before-" in name for name in self.thread.tree.branches))
        return next(self.turns)

    def saw(self, event: Any) -> None:
        if isinstance(event, ContextCompacted):
            self.events.append(event)

    def changed(self, turn: int) -> bool:
        """Whether the thread was compacted before a turn's prompt was sent."""
        return self.at[turn] > (self.at[turn - 1] if turn else 0)

    def original(self, turn: int) -> Any:
        """The path as it was before the compaction of a turn."""
        return self.thread.tree.path(f"main/before-{self.at[turn]}")


def same(found: p.Message, given: p.Message) -> bool:
    """Whether they are equal. A result that only the repair made is stamped when it joins the thread."""
    return found == given or (given.id is None and found.replace(id=None, sent_at=None) == given)


def bytes_of(path: Any) -> list[bytes]:
    return [canonical.encode(entry.message) for entry in path]


PLAYED = {
    "log": THREADS,
    "share": st.sampled_from([0.05, 0.3, 0.6, 0.9, 1.2]),
    "size": st.sampled_from([0, 10, 400, 3_000]),
}


@pytest.mark.law(9)
@pytest.mark.row("KAI-05", "KAI-06", "KAI-07", "KAI-08", "KAI-10")
@each_pipeline
@given(**PLAYED)
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_the_next_request_of_the_loop_keeps_the_promises(stages: Any, log: Any, share: Any, size: Any) -> None:
    played = Played(log, stages, share, size)
    assert played.run.ok, played.run.reason
    for turn, prompt in enumerate(played.prompts):
        after = prompt.messages
        assert whole([Placed(place, message) for place, message in enumerate(after)])  # I2
        request = Request((*prompt.system, *after), "m", tuple(prompt.tools))
        assert refused_request(request) == {}  # I3
        for message in after:
            if message.is_summary and message.text.startswith(HEAD):
                for name in wires.names():  # I4
                    assert HEAD.strip().encode() in bytes(wires.get(name).encode_request(request).body), name
        if not played.changed(turn):
            continue
        original = ReplayView()(played.original(turn))
        assert [m for m in after if m.verbatim] == [m for m in original if m.verbatim]  # I1
        alone = preserved(plan_of(original, capacity=1))
        ids = [m.id for m in after]
        assert alone.task is None or original[alone.task].id in ids  # I8
        untouchable = [m for m, held in zip(original, alone.untouchable, strict=True) if held]
        left = iter(after)
        gone = [m for m in untouchable if not any(same(each, m) for each in left)]
        assert gone == [], (played.events, original, after)  # I1, I10, in order
        thoughts = {m.id: [x for x in m.content if isinstance(x, p.Reasoning)] for m in original[alone.open_turn :]}
        for message in after:  # I10
            if message.id in thoughts:
                assert [x for x in message.content if isinstance(x, p.Reasoning)] == thoughts[message.id]
    assert [m.role for m in played.prompts[1].messages[-2:]] == ["assistant", "tool"]
    assert played.prompts[1].messages[-1].text.startswith("seen " * min(size, 200))


@pytest.mark.law(9)
@pytest.mark.row("KAI-08")
@each_pipeline
@given(**PLAYED)
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_stages_run_when_they_are_due_and_what_they_win_is_less(stages: Any, log: Any, share: Any, size: Any) -> None:
    played = Played(log, stages, share, size)
    triggers = {stage.name: stage for stage in stages}
    for event in played.events:
        for change in event.changes:  # I5
            stage = triggers[change.stage]
            least = stage.trigger(event.capacity)
            assert change.before >= (least if stage.early is None else min(least, event.capacity // 2))
        assert event.after < event.before or not event.changes  # I6
    if not played.changed(1):  # I9
        first = played.prompts[0].messages
        assert tuple(played.prompts[1].messages[: len(first)]) == tuple(first)


@pytest.mark.law(9)
@pytest.mark.row("KAI-09")
@each_pipeline
@given(**PLAYED)
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_what_it_was_stays_as_a_branch_and_comes_back(stages: Any, log: Any, share: Any, size: Any) -> None:
    played = Played(log, stages, share, size)
    path, tree = played.thread.path(), played.thread.tree
    if not any(event.changes for event in played.events):
        assert "main/before-1" not in tree.branches
        assert bytes_of(path)[: len(played.before)] == bytes_of(played.before)
        return
    first = tree.path("main/before-1")
    assert bytes_of(first)[: len(played.before)] == bytes_of(played.before)
    assert [entry.id for entry in first][: len(played.before)] == [entry.id for entry in played.before]
    assert played.store.open("t").messages == path.messages
    number = 0
    while (back := plan_undo(played.thread.path())) is not None:
        number += 1
        played.thread.rebase(back.messages, onto=back.leaf, keep=f"undone-{number}")
    assert number == sum(1 for event in played.events if event.changes)
    after = [entry.message for entry in played.thread.path()[len(first) :]]
    assert bytes_of(played.thread.path())[: len(first)] == bytes_of(first)
    assert [m.text for m in after if m.tags == () and m.role == "assistant"][-1:] == ["done"]
    assert played.store.verify().ok


@pytest.mark.law(9)
@pytest.mark.row("KAI-09")
@pytest.mark.parametrize("how", FAILURES)
@given(log=conversations(), share=st.sampled_from([0.05, 0.3, 0.6]))
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_summary_that_fails_leaves_every_byte_as_it_was(how: Any, log: Any, share: Any) -> None:
    played = Played(log, (SUMMARY_ONLY,), share, summary=FAILURES[how])
    tree = played.thread.tree
    assert list(tree.branches) == ["main"]
    assert bytes_of(played.thread.path())[: len(played.before)] == bytes_of(played.before)
    assert all(len(event.failures) == 1 and event.before == event.after for event in played.events)
    assert (
        tuple(played.prompts[0].messages)
        == tuple(ReplayView()(played.thread.path()))[: len(played.prompts[0].messages)]
    )
