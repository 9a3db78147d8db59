"""A function that gives what a local model writes: its calls and its reasoning are read from the text."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.agent import Agent, function_tool
from palaver.core.errors import UnknownNameError
from palaver.models.language_model import Prompt
from palaver.models.scripted import FunctionModel
from palaver.turn.events import ReasoningDelta, TextDelta

pytestmark = pytest.mark.finding("F-19")


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


def written(prompt: Prompt) -> str:
    if prompt.messages[-1].role == "tool":
        return "<think>so</think>It rains."
    return '<think>hm</think>Look.<tool_call>{"name":"weather","arguments":{"city":"Husum"}}</tool_call>'


@pytest.mark.parametrize("stream", [True, False])
def test_an_agent_runs_the_calls_that_a_function_writes_as_text(stream: bool) -> None:
    seen: list[Any] = []
    agent = Agent(FunctionModel(written, text_calls="hermes"), tools=[weather], stream=stream)
    run = agent.sync.run("Weather?", on_event=seen.append)
    run = agent.sync.run("Again?", previous=run)
    roles = ["user", "assistant", "tool", "assistant"]
    messages = [entry.message for entry in run.path]
    assert [each.role for each in messages] == roles * 2
    assert [each.text for each in messages if each.role == "tool"] == ["rain in Husum"] * 2
    ids = [call.id for each in messages for call in each.tool_calls]
    assert len(set(ids)) == 2
    assert run.text == "It rains."
    if stream:
        assert "".join(each.text for each in seen if isinstance(each, TextDelta)) == "Look.It rains."
        assert "".join(each.text for each in seen if isinstance(each, ReasoningDelta)) == "hmso"


def test_a_format_that_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        FunctionModel(written, text_calls="nobody")
