"""Drawings of a swarm: Markdown, Mermaid, PlantUML."""

import re

import pytest

from palaver.models.scripted import ScriptedModel
from palaver.swarm import Compute, Policy, State, Storage, Swarm, SwarmAgent, commit_action, navigation, triage
from palaver.swarm.extras.diagrams import FORMATS, markdown, mermaid, plantuml


def lookup(city: str, days: int = 1, units: list[str] | None = None) -> str:
    """Look up the weather | of a *city*."""
    return city + str(days) + str(units)


def order(item: str) -> str:
    """Order something."""
    return item


def shop():
    cart = State("cart", [])
    model = ScriptedModel([], name="demo/small")
    agents = [
        SwarmAgent(
            "triage",
            model,
            instructions="Send people on.\n```\nnot the end\n```",
            tools=[navigation("sales"), navigation("help desk")],
            description="Who comes first.",
            depends_on=["sales"],
        ),
        SwarmAgent(
            "sales",
            model,
            instructions=lambda _: "now",
            system=["Be brief."],
            dynamic=lambda _: ["It is Monday."],
            tools=[lookup, commit_action(order), triage()],
            states=[cart],
            storages=["notes"],
            keep=None,
        ),
        SwarmAgent("help desk", operator=lambda _, text: text, depends_on=["sales", "triage"]),
    ]
    return Swarm(
        "corner shop",
        agents,
        realm="town",
        instructions=["Be kind."],
        policies=[
            Policy("manners", validate_input=lambda _text, _client: True, auto_ban=True, ban_message="No | thanks"),
            Policy("bans", get_ban_message=lambda _: None),
        ],
        states=[cart, State("seen", lambda _: 0, shared=True)],
        storages=[Storage("notes", index=str)],
        computes=[Compute("total", sum, depends_on=[cart])],
    )


MERMAID = """\
flowchart LR
    agent1(["triage"])
    agent2["sales"]
    agent3["help desk"]
    agent1 -->|"to_sales"| agent2
    agent1 -->|"to_help_desk"| agent3
    agent2 -->|"to_default"| agent1
    agent3 -.-> agent2
    agent3 -.-> agent1
"""
PLANTUML = """\
@startuml
title corner shop
state "triage" as agent1
state "sales" as agent2
state "help desk" as agent3
[*] --> agent1
agent1 --> agent2 : to_sales
agent1 --> agent3 : to_help_desk
agent2 --> agent1 : to_default
agent3 ..> agent2
agent3 ..> agent1
@enduml
"""


def test_who_hands_over_to_whom():
    assert mermaid(shop()) == MERMAID
    assert plantuml(shop()) == PLANTUML


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_swarm_gives_the_same_text(name):
    assert FORMATS[name](shop()) == FORMATS[name](shop())


def test_everything_is_in_the_document():
    text = markdown(shop())
    assert text.startswith("# Swarm `corner shop`\n\n- Default agent: `triage`\n- Realm: `town`\n")
    assert MERMAID in text
    for line in (
        "Be kind.",
        "Who comes first.",
        "- Model: `demo/small`",
        "- Model: a person",
        "- Hands over to: `sales`, `help desk`",
        "- States: `cart`",
        "- Storages: `notes`",
        "- Sees the last 15 messages.",
        "- Sees all messages.",
        "Prompt: *given by a function*",
        "More of the prompt: *given by a function*",
        "| `lookup` | `city: string`, `days?: integer`, `units?` | Look up the weather \\| of a \\*city\\*. |",
        "| `order` (commits) | `item: string` | Order something. |",
        "| `to_sales` (hands over) |  | Hand the conversation over to sales. |",
        "| `manners` | input | yes | No \\| thanks |",
        "| `bans` | bans only | no | *given by a function* |",
        "| `cart` | no | `[]` |",
        "| `seen` | yes | *given by a function* |",
        "| `notes` | no | no |",
        "| `total` | no | `cart` |",
    ):
        assert line in text.splitlines(), line


def test_what_there_is_none_of_has_no_heading():
    text = markdown(Swarm("s", [SwarmAgent("a", ScriptedModel([]))]))
    assert not re.search("Policies|States|Storages|Derived|Instructions", text)


def test_texts_cannot_end_the_fence_they_stand_in():
    lines = markdown(shop()).splitlines()
    at = lines.index("````text")
    assert lines[at : at + 6] == ["````text", "Send people on.", "```", "not the end", "```", "````"]


def test_names_cannot_break_out():
    odd = 'a"]; click b "javascript:x" `c` <b> | # %\n@enduml'
    swarm = Swarm(odd, [SwarmAgent(odd, ScriptedModel([]), depends_on=[odd])], states=[State("a|b", 0)])
    node = mermaid(swarm).splitlines()[1]
    assert node.count('"') == 2
    assert not re.search(r"[<>`]", node)
    assert plantuml(swarm).count("@enduml") == 3  # each on a line with something else, but the last
    assert [line for line in plantuml(swarm).splitlines() if line == "@enduml"] == ["@enduml"]
    assert plantuml(swarm).splitlines()[2].count('"') == 2
    assert markdown(swarm).splitlines()[0].startswith("# Swarm `` a")
    assert "| `a\\|b` | no | `0` |" in markdown(swarm).splitlines()
