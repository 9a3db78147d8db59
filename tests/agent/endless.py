"""A conversation without an end: a model that plays thousands of turns, and counts tokens in its own way.

Its provider refuses prompts over its window by its own count, and reports that count. Every prompt is checked on
arrival: ``Provider.asked`` counts them, and a wrong one raises there and ends the run.
"""

from __future__ import annotations

import json
import re
from typing import Any

import palaver as p
from palaver.agent import Agent, Limits, ToolContext, function_tool
from palaver.context.compaction import DEFAULT
from palaver.core.errors import ContextOverflowError, TransportError
from palaver.core.request import Request
from palaver.models.catalogue import Capabilities
from palaver.models.scripted import Broken, ScriptedModel
from palaver.turn.compaction import Compactor
from palaver.turn.events import ContextCompacted
from palaver.turn.middleware import Middleware, Step
from palaver.turn.tool_output import text_of
from tests.agent.wholeness import refused_request

WINDOW = 40_000
OUTPUT = 2_000
TASK = "Walk through the whole archive, box by box."
FACT = "Never open a box with a red seal.\u2028 Not even \ud83d once."
QUESTION = "Which number did the locker have that you found in the third box?"
LOCKER = "48151623"
FINDING = 3
_WORDS = "dust paper letters of a trade that nobody remembers, tied with string and put away again; "


class WrongPromptError(AssertionError):
    """A prompt that violates a guarantee."""


class Provider:
    """Counts, checks and answers. ``turn`` is the number of the next answer that calls a tool."""

    def __init__(self, turns: int, *, sample: int = 250, every: int = 1, stages: Any = DEFAULT) -> None:
        """Play this many turns; all wires get each ``sample``-th prompt, and one after each ``every``-th compaction."""
        self.turns, self.sample, self.every, self.stages = turns, sample, every, stages
        self.turn = 0
        self.asked = self.overflows = self.summaries = self.largest = self.checked = 0
        self.compactions: list[ContextCompacted] = []
        self.fact: p.Message | None = None
        self.wrong: list[str] = []
        self._known: dict[int, tuple[p.Message, int, int]] = {}
        self._before: Any = ()
        self._rewritten = 0
        self._head: tuple[Any, int] = (None, 0)

    # -- its own count -------------------------------------------------------------------------------------------------

    def weight(self, message: p.Message) -> tuple[int, int]:
        """Return the tokens of a message, and of its reasoning: 0.37 a byte, and six around each."""
        known = self._known.get(id(message))
        if known is None or known[0] is not message:
            said = thought = 0
            for part in message.content:
                if isinstance(part, p.Reasoning):
                    thought += len(part.text)
                elif isinstance(part, p.ToolCall):
                    said += len(part.name) + len(part.arguments_json) + 20
                else:
                    said += len((text_of(part) or "").encode("utf-8", "surrogatepass"))
            known = self._known[id(message)] = (message, 6 + int(said * 0.37), int(thought * 0.37))
        return known[1:]

    def count(self, prompt: Any) -> int:
        """Return the tokens of a prompt. Reasoning counts in the open turn, with which it is sent back."""
        if self._head[0] is not prompt.tools:
            text = "".join(f"{tool.name}{tool.description}{tool.parameters}" for tool in prompt.tools)
            self._head = prompt.tools, 300 + int(len(text) * 0.37)
        total, open_ = self._head[1] + sum(self.weight(each)[0] for each in prompt.system), True
        for message in reversed(prompt.messages):
            said, thought = self.weight(message)
            total += said + (thought if open_ else 0)
            open_ = open_ and not (isinstance(message, p.UserMessage) and message.mode != "tool")
        return total

    # -- what must hold of every prompt --------------------------------------------------------------------------------

    def check(self, prompt: Any) -> None:
        messages = prompt.messages
        if messages[0].text != TASK:
            raise WrongPromptError(f"turn {self.turn}: the first task is gone: {messages[0]!r}")
        waiting: list[str] = []
        facts = 0
        for message in messages:
            if isinstance(message, p.ToolMessage):
                if not waiting or waiting.pop(0) != message.tool_call_id:
                    raise WrongPromptError(f"turn {self.turn}: a result out of place: {message.tool_call_id}")
                continue
            if waiting:
                raise WrongPromptError(f"turn {self.turn}: no result: {waiting}")
            if isinstance(message, p.AssistantMessage):
                waiting = [part.id for part in message.content if isinstance(part, p.ToolCall)]
            elif message.verbatim:
                facts += 1
                self.fact = self.fact or message
                if message != self.fact or message.text != FACT:
                    raise WrongPromptError(f"turn {self.turn}: the verbatim message is another: {message!r}")
        if waiting or facts != 1:
            raise WrongPromptError(f"turn {self.turn}: open calls {waiting}, {facts} verbatim messages")
        fresh = not messages.continues(self._before)
        self._before = messages
        self._rewritten += fresh
        if (fresh and self._rewritten % self.every == 0) or self.asked % self.sample == 0:
            self.checked += 1
            found = refused_request(Request((*prompt.system, *messages), "m", tuple(prompt.tools)))
            if found:
                raise WrongPromptError(f"turn {self.turn}: refused: {found}")

    def saw(self, event: Any) -> None:
        """Count a compaction."""
        if isinstance(event, ContextCompacted):
            self.compactions.append(event)

    # -- its answers ---------------------------------------------------------------------------------------------------

    def __call__(self, prompt: Any) -> Any:
        try:
            return self._answer(prompt)
        except WrongPromptError as error:
            self.wrong.append(str(error))
            raise

    def _answer(self, prompt: Any) -> Any:
        size = self.count(prompt)
        summing = "<transcript>" in prompt.messages[-1].text
        if not summing:
            self.asked += 1
            self.check(prompt)
            self.largest = max(self.largest, size)
        if size > WINDOW:
            self.overflows += 1
            return ContextOverflowError("scripted", f"prompt is too long: {size} tokens > {WINDOW} maximum")
        answer = self._summary() if summing else self._next(prompt)
        if not isinstance(answer, p.AssistantMessage):
            return answer
        said, thought = self.weight(answer)
        return answer.replace(usage=p.Usage(input=size, output=said + thought, reasoning=thought or None))

    def _summary(self) -> Any:
        self.summaries += 1
        if self.summaries % 7 == 0:
            return ["", TransportError("nobody answered")][self.summaries % 2]
        return p.assistant(f"## State\nBoxes up to {self.turn} were looked at. {_WORDS * 6}")

    def _next(self, prompt: Any) -> Any:
        if any(message.text == QUESTION for message in prompt.messages[-8:]):
            return self._recalled(prompt)
        self.turn += 1
        turn = self.turn
        if turn % 401 == 0:
            return Broken(p.assistant("I was about to"), "torn")
        if turn % 503 == 0:
            return TransportError("nobody answered")
        if turn % 61 == 0 or turn > self.turns:
            return p.assistant(f"Done up to {turn}. {_WORDS * 3}")
        calls = [
            p.ToolCall(f"t{turn}-{n}", "open_box", json.dumps({"box": turn, "shelf": n}))
            for n in range(3 if turn % 7 == 0 else 1)
        ]
        said = [p.Text(f"Box {turn} is next. {_WORDS * (turn % 4)}")] if turn % 5 else []
        thought = []
        if turn % 3 == 0:
            text = f"Whether {turn} is sealed? {_WORDS * 4}"
            thought = [p.Reasoning(text, signature=f"sig{turn}", wire="anthropic_messages")]
        return p.assistant(*thought, *said, *calls)

    def _recalled(self, prompt: Any) -> Any:
        """Search, read the results, and answer with them."""
        last = prompt.messages[-1]
        if not isinstance(last, p.ToolMessage):
            return p.assistant(p.ToolCall("ask-1", "search_history", '{"find": "locker box 3 number", "limit": 50}'))
        if last.tool_name == "search_history":
            handle = re.findall(r"^- (\S+) \(result of open_box", last.text, re.MULTILINE)[-1]
            return p.assistant(p.ToolCall("ask-2", "read_result", json.dumps({"handle": handle, "find": "locker"})))
        number = re.search(r"locker has the number (\d+)", last.text)
        return p.assistant(f"It was {number[1] if number else 'not there'}.")


