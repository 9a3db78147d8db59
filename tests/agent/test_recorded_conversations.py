"""Recorded conversations with tools, gone through again by an agent over real HTTP.

A conversation is a row of recordings, each of which goes on where the one before it stopped. What tools gave and what
users said is taken from the next request; answers are the recorded bytes. Each request that the agent sends must say
what the recorded one says (a client has its own way of writing ``null``), and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.agent import Agent, AgentTool, Limits, Middleware, Output, Step
from palaver.core.tools import Tool
from palaver.testing.rules import check_request
from tests.agent.over_http import model_at
from tests.agent.wholeness import broken_pairs
from tests.models.faults import says, serve
from tests.models.test_replay_corpus import WIRES, _asked, _groups, _read, _recorded


def essence(message: p.Message) -> Any:
    """What a message says, however it is written. What it thinks a wire may not take back, and tells as a loss."""
    if isinstance(message, p.AssistantMessage):
        return ("assistant", message.text.strip(), _calls(message))
    if isinstance(message, p.ToolMessage):
        return ("tool", message.text, [type(each) for each in message.content])
    content = getattr(message, "content", ())
    return (message.role, message.text, [type(each) for each in content])


def essences(messages: Sequence[p.Message]) -> list[Any]:
    return [essence(each) for each in messages]


class Talk:
    """A recorded conversation: what was asked at each turn, what was answered, and what came new between two turns."""

    def __init__(self, wire: str, group: Sequence[dict[str, Any]]) -> None:
        self.wire = wire
        asked = [_asked(wire, record) for record in group]
        self.prompts = [prompt for _, prompt, _ in asked]
        self.model = asked[0][0]
        self.stream = asked[0][2]
        self.exchanges = [_recorded(record) for record in group]
        self.answers = [
            _read(wire, exchange, stream=stream) for exchange, (_, _, stream) in zip(self.exchanges, asked, strict=True)
        ]
        self.even = len({stream for _, _, stream in asked}) == 1

    def new(self, turn: int) -> list[p.Message]:
        """What a request says that the one before it did not: the answer, results, and what users say."""
        before = len(self.prompts[turn - 1].messages) if turn else 0
        return list(self.prompts[turn].messages[before:])

    def results(self) -> list[p.ToolMessage]:
        return [each for turn in range(1, len(self.prompts)) for each in self.new(turn) if each.role == "tool"]

    def said(self, turn: int) -> list[p.Message]:
        """What was said in a turn besides the answer and its results."""
        return [each for each in self.new(turn) if turn == 0 or each.role not in {"assistant", "tool"}]

    def called(self, turn: int) -> bool:
        """Whether the answer before a turn has calls for tools of ours."""
        return any(each.role == "tool" for each in self.new(turn))

    def why_not(self) -> str:
        """Why no agent could have led it; empty where one could."""
        if len(self.prompts) < 2 or not self.even:
            return "one request"
        if any(each.status != 200 for each in self.exchanges) or any(isinstance(each, str) for each in self.answers):
            return "no answer"
        if self.prompts[0].messages[-1].role in {"assistant", "tool"}:
            return "begins in the middle"
        if broken_pairs(self.prompts[-1].messages):
            return "results apart"
        for turn in range(1, len(self.prompts)):
            before = self.prompts[turn - 1].messages
            if essences(self.prompts[turn].messages[: len(before)]) != essences(before):
                return "does not go on"
            roles = [each.role for each in self.new(turn)]
            if roles.count("assistant") != 1 or roles[0] != "assistant" or len(roles) == 1:
                return "several answers"
            if sorted(roles[1:], key=lambda role: role != "tool") != roles[1:]:
                return "results apart"
            if _calls(self.new(turn)[0]) != _calls(self.answers[turn - 1].message):
                return "the client changed the calls"
            if essence(self.answers[turn - 1].message) == essence(p.assistant()):
                return "an answer of thoughts alone"
        return self._why_not_by_tools()

    def _why_not_by_tools(self) -> str:
        """Tools that a provider defines, and results of another kind than a wire takes of a model that is not known."""
        named = {tool.name for prompt in self.prompts for tool in prompt.tools if isinstance(tool, Tool)}
        if any(name not in named for answer in self.answers for name, _ in _calls(answer.message)):
            return "tools of the provider"
        if self.wire == "google_generate" and any(len(each.content) > 1 for each in self.results()):
            return "media in a result"
        return ""

    def expected(self, turn: int) -> list[p.Message]:
        """What the request of a turn should say: what the client said, behind each answer as it came."""
        said = list(self.prompts[0].messages)
        for each in range(1, turn + 1):
            said += [self.answers[each - 1].message, *self.new(each)[1:]]
        return said


def _calls(message: p.Message) -> list[tuple[str, Any]]:
    return [(each.name, each.arguments) for each in message.tool_calls]


class Replayed(Middleware):
    """Says what the application said: the tools and settings of each request, and messages behind results."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.turn = 0

    async def before_model(self, _context: Any) -> Step | None:
        if self.turn == len(self.talk.prompts):
            return Step(jump="end")
        begins = self.turn == 0 or not self.talk.called(self.turn)
        return None if begins else Step(inject=tuple(self.talk.said(self.turn)))

    async def wrap_model_call(self, prompt: Any, _context: Any, call: Any) -> Any:
        recorded = self.talk.prompts[self.turn]
        self.turn += 1
        return await call(prompt.replace(tools=recorded.tools, settings=recorded.settings, provider=recorded.provider))


