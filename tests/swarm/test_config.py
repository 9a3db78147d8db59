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
        ('["price"]', '["prize"]', r"agents.sales: the program gives no tool 'prize'"),
        ('default = "triage"', 'default = "nobody"', "its default agent 'nobody' is none of its agents"),
        ('hand_over = ["sales"]', 'hand_over = ["sails"]', "refers to the agent 'sails'"),
        ('states = ["cart"]\n\n', "\n", "refers to the state 'cart'"),
        ('model = "scripted/sales"', "", "agents.sales: the agent 'sales' needs a model, or an operator"),
        ('model = "scripted/sales"', 'operator = "cart"', "agents.sales: the operator of 'sales' cannot be called"),
        ('model = "scripted/sales"', 'operator = "bob"', "agents.sales: the program gives no operator 'bob'"),
        ("keep = 30", "keep = -1", "agents.sales: the agent 'sales' has less than none: keep -1"),
        ("keep = 30", "max_tool_calls = -1", "agents.sales: .* max_tool_calls -1"),
        ('name = "shop"', 'name = "shop"\ndeadline = nan', "its turns have no time: nan seconds"),
        ('name = "shop"', 'name = "shop"\ndeadline = 0.0', "its turns have no time: 0.0 seconds"),
        ('name = "shop"', 'name = "shop"\nnested = 0', "its turns may ask no model: 0 times"),
        ('states = ["cart"]', 'states = ["cart", "price"]', "states: what the program gives as 'price' is no state"),
        ('name = "shop"', 'name = "shop"\nstorages = ["cart"]', "storages: .* as 'cart' is no storage"),
        ('name = "shop"', 'name = "shop"\npolicies = ["cart"]', "policies: .* as 'cart' is no policy"),
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
