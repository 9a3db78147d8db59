"""From the calls of an answer to what is to become of each: which tool, are the arguments valid, is it allowed.

Rules:

- In this order: the tool by its name, the arguments by its ``check``, permission by the policy. What fails is told to
  the model in the result of the call, and nothing is left without a result.
- ``deny`` wins over everything, then comes what the tool itself demands, then the policy. A call that may have
  been run already is asked again, unless its tool is repeatable.
- What the records of an earlier run say holds: a call that is pending stays so, whatever the policy says by now, and
  what was decided is not asked again, unless the call may have been run since.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import structs

from palaver.agent.approvals import Recorded, resolved
from palaver.agent.calls import PlannedCall
from palaver.agent.notes import MAY_HAVE_RUN, MAY_HAVE_RUN_BEFORE
from palaver.agent.permission import CHOICES, Policy, Rule, as_rule, rule_of
from palaver.core.errors import PalaverError
from palaver.core.parts import ToolCall

if TYPE_CHECKING:
    from palaver.agent.tool_names import Toolbox

DENIED: Final = "The {name} tool may not be called here."
DUPLICATE: Final = "Not run: an earlier call of this answer has the same id. Call again, with an id of its own."


async def plan(
    calls: Sequence[tuple[int, ToolCall]],
    toolbox: Toolbox,
    policy: Policy,
    *,
    begun: bool = False,
    known: Recorded = Recorded(),  # noqa: B008 (frozen)
) -> tuple[PlannedCall, ...]:
    """Plan calls, each with its place among the calls of its message; ``known`` is what the records say of them."""
    return tuple([await _planned(index, call, toolbox, policy, known, begun=begun) for index, call in calls])


def told_apart(planned: Sequence[PlannedCall], calls: Sequence[ToolCall]) -> tuple[PlannedCall, ...]:
    """Refuse every later call with an id that an earlier one of its answer (``calls``) has, where something is asked.

    Decisions go by the id, and one must not be taken for two calls.
    """
    first: dict[str, int] = {}
    for index, call in enumerate(calls):
        first.setdefault(call.id, index)
    return tuple(
        [
            each if first[each.call.id] == each.index else structs.replace(each, verdict="invalid", text=DUPLICATE)
            for each in planned
        ]
    )


async def _planned(
    index: int, call: ToolCall, toolbox: Toolbox, policy: Policy, known: Recorded, *, begun: bool
) -> PlannedCall:
    tool = toolbox.find(call.name)
    if tool is None:
        return PlannedCall(index, call, verdict="invalid", text=toolbox.unknown(call.name))
    try:
        arguments = tool.check(call)
    except PalaverError as error:
        return PlannedCall(index, call, tool.name, tool.effect, "invalid", str(error))
    rule = rule_of(policy, call, tool.name, reads=tool.effect == "read")
    if not isinstance(rule, Rule):
        rule = as_rule(await rule)
    planned = PlannedCall(index, call, tool.name, tool.effect, arguments=arguments)
    risky = (begun or known.begun) and not tool.is_repeatable
    if rule.judgement == "deny":
        text = rule.text or " ".join(filter(None, (DENIED.format(name=tool.name), rule.reason)))
        text = f"{text} {MAY_HAVE_RUN_BEFORE}" if risky else text
        return structs.replace(planned, verdict="deny", text=text, arguments=None)
    asked = known.asked.get(call.id)
    if asked is None:
        return _ruled(planned, tool.rule or rule, risky=risky)
    planned = _asking(planned, asked.reason, asked.choices)
    decision = known.decided.get(call.id)
    if decision is None:
        return planned
    decided = resolved(planned, decision, tool.check)
    again = decided.verdict == "run" and begun and not tool.is_repeatable
    return _asking(planned, MAY_HAVE_RUN, asked.choices) if again else decided


def _ruled(planned: PlannedCall, rule: Rule, *, risky: bool) -> PlannedCall:
    if rule.judgement == "ask":
        reason = f"{rule.reason} {MAY_HAVE_RUN}".strip() if risky else rule.reason
        return _asking(planned, reason, rule.choices)
    return _asking(planned, MAY_HAVE_RUN, CHOICES) if risky else planned


def _asking(planned: PlannedCall, reason: str, choices: Sequence[str]) -> PlannedCall:
    return structs.replace(planned, verdict="ask", text=reason, choices=tuple(choices))
