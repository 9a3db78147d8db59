"""What is given to an agent and to a run is checked where it is given: one error, which names the field."""

from __future__ import annotations

import inspect

import pytest
from msgspec import Struct

import palaver as p
from palaver.agent import Agent, Compactor, Limits, approve, function_tool
from palaver.agent.agent import AgentFields, SyncAgent
from palaver.agent.driver import RunOptions
from palaver.core import events as core_events
from palaver.core.errors import MessageError, PalaverError
from palaver.models import Prompt, ScriptedModel
from palaver.models.language_model import PromptFields
from palaver.turn import events


def agent(*script, **how):
    return Agent(ScriptedModel(script or ["hi"]), **how)


# -- the agent ---------------------------------------------------------------------------------------------------------

WRONG = {
    "name": 3,
    "instructions": 3,
    "tools": "look",
    "policy": 3,
    "decide": {"c1": approve()},
    "middleware": 3,
    "limits": {"iterations": 3},
    "output": 3,
    "settings": {"temperature": 0.2},
    "provider": "openai",
    "result_limit": "many",
    "invalid_calls": "ignore",
    "polling": "look",
    "observers": [3],
    "stream": "yes",
    "eager": 1,
    "prices": 3.0,
}


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("field", WRONG)
def test_an_ill_typed_field_of_an_agent_is_refused_by_its_name(field):
    with pytest.raises(PalaverError, match=rf"^{'a policy' if field == 'policy' else field}"):
        agent(**{field: WRONG[field]})
    with pytest.raises(PalaverError):
        agent().replace(**{field: WRONG[field]})


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("given", [True, 1.5, "9", 0])
def test_a_limit_that_is_no_whole_number_is_refused(given):
    with pytest.raises(MessageError, match="iterations"):
        Limits(iterations=given)
    with pytest.raises(MessageError, match="window"):
        Compactor(window=given)
    with pytest.raises(MessageError, match="result_limit"):
        agent(result_limit=given)


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("field", ["branch", "values", "decide", "decisions", "on_event", "thread", "previous"])
def test_an_ill_typed_field_of_a_run_is_refused_by_its_name(field):
    with pytest.raises(MessageError, match=f"^{field}"):
        agent().sync.run("go", **{field: 3})
    with pytest.raises(MessageError, match=f"^{field}"):
        agent().driver("go", RunOptions(**{field: 3}))


def test_an_unknown_keyword_is_a_type_error_that_names_it():
    for call in (lambda: agent().sync.run("go", theme="dark"), lambda: agent().replace(theme="dark")):
        with pytest.raises(TypeError, match="theme"):
            call()
    with pytest.raises(TypeError, match="theme"):
        function_tool(lambda: None, theme="dark")


def test_the_fields_of_a_copy_are_the_keywords_of_an_agent():
    assert set(AgentFields.__annotations__) == set(inspect.signature(Agent).parameters)
    assert set(PromptFields.__annotations__) == set(Prompt.__struct_fields__)


def test_all_ways_to_run_have_the_same_keywords():
    def keywords(function):
        listed = inspect.signature(function).parameters
        return [each for each in listed.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]

    assert keywords(Agent.run) == keywords(Agent.stream) == keywords(SyncAgent.run) == keywords(SyncAgent.stream)
    given = [[(each.name, each.default) for each in keywords(function)] for function in (Agent.run, RunOptions)]
    assert given[0] == given[1]


# -- decisions ---------------------------------------------------------------------------------------------------------


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("given", [approve(), {"c1": "approve"}, {1: approve()}, None, [approve()]])
def test_a_decide_that_gives_no_decisions_is_one_clear_error(given):
    @function_tool
    def put() -> str:
        """Put."""
        return "put"

    made = agent(p.assistant(tool_calls=[p.tool_call("put", {}, id="c1")]), tools=[put], policy="ask")
    run = made.sync.run("go", decide=lambda _: given)
    assert (run.outcome, run.ok, type(run.error)) == ("waiting", False, MessageError), "it can be decided once more"
    assert run.reason.startswith("decide: ")


# -- limits ------------------------------------------------------------------------------------------------------------


