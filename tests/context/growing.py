"""Conversations that grow, with everything that a provider's cache could stumble over, and their requests' bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

import palaver as p
from palaver import wires
from palaver.core import canonical
from palaver.testing import strategies

PNG = p.Image(p.Inline("iVBORw0KGgphYmM="), "image/png")
TOOLS = (
    p.Tool.of("look", "Look it up.", {"type": "object", "properties": {"at": {"type": "string"}}}),
    p.Tool.of("note", "Write it down.", {"type": "object"}),
)
EVERY = tuple(
    f"{name}:{variant}" if variant else name for name in wires.names() for variant in ("", *wires.variants(name))
)
"""Every wire, and every variant of one."""


def thought(wire: str, number: int) -> p.Reasoning:
    """Reasoning that this wire itself gave."""
    base, _, variant = wire.partition(":")
    part = p.Reasoning(f"Thought {number}.", signature=f"c2ln{number:04d}", wire=base)
    if base == "openai_responses":
        return part.replace(signature=None, encrypted=f"enc{number}", provider={base: {"id": f"rs_{number}"}})
    if base == "openai_chat" and variant:
        return part.replace(provider={f"@{base}": {"field": "reasoning_content"}})
    return part


def conversation(wire: str, turns: int = 6) -> list[p.Message]:
    """Turns with reasoning, images, calls at once, results of every kind, notes that steer, and answers."""
    said: list[p.Message] = [p.system("Be brief. " * 40)]
    for turn in range(turns):
        ids = [f"call_{turn}_{each}" for each in range(3)]
        said += [
            p.user(f"Question {turn}. " * 30, PNG, tags=("USER_PROMPT",)),
            p.assistant(
                thought(wire, turn),
                f"I look, {turn}.",
                p.ToolCall(ids[0], "look", '{"at": "ü", "n": 5e-06}'),
                p.ToolCall(ids[1], "note", "{}"),
            ),
            p.tool(f"Seen {turn}: " + "x" * 900, tool_call_id=ids[0], tool_name="look"),
            p.tool("wrong", PNG, tool_call_id=ids[1], tool_name="note", is_error=True),
            p.user(f"Mind the time, {turn}.", mode="tool", tags=("STEP_PROMPT",)),
            p.assistant(thought(wire, 100 + turn), p.ToolCall(ids[2], "look", "")),
            p.tool(p.Json.of({"b": [2.0, 1], "a": turn}), tool_call_id=ids[2], tool_name="look"),
            p.assistant(thought(wire, 200 + turn), f"Answer {turn}."),
        ]
    return [*said, p.user("Thanks.")]


_TEXTS = strategies.odd_text(6).map("t{}".format)


@st.composite
def growing(draw: Any, wire: str) -> list[p.Message]:
    """Conversations of whole turns with odd texts, ids that repeat, and results in any order."""
    said: list[p.Message] = [p.system(draw(_TEXTS))] if draw(st.booleans()) else []
    said.append(p.user(draw(_TEXTS)))
    for turn in range(draw(st.integers(1, 5))):
        parts: list[Any] = [thought(wire, turn)] if draw(st.booleans()) else []
        calls = draw(st.lists(st.sampled_from(["a", "b", "call:x.y", "y" * 70]), max_size=3, unique=True))
        if not calls or draw(st.booleans()):
            parts.append(draw(_TEXTS))
        arguments = st.sampled_from(['{"a": 1}', "", '{"z":2.0,"a":5e-06}', "[1]"])
        parts += [p.ToolCall(each, draw(st.sampled_from(["look", "note"])), draw(arguments)) for each in calls]
        said.append(p.assistant(*parts))
        for each in draw(st.permutations(calls)):
            body = draw(st.sampled_from([("ok " * 40,), ("see", PNG), (p.Json.of({"n": turn}),), ()]))
            said.append(p.tool(*body, tool_call_id=each, is_error=draw(st.booleans())))
        if not calls or draw(st.integers(0, 3)) == 0:
            said += [
                p.user(draw(_TEXTS), *([PNG] if draw(st.booleans()) else [])) for _ in range(draw(st.integers(1, 2)))
            ]
    return said


def read_again(messages: Sequence[p.Message]) -> list[p.Message]:
    """The same messages, as another process reads them."""
    return [canonical.decode(canonical.encode(message)) for message in messages]
