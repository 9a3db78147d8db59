"""Helpers for tests of runs: calls, tools that record their calls, and a check of threads on every wire."""

import json

import palaver as p
from palaver import wires
from palaver.agent.functions import function_tool
from palaver.core.request import Request
from palaver.testing.rules import check_request
from palaver.threads.repair import repair


def call(name="send", id="c1", **arguments):
    return p.ToolCall(id, name, json.dumps(arguments))


def calls(*parts):
    return p.assistant(*parts)


def noting(ran, name="send", **options):
    """Return a tool that records the arguments of its calls."""

    async def run(to: str, amount: int = 1) -> str:
        ran.append((name, to, amount))
        return f"sent {amount} to {to}"

    return function_tool(run, name=name, description="Send.", **options)


def bodies(messages):
    """Yield a list of messages on every wire: the body, and the losses."""
    for name in wires.names():
        encoded = wires.get(name).encode_request(Request(tuple(messages), "model"))
        yield name, encoded.body, encoded.losses


def assert_valid(messages):
    """Check that every wire's provider accepts the messages, as they are and after repair."""
    for version in (tuple(messages), tuple(repair(messages).messages)):
        for name, body, _ in bodies(version):
            assert check_request(name, json.loads(bytes(body))) == [], name
