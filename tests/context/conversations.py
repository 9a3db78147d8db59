"""Conversations as agents have them: turns of tool rounds, with everything that compaction must not change.

They are complete: every call is followed by its results. ``histories`` of ``tests/wires`` are the broken ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

import palaver as p
from palaver.context import Plan, plan_of

MINUTE = 60_000
NOW = 100_000 * MINUTE
KEEP = "keep"
"""The tag whose last message a plan keeps, in half of the plans."""
_TOOLS = ("read", "write", "search")
_SIZES = (0, 1, 3, 40, 200, 900, 6_000)
_IMAGE = p.Image(p.Inline("iVBORw0KGgo=" * 20), "image/png")
_WIRES = ("anthropic_messages", "openai_responses", "google_generate", None)


class _Writer:
    """Writes a conversation message by message, with ids and ages."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.messages: list[p.Message] = []
        self.calls = 0
        self.age = draw(st.sampled_from([0, 20, 45, 90, 600]))
        self.timed = draw(st.booleans())

    def one_in(self, number: int) -> bool:
        return self.draw(st.integers(1, number)) == 1

    def text(self) -> str:
        word = self.draw(st.sampled_from(["word ", "né ", "日本", "x", "a\u2028", "\ud83d "]))
        size = self.draw(st.sampled_from(_SIZES))
        return f"{len(self.messages)}: {word * (size // len(word) + 1)}"

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"id": f"m{len(self.messages)}", "verbatim": self.one_in(12)}
        if self.timed:
            fields["sent_at"] = NOW - (self.age * MINUTE) + len(self.messages)
        if self.one_in(6):
            fields["metadata"] = self.draw(st.sampled_from([{}, {"session": "s"}, {"compaction": "x", "é": 1}]))
        if self.one_in(8):
            fields["tags"] = (KEEP,)
        if self.one_in(8):
            fields["payload"] = {"n": len(self.messages)}
        return fields

    def reasoning(self) -> list[p.Reasoning]:
        wire = self.draw(st.sampled_from(_WIRES))
        kind = self.draw(st.integers(0, 4))
        if kind > 2:
            return []
        proof: dict[str, Any] = {"signature": "sig"} if wire == "anthropic_messages" else {"encrypted": "enc"}
        if kind == 2:
            return [p.Reasoning(self.text(), wire=wire, **proof), p.Reasoning("", encrypted="more", wire=wire)]
        return [p.Reasoning(self.text() if kind else "", wire=wire, **proof)]

    def say(self, *parts: Any, make: Any = p.assistant, **fields: Any) -> None:
        self.messages.append(make(*parts, **{**self.fields(), **fields}))

    def call(self) -> p.ToolCall:
        self.calls += 1
        texts = ['{"path": "a"}', '{"path":"a"}', '{"path":"b","n":1}', '{"n":1, "path":"b"}', "", '["x"]']
        text = self.draw(st.sampled_from(texts))
        return p.ToolCall(f"c{self.calls}", self.draw(st.sampled_from(_TOOLS)), text)

    def result(self, call: p.ToolCall) -> None:
        kinds: list[Any] = [(self.text(),), (self.text(), _IMAGE), (), (p.Json.of({"k": self.text()}),), ("short",)]
        self.say(
            *self.draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4]).map(kinds.__getitem__)),
            make=p.tool,
            tool_call_id=call.id,
            tool_name=call.name,
            is_error=self.one_in(5),
        )

    def round(self, *, whole: bool = True) -> None:
        calls = [self.call() for _ in range(self.draw(st.sampled_from([1, 1, 1, 2, 3])))]
        said = [self.text()] if self.one_in(2) else []
        malformed = [p.MalformedToolCall("{", "cut off", "read", "m")] if self.one_in(20) else []
        self.say(*self.reasoning(), *said, *calls, *malformed)
        for call in calls if whole else calls[:-1]:
            self.result(call)

    def aside(self) -> None:
        """Add a message that may occur between rounds."""
        kind = self.draw(st.integers(0, 5))
        if kind == 0:
            self.say(self.text(), make=p.user, mode="tool", source="nudge")
        elif kind == 1:
            self.say("be brief", make=self.draw(st.sampled_from([p.system, p.developer])))
        elif kind == 2:
            self.say(f"[Summary]\n{self.text()}", make=p.user, mode="tool", source="compaction")

    def turn(self) -> None:
        self.say(self.text(), *([_IMAGE] if self.one_in(6) else []), make=p.user)
        for _ in range(self.draw(st.sampled_from([0, 1, 2, 3, 6]))):
            self.round()
            self.aside()
        if self.draw(st.booleans()):
            self.say(*self.reasoning(), self.text())


@st.composite
def conversations(draw: Any, max_turns: int = 3) -> tuple[p.Message, ...]:
    """Draw a complete conversation; it may end anywhere: after an answer, after results, after a user message."""
    writer = _Writer(draw)
    for _ in range(draw(st.integers(0, 2))):
        writer.say("You are a helper", make=p.system)
    for _ in range(draw(st.integers(1, max_turns))):
        writer.turn()
    if draw(st.booleans()):
        writer.say(writer.text(), make=p.user)
    return tuple(writer.messages)


@st.composite
def plans(draw: Any, max_turns: int = 3) -> Plan:
    """Draw a plan of a conversation with a capacity between a tenth and twice its weight."""
    return planned(
        draw(conversations(max_turns)),
        share=draw(st.sampled_from([0.1, 0.3, 0.6, 0.9, 1.0, 1.1, 2.0])),
        fixed=draw(st.sampled_from([0, 0, 50, 2_000])),
        scale=draw(st.sampled_from([1.0, 1.0, 0.7, 1.9])),
        keep_last=[KEEP] if draw(st.booleans()) else [],
    )


def planned(
    messages: Sequence[p.Message],
    *,
    share: float = 1.0,
    fixed: int = 0,
    scale: float = 1.0,
    keep_last: Sequence[str] = (),
) -> Plan:
    """Return a plan with a capacity that is a share of its weight."""
    plan = plan_of(messages, capacity=1, fixed=fixed, scale=scale, now=NOW, keep_last=keep_last)
    capacity = max(int(plan.tokens * share), 1)
    return plan_of(messages, capacity=capacity, fixed=fixed, scale=scale, now=NOW, keep_last=keep_last)
