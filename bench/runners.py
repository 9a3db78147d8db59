"""The contenders that run an agent: a model that answers at once, one tool, and a loop between them.

Rules:

- All play one ``Script``: ``calls`` calls of one tool, one a turn, each with other arguments and another result; then
  an answer. The model looks at the last result to know where it is. It reports the same usage to each, so that nobody
  counts tokens. Messages of palaver are values, and are said again; peers change theirs, so those are made anew.
- The agent is made once and run many times, as in a server. Each is used as its guide shows, with its default settings,
  but for limits on the number of turns, which are lifted, and tracing to a server, which is off.
- ``asked`` is called each time a model is asked, and notes the time where laps are wanted. Where runs are to be at work
  at once, each tool gives way to the others once; where they are to stay there, it waits for a gate.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import palaver
from palaver import wires
from palaver.agent.agent import Agent
from palaver.core.parts import ToolCall
from palaver.core.request import Settings
from palaver.core.usage import Usage
from palaver.models.catalogue import Capabilities
from palaver.models.encoded_prompt import PromptEncoder
from palaver.models.endpoint import Endpoint
from palaver.models.language_model import LanguageModel, Prompt, Session
from palaver.models.scripted import ScriptedModel
from palaver.store import open_store
from palaver.threads.ids import uuid7
from palaver.turn.compaction import Compactor
from palaver.turn.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver import AssistantMessage, Message
    from palaver.turn.middleware import Middleware

ASKED = "Look everywhere, then say what you found."
SYSTEM = "You look at places. Be brief."
FOUND = "Nothing was found."
_TOKENS = 100
_FOREVER = 1_000_000
_ENDLESS = 10**12
"""Tokens of a window that is never full."""


@dataclass
class Script:
    """What is played, and when the model was asked."""

    calls: int
    gives_way: bool = False
    laps: list[float] | None = None
    gate: asyncio.Event | None = None
    found: Callable[[str], str] = "{}: nothing".format
    arrived: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def asked(self) -> None:
        """Note that the model is asked."""
        if self.laps is not None:
            self.laps.append(time.process_time())

    def tool(self) -> Callable[..., Awaitable[str]]:
        """The tool, as a function that every contender can take."""

        async def look(place: str) -> str:
            """Look at a place."""
            if self.gives_way:
                await asyncio.sleep(0)
            if self.gate is not None:
                self.arrived.release()
                await self.gate.wait()
            return self.found(place)

        return look


def call_id(number: int) -> str:
    """The id of a call."""
    return f"call_{number:06}"


def arguments(number: int) -> str:
    """Its arguments."""
    return f'{{"place":"place {number:06}"}}'


def following(call: str | None) -> int:
    """The number of the call that follows a result; 0 where there is none."""
    return 0 if call is None else int(call.removeprefix("call_")) + 1


@dataclass(frozen=True)
class Runner:
    """A contender. ``play`` makes an agent for a script, and gives what runs it once; ``answer`` reads a run."""

    name: str
    play: Callable[[Script], Callable[[], Awaitable[object]]]
    answer: Callable[[Any], str]


# -- palaver -------------------------------------------------------------------------------------------------------


def _said(number: int) -> AssistantMessage:
    call = ToolCall(call_id(number), "look", arguments(number))
    usage = Usage(input=_TOKENS, output=_TOKENS)
    return palaver.assistant(call).replace(finish_reason="tool_calls", usage=usage, model="scripted")


def _answer() -> AssistantMessage:
    usage = Usage(input=_TOKENS, output=_TOKENS)
    return palaver.assistant(FOUND).replace(finish_reason="stop", usage=usage, model="scripted")


def _last_call(prompt: Prompt) -> str | None:
    for place in range(len(prompt.messages) - 1, -1, -1):
        message: Message = prompt.messages[place]
        if isinstance(message, palaver.ToolMessage):
            return message.tool_call_id
    return None


def scripted(script: Script) -> ScriptedModel:
    """A model that plays the script, whoever asks."""
    said = cache(_said)
    answer = _answer()

    def turn(prompt: Prompt) -> AssistantMessage:
        script.asked()
        model.asked.clear()  # it keeps every prompt, for tests
        number = following(_last_call(prompt))
        return said(number) if number < script.calls else answer

    model = ScriptedModel([], then=turn)
    return model


@dataclass(frozen=True)
class Wired(LanguageModel):
    """The scripted model, behind what a real one does first: the prompt as the body of a request, in chunks."""

    under: ScriptedModel
    wire: str = "openai_chat"

    @property
    def name(self) -> str:
        """As the one below."""
        return self.under.name

    @property
    def capabilities(self) -> Capabilities:
        """As the one below."""
        return self.under.capabilities

    def session(self) -> Session:
        """Begin a conversation, which remembers what it encoded."""
        return _Wired(self.under.session(), self.wire)


@dataclass
class _Wired(Session):
    under: Session
    wire: str
    written: PromptEncoder = field(init=False)

    def __post_init__(self) -> None:
        self.written = PromptEncoder(
            wires.get(self.wire),
            Endpoint(provider_name="none", wire=self.wire, url="http://127.0.0.1"),
            id="gpt-5",
            settings=Settings(),
            capabilities=Capabilities(),
            missing="drop",
        )

    def ask(self, prompt: Prompt, *, stream: bool = True, on_notice: Any = None) -> Any:
        """Encode it, and answer from the script."""
        if not self.written.encode(prompt, stream=stream).chunks:
            raise ValueError("no body")
        return self.under.ask(prompt, stream=stream, on_notice=on_notice)


def agent(script: Script, model: LanguageModel, *middleware: Middleware) -> Agent:
    """Palaver's agent for a script."""
    tools, limits = [script.tool()], Limits(iterations=_FOREVER)
    return Agent(model, instructions=SYSTEM, tools=tools, limits=limits, middleware=middleware)


