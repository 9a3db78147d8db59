"""Swarms that talk with clients: palaver's, and those of its peers in Python. All answer ``echo:`` and what was said.

Rules:

- Each has two agents, ``echo`` and ``triage``; the client talks to ``echo``. Where the library has hand-overs, either
  could hand the conversation to the other, and nobody does: a turn is one question, one call of a model and one answer.
- The model answers at once and is in the process. It is behind the interface that the peer has for models of one's own.
- Each keeps the whole conversation, in memory, in the way that its guide shows first. What it does in a turn:

  - *palaver*: ``session.complete``. The question is appended to the client's thread, the model is shown the last
    15 messages (``keep``, as agent-swarm-kit does), the answer is checked and appended, and each step is an event
    on the bus in the process. The second row shows the model every message, as the Python peers do.
  - *openai-agents, SQLiteSession*: ``Runner.run(agent, question, session=SQLiteSession(client))`` with its database
    in memory. Every item of the session is read back, shown to the model, and the new ones are written.
    ``result.last_agent`` is who answers next. Tracing is off.
  - *openai-agents, to_input_list*: ``Runner.run(agent, result.to_input_list() + [question])``, the other way of its
    guide, without a session.
  - *langgraph-swarm*: ``create_swarm`` of two ``create_agent`` with hand-off tools, compiled with ``InMemorySaver``;
    ``ainvoke`` with the client as thread. The checkpoint is loaded, the agent runs as a graph within the graph, and
    checkpoints of the whole state are kept at every step.
  - *autogen-core*: a ``RoutedAgent`` for each client in a ``SingleThreadedAgentRuntime``, asked by ``send_message``.
    It puts the question into an ``UnboundedChatCompletionContext``, calls the model with all of it, and puts in the
    answer. This library has no conversations and no hand-over of its own: it is the runtime alone.

- ``listening`` gives a function that sends one event and waits until each of the listeners was called with it. Who has
  no events has ``None``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

Complete = Callable[[str], Awaitable[str]]
Open = Callable[[str], Awaitable[Complete]]
Send = Callable[[], Awaitable[None]]

PROMPT = "You repeat what you are told."
_FOREVER = 1_000_000


@dataclass(frozen=True)
class Party:
    """A swarm. ``talking`` gives what opens a client's conversation; ``opens`` says whether that does anything."""

    name: str
    talking: Callable[[], AbstractAsyncContextManager[Open]]
    opens: bool = True
    listening: Callable[[int], AbstractAsyncContextManager[Send]] | None = None


@dataclass
class _Heard:
    """Counts who was called with an event."""

    listeners: int
    count: int = 0

    def __post_init__(self) -> None:
        self.all = asyncio.Event()

    def one(self) -> None:
        self.count += 1
        if self.count == self.listeners:
            self.all.set()

    async def sent(self, event: Awaitable[object]) -> None:
        self.count = 0
        self.all.clear()
        await event
        await self.all.wait()


# -- palaver -----------------------------------------------------------------------------------------------------------


def _palaver(**how: Any) -> Callable[[], AbstractAsyncContextManager[Open]]:
    @asynccontextmanager
    async def talking() -> AsyncIterator[Open]:
        async with _swarm(how).start() as live:

            async def open_(client: str) -> Complete:
                return (await live.open(client)).complete

            yield open_

    return talking


def _swarm(how: dict[str, Any]) -> Any:
    import palaver
    from palaver.models import ScriptedModel
    from palaver.swarm import Call, Swarm, SwarmAgent, tool

    def hand_over(to: str) -> Any:
        async def go(call: Any) -> None:
            await call.session.change_to(to)
            await call.execute("Go on.")

        go.__annotations__ = {"call": Call, "return": type(None)}
        return tool(go, name=f"transfer_to_{to}", description=f"Hand the conversation to {to}.", kind="navigation")

    def echo(prompt: Any) -> Any:
        model.asked.clear()  # it keeps every prompt, for tests
        return palaver.assistant(f"echo:{prompt.messages[-1].text}")

    model = ScriptedModel([], then=echo)
    agents = [
        SwarmAgent("echo", model, instructions=PROMPT, tools=[hand_over("triage")], **how),
        SwarmAgent("triage", model, instructions=PROMPT, tools=[hand_over("echo")], **how),
    ]
    return Swarm("bench", agents, default="echo")


