"""A harbour office of three agents, with scripted models: `palaver swarm demo/harbour.py` talks with it.

The reception passes on whoever wants a berth or a pilot. The berth master has a tool that returns. The pilot station
talks nonsense at first, and is rescued.
"""

from palaver.core.factories import assistant, tool_call
from palaver.core.messages import AssistantMessage
from palaver.models.language_model import Prompt
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Swarm, SwarmAgent, navigation

TAKEN: list[int] = []


def reserve_berth(ship: str, berth: int) -> str:
    """Keep a berth for a ship."""
    TAKEN.append(berth)
    return f"berth {berth} in Husum is kept for the {ship}"


def reception(prompt: Prompt) -> str | AssistantMessage:
    said = prompt.messages[-1].text.lower()
    if "berth" in said:
        return assistant(tool_calls=[tool_call("to_berths", {}, id="call_to_berths")])
    if "pilot" in said:
        return assistant(tool_calls=[tool_call("to_pilots", {}, id="call_to_pilots")])
    return "Harbour office Husum. A berth, or a pilot?"


def berths(prompt: Prompt) -> str | AssistantMessage:
    last = prompt.messages[-1]
    if last.role == "tool":
        return f"Done: {last.text}."
    if "pilot" in last.text.lower():
        return assistant(tool_calls=[tool_call("to_pilots", {}, id="call_to_pilots")])
    return assistant(tool_calls=[tool_call("reserve_berth", {"ship": "Aurora", "berth": 7}, id="call_berth")])


def pilots(prompt: Prompt) -> str:
    spoken = [message.text for message in prompt.messages if message.role == "user"]
    return "The pilot boards at six, off the green buoy." if "again" in spoken[-1].lower() else ""


swarm = Swarm(
    "harbour",
    [
        SwarmAgent(
            "reception",
            ScriptedModel([], then=reception),
            instructions="Pass on whoever wants a berth or a pilot.",
            tools=[navigation("berths"), navigation("pilots")],
            depends_on=["berths", "pilots"],
        ),
        SwarmAgent(
            "berths",
            ScriptedModel([], then=berths),
            instructions="You are the berth master.",
            tools=[reserve_berth, navigation("pilots")],
            depends_on=["pilots"],
        ),
        SwarmAgent(
            "pilots",
            ScriptedModel([], then=pilots),
            instructions="You are the pilot station.",
            placeholders=["The line is bad here. Would you say that again?"],
        ),
    ],
)
