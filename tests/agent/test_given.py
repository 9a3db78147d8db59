"""What is given to an agent and cannot be is refused in one sentence; and what is imported from where."""

from __future__ import annotations

import subprocess
import sys

import pytest

import palaver.agent
import palaver.models
from palaver.agent import Agent, Limits
from palaver.core.errors import MessageError
from palaver.models.scripted import ScriptedModel
from palaver.turn.middleware import Middleware


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": 5}, r"model: 5 is not a model; create one with palaver\.models\.model\(…\)"),
        ({"tools": [None]}, r"tools\[0\]: None is neither a tool nor a function"),
        ({"tools": ["send"]}, r"tools\[0\]: 'send' is neither a tool nor a function"),
        ({"tools": None}, "tools: None is not a list of tools or functions"),
        ({"tools": "send"}, "tools: 'send' is not a list"),
        ({"middleware": [5]}, r"middleware\[0\]: 5 is not a Middleware"),
        ({"middleware": Middleware()}, "middleware: .* is not a list of Middleware"),
    ],
)
def test_what_an_agent_cannot_be_made_of(given, told):
    with pytest.raises(MessageError, match=told):
        Agent(**{"model": ScriptedModel([]), **given})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"thread": "abc"}, "thread: str is not a Thread or StoredThread"),
        ({"previous": "abc"}, "previous: str is not a Run"),
    ],
)
def test_where_a_run_cannot_begin(given, told):
    with pytest.raises(MessageError, match=told):
        Agent(ScriptedModel(["Hello."])).sync.run("Hi.", **given)


@pytest.mark.parametrize("name", ["tokens", "cost", "seconds", "context_tokens", "recoveries", "output_attempts"])
def test_a_limit_below_nothing_is_refused(name):
    with pytest.raises(MessageError, match=f"{name}: -1: a limit is a number, 0 or more"):
        Limits(**{name: -1})
    assert getattr(Limits(**{name: 0}), name) == 0


def test_a_word_for_repeats_that_means_nothing_is_refused():
    with pytest.raises(MessageError, match="repeats: expected one of 'answer', 'run', got str 'allow'"):
        Limits(repeats="allow")


@pytest.mark.parametrize("module", [palaver.agent, palaver.models])
def test_what_is_exported_is_there(module):
    assert len(module.__all__) == len(set(module.__all__))
    assert all(hasattr(module, name) for name in module.__all__)


def test_importing_agents_loads_no_optional_package():
    optional = {
        "mcp",
        "httpx",
        "pydantic",
        "opentelemetry",
        "jsonschema",
        "trio",
        "sqlite3",
        "google",
        "botocore",
        "http.server",
    }
    code = f"import palaver.agent, palaver.models, sys; print({optional!r} & sys.modules.keys())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