@asynccontextmanager
async def _palaver_listening(listeners: int) -> AsyncIterator[Send]:
    from palaver.swarm import Event, LocalBus, Where

    heard = _Heard(listeners)
    async with LocalBus() as bus:
        for _ in range(listeners):
            await bus.listen(lambda _event: heard.one(), Where(client="client", source="agent"))

        async def publish() -> None:
            bus.publish(Event(source="agent", type="emit-output", client="client", output={"result": "hello"}))

        yield lambda: heard.sent(publish())


# -- openai-agents -----------------------------------------------------------------------------------------------------


def _openai_agent() -> Any:
    import agents
    from agents.usage import Usage
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    agents.set_tracing_disabled(True)

    class Echo(agents.Model):
        """Repeats the last item."""

        async def get_response(self, system_instructions: Any, input: Any, *_more: Any, **_how: Any) -> Any:  # noqa: ARG002
            said = input if isinstance(input, str) else input[-1]["content"]
            text = ResponseOutputText(type="output_text", text=f"echo:{said}", annotations=[])
            item = ResponseOutputMessage(id="msg", type="message", role="assistant", status="completed", content=[text])
            return agents.ModelResponse(output=[item], usage=Usage(requests=1), response_id=None)

        def stream_response(self, *_given: Any, **_how: Any) -> Any:
            raise NotImplementedError

    model = Echo()
    echo = agents.Agent("echo", instructions=PROMPT, model=model)
    triage = agents.Agent("triage", instructions=PROMPT, model=model, handoffs=[echo])
    echo.handoffs.append(triage)
    return echo


@asynccontextmanager
async def _openai_session() -> AsyncIterator[Open]:
    import agents

    first = _openai_agent()
    kept: list[Any] = []

    async def open_(client: str) -> Complete:
        session, active = agents.SQLiteSession(client), first
        kept.append(session)

        async def complete(text: str) -> str:
            nonlocal active
            result = await agents.Runner.run(active, text, session=session)
            active = result.last_agent
            return result.final_output

        return complete

    yield open_
    for session in kept:
        session.close()


@asynccontextmanager
async def _openai_list() -> AsyncIterator[Open]:
    import agents

    first = _openai_agent()

    async def open_(_client: str) -> Complete:
        items: list[Any] = []
        active = first

        async def complete(text: str) -> str:
            nonlocal active, items
            result = await agents.Runner.run(active, [*items, {"role": "user", "content": text}])
            active, items = result.last_agent, result.to_input_list()
            return result.final_output

        return complete

    yield open_


# -- langgraph-swarm ---------------------------------------------------------------------------------------------------


def _chat_model() -> Any:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Echo(BaseChatModel):
        """Repeats the last message."""

        @property
        def _llm_type(self) -> str:
            return "echo"

        def bind_tools(self, tools: Any, **_how: Any) -> Any:  # noqa: ARG002
            return self

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_how: Any) -> Any:  # noqa: ARG002
            return ChatResult(generations=[ChatGeneration(message=AIMessage(f"echo:{messages[-1].content}"))])

        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_how: Any) -> Any:  # noqa: ARG002
            return self._generate(messages)

    return Echo()


@asynccontextmanager
async def _langgraph() -> AsyncIterator[Open]:
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph_swarm import create_handoff_tool, create_swarm

    model = _chat_model()
    other = {"echo": "triage", "triage": "echo"}
    agents: list[Any] = [
        create_agent(model, tools=[create_handoff_tool(agent_name=to)], system_prompt=PROMPT, name=name)
        for name, to in other.items()
    ]
    app: Any = create_swarm(agents, default_active_agent="echo").compile(checkpointer=InMemorySaver())

    async def open_(client: str) -> Complete:
        config: Any = {"configurable": {"thread_id": client}, "recursion_limit": _FOREVER}

        async def complete(text: str) -> str:
            state = await app.ainvoke({"messages": [{"role": "user", "content": text}]}, config)
            return state["messages"][-1].content

        return complete

    yield open_


