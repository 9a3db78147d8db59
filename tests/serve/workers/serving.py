"""The swarm of the tests' workers, and a worker process: ``python serving.py '{"store": …}'``.

The swarm answers each message after a tool call, and hands over to its other agent and back on request.
A message that begins with ``pay`` is answered after a call that waits for a decision, and ``pay twice`` after two calls
with the same id.
"""

import itertools
import json
import logging
import sys
import uuid

import anyio

import palaver as p
from palaver.models.scripted import ScriptedModel
from palaver.serve.workers.worker import run_worker
from palaver.swarm import Swarm, SwarmAgent, result_tool

NAME = "office"
CALLED = itertools.count(1)


def answer_to(text):
    return f"answer {text}"


def speak(prompt):
    said = prompt.messages[-1]
    if isinstance(said, p.UserMessage) and said.text.startswith("fail"):
        raise RuntimeError("no idea")
    if isinstance(said, p.UserMessage) and said.text.startswith("pay"):
        return p.assistant(tool_calls=[p.tool_call("pay", {}, id="c1")])
    if isinstance(said, p.ToolMessage) and said.text == "paid":
        asked = [each.text for each in prompt.messages if isinstance(each, p.UserMessage)][-1]
        paid = sum(isinstance(each, p.ToolMessage) for each in prompt.messages)
        if asked == "pay twice" and paid == 1:
            return p.assistant(tool_calls=[p.tool_call("pay", {}, id="c1")])
    if isinstance(said, p.UserMessage) and not said.text.startswith("plain"):
        return p.assistant(tool_calls=[p.tool_call("look", {}, id=f"call-{uuid.uuid4().hex}")])
    request = next(each for each in reversed(prompt.messages) if isinstance(each, p.UserMessage))
    return answer_to(request.text)


def swarm(delay=0.0, tool_delay=0.0):
    """Return a swarm with a slow model and a slow tool."""

    async def look() -> str:
        """Look."""
        await anyio.sleep(tool_delay)
        return "seen"

    async def pay() -> str:
        """Pay."""
        await anyio.sleep(tool_delay)
        return "paid"

    model = ScriptedModel([], then=speak, delay=delay)
    policy = {"pay": "ask", "*": "allow"}
    return Swarm(NAME, [SwarmAgent("desk", model, tools=[result_tool(look), result_tool(pay)], policy=policy)])


def main(options):
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    given = json.loads(options)
    made = swarm(given.pop("delay", 0.0), given.pop("tool_delay", 0.0))
    anyio.run(lambda: run_worker(made, **given))


if __name__ == "__main__":
    main(sys.argv[1])
