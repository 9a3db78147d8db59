"""Swarms from configuration files: names work, and what is wrong is told by its place."""

import pytest

from palaver.core.errors import SwarmError
from palaver.models.scripted import ScriptedModel
from palaver.swarm import State
from palaver.swarm.config import swarm_from
from tests.swarm.scripts import calling, echo, last

CONFIG = """
name = "shop"
default = "triage"
states = ["cart"]

[agents.triage]
model = "scripted/triage"
instructions = "Pass on who wants to buy."
hand_over = ["sales"]

[agents.sales]
model = "scripted/sales"
tools = ["price"]
states = ["cart"]
keep = 30
"""


def price(item: str) -> str:
    """Say what something costs."""
    return f"the {item} costs nothing"


PARTS = {"price": price, "cart": State("cart", [], type=list[str])}


def scripted(name):
    def triage(prompt):
        return calling("to_sales") if "buy" in last(prompt).text else echo(prompt)

    return ScriptedModel([], then=triage if name == "scripted/triage" else (lambda _: "What would you like?"))


@pytest.mark.anyio
async def test_a_configured_swarm_hands_over():
    swarm = swarm_from(CONFIG, parts=PARTS, models=scripted)
    assert (swarm.agents["sales"].keep, swarm.default, list(swarm.states)) == (30, "triage", ["cart"])
    async with swarm.start() as live, live.session("ann") as session:
        assert await session.complete("buy") == "What would you like?"
        assert session.agent == "sales"


@pytest.mark.anyio
async def test_a_person_can_be_configured():
    async def bob(place, text):
        return f"{place.agent} heard {text}"

    config = CONFIG.replace('model = "scripted/sales"', 'operator = "bob"\noperator_timeout = 5.0')
    swarm = swarm_from(config, parts={**PARTS, "bob": bob}, models=scripted)
    assert swarm.agents["sales"].operator_timeout == 5
    async with swarm.start() as live, live.session("ann") as session:
        assert await session.complete("buy") == "sales heard buy"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "shop"', "name = ", "Invalid value"),
        ('name = "shop"', "", "missing required field `name`"),
        ("keep = 30", "kep = 30", r"unknown field `kep` - at `\$.agents\[...\]`"),
        ("keep = 30", 'keep = "all"', "Expected `int`"),
        ('["price"]', '["prize"]', r"agents.sales: no tool was passed for 'prize'"),
        ('default = "triage"', 'default = "nobody"', "its default agent 'nobody' is not one of its agents"),
        ('hand_over = ["sales"]', 'hand_over = ["sails"]', "refers to the agent 'sails'"),
        ('states = ["cart"]\n\n', "\n", "refers to the state 'cart'"),
        ('model = "scripted/sales"', "", "agents.sales: the agent 'sales' needs a model or an operator"),
        ('model = "scripted/sales"', 'operator = "cart"', "agents.sales: the operator of 'sales' is not a function"),
        ('model = "scripted/sales"', 'operator = "bob"', "agents.sales: no operator was passed for 'bob'"),
        ("keep = 30", 'policy = "perhaps"', "Invalid enum value 'perhaps'"),
        ("keep = 30", 'policy = { prize = "ask" }', "agents.sales: .*'prize'"),
        ("keep = 30", "keep = -1", "agents.sales: the agent 'sales' has a negative limit: keep -1"),
        ("keep = 30", "max_tool_calls = -1", "agents.sales: .* max_tool_calls -1"),
        ('name = "shop"', 'name = "shop"\ndeadline = nan', "deadline: nan is not"),
        ('name = "shop"', 'name = "shop"\ndeadline = 0.0', "deadline: 0.0 is not"),
        ('name = "shop"', 'name = "shop"\nnested = 0', "nested: 0 must be"),
        ('states = ["cart"]', 'states = ["cart", "price"]', "states: the value passed for 'price' is not a state"),
        ('name = "shop"', 'name = "shop"\nstorages = ["cart"]', "storages: .* for 'cart' is not a storage"),
        ('name = "shop"', 'name = "shop"\npolicies = ["cart"]', "policies: .* for 'cart' is not a policy"),
        ('name = "shop"', f"name = {'[' * 9000}", "the configuration of a swarm: maximum recursion depth"),
        ('name = "shop"', f"nested = {'9' * 5000}", "the configuration of a swarm: .* 5000 digits"),
    ],
)
def test_errors_name_their_place(old, new, said):
    with pytest.raises(SwarmError, match=said):
        swarm_from(CONFIG.replace(old, new, 1), parts=PARTS, models=scripted)


def test_an_invalid_model_is_named_by_its_place():
    with pytest.raises(SwarmError, match=r"agents.triage.model: .*scripted"):
        swarm_from(CONFIG, parts=PARTS)


@pytest.mark.parametrize("policy", ['"ask"', '{ price = "ask" }'])
def test_a_policy_is_a_judgement_or_a_table_by_tool(policy):
    swarm = swarm_from(CONFIG.replace("keep = 30", f"policy = {policy}", 1), parts=PARTS, models=scripted)
    assert swarm.agents["sales"].policy in ("ask", {"price": "ask"})
