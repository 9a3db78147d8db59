"""Plan, generate, evaluate: one agent plans, one writes, one judges, until the judge is content or the rounds are over.

Within a turn the agents hand on what they made, each by a tool that takes it. The rounds belong to the program: how
often something may be sent back is not for a model to decide.
"""

import anyio
from stage import calls, model, shown

from palaver.swarm import Call, Swarm, SwarmAgent, tool

ROUNDS = 3


@tool
async def write_by(call: Call, plan: str) -> None:
    """Give the plan to the writer."""
    await call.commit("given to the writer")
    await call.session.change_to("writer")
    await call.execute(f"Write this, in one sentence:\n{plan}")


@tool
async def submit(call: Call, draft: str) -> None:
    """Submit a finished draft to the critic."""
    await call.commit("submitted")
    await call.session.change_to("critic")
    await call.execute(f"Judge this draft: {draft}")


swarm = Swarm(
    "press",
    [
        SwarmAgent(
            "planner",
            model([calls("write_by", plan="What it is, what it costs, how to get it.")]),
            instructions="Make a plan of three points for the text that is asked for, and give it to the writer.",
            tools=[write_by],
        ),
        SwarmAgent(
            "writer",
            model(
                [
                    calls("submit", draft="A ferry to the islands, cheap, from the harbour."),
                    calls("submit", draft="The ferry to the islands costs 12.00 and leaves the harbour at nine."),
                ]
            ),
            instructions="Write what you are told to, or write it better, and submit it.",
            tools=[submit],
        ),
        SwarmAgent(
            "critic",
            model(["REVISE: neither the price nor the time is said.", "APPROVED"]),
            instructions="Judge the last draft. Answer APPROVED, or REVISE: and what is wrong. Be hard to please.",
        ),
    ],
)


async def main() -> None:
    async with swarm.start() as live, live.session("ann") as session, shown(live):
        verdict = await session.complete("I need a line about our ferry to the islands.")
        for _ in range(ROUNDS - 1):
            if not verdict.startswith("REVISE"):
                break
            await session.change_to_previous()  # from the critic back to the writer
            verdict = await session.complete(verdict)


if __name__ == "__main__":
    anyio.run(main)
