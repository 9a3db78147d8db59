"""Helpers for tests of swarms: models that branch, a running swarm, and a notation for logs and contexts.

Messages use the notation of the specification: ``role/mode"text"``, ``[name]`` for a call, ``(re)`` for its result.
"""

from contextlib import asynccontextmanager

import palaver as p
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Swarm, SwarmAgent

PLACEHOLDER = "PLACEHOLDER"


def last(prompt):
    """Return the last message of a prompt."""
    return prompt.messages[-1]


def echo(prompt):
    return f"echo:{last(prompt).text}"


def answers(prompt):
    """Answer the last message."""
    return f"answer:{last(prompt).text}"


def calling(*names, ids=None, said=""):
    """Return an answer that calls tools without arguments."""
    ids = ids or [f"call-{name}" for name in names]
    made = [p.tool_call(name, {}, id=each) for name, each in zip(names, ids, strict=True)]
    return p.assistant(*([said] if said else []), tool_calls=made)


def branching(**cases):
    """Return a model that gives the turn of the last text, and else answers it."""

    def script(prompt):
        found = cases.get(last(prompt).text.strip(), answers)
        return found(prompt) if callable(found) else found

    return ScriptedModel([], then=script)


def agent(name="A", script=echo, **more):
    """Return an agent with a scripted model: a function of the prompt, a list of turns, or a model."""
    if isinstance(script, list):
        model = ScriptedModel(script, then=answers)
    elif callable(script):
        model = ScriptedModel([], then=script)
    else:
        model = script
    more.setdefault("instructions", f"P{name}")
    more.setdefault("placeholders", [PLACEHOLDER])
    return SwarmAgent(name, model, **more)


def asked(agent):
    """Return the prompt of an agent's model, in the notation."""
    return [told(prompt.messages) for prompt in agent.model.asked]


def told(messages):
    """Return messages in the specification's notation."""
    return [_told(message) for message in messages]


def _told(message):
    match message:
        case p.RescueMarker() | p.FlushMarker():
            text = f'{message.role}"{message.reason}"' if message.reason else message.role
        case p.ToolMessage():
            text = f'tool(re:{message.tool_name})"{message.text}"'
        case p.AssistantMessage() if message.tool_calls:
            names = " ".join(call.name for call in message.tool_calls)
            text = f"assistant[{names}]"
        case p.UserMessage():
            text = f'user/{message.mode}"{message.text}"'
        case _:
            text = f'{message.role}"{message.text}"'
    return text + "".join(f" #{tag}" for tag in message.tags or ())


class Watched:
    """A running swarm: ``session``, ``log``, and the events since the start."""

    def __init__(self, live, session):
        self.live, self.session, self.seen = live, session, []

    @property
    def log(self):
        return told(self.session.messages)

    async def events(self, *sources, since=0):
        """Return events as ``source type`` or ``source type@agent``, without questions for the active agent."""
        await self.live.bus.flush()
        await self.listener.idle()
        return [
            f"{event.source} {event.type}"
            for event in self.seen[since:]
            if (not sources or event.source in sources) and not event.type.startswith("get-agent")
        ]

    async def heard(self, source, type):
        """Return whole events of one kind."""
        await self.live.bus.flush()
        await self.listener.idle()
        return [event for event in self.seen if (event.source, event.type) == (source, type)]


@asynccontextmanager
async def at_work(*agents, client="ann", store=None, name="shop", **more):
    """Start a swarm, and open a session."""
    async with Swarm(name, agents, **more).start(store=store) as live, live.session(client) as session:
        watched = Watched(live, session)
        watched.listener = await live.bus.listen(watched.seen.append)
        yield watched
