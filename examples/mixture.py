"""Mixture: several agents answer the same question at once, without hearing each other; one merges what they said.

Each expert answers in a session of its own, so they are asked in parallel. The merger reads all of it in the client's
session, as developer messages, and answers.
"""

import anyio
from stage import model, shown

from palaver.swarm import LiveSwarm, Swarm, SwarmAgent

EXPERTS = {
    "sailor": "The wind is from the south-west at five: fine until noon.",
    "tide clerk": "High water is at 10:40; after 13:00 the channel is too shallow.",
    "cook": "There is bread for one day, and no more.",
}

swarm = Swarm(
    "panel",
    [
        SwarmAgent(
            "merger",
            model(["Leave by nine and be back before 13:00: the wind holds until noon, the channel until one."]),
            instructions="Give one answer, made of what the experts said. Leave out what does not matter.",
        ),
        *(
            SwarmAgent(
                name, model([line]), instructions=f"You are a {name}. Answer in one sentence, from your trade alone."
            )
            for name, line in EXPERTS.items()
        ),
    ],
)


async def ask(live: LiveSwarm, expert: str, question: str, said: dict[str, str]) -> None:
    """Ask one expert, apart from the others."""
    async with live.session(f"ann, asking the {expert}") as aside:
        await aside.change_to(expert)
        said[expert] = await aside.complete(question)


async def main() -> None:
    question = "Can we sail to the sandbank tomorrow?"
    said: dict[str, str] = {}
    async with swarm.start() as live, live.session("ann") as session, shown(live):
        async with anyio.create_task_group() as group:
            for expert in EXPERTS:
                group.start_soon(ask, live, expert, question, said)
        for expert in EXPERTS:
            await session.commit_developer(f"The {expert} says: {said[expert]}")
        await session.complete(question)


if __name__ == "__main__":
    anyio.run(main)
