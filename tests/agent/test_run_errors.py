"""Whatever goes wrong is the outcome of a run, which raises nothing: docs/spec/codebuff.md#6, CBF-21."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver.agent.agent import Agent
from palaver.core.errors import (
    AuthenticationError,
    CapabilityError,
    PalaverError,
    ProviderError,
    RunError,
    StoreError,
    TransportError,
)
from palaver.models.failures import Retry
from palaver.models.scripted import Broken, ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.threads.thread import Thread
from palaver.turn.middleware import Middleware
from tests.agent.scripts import assert_valid, call, calls, noting
from tests.models.asking import at
from tests.models.faults import says, serve


def provider_error(status, code, cls=ProviderError):
    return cls("openai_chat", "no", code=code, status=status)


ERRORS = [
    provider_error(402, "insufficient_credits"),
    provider_error(403, "forbidden", AuthenticationError),
    provider_error(409, "session_superseded"),
    provider_error(500, None),
    TransportError("nobody answers"),
    CapabilityError("it cannot"),
    ValueError("not ours"),
]


def prompts(run, text="go"):
    return [each for each in run.path.messages if each.role == "user" and each.text == text]


@pytest.mark.anyio
@pytest.mark.row("CBF-21")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__ + str(getattr(error, "status", "")))
@pytest.mark.parametrize("place", ["first", "after a tool", "behind a run", "in a stream"])
async def test_a_run_fails_and_raises_nothing(anyio_backend, error, place):
    ran = []
    script = {
        "first": [error],
        "after a tool": [calls(call(to="ann")), error],
        "behind a run": ["hello", error],
        "in a stream": [Broken(p.assistant("half", call(to="ann"))), error],
    }[place]
    agent = Agent(ScriptedModel([*script, "better"]), tools=[noting(ran)])
    previous = await agent.run("hi") if place == "behind a run" else None
    run = await agent.run("go", previous=previous)
    assert (run.outcome, run.error, run.reason, run.ok) == ("failed", error, str(error), False)
    assert len(prompts(run)) == 1
    assert_valid(run.path.messages)
    with pytest.raises(RunError) as raised:
        run.check()
    assert raised.value.__cause__ is error
    assert raised.value.run is run
    again = await agent.run(thread=run.thread)
    assert (again.outcome, again.text, len(prompts(again))) == ("completed", "better", 1)


class Failing(Middleware):
    def __init__(self, where):
        self.where = where

    async def before_agent(self, _):
        if self.where == "before_agent":
            raise ValueError("hook")

    async def before_model(self, _):
        if self.where == "before_model":
            raise ValueError("hook")

    async def after_model(self, _):
        if self.where == "after_model":
            raise ValueError("hook")


@pytest.mark.anyio
@pytest.mark.row("CBF-21")
@pytest.mark.parametrize("where", ["before_agent", "before_model", "after_model"])
async def test_the_prompt_is_there_once_wherever_ours_fails(anyio_backend, where):
    agent = Agent(ScriptedModel([calls(call(to="ann")), "done"]), tools=[noting([])], middleware=[Failing(where)])
    run = await agent.run("go")
    assert (run.outcome, str(run.error)) == ("failed", "hook")
    assert len(prompts(run)) == 1
    assert_valid(run.path.messages)


class Refusing(MemoryStore):
    """Refuses the n-th append, or all from there on."""

    def __init__(self, nth, *, lasting):
        super().__init__()
        self.left = nth
        self.lasting = lasting

    def append(self, *args, **kwargs):
        self.left -= 1
        if self.left == 0 or (self.lasting and self.left < 0):
            raise StoreError("the disk is full")
        return super().append(*args, **kwargs)


@pytest.mark.anyio
@pytest.mark.row("CBF-21")
@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
async def test_a_store_that_refuses_before_and_after_the_first_write(anyio_backend, nth, lasting):
    with Refusing(nth, lasting=lasting) as store:
        agent = Agent(ScriptedModel([calls(call(to="ann")), "done"], then="done"), tools=[noting([])])
        run = await agent.run("go", thread=store.open("t"))
        assert run.outcome == "failed"
        assert isinstance(run.error, StoreError)
        assert len(prompts(run)) == (nth > 1 or not lasting)
        assert store.open("t").messages == run.path.messages
        assert_valid(run.path.messages)


@pytest.mark.anyio
@pytest.mark.row("CBF-21")
@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        (
            402,
            json.dumps({"error": {"message": "no credit", "code": "insufficient_credits"}}),
            "insufficient_credits",
            "no credit",
        ),
        (403, json.dumps({"error": {"message": "not you", "code": "forbidden"}}), "forbidden", "not you"),
        (409, json.dumps({"error": {"message": "elsewhere", "code": "superseded"}}), "superseded", "elsewhere"),
        (403, "<html>Forbidden</html>", None, "an HTML page"),
        (402, "pay first", None, "pay first"),
    ],
)
async def test_status_code_and_words_of_a_provider_over_http(anyio_backend, status, body, code, words):
    with serve(says(body.encode(), status=status)) as server:
        run = await Agent(at(server.url, retry=Retry(attempts=1))).run("go")
    assert run.outcome == "failed"
    assert isinstance(run.error, ProviderError)
    assert (run.error.status, run.error.code) == (status, code)
    assert words in str(run.error)
    assert len(prompts(run)) == 1


@pytest.mark.anyio
async def test_input_that_cannot_be_is_said_at_once_and_changes_nothing(anyio_backend):
    agent = Agent(ScriptedModel(["never"]))
    thread = Thread()
    for prompt, how in ((None, {}), ([p.user("a"), "b"], {}), ("x", {"branch": "none"})):
        with pytest.raises(PalaverError):
            await agent.run(prompt, thread=thread, **how)
    assert len(thread) == 0
    assert agent.model.asked == []
