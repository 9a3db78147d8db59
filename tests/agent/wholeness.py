"""The requirements of law 7 for a thread, without the code under test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Raw

import palaver as p
from palaver import wires
from palaver.core.request import Request
from palaver.testing import rules
from palaver.threads.thread import Entry, Thread
from palaver.threads.view import DISCARDED, RECORD
from palaver.turn.journal import ReplayView

TOOLS = tuple(
    p.Tool(name, "A tool.", Raw(b'{"type":"object","properties":{"x":{"type":"integer"}}}'))
    for name in ("look", "note", "boom", "slow")
)


def said(messages: Iterable[p.Message]) -> list[p.Message]:
    """Return the messages without records, which no view shows."""
    return [each for each in messages if not {DISCARDED, RECORD} & set(each.tags)]


def broken_pairs(messages: Iterable[p.Message]) -> list[str]:
    """Return calls whose results do not follow at once and in order, and results that follow no call."""
    found: list[str] = []
    waiting: list[str] = []
    for message in said(messages):
        if isinstance(message, p.ToolMessage):
            if waiting and waiting[0] == message.tool_call_id:
                waiting.pop(0)
            else:
                found.append(f"result out of place: {message.tool_call_id}")
            continue
        found += [f"no result: {each}" for each in waiting]
        waiting = [part.id for part in message.content if isinstance(part, p.ToolCall) and not part.provider_executed]
    return found + [f"no result: {each}" for each in waiting]


def refused(messages: Sequence[p.Message], tools: Sequence[Any] = TOOLS, **fields: Any) -> dict[str, Any]:
    """Return the wires whose provider would refuse these messages as the next request, and the reasons."""
    thread = Thread()
    thread.append(*messages)
    return refused_path(thread.path(), tools, **fields)


def refused_path(path: Sequence[Entry], tools: Sequence[Any] = TOOLS, **fields: Any) -> dict[str, Any]:
    """Return the same for the conversation of a run."""
    return refused_request(Request(tuple(ReplayView()(path)), "m", tuple(tools), **fields))


def refused_request(request: Request) -> dict[str, Any]:
    """Return the same for a whole request."""
    found: dict[str, Any] = {}
    for name in wires.names():
        body = json.loads(wires.get(name).encode_request(request).body)
        violations = rules.check_request(name, body)
        if violations:
            found[name] = violations
    return found