class Asides(Middleware):
    """Adds messages between turns now and then."""

    async def before_model(self, context: Any) -> Step | None:
        if context.iteration % 17 == 16:
            return Step(inject=(p.user(f"[note] mind the time, {context.iteration}", mode="tool", source="note"),))
        return None


@function_tool(effect="read")
async def open_box(box: int, shelf: int, context: ToolContext) -> str:
    """Open a box."""
    if box == FINDING:
        return f"box {box}: the locker has the number {LOCKER}. {_WORDS * 5}"
    if box % 11 == 0:
        raise ValueError(f"box {box} has a red seal")
    return f"box {box}, shelf {shelf}: {_WORDS * (400 if box % 29 == 0 else 3 + box % 12)}"


def agent_of(provider: Provider) -> Agent:
    """Return the agent of a process."""
    can = Capabilities(window=WINDOW, max_output=OUTPUT)
    model = ScriptedModel([], then=provider, capabilities=can)
    model.asked = _Forgetful()
    return Agent(
        model,
        instructions="You walk through an archive.",
        tools=[open_box],
        middleware=[Compactor(provider.stages), Asides()],
        limits=Limits(iterations=1_000_000, repeats="run"),
    )


class _Forgetful(list[Any]):
    """A list of prompts that stores nothing."""

    def append(self, item: Any) -> None:
        """Forget it."""


async def walk(provider: Provider, thread: Any, *, until: int, first: bool, previous: Any = None) -> Any:
    """Play as many turns: one run after the other, in one process."""
    agent = agent_of(provider)
    prompts: list[Any] = [[p.user(TASK)]] if first else [f"Go on behind {provider.turn}."]
    fact = first
    run = previous
    while True:
        prompt = prompts.pop() if prompts else f"And the boxes after {provider.turn}?"
        how = {"previous": run} if run is not None else {"thread": thread}
        if fact:
            prompt, fact = [*prompt, p.user(FACT, verbatim=True)], False
        run = await agent.run(prompt, on_event=provider.saw, **how)
        assert provider.wrong == [], provider.wrong
        expected = run.ok or (run.outcome == "failed" and (provider.turn % 401 == 0 or provider.turn % 503 == 0))
        assert expected, (run.outcome, run.reason, provider.turn)
        if provider.turn >= until:
            return run


async def asked(provider: Provider, run: Any = None, thread: Any = None) -> Any:
    """Return the final question."""
    how = {"previous": run} if run is not None else {"thread": thread}
    return await agent_of(provider).run(QUESTION, on_event=provider.saw, **how)
