"""Descriptions of a swarm are checked where they are made: a wrong type is one error that names the field."""

# What is wrong is given on purpose.
# pyright: basic, reportArgumentType=false, reportCallIssue=false

import inspect
from typing import get_type_hints

import pytest

from palaver.core.errors import MessageError
from palaver.models.scripted import ScriptedModel
from palaver.swarm import (
    Advisor,
    Chats,
    Compute,
    Custom,
    Hooks,
    LocalBus,
    Operator,
    Outline,
    Pipeline,
    Policy,
    Recomplete,
    RoundRobin,
    State,
    Storage,
    Swarm,
    SwarmAgent,
    SwarmError,
    commit_action,
    fetch_info,
    navigation,
    result_tool,
    triage,
)
from palaver.swarm.agent import AgentChanges, AgentOptions
from palaver.swarm.extras.advisor import AdvisorChanges
from palaver.swarm.extras.outline import OutlineChanges
from palaver.swarm.extras.pipeline import PipelineChanges
from palaver.swarm.swarm import SwarmChanges
from palaver.swarm.tool import SwarmTool, ToolChanges

pytestmark = pytest.mark.finding("F-01")

MODEL = ScriptedModel(["x"])


def weather(city: str) -> str:
    """Give the weather."""
    return city


def agent(**given):
    return SwarmAgent("a", MODEL, **given)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("instructions", 5),
        ("system", "one text"),
        ("system", ["a", 5]),
        ("system", (each for each in ["a", 5])),
        ("flags", b"x"),
        ("tools", [5]),
        ("sources", ["x"]),
        ("keep", "15"),
        ("keep", True),
        ("where", "x"),
        ("max_tool_calls", 1.5),
        ("validate", "not_empty"),
        ("rescue", "flush"),
        ("rescue_scope", "all"),
        ("placeholders", "sorry"),
        ("on_model_error", "apologise"),
        ("hooks", Hooks),
        ("operator_timeout", "5"),
        ("states", [5]),
        ("storages", State("s", 1)),
        ("depends_on", "b"),
        ("settings", {}),
        ("provider", {"anthropic_messages": 1}),
        ("stream", 1),
        ("description", None),
    ],
)
def test_an_agent_names_the_field_that_is_of_the_wrong_type(field, value):
    with pytest.raises(MessageError, match=rf"^the agent 'a': {field}(\[.*\])?: expected "):
        agent(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agents", ["a"]),
        ("agents", agent()),
        ("default", 5),
        ("instructions", "one text"),
        ("policies", ["p"]),
        ("states", [Policy("p")]),
        ("storages", ["s"]),
        ("computes", [State("s", 1)]),
        ("realm", 5),
        ("deadline", "5"),
        ("nested", 1.5),
        ("recursion", "ignore"),
        ("on_open", "x"),
    ],
)
def test_a_swarm_names_the_field_that_is_of_the_wrong_type(field, value):
    with pytest.raises(SwarmError, match=rf"^the swarm 's': {field}(\[.*\])?: expected "):
        Swarm(**{"name": "s", "agents": [agent()], field: value})


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: State("s", 1, shared=1), "state 's': shared"),
        (lambda: State("s", 1, middlewares=[3]), r"state 's': middlewares\[0\]"),
        (lambda: State(5, 1), "state 5: name"),
        (lambda: Storage("s", index="id"), "storage 's': index"),
        (lambda: Storage("s", index=str, score="1"), "storage 's': score"),
        (lambda: Storage("s", index=str, default=5), "storage 's': default"),
        (lambda: Policy("p", validate_input=True), "policy 'p': validate_input"),
        (lambda: Policy("p", ban_message=5), "policy 'p': ban_message"),
        (lambda: Compute("c", 5), "compute 'c': function"),
        (lambda: Compute("c", len, depends_on=["s"]), r"compute 'c': depends_on\[0\]"),
        (lambda: Pipeline("p", 5), "pipeline 'p': function"),
        (lambda: Advisor("a", model="openai/gpt"), "advisor 'a': model"),
        (lambda: Outline("o", MODEL, str, attempts="3"), "the outline 'o': attempts"),
        (lambda: Outline("o", MODEL, str, validations=["x"]), r"the outline 'o': validations\[0\]"),
        (lambda: LocalBus("x"), "LocalBus: history"),
        (lambda: Chats("x"), "Chats: live"),
        (lambda: Swarm("s", [agent()]).start(store="palaver.db"), "the swarm 's': store"),
    ],
)
def test_what_a_swarm_is_given_names_its_field(make, place):
    with pytest.raises(SwarmError, match=f"^{place}: expected "):
        make()


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: result_tool(weather, kind="x"), "the tool 'weather': kind"),
        (lambda: result_tool(weather, available=True), "the tool 'weather': available"),
        (lambda: result_tool(weather).replace(target=5), "the tool 'weather': target"),
        (lambda: navigation(5), "navigation: to"),
        (lambda: triage(execute=5), "triage: execute"),
        (lambda: commit_action(weather, success=5), "commit_action: success"),
        (lambda: fetch_info(weather, available=5), "fetch_info: available"),
        (lambda: RoundRobin(["openai/gpt"]), r"RoundRobin: models\[0\]"),
        (lambda: Operator(timeout="5"), "Operator: timeout"),
        (lambda: Recomplete(5), "Recomplete: prompt"),
        (lambda: Custom(5), "Custom: answer"),
    ],
)
def test_tools_and_models_name_their_field(make, place):
    with pytest.raises(MessageError, match=f"^{place}: expected "):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: result_tool(weather, avaliable=len),
        lambda: agent().replace(kep=3),
        lambda: Swarm("s", [agent()]).replace(agnets=[]),
        lambda: Outline("o", MODEL, str).replace(atempts=1),
    ],
)
def test_a_misspelt_keyword_is_refused(make):
    with pytest.raises(TypeError, match="keyword argument"):
        make()


