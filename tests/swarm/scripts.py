"""What tests of swarms share: models that branch, a swarm at work, and how logs and contexts are told.

A message is told as the specification does: ``role/mode"text"``, ``[name]`` for a call, ``(re)`` for its result.
"""

from contextlib import asynccontextmanager

import palaver as p
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Swarm, SwarmAgent

PLACEHOLDER = "PLACEHOLDER"


def last(prompt):
    """The last message of a prompt."""
    return prompt.messages[-1]


def echo(prompt):
    return f"echo:{last(prompt).text}"


def answers(prompt):
    """Answer what was said last."""
    return f"answer:{last(prompt).text}"


def calling(*names, ids=None, said=""):
    """An answer that calls tools without arguments."""
    ids = ids or [f"call-{name}" for name in names]
    made = [p.tool_call(name, {}, id=each) for name, each in zip(names, ids, strict=True)]
    return p.assistant(*([said] if said else []), tool_calls=made)


def branching(**cases):
    """A model that gives what belongs to the last text, and else answers it."""

    def script(prompt):
        found = cases.get(last(prompt).text.strip(), answers)
        return found(prompt) if callable(found) else found

    return ScriptedModel([], then=script)


def agent(name="A", script=echo, **more):
    """An agent with a scripted model: a function of the prompt, a list of turns, or a model."""
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
    """What the model of an agent was asked, as told."""
    return [told(prompt.messages) for prompt in agent.model.asked]


def told(messages):
    """Messages in the specification's notation."""
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
    """A swarm at work: ``session``, ``log``, and the events since it began."""

    def __init__(self, live, session):
        self.live, self.session, self.seen = live, session, []

    @property
    def log(self):
        return told(self.session.messages)

    async def events(self, *sources, since=0):
        """What was told, as ``source type`` or ``source type@agent``, without who asked for the active agent."""
        await self.live.bus.flush()
        await self.listener.idle()
        return [
            f"{event.source} {event.type}"
            for event in self.seen[since:]
            if (not sources or event.source in sources) and not event.type.startswith("get-agent")
        ]

    async def heard(self, source, type):
        """Events of one kind, whole."""
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
