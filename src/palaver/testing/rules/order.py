"""What order rules are written with: a citation for each rule, and tolerant views of a body.

- `@rule("docs/spec/wires.md#2.4.1")` turns a generator of `(where, detail)` into a rule that yields
  violations and carries its `citation`.
- A view skips what has the wrong shape (the shape tables have already said so), so that no order
  rule can crash.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import NamedTuple, TypeAlias

from palaver.testing.rules.violation import Fields, Json, Rule, Violation

Finding: TypeAlias = tuple[str, str]
Placed: TypeAlias = tuple[str, Fields]


def rule(citation: str) -> Callable[[Callable[[Fields], Iterable[Finding]]], Rule]:
    """Give a rule function its citation.

    Stability: experimental.
    """

    def decorate(function: Callable[[Fields], Iterable[Finding]]) -> Rule:
        @wraps(function)
        def cited_rule(body: Fields) -> Iterator[Violation]:
            for where, detail in function(body):
                yield Violation(where, citation, detail)

        return cited_rule

    return decorate


def objects(value: Json, where: str) -> list[Placed]:
    """Return the objects of a list with their paths.

    Stability: experimental.
    """
    if not isinstance(value, list):
        return []
    return [(f"{where}[{index}]", item) for index, item in enumerate(value) if isinstance(item, dict)]


def inside(fields: Fields, *keys: str) -> Fields:
    """Return the object at a path of keys, `{}` when there is none.

    Stability: experimental.
    """
    for key in keys:
        value = fields.get(key)
        if not isinstance(value, dict):
            return {}
        fields = value
    return fields


def string(fields: Fields, key: str) -> str | None:
    """Return the string at `key`, `None` when there is none.

    Stability: experimental.
    """
    value = fields.get(key)
    return value if isinstance(value, str) else None


def blank(text: str) -> bool:
    """Tell whether a text is empty or only white space.

    Stability: experimental.
    """
    return not text.strip()


def with_next(items: list[Placed]) -> Iterator[tuple[Placed, Placed | None]]:
    """Pair each item with the one after it, the last with `None`.

    Stability: experimental.
    """
    for index, item in enumerate(items):
        yield item, items[index + 1] if index + 1 < len(items) else None


class Turn(NamedTuple):
    """Adjoining messages of one role, with all their blocks.

    Stability: experimental.
    """

    role: str
    where: str
    blocks: list[Placed]
    messages: list[Placed]


def turns(messages: list[Placed], blocks_key: str) -> list[Turn]:
    """Merge adjoining messages of one role.

    Stability: experimental.
    """
    merged: list[Turn] = []
    for where, message in messages:
        role = string(message, "role") or "user"
        blocks = objects(message.get(blocks_key), f"{where}.{blocks_key}")
        if not merged or merged[-1].role != role:
            merged.append(Turn(role, where, [], []))
        merged[-1].blocks.extend(blocks)
        merged[-1].messages.append((where, message))
    return merged


class Pairing(NamedTuple):
    """Calls without a result directly after them, and results without such a call.

    Stability: experimental.
    """

    unanswered: list[Finding]
    orphans: list[Finding]


def pair_chat(messages: list[Placed]) -> Pairing:
    """Pair the calls of assistant messages with the `tool` messages that follow directly.

    Stability: experimental.
    """
    found = Pairing([], [])
    waiting: dict[str, str] = {}
    for where, message in messages:
        if message.get("role") == "tool":
            call_id = string(message, "tool_call_id")
            if call_id is not None and waiting.pop(call_id, None) is None:
                found.orphans.append((where, f"no preceding call has the id {call_id!r}"))
            continue
        found.unanswered.extend(_still_open(waiting))
        waiting = {}
        for call_where, call in objects(message.get("tool_calls"), f"{where}.tool_calls"):
            call_id = string(call, "id")
            if call_id in waiting:
                found.unanswered.append((call_where, f"the id {call_id!r} is used twice in one turn"))
            elif call_id is not None:
                waiting[call_id] = call_where
    found.unanswered.extend(_still_open(waiting))
    return found


def _still_open(waiting: dict[str, str]) -> list[Finding]:
    return [(where, f"call {call_id!r} has no result directly after it") for call_id, where in waiting.items()]
