"""Debate: two agents argue, each answering the other; a third has heard all of it, and judges.

To a model, whatever an agent said is its own side of the dialogue. So each debater sees of the log only what was said
to it and by it (`where`), and is told what the other one said. The judge sees everything.
"""

import anyio
from stage import model, shown

from palaver.core.messages import Message
from palaver.swarm import Swarm, SwarmAgent

ROUNDS = 2
SIDES = {
    "for": [
        "Charts on paper never run out of power.",
        "But you can fold one out before you leave, and see the whole day at once.",
    ],
    "against": [
        "But paper is out of date when it is printed, and buoys move.",
        "Until it is wet. Two screens on two batteries see it too, and know where you are.",
    ],
}


def debater(side: str, lines: list[str]) -> SwarmAgent:
    def own(message: Message) -> bool:
        return message.agent == side

    prompt = f"You argue {side} what is proposed, in one sentence. Answer the other side's last point."
    return SwarmAgent(side, model(lines), instructions=prompt, where=own)


swarm = Swarm(
    "debate",
    [
        SwarmAgent(
            "judge",
            model(["Against has it: it answered every point. Keep one chart on board all the same."]),
            instructions="You heard a debate. Say in two sentences who made the better case, and why.",
            keep=None,
        ),
        *(debater(side, lines) for side, lines in SIDES.items()),
    ],
)


async def main() -> None:
    async with swarm.start() as live, live.session("ann") as session, shown(live):
        said = "Proposed: a ship should carry charts on paper. Begin."
        for _ in range(ROUNDS):
            for side in SIDES:
                await session.change_to(side)
                said = f"{side} says: {await session.complete(said)}"
        await session.change_to("judge")
        await session.complete(f"{said}\nThe debate is over. Who made the better case?")


if __name__ == "__main__":
    anyio.run(main)
