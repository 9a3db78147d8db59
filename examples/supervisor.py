"""Supervisor: one agent gives out tasks, one after the other, and answers when the work is done.

A worker gets a task, works on it with tools of its own, and reports; then the supervisor is asked again. All of it is
one turn: the client waits for one answer. Workers see what was said, and of the tool calls only their own.
"""

import anyio
from stage import calls, model, shown

from palaver.swarm import Call, Swarm, SwarmAgent, tool


@tool
async def delegate(call: Call, worker: str, task: str) -> None:
    """Give a worker (surveyor, accountant) a task; its report comes back to you."""
    await call.commit(f"the {worker} has it")
    await call.session.change_to(worker)
    await call.execute(task)


@tool
async def report(call: Call, result: str) -> None:
    """Report the result of your task."""
    await call.commit("reported")
    await call.session.change_to_previous()  # whoever gave the task
    await call.execute(f"The {call.agent} reports: {result}")


def measure(part: str) -> str:
    """Measure a part of the ship: its hull, or its mast."""
    return {"hull": "9.5 m", "mast": "12.0 m"}[part]


def multiply(a: float, b: float) -> str:
    """Multiply two numbers."""
    return f"{a * b:.2f}"


swarm = Swarm(
    "yard",
    [
        SwarmAgent(
            "supervisor",
            model(
                [
                    calls("delegate", worker="surveyor", task="How long is the hull?"),
                    calls("delegate", worker="accountant", task="What do 9.5 metres cost, at 4.20 a metre?"),
                    "Your ship is 9.5 metres long; a night costs 39.90.",
                ]
            ),
            instructions="You run a yard. Delegate one task at a time; answer the client when you know everything.",
            tools=[delegate],
        ),
        SwarmAgent(
            "surveyor",
            model([calls("measure", part="hull"), calls("report", result="The hull is 9.5 metres long.")]),
            instructions="You measure ships. Always report.",
            tools=[measure, report],
        ),
        SwarmAgent(
            "accountant",
            model([calls("multiply", a=9.5, b=4.2), calls("report", result="It costs 39.90.")]),
            instructions="You calculate prices. Always report.",
            tools=[multiply, report],
        ),
    ],
)


async def main() -> None:
    async with swarm.start() as live, live.session("ann") as session, shown(live):
        await session.complete("What does a night cost for my ship?")


if __name__ == "__main__":
    anyio.run(main)