@pytest.mark.parametrize(
    ("changes", "of"),
    [
        (AgentChanges, SwarmAgent.__init__),
        (SwarmChanges, Swarm.__init__),
        (OutlineChanges, Outline.__init__),
        (AdvisorChanges, Advisor.__init__),
        (PipelineChanges, Pipeline.__init__),
        (ToolChanges, SwarmTool),
    ],
)
def test_replace_takes_what_the_constructor_takes(changes, of):
    parameters = inspect.signature(of).parameters
    assert set(changes.__annotations__) == set(parameters) - {"self"}


def test_options_are_annotated_as_the_constructor_is():
    hints = get_type_hints(SwarmAgent.__init__)
    assert {name: hints[name] for name in get_type_hints(AgentOptions)} == get_type_hints(AgentOptions)


def test_a_copy_keeps_what_could_be_read_only_once():
    made = agent(system=(each for each in ["a", "b"])).replace(keep=3)
    assert made.system == ("a", "b")
    policies = (each for each in [Policy("p")])
    assert [each.name for each in Swarm("s", [agent()], policies=policies).replace(nested=3).policies] == ["p"]


@pytest.mark.anyio
async def test_each_client_gets_default_items_that_could_be_read_only_once():
    items = Storage("s", index=lambda item: item["id"], default=iter([{"id": "1"}]))
    async with Swarm("s", [agent()], storages=[items]).start() as live:
        for client in ("ann", "bob"):
            async with live.session(client) as session:
                assert await session.storage("s").list() == ({"id": "1"},)


@pytest.mark.anyio
async def test_the_name_of_a_client_is_a_text():
    async with Swarm("s", [agent()]).start() as live:
        with pytest.raises(TypeError, match="client"):
            live.get(5)
        with pytest.raises(TypeError, match="client"):
            async with live.alone(None):
                pass