def _palaver(script: Script) -> Any:
    made = agent(script, scripted(script))
    return lambda: made.run(ASKED)


def _palaver_compacting(script: Script) -> Any:
    made = agent(script, scripted(script), Compactor(window=_ENDLESS))
    return lambda: made.run(ASKED)


def _palaver_wired_compacting(script: Script) -> Any:
    made = agent(script, Wired(scripted(script)), Compactor(window=_ENDLESS))
    return lambda: made.run(ASKED)


def _palaver_wired(script: Script) -> Any:
    made = agent(script, Wired(scripted(script)))
    return lambda: made.run(ASKED)


def _palaver_watched(script: Script) -> Any:
    made = agent(script, Wired(scripted(script)))

    async def play() -> object:
        async with made.stream(ASKED) as running:
            async for _ in running:
                pass
            return running.result

    return play


def _palaver_stored(location: str) -> Callable[[Script], Any]:
    def opened(script: Script) -> Any:
        made = agent(script, Wired(scripted(script)))
        folder = tempfile.TemporaryDirectory(prefix="palaver-bench-", ignore_cleanup_errors=True)
        store = open_store(location.format(Path(folder.name)))

        def play(_held: object = folder) -> Awaitable[object]:
            return made.run(ASKED, thread=store.open(store.create().id))

        return play

    return opened


# -- peers ---------------------------------------------------------------------------------------------------------


def _pydantic_ai(script: Script, *capabilities: Any) -> Any:
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage, UsageLimits

    def turn(messages: list[Any], _info: Any) -> ModelResponse:
        script.asked()
        last = messages[-1].parts[-1]
        number = following(last.tool_call_id if isinstance(last, ToolReturnPart) else None)
        usage = RequestUsage(input_tokens=_TOKENS, output_tokens=_TOKENS)
        if number < script.calls:
            part: Any = ToolCallPart("look", arguments(number), call_id(number))
        else:
            part = TextPart(FOUND)
        return ModelResponse([part], usage=usage)

    made = PydanticAgent(FunctionModel(turn), instructions=SYSTEM, tools=[script.tool()], capabilities=capabilities)
    limits = UsageLimits(request_limit=None)
    return lambda: made.run(ASKED, usage_limits=limits)


def _pydantic_ai_processing(script: Script) -> Any:
    from pydantic_ai.capabilities import ProcessHistory

    async def same(messages: list[Any]) -> list[Any]:
        return messages

    return _pydantic_ai(script, ProcessHistory(same))


def _chat_model(script: Script) -> Any:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    usage: Any = {"input_tokens": _TOKENS, "output_tokens": _TOKENS, "total_tokens": 2 * _TOKENS}

    class Scripted(BaseChatModel):
        """Plays the script."""

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_how: Any) -> Any:  # noqa: ARG002
            return self

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_how: Any) -> Any:  # noqa: ARG002
            script.asked()
            last = messages[-1]
            number = following(last.tool_call_id if isinstance(last, ToolMessage) else None)
            said = AIMessage(FOUND, usage_metadata=usage)
            if number < script.calls:
                call: Any = {"name": "look", "args": {"place": f"place {number:06}"}, "id": call_id(number)}
                said = AIMessage("", tool_calls=[call], usage_metadata=usage)
            return ChatResult(generations=[ChatGeneration(message=said)])

        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_how: Any) -> Any:  # noqa: ARG002
            return self._generate(messages)

    return Scripted()