def _tools(talk: Talk) -> list[AgentTool]:
    results = deque(talk.results())

    async def run(arguments: Any, context: Any) -> Output:
        result = results.popleft()
        return Output(content=result.content, is_error=result.is_error)

    named = {tool.name: tool for prompt in talk.prompts for tool in prompt.tools if isinstance(tool, Tool)}
    return [AgentTool(definition=each, run=run, check=lambda call: call) for each in named.values()]


async def _led(talk: Talk) -> tuple[Any, list[bytes]]:
    """An agent goes through a conversation; gives its last run, and what it asked."""
    steps = [says(b"".join(each.chunks), content_type=each.headers["content-type"]) for each in talk.exchanges]
    with serve(*steps) as server:
        model = model_at(talk.wire, server.url)
        run, replayed = None, Replayed(talk)
        agent = Agent(
            model,
            tools=_tools(talk),
            middleware=[replayed],
            stream=talk.stream,
            result_limit=None,
            limits=Limits(repeats="run"),
        )
        while replayed.turn < len(talk.prompts):
            run = await agent.run(talk.said(replayed.turn), previous=run)
            if run.error is not None:
                raise run.error
            assert run.outcome == "completed" or replayed.turn == len(talk.prompts)
        return run, [each.body for each in server.asked]


@pytest.mark.anyio
@pytest.mark.law(2)
@pytest.mark.law(7)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.share(2)
async def test_recorded_conversations_are_led_again_by_an_agent(wire):
    talks = [Talk(wire, group) for group in _groups(wire) if len(group) > 1]
    led = [talk for talk in talks if not talk.why_not()]
    assert 2 * len(led) > len(talks)
    for talk in led:
        run, bodies = await _led(talk)
        assert len(bodies) == len(talk.prompts)
        for turn, body in enumerate(bodies):
            asked = wires.get(wire).decode_request(body)
            assert essences(asked.messages) == essences(talk.expected(turn))
            if check_request(wire, talk.exchanges[turn].body) == []:
                assert check_request(wire, body) == []
        messages = [entry.message for entry in run.path]
        answers = [each.content for each in messages if each.role == "assistant"]
        assert answers[-len(talk.answers) :] == [each.message.content for each in talk.answers]
        assert broken_pairs(messages) == []
