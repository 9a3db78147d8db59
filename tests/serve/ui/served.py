"""An agent and a swarm with every kind of turn, on both protocols."""

import anyio

from palaver import PalaverError, Reasoning, Text, assistant, tool_call
from palaver.agent import Agent, ToolContext, client_tool
from palaver.models import FunctionModel

POLICY = {"book": "ask", "weather": "allow", "broken": "allow", "count": "allow", "where": "allow"}


def weather(city: str) -> dict:
    """Return the weather."""
    return {"city": city, "rain": True}


def book(berth: int) -> str:
    """Book a berth."""
    return f"booked {berth}"


def broken() -> str:
    """Fail."""
    raise ValueError("no tide")


def count(context: ToolContext) -> str:
    """Count in the state that is shared with the front end."""
    context.values["state"]["n"] = context.values["state"].get("n", 0) + 1
    return "counted"


where = client_tool("where", "Say where the user is.", {"type": "object"})


async def answer(prompt):
    """Answer by the last word of the user."""
    last = prompt.messages[-1]
    text = next(message.text for message in reversed(prompt.messages) if message.role == "user")
    if last.role == "tool":
        return f"Done: {last.text}"
    if text == "weather":
        calls = [tool_call("weather", {"city": city}, id=city) for city in ("Husum", "Kiel")]
        return assistant(Reasoning("hm"), Text("I look."), tool_calls=calls)
    if text == "book":
        return assistant("I book.", tool_calls=[tool_call("book", {"berth": 7}, id="b1")])
    if text in {"where", "count", "ferry"}:
        return assistant(tool_calls=[tool_call(text, {}, id=f"{text}1")])
    if text == "system":
        return "\n".join(message.text for message in prompt.system)
    if text == "broken":
        return assistant(tool_calls=[tool_call("broken", {}, id="x1")])
    if text == "fail":
        raise PalaverError("the key secret-key was refused")
    if text == "slow":
        await anyio.sleep(2)
    return f"Hello {text}"


def agent():
    return Agent(FunctionModel(answer), tools=[weather, book, broken, count, where], policy=POLICY)
