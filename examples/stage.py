"""The stage of the examples: who plays the agents, and the conversation, printed while it happens.

By default every model plays a script, so that an example needs no key and no network; `--model provider/id` lets that
model improvise in all parts.
"""

import argparse
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from textwrap import shorten

import palaver as p
from palaver import models
from palaver.models import LanguageModel, ScriptedModel
from palaver.swarm import Event, LiveSwarm, Where


def model(script: Iterable[str | p.AssistantMessage]) -> LanguageModel:
    """What answers for an agent: its lines, one after the other, or the model that was asked for."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--model", metavar="PROVIDER/ID", help="a real model (default: a script)")
    name = parser.parse_args().model
    return models.model(name) if name else ScriptedModel(script)


def calls(tool: str, **arguments: object) -> p.AssistantMessage:
    """The line of a script that calls a tool."""
    return p.assistant(tool_calls=[p.tool_call(tool, arguments, id="")])


@asynccontextmanager
async def shown(live: LiveSwarm) -> AsyncGenerator[None]:
    """Print what joins the log of a client, as the bus tells it; then how many events there were."""
    heard = Counter[str]()

    def hear(event: Event) -> None:
        heard[event.source] += 1
        if (event.source, event.type) == ("history", "push") and (said := line(event.input["message"])):
            print(said)

    listener = await live.bus.listen(hear, Where(swarm=live.swarm.name))
    yield
    await live.bus.flush()
    await listener.idle()
    print(f"\n{heard.total()} events:", ", ".join(f"{count} {source}" for source, count in sorted(heard.items())))


def line(message: p.Message) -> str:
    """Who speaks, and what: a client says, an agent says or calls, a tool gives, the program says to an agent."""
    match message:
        case p.UserMessage(mode="user"):
            who, what = "client", message.text
        case p.AssistantMessage() if message.tool_calls:
            who, what = message.agent, ", ".join(called(call) for call in message.tool_calls)
        case p.AssistantMessage():
            who, what = message.agent, message.text
        case p.ToolMessage():
            who, what = f"  {message.tool_name}", message.text
        case _:
            who, what = f"  to {message.agent}", message.text
    return f"{who:<16}│ {shorten(what, 110, placeholder=' …')}" if what else ""


def called(call: p.ToolCall) -> str:
    """A call as one would write it."""
    return f"→ {call.name}({', '.join(map(repr, call.arguments.values()))})"
