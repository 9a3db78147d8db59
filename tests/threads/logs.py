"""Logs of several agents: whole and broken pairs, markers of every scope, empty messages."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st

import palaver as p
from palaver.threads import DISCARDED, PLACEHOLDER, Entry, Path, Thread

AGENTS = ("a", "b")
KEEPS = (0, 1, 2, 3, 15, None)
_IDS = ("c1", "c2", "c3")
_IMAGE = p.Image(p.Inline("iVBORw0KGgo="), "image/png")
_ROLES = ("system", "developer", *["user"] * 2, *["assistant"] * 3, *["tool"] * 3, "mark")
_SCOPES = (None, "thread", "agent", "turn")

_BODIES: tuple[tuple[Any, ...], ...] = ((), (p.Text(""),), (_IMAGE,), ("said",), ("said", "more"))


def _call(draw: Any) -> Any:
    id_, kind = draw(st.sampled_from(_IDS)), draw(st.integers(0, 5))
    if kind == 0:
        return p.MalformedToolCall("<f", "no end", "f", id_)
    return p.ToolCall(id_, "f", "{}", provider_executed=kind == 1)


def _message(draw: Any, number: int) -> p.Message:
    role = draw(st.sampled_from(_ROLES))
    fields: dict[str, Any] = {"agent": draw(st.sampled_from((*AGENTS, *AGENTS, None)))}
    if role == "mark":
        make = draw(st.sampled_from([p.rescue, p.flush]))
        return make(scope=draw(st.sampled_from(_SCOPES)), **fields)
    body = [f"{each}{number}" if each == "said" else each for each in draw(st.sampled_from(_BODIES))]
    fields["tags"] = draw(st.sampled_from([()] * 8 + [(DISCARDED,), (PLACEHOLDER, "x"), ("x",)]))
    fields["mode"] = draw(st.sampled_from([None, "user", "tool"]))
    if draw(st.integers(0, 4)) == 0:
        fields["payload"] = {"n": number}
    match role:
        case "system" | "developer":
            make = p.system if role == "system" else p.developer
            return make(*[part for part in body if part is not _IMAGE], **fields)
        case "user":
            return p.user(*body, source=draw(st.sampled_from([None, None, "note", "summarization"])), **fields)
        case "tool":
            return p.tool(*body, tool_call_id=draw(st.sampled_from((*_IDS, *_IDS, None))), tool_name="f", **fields)
        case _:
            calls = [_call(draw) for _ in range(draw(st.integers(0, 2)))]
            reasoning = draw(st.sampled_from([None, None, "thought"]))
            return p.assistant(*body, reasoning=reasoning, tool_calls=calls, **fields)


@st.composite
def logs(draw: Any, max_size: int = 30) -> tuple[p.Message, ...]:
    """Draw messages in any order, of few kinds, so that they interact."""
    return tuple([_message(draw, number) for number in range(draw(st.integers(0, max_size)))])


def path_of(*messages: p.Message) -> Path:
    """Return the path of a thread with these messages."""
    thread = Thread(clock=itertools.count().__next__)
    thread.append(*messages)
    return thread.path()


class CountedPath(Path):
    """A path that counts how many entries are read from it."""

    __slots__ = ("reads",)

    def __init__(self, path: Path) -> None:
        super().__init__(path._items, len(path))
        self.reads = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.reads += 1 if isinstance(found, Entry) else len(found)
        return found

    def __iter__(self) -> Any:
        self.reads += len(self)
        return super().__iter__()