def print_it() -> None:
    """Print it."""


@pytest.mark.finding("F-16")
def test_a_whole_answer_to_the_only_call_is_completed():
    made = agent("Hello.", limits=Limits(iterations=1))
    run = made.sync.run("Hi")
    assert (run.outcome, run.ok, run.text) == ("completed", True, "Hello.")
    withheld = agent("Hello.", limits=Limits(iterations=1), tools=[function_tool(print_it)]).sync.run("Hi")
    assert withheld.outcome == "max_iterations", "the tools were withheld: it may have wanted one"


@pytest.mark.finding("F-16")
@pytest.mark.parametrize(
    "answer",
    [
        "",
        p.assistant("Hel", finish_reason="length"),
        p.assistant(tool_calls=[p.tool_call("look", {}, id="c")]),
        p.assistant("Hm.", finish_reason="pause"),
    ],
)
def test_an_answer_that_is_not_whole_is_cut_short_by_the_limit(answer):
    run = agent(answer, limits=Limits(iterations=1)).sync.run("Hi")
    assert (run.outcome, run.ok) == ("max_iterations", False)


# -- what is shown -----------------------------------------------------------------------------------------------------


@pytest.mark.finding("F-20")
@pytest.mark.anyio
async def test_sync_runs_where_an_event_loop_runs(anyio_backend):
    assert agent().sync.run("go").text == "hi"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.mark.finding("F-20")
def test_the_error_of_a_run_stands_in_its_repr():
    assert repr(agent(ValueError("no key")).sync.run("go")) == "Run('agent', 'failed', '', error=ValueError('no key'))"
    blocked = agent(p.assistant("x", finish_reason="content_filter")).sync.run("go")
    assert repr(blocked) == "Run('agent', 'blocked', 'x', reason=\"the provider's content filter\")"
    assert repr(agent().sync.run("go")) == "Run('agent', 'completed', 'hi')"


@pytest.mark.finding("F-20")
def test_there_is_one_class_for_more_text():
    assert events.TextDelta is core_events.TextDelta
    assert events.ReasoningDelta is core_events.ReasoningDelta
    seen = []
    run = agent(p.assistant(p.Reasoning("hm"), "hello"), name="mate").sync.run("go", on_event=seen.append)
    deltas = [each for each in seen if isinstance(each, core_events.TextDelta | core_events.ReasoningDelta)]
    assert [(type(each).__name__, each.text, each.agent, each.run) for each in deltas] == [
        ("ReasoningDelta", "hm", "mate", run.id),
        ("TextDelta", "hello", "mate", run.id),
    ]


# -- forms of answers --------------------------------------------------------------------------------------------------


class Ship(Struct):
    name: str


pydantic = pytest.importorskip("pydantic")


class Boat(pydantic.BaseModel):
    name: str


FORMS = {
    "list of models": (list[Boat], '[{"name": "Ida"}]', [Boat(name="Ida")]),
    "model or nothing": (Boat | None, "null", None),
    "model or nothing, a model": (Boat | None, '{"value": {"name": "Ida"}}', Boat(name="Ida")),
    "models by name": (dict[str, Boat], '{"a": {"name": "Ida"}}', {"a": Boat(name="Ida")}),
    "model or text": (Boat | str, '{"value": "none"}', "none"),
    "structs": (list[Ship], '{"value": [{"name": "Ida"}]}', [Ship("Ida")]),
    "struct or nothing": (Ship | None, '{"value": null}', None),
    "number": (int, "3", 3),
}


@pytest.mark.finding("F-21")
@pytest.mark.parametrize("name", FORMS)
def test_an_output_may_be_any_type_that_pydantic_or_msgspec_reads(name):
    form, text, value = FORMS[name]
    run = agent(text, output=form).sync.run("go")
    assert (run.outcome, run.output) == ("completed", value)


@pytest.mark.finding("F-21")
def test_an_output_that_does_not_fit_names_the_path():
    run = agent('[{"name": 3}]', '[{"name": "Ida"}]', output=list[Boat]).sync.run("go")
    assert run.output == [Boat(name="Ida")]
    assert "$[0].name" in run.messages[2].text
