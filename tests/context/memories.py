"""Conversations in turns: a prompt, steps with calls and results, an answer; at the end a turn may be open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

import palaver as p
from palaver.context import Plan, plan_of
from palaver.context.labels import preserved
from palaver.threads.repair import repair
from palaver.tokens.estimate import estimate

IMAGE: Final = p.Image(p.Inline("iVBORw0KGgo="), "image/png")
_TOOLS: Final = ("run_terminal_command", "read_files", "write_file", "ask_user", "spawn_agents")
_RESULTS: Final[tuple[Any, ...]] = (
    {"command": "ls", "stdout": "x" * 400, "exitCode": 0},
    {"command": "sleep", "processId": 7, "stdout": "x" * 400},
    {"errorMessage": "no such file " + "e" * 200},
    "x" * 900,
    "y" * 2_000,
    "é\u2028" * 300,
    "",
)


def words(tokens: int) -> str:
    """A text that is estimated at so many tokens."""
    return "x" * -(-7 * tokens // 2)


def call(number: int, name: str = "read_files", arguments: str = '{"path":"a.txt"}') -> p.ToolCall:
    return p.ToolCall(f"c{number}", name, arguments)


def step(number: int, *outputs: Any, name: str = "read_files", text: str = "", **fields: Any) -> tuple[p.Message, ...]:
    """An answer with one call, and its result."""
    said = (text,) if text else ()
    result = p.tool(*outputs, tool_call_id=f"c{number}", tool_name=name, **fields)
    return p.assistant(*said, tool_calls=[call(number, name)]), result


@st.composite
def turns(draw: Any, most: int = 6) -> tuple[p.Message, ...]:
    """Whole histories. Few kinds of things, so that they meet; some are large."""
    out: list[p.Message] = [p.system("You help.")] if draw(st.booleans()) else []
    number = 0
    sizes = st.sampled_from([1, 5, 40, 200])
    rare = st.integers(0, 9).map(lambda drawn: drawn == 0)
    for _ in range(draw(st.integers(0, most))):
        tags = draw(st.sampled_from([("USER_PROMPT",), ("USER_PROMPT",), ("x",), ("INSTRUCTIONS_PROMPT",), ()]))
        parts = (IMAGE,) if draw(rare) else ()
        out.append(p.user(f"prompt {len(out)} {words(draw(sizes))}", *parts, tags=tags, verbatim=draw(rare)))
        for _ in range(draw(st.integers(0, 3))):
            names = [draw(st.sampled_from(_TOOLS)) for _ in range(draw(st.integers(1, 3)))]
            calls = [call(number + place, name) for place, name in enumerate(names)]
            reasoning = "thought" if draw(rare) else None
            out.append(p.assistant(words(draw(sizes)), tool_calls=calls, reasoning=reasoning, verbatim=draw(rare)))
            for each in calls:
                output = draw(st.sampled_from(_RESULTS))
                fields = {"is_error": draw(rare), "verbatim": draw(rare)}
                out.append(p.tool(output, tool_call_id=each.id, tool_name=each.name, **fields))
            number += len(calls)
        if draw(st.booleans()):
            out.append(p.assistant(f"answer {len(out)} {words(draw(sizes))}"))
    return tuple(message.replace(id=f"m{place}") for place, message in enumerate(out))


def plans(capacity: st.SearchStrategy[int]) -> st.SearchStrategy[Plan]:
    """Plans of such histories."""
    fixed, scale = st.sampled_from([0, 30]), st.sampled_from([1.0, 1.3])
    keep = st.sampled_from([(), ("x",)])
    return st.builds(
        lambda messages, capacity, fixed, scale, keep: plan_of(
            messages, capacity=capacity, fixed=fixed, scale=scale, keep_last=keep
        ),
        turns(),
        capacity,
        fixed,
        scale,
        keep,
    )


def assert_promises(before: Plan, after: Plan) -> None:
    """I1, I2, I6, I8 and I10, and the sums of a plan."""
    held = preserved(before)
    untouchable = [item.message for place, item in enumerate(before.items) if held.untouchable[place]]
    assert subsequence(untouchable, after.messages)
    if held.task is not None:
        assert any(each is before.items[held.task].message for each in after.messages)
    assert is_whole(after.messages)
    assert after.sum == sum(item.tokens for item in after.items)
    assert all(item.tokens == estimate(item.message) for item in after.items)
    assert after is before or after.sum < before.sum


def subsequence(some: Sequence[p.Message], all_: Sequence[p.Message]) -> bool:
    """Whether the same objects occur in the same order."""
    rest = iter(all_)
    return all(any(each is other for other in rest) for each in some)


def is_whole(messages: Sequence[p.Message]) -> bool:
    """Whether every call has its result right behind it, and every result its call."""
    return repair(messages).messages is messages
