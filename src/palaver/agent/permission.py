"""Who may call what: a policy, and what it says of a call.

Rules:

- A policy says ``allow``, ``ask`` or ``deny`` for a call: one word for all tools, a table by tool name (``*`` for the
  rest), or a function. ``deny`` always holds, and ``ask`` never turns into ``allow`` because nobody is there (DAS-25).
- What a tool itself demands (``AgentTool.rule``) comes before what a policy allows or asks.
- Any other word than those three is an error, and allows nothing.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from palaver.core.errors import MessageError, excerpt
from palaver.core.parts import ToolCall

Judgement: TypeAlias = Literal["allow", "ask", "deny"]
DecisionKind: TypeAlias = Literal["approve", "edit", "reject", "answer"]
CHOICES: Final[tuple[DecisionKind, ...]] = ("approve", "edit", "reject", "answer")
_JUDGEMENTS: Final[tuple[Judgement, ...]] = get_args(Judgement)


class Rule(Struct, frozen=True, kw_only=True):
    """What a policy says of a call; ``reason`` is for whoever decides, or for the model when it is denied."""

    judgement: Judgement
    reason: str = ""
    text: str = ""
    """What the model is told when it is denied, in place of the usual sentence."""
    choices: tuple[DecisionKind, ...] = CHOICES


Judged: TypeAlias = Judgement | Rule
Judge: TypeAlias = Callable[[ToolCall], Judged | Awaitable[Judged]]
Policy: TypeAlias = Judgement | Mapping[str, Judged] | Judge


def rule_of(policy: Policy, call: ToolCall, tool: str) -> Rule | Awaitable[Judged]:
    """What a policy says of a call of a tool. A function may be async; then what it gives must be awaited."""
    if callable(policy):
        said = policy(call)
        return said if isinstance(said, Awaitable) else as_rule(said)
    if isinstance(policy, Mapping):
        return as_rule(policy.get(tool, policy.get("*", "allow")))
    return as_rule(policy)


def as_rule(said: object) -> Rule:
    """A rule for a word; a rule as it is. Raises ``MessageError`` for anything else."""
    if isinstance(said, Rule) and said.judgement in _JUDGEMENTS:
        return said
    for word in _JUDGEMENTS:
        if said == word:
            return Rule(judgement=word)
    raise MessageError(f"a policy says {', '.join(_JUDGEMENTS)}, or a Rule; not {excerpt(repr(said))}")


def check_policy(policy: Policy) -> None:
    """Raise ``MessageError`` for a word that means nothing."""
    if callable(policy):
        return
    for said in policy.values() if isinstance(policy, Mapping) else (policy,):
        as_rule(said)
