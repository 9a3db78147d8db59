"""Presets for plain text: docs/spec/agent-swarm-kit.md#3.4, ASK-16."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.agent import Agent, function_tool
from palaver.agent.guardrails import Guardrail, text_fault, transforming, validating, without_tags
from palaver.models.scripted import ScriptedModel
from palaver.swarm import no_tool_syntax, plain_text

TABLE = [
    ("<think>\nr\n</think>Answer", "Answer", None),
    ("{json}", "{json}", "Tool call in text output"),
    ("<tool_call>x</tool_call>", "", "Empty output"),
    ("<b>bold</b> rest", "rest", None),
    ("<invalid>", "<invalid>", None),
    ("  spaced  ", "spaced", None),
    ("a\n\n\nb", "a\nb", None),
    (" \n ", "", "Empty output"),
    ("<tool name='x'/>", "<tool name='x'/>", "Tool call in text output"),
]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.mark.row("ASK-16")
@pytest.mark.parametrize(("raw", "result", "fault"), TABLE)
def test_the_table(raw, result, fault):
    assert without_tags(raw) == result
    assert text_fault(result) == fault


@pytest.mark.row("ASK-16")
@pytest.mark.parametrize("text", ["<tool_call>x</tool_call>", "<toolcall>a</toolcall>", "<tool>\n</tool>"])
def test_a_call_in_tags_is_refused(text):
    assert text_fault(text) == "Tool call in text output"
    assert text_fault(f"see {text}") is None


@given(st.text(alphabet="<>/ab\n ", max_size=40))
def test_it_is_the_pattern_of_the_specification(text):
    removed = re.sub(r"<[^>]+>[\s\S]*?</[^>]+>", "", text)
    assert without_tags(text) == re.sub(r"\n\s*\n", "\n", removed).strip()


HOSTILE = [
    "<a>" * 400_000 + "</",
    "<a>" * 400_000 + "</>" * 400_000,
    "<" * 1_000_000 + ">",
    "</" * 500_000,
    "<>" * 500_000,
    "\n" + " " * 1_000_000 + "x",
    "\n \t" * 400_000 + "x",
    "<tool_call>" * 100_000 + "</tool_call>" * 100_000,
]


@pytest.mark.finding("F-42")
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_takes_time_in_proportion_to_its_length(text):
    # in quadratic time, each of these takes from minutes to hours
    assert len(without_tags(text)) <= len(text)
    text_fault(text)


@pytest.mark.row("ASK-16")
@pytest.mark.finding("F-42")
@pytest.mark.finding("F-50")
def test_the_presets_of_agents_and_of_swarms_are_the_same_functions():
    assert plain_text is without_tags
    assert no_tool_syntax is text_fault


@pytest.mark.row("ASK-16")
@pytest.mark.anyio
async def test_the_transformation_runs_once_and_validation_sees_its_result():
    seen, checked = [], []

    def transform(text):
        seen.append(text)
        return f"T[{text}]"

    @function_tool
    def look() -> str:
        """Look."""
        return "{}"

    guard = Guardrail(after_model=[transforming(transform), validating(checked.append)])
    call = p.assistant(p.ToolCall("1", "look", "{}"))
    run = await Agent(ScriptedModel([call, "echo:hi"]), tools=[look], middleware=[guard]).run("x")
    assert (run.text, seen, checked) == ("T[echo:hi]", ["echo:hi"], ["T[echo:hi]"])
    refusing = Guardrail(after_model=[transforming(without_tags), validating(text_fault)])
    blocked = await Agent(ScriptedModel(["{json}"]), middleware=[refusing]).run("x")
    assert (blocked.outcome, blocked.reason) == ("blocked", "Tool call in text output")
