"""From the calls of an answer to what is to become of each: which tool, are the arguments valid, is it allowed.

Rules:

- In this order: the tool by its name, the arguments by its ``check``, permission by the policy. What fails is told to
  the model in the result of the call, and nothing is left without a result.
- ``deny`` wins over everything; a call that may have been run already is asked again, unless its tool is repeatable.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from palaver.agent.machine import PlannedCall
from palaver.agent.notes import MAY_HAVE_RUN
from palaver.agent.permission import CHOICES, Policy, Rule, as_rule, rule_of
from palaver.core.errors import PalaverError
from palaver.core.parts import ToolCall

if TYPE_CHECKING:
    from palaver.agent.tool import AgentTool
    from palaver.agent.tool_names import Toolbox

DENIED: Final = "The {name} tool may not be called here."


async def plan(
    calls: Sequence[tuple[int, ToolCall]], toolbox: Toolbox, policy: Policy, *, begun: bool = False
) -> tuple[PlannedCall, ...]:
    """Plan calls, each with its place among the calls of its message."""
    return tuple([await _planned(index, call, toolbox, policy, begun=begun) for index, call in calls])


async def _planned(index: int, call: ToolCall, toolbox: Toolbox, policy: Policy, *, begun: bool) -> PlannedCall:
    tool = toolbox.find(call.name)
    if tool is None:
        return PlannedCall(index, call, verdict="invalid", text=toolbox.unknown(call.name))
    try:
        arguments = tool.check(call)
    except PalaverError as error:
        return PlannedCall(index, call, tool.name, tool.effect, "invalid", str(error))
    rule = tool.rule if tool.rule is not None else rule_of(policy, call, tool.name)
    if not isinstance(rule, Rule):
        rule = as_rule(await rule)
    return _ruled(PlannedCall(index, call, tool.name, tool.effect, arguments=arguments), tool, rule, begun=begun)


def _ruled(planned: PlannedCall, tool: AgentTool, rule: Rule, *, begun: bool) -> PlannedCall:
    index, call, name, effect, arguments = planned.index, planned.call, tool.name, tool.effect, planned.arguments
    if rule.judgement == "deny":
        text = rule.text or " ".join(filter(None, (DENIED.format(name=name), rule.reason)))
        return PlannedCall(index, call, name, effect, "deny", text)
    if rule.judgement == "ask":
        return PlannedCall(index, call, name, effect, "ask", rule.reason, rule.choices, arguments)
    if begun and not tool.is_repeatable:
        return PlannedCall(index, call, name, effect, "ask", MAY_HAVE_RUN, CHOICES, arguments)
    return planned
