"""Questions to the user: docs/spec/deepagents-swift.md#8.2, DAS-26."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.agent.agent import Agent
from palaver.agent.questions import Answers, Question, answered, ask_user_tool, parse_questions, render_answers
from palaver.models.scripted import ScriptedModel
from palaver.turn.approvals import approve
from palaver.turn.tool import InvalidArgumentsError, ToolContext


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


AB = ("a", "b")
SHAPES = [
    ({"questions": [{"question": "Q?", "type": "text"}]}, [Question("Q?")]),
    (
        {"questions": [{"question": "Q?", "type": "multiple_choice", "choices": [{"value": "a"}, {"value": "b"}]}]},
        [Question("Q?", "multiple_choice", AB)],
    ),
    (
        {"questions": [{"question": "Q?", "type": "multi_select", "choices": ["a", "b"]}]},
        [Question("Q?", "multi_select", AB)],
    ),
    (
        {"questions": [{"question": "Q?", "choices": ["a", {"label": "b"}, " ", 3]}]},
        [Question("Q?", "multiple_choice", AB)],
    ),
    ({"questions": [{"question": "Q?", "options": '["a", "b"]'}]}, [Question("Q?", "multiple_choice", AB)]),
    (
        {"questions": [{"question": "Q?", "type": "checkbox", "choices": ["a", "b"]}]},
        [Question("Q?", "multiple_choice", AB)],
    ),
    (
        {"questions": [{"question": "Q?", "type": "Multi-Select", "choices": ["a", "b"]}]},
        [Question("Q?", "multi_select", AB)],
    ),
    ({"questions": [{"question": "Q?", "type": "unheard of"}]}, [Question("Q?")]),
    ({"questions": [{"question": "Q?", "choices": []}]}, [Question("Q?")]),
    (
        {"questions": [{"question": "Q?", "required": False}, {"question": "R?", "required": "x"}]},
        [Question("Q?", required=False), Question("R?")],
    ),
    ({"questions": ["Q?", "R?"]}, [Question("Q?"), Question("R?")]),
    ({"questions": {"question": "Q?"}}, [Question("Q?")]),
    ({"questions": "Q?"}, [Question("Q?")]),
    ({"questions": '[{"question": "Q?"}, "R?"]'}, [Question("Q?"), Question("R?")]),
    ([{"question": "Q?"}], [Question("Q?")]),
    ({"question": "Q?", "choices": ["a", "b"]}, [Question("Q?", "multiple_choice", AB)]),
]


@pytest.mark.row("DAS-26")
@pytest.mark.parametrize(("given_", "expected"), SHAPES)
def test_every_shape_is_read(given_, expected):
    assert parse_questions(given_) == tuple(expected)


@pytest.mark.row("DAS-26")
@pytest.mark.parametrize("alias", ["question", "text", "prompt", "title"])
def test_every_name_is_read(alias):
    assert parse_questions({"questions": [{alias: "Q?"}]}) == (Question("Q?"),)


@pytest.mark.row("DAS-26")
@pytest.mark.parametrize(
    ("given_", "error"),
    [
        ({}, "questions: at least one question is needed"),
        ({"questions": []}, "questions: at least one question is needed"),
        ({"questions": None}, "questions: at least one question is needed"),
        ({"questions": ["Q?", " "]}, r"questions\[1\]: the question is blank"),
        ({"questions": [{"type": "text"}]}, r"questions\[0\]: the question is blank"),
        ({"questions": [7]}, r"questions\[0\]: the question is blank"),
        ({"questions": [{"question": "Q?", "type": "multiple_choice"}]}, "multiple_choice needs choices"),
        ({"questions": [{"question": "Q?", "type": "multi_select", "choices": [" "]}]}, "multi_select needs choices"),
        ({"questions": [{"question": "Q?", "type": "text", "choices": ["a"]}]}, "type text has no choices"),
    ],
)
def test_what_cannot_be_asked_is_refused(given_, error):
    with pytest.raises(InvalidArgumentsError, match=error):
        parse_questions(given_)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["questions", "question", "type", "choices", "value"]), inner)
    ),
)


@given(values)
def test_anything_gives_questions_or_one_error(given_):
    try:
        questions = parse_questions(given_)
    except InvalidArgumentsError:
        return
    assert questions
    assert all(question.question and (question.type == "text") == (not question.choices) for question in questions)


TWO = (Question("Q?"), Question("R?", "multi_select", AB))


@pytest.mark.row("DAS-26")
@pytest.mark.parametrize(
    ("answers", "first", "second"),
    [
        (Answers(("yes", ("a", "b"))), "yes", "a, b"),
        (Answers(("yes",)), "yes", "(no answer)"),
        (Answers(), "(no answer)", "(no answer)"),
        (Answers((" ", ())), "(no answer)", "(no answer)"),
        (Answers((None, ["a"], "too many")), "(no answer)", "a"),
        (Answers(cancelled=True), "(cancelled)", "(cancelled)"),
        (Answers(("yes", "a"), cancelled=True), "(cancelled)", "(cancelled)"),
        (Answers(error="no terminal"), "(error: no terminal)", "(error: no terminal)"),
    ],
)
def test_answers_are_shown_to_the_model_with_their_questions(answers, first, second):
    assert render_answers(TWO, answers) == f"Q: Q?\nA: {first}\n\nQ: R?\nA: {second}"


@pytest.mark.anyio
@pytest.mark.row("DAS-26")
@pytest.mark.parametrize("error", [None, "gone"])
async def test_the_tool_asks_and_tells(anyio_backend, error):
    asked = []

    async def ask(questions, context):
        asked.append((questions, context.agent))
        return Answers(("yes", "a"), error=error)

    call = p.ToolCall("1", "ask_user", json.dumps({"questions": ["Q?", {"prompt": "R?", "choices": ["a", "b"]}]}))
    context = ToolContext(
        call=call, agent="me", run="r", thread="t", path=(), values={}, emit=print, show=print, idempotency_key="k"
    )
    tool = ask_user_tool(ask)
    output = await tool.run(tool.check(call), context)
    assert asked == [((Question("Q?"), Question("R?", "multiple_choice", AB)), "me")]
    assert output.is_error is (error is not None)
    assert output.content[0].text == render_answers(asked[0][0], Answers(("yes", "a"), error=error))
    assert tool.timeout is None
    assert tool.effect == "write"
    assert tool.definition.parameters["required"] == ["questions"]


ASKED = json.dumps({"questions": ["Where to?", {"prompt": "When?", "choices": ["May", "June"]}]})


@pytest.mark.anyio
@pytest.mark.row("DAS-26")
@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (("Rome", "May"), "Q: Where to?\nA: Rome\n\nQ: When?\nA: May"),
        (("Rome",), "Q: Where to?\nA: Rome\n\nQ: When?\nA: (no answer)"),
        (None, "Q: Where to?\nA: (cancelled)\n\nQ: When?\nA: (cancelled)"),
    ],
)
async def test_a_run_waits_for_the_user_and_goes_on_with_the_answers(anyio_backend, answers, told):
    model = ScriptedModel([p.assistant(p.ToolCall("1", "ask_user", ASKED)), "off we go"])
    agent = Agent(model, tools=[ask_user_tool()])
    run = await agent.run("a trip")
    (request,) = run.pending
    assert (run.outcome, request.tool, request.choices) == ("waiting", "ask_user", ("answer",))
    assert parse_questions(json.loads(request.call.arguments_json))[0] == Question("Where to?")
    decision = answered(request, cancelled=True) if answers is None else answered(request, *answers)
    run = await agent.run(thread=run.thread, decisions={"1": decision})
    assert (run.outcome, run.text) == ("completed", "off we go")
    assert [(each.text, each.is_error) for each in run.messages if each.role == "tool"] == [(told, False)]


@pytest.mark.anyio
@pytest.mark.row("DAS-26")
async def test_questions_can_only_be_answered_and_bad_ones_go_back_to_the_model(anyio_backend):
    bad = p.assistant(p.ToolCall("0", "ask_user", '{"questions": []}'))
    model = ScriptedModel([bad, p.assistant(p.ToolCall("1", "ask_user", ASKED)), "well"])
    run = await Agent(model, tools=[ask_user_tool()], decide=lambda _: {"1": approve()}).run("a trip")
    first, second = [each for each in run.messages if each.role == "tool"]
    assert first.text == "questions: at least one question is needed"
    assert second.text == "'approve' is not allowed here, but answer."
    assert first.is_error and second.is_error  # noqa: PT018
    assert run.ok


@pytest.mark.anyio
@pytest.mark.row("DAS-26")
async def test_a_function_may_ask_while_the_run_goes_on(anyio_backend):
    async def ask(questions, context):
        return Answers(("Rome", "June"))

    model = ScriptedModel([p.assistant(p.ToolCall("1", "ask_user", ASKED)), "off we go"])
    run = await Agent(model, tools=[ask_user_tool(ask)]).run("a trip")
    assert [each.text for each in run.messages if each.role == "tool"] == ["Q: Where to?\nA: Rome\n\nQ: When?\nA: June"]