# -- autogen-core ------------------------------------------------------------------------------------------------------


@dataclass
class UserInput:
    """What is sent between a client and an agent, and to listeners."""

    text: str


def _handler(function: Any, gives: type) -> Any:
    """A handler by its types, which the library looks up by name, and these are not imported by name."""
    from autogen_core import MessageContext, message_handler

    function.__annotations__ = {"message": UserInput, "ctx": MessageContext, "return": gives}
    return message_handler(function)


def _autogen_agent() -> Any:
    from autogen_core import RoutedAgent
    from autogen_core.model_context import UnboundedChatCompletionContext
    from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, RequestUsage, UserMessage

    class Model(ChatCompletionClient):
        """Repeats the last message; what an agent does not ask is not there."""

        async def create(self, messages: Any, **_how: Any) -> Any:
            text = f"echo:{messages[-1].content}"
            return CreateResult(finish_reason="stop", content=text, usage=RequestUsage(0, 0), cached=False)

        def _none(self, *_given: Any, **_how: Any) -> Any:
            raise NotImplementedError

        create_stream = close = actual_usage = total_usage = count_tokens = remaining_tokens = _none
        capabilities = model_info = property(_none)

    model: Any = Model()

    class Echo(RoutedAgent):
        """Keeps its client's conversation."""

        def __init__(self) -> None:
            super().__init__("echo")
            self.context = UnboundedChatCompletionContext()

        async def on_said(self, message: Any, ctx: Any) -> Any:
            await self.context.add_message(UserMessage(content=message.text, source="user"))
            answer = await model.create(await self.context.get_messages(), cancellation_token=ctx.cancellation_token)
            await self.context.add_message(AssistantMessage(content=answer.content, source="echo"))
            return UserInput(answer.content)

        on_said = _handler(on_said, UserInput)

    return Echo


@asynccontextmanager
async def _autogen() -> AsyncIterator[Open]:
    from autogen_core import AgentId, SingleThreadedAgentRuntime

    runtime, echo = SingleThreadedAgentRuntime(), _autogen_agent()
    for name in ("echo", "triage"):
        await echo.register(runtime, name, echo)
    runtime.start()

    async def open_(client: str) -> Complete:
        async def complete(text: str) -> str:
            return (await runtime.send_message(UserInput(text), AgentId("echo", client))).text

        return complete

    yield open_
    await runtime.stop()


@asynccontextmanager
async def _autogen_listening(listeners: int) -> AsyncIterator[Send]:
    from autogen_core import RoutedAgent, SingleThreadedAgentRuntime, TopicId, TypeSubscription

    heard, runtime, topic = _Heard(listeners), SingleThreadedAgentRuntime(), TopicId("news", "client")

    class Listener(RoutedAgent):
        """Counts what it hears."""

        async def on_said(self, message: Any, ctx: Any) -> None:  # noqa: ARG002
            heard.one()

        on_said = _handler(on_said, type(None))

    for number in range(listeners):
        name = f"listener{number}"
        await Listener.register(runtime, name, lambda: Listener("listener"))
        await runtime.add_subscription(TypeSubscription("news", name))
    runtime.start()
    yield lambda: heard.sent(runtime.publish_message(UserInput("hello"), topic))
    await runtime.stop()


OURS = Party("palaver", _palaver(), listening=_palaver_listening)
WHOLE = Party("palaver, every message shown to the model", _palaver(keep=None))
PEERS = (
    Party("openai-agents, SQLiteSession", _openai_session),
    Party("openai-agents, to_input_list", _openai_list, opens=False),
    Party("langgraph-swarm, InMemorySaver", _langgraph, opens=False),
    Party("autogen-core", _autogen, opens=False, listening=_autogen_listening),
)
PARTIES = {party.name: party for party in (OURS, WHOLE, *PEERS)}