_ASKED = {"messages": [{"role": "user", "content": ASKED}]}


def _langchain(script: Script, *middleware: Any) -> Any:
    from langchain.agents import create_agent

    made = create_agent(_chat_model(script), tools=[script.tool()], system_prompt=SYSTEM, middleware=middleware)
    return lambda: made.ainvoke(_ASKED, {"recursion_limit": _FOREVER})


def _langchain_summarising(script: Script) -> Any:
    from langchain.agents.middleware import SummarizationMiddleware

    return _langchain(script, SummarizationMiddleware(_chat_model(script), trigger=("tokens", _ENDLESS)))


def _langgraph(saver: str | None = None) -> Callable[[Script], Any]:
    def opened(script: Script) -> Any:
        from langgraph.checkpoint.memory import InMemorySaver

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has moved to langchain, and is still what most programs have
            from langgraph.prebuilt import create_react_agent

            kept = None if saver is None else InMemorySaver()
            made: Any = create_react_agent(
                _chat_model(script), [_langchain_tool(script)], prompt=SYSTEM, checkpointer=kept
            )

        def play() -> Any:
            config: dict[str, Any] = {"recursion_limit": _FOREVER, "configurable": {"thread_id": uuid7()}}
            return made.ainvoke(_ASKED, config)

        return play

    return opened


def _langchain_tool(script: Script) -> Any:
    from langchain_core.tools import tool

    return tool(script.tool())


def _openai_agents(script: Script) -> Any:
    import agents
    from agents.usage import Usage as AgentsUsage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    agents.set_tracing_disabled(True)

    class Scripted(agents.Model):
        """Plays the script."""

        async def get_response(self, system_instructions: Any, input: Any, *_more: Any, **_how: Any) -> Any:  # noqa: ARG002
            script.asked()
            number = following(None if isinstance(input, str) else input[-1].get("call_id"))
            if number < script.calls:
                item: Any = ResponseFunctionToolCall(
                    type="function_call", name="look", arguments=arguments(number), call_id=call_id(number)
                )
            else:
                text = ResponseOutputText(type="output_text", text=FOUND, annotations=[])
                item = ResponseOutputMessage(
                    id="msg", type="message", role="assistant", status="completed", content=[text]
                )
            usage = AgentsUsage(requests=1, input_tokens=_TOKENS, output_tokens=_TOKENS, total_tokens=2 * _TOKENS)
            return agents.ModelResponse(output=[item], usage=usage, response_id=None)

        def stream_response(self, *_given: Any, **_how: Any) -> Any:
            raise NotImplementedError

    tool = agents.function_tool(script.tool())
    made = agents.Agent("agent", instructions=SYSTEM, tools=[tool], model=Scripted())
    return lambda: agents.Runner.run(made, ASKED, max_turns=_FOREVER)


def _last_text(state: Any) -> str:
    return state["messages"][-1].content


PALAVER = Runner("palaver", _palaver, lambda run: run.text)
WIRED = Runner("palaver, each prompt encoded for a wire", _palaver_wired, lambda run: run.text)
WATCHED = Runner("palaver, encoded, all events read", _palaver_watched, lambda run: run.text)
MEMORY = Runner("palaver, encoded, MemoryStore", _palaver_stored("memory:"), lambda run: run.text)
SQLITE = Runner("palaver, encoded, SQLite store", _palaver_stored("sqlite:{}/kept.db"), lambda run: run.text)
OURS = (PALAVER, WIRED, WATCHED, MEMORY, SQLITE)
PEERS = (
    Runner("pydantic-ai", _pydantic_ai, lambda run: run.output),
    Runner("langchain create_agent", _langchain, _last_text),
    Runner("langgraph react agent", _langgraph(), _last_text),
    Runner("langgraph react agent, InMemorySaver", _langgraph("memory"), _last_text),
    Runner("openai-agents", _openai_agents, lambda run: run.final_output),
)
WITH_COMPACTION = (
    PALAVER,
    Runner("palaver, Compactor()", _palaver_compacting, PALAVER.answer),
    WIRED,
    Runner("palaver, encoded, Compactor()", _palaver_wired_compacting, PALAVER.answer),
    PEERS[0],
    Runner("pydantic-ai, ProcessHistory of a function that changes nothing", _pydantic_ai_processing, PEERS[0].answer),
    PEERS[1],
    Runner("langchain create_agent, SummarizationMiddleware", _langchain_summarising, PEERS[1].answer),
)
"""Each without and with what would keep its window, and has nothing to do."""
