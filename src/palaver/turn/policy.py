"""Who may call what: a policy, and what it says of a call.

Rules:

- A policy says ``allow``, ``ask`` or ``deny`` for a call: one word for all tools, a table by tool name (``*`` for the
  rest), or a function. ``deny`` always holds, and ``ask`` never turns into ``allow`` because nobody is there (DAS-25).
- A tool that a table does not name, where it has no ``*``: what only reads is allowed, the rest is asked for (ADR 28).
- A table that names a tool which is not there is refused: the tool that was meant would have no rule.
- What a tool itself demands (``AgentTool.rule``) comes before what a policy allows or asks.
- Any other word than those three is an error, and allows nothing.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Literal, TypeAlias, cast, get_args

from msgspec import Struct, structs

from palaver.core.errors import MessageError, excerpt
from palaver.core.parts import ToolCall
from palaver.core.type_checks import check_arguments

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

    def __post_init__(self) -> None:
        """Refuse choices that nobody can make. Raises ``MessageError``."""
        check_arguments("Rule", Rule, structs.asdict(self))
        given = cast("object", self.choices)
        listed = cast("Sequence[object]", given) if isinstance(given, tuple | list) else ()
        if not listed or not all(each in CHOICES for each in listed):
            raise MessageError(f"choices: {excerpt(repr(self.choices))} is not one or several of {', '.join(CHOICES)}")


_ALLOWED: Final = Rule(judgement="allow")
_NOT_NAMED: Final = Rule(judgement="ask", reason="The policy does not name this tool.")

Judged: TypeAlias = Judgement | Rule
Judge: TypeAlias = Callable[[ToolCall], Judged | Awaitable[Judged]]
Policy: TypeAlias = Judgement | Mapping[str, Judged] | Judge


def rule_of(policy: Policy, call: ToolCall, tool: str, *, reads: bool) -> Rule | Awaitable[Judged]:
    """What a policy says of a call of a tool. A function may be async; then what it gives must be awaited.

    ``reads`` says that the tool changes nothing.
    """
    if callable(policy):
        said = policy(call)
        return said if isinstance(said, Awaitable) else as_rule(said)
    if isinstance(policy, Mapping):
        if tool in policy or "*" in policy:
            return as_rule(policy.get(tool, policy.get("*")))
        return _ALLOWED if reads else _NOT_NAMED
    return as_rule(policy)


def as_rule(said: object) -> Rule:
    """A rule for a word; a rule as it is. Raises ``MessageError`` for anything else."""
    if isinstance(said, Rule) and said.judgement in _JUDGEMENTS:
        return said
    for word in _JUDGEMENTS:
        if said == word:
            return Rule(judgement=word)
    raise MessageError(f"a policy says {', '.join(_JUDGEMENTS)}, or a Rule; not {excerpt(repr(said))}")


def check_policy(policy: Policy, names: Collection[str]) -> None:
    """Raise ``MessageError`` for a word that means nothing, and for a tool that is not among ``names``."""
    if callable(policy):
        return
    if not isinstance(policy, Mapping):
        as_rule(policy)
        return
    for name, said in policy.items():
        as_rule(said)
        if name != "*" and name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise MessageError(f"policy: there is no tool {excerpt(repr(name))}; there is: {known}")
