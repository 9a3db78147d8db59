"""Triage: one agent finds out what a client wants, and hands over to the one who can help.

The hand-over is a tool of the agent, so the model decides, in the middle of a turn; the client gets one answer, from
whoever spoke last. When the topic changes, the specialist hands back, and the next one is found.
"""

import anyio
from stage import calls, model, shown

from palaver.swarm import Swarm, SwarmAgent, navigation, triage


def refund(order: int) -> str:
    """Give a client the money for an order back."""
    return f"order {order}: 89.00 refunded"


swarm = Swarm(
    "shop",
    [
        SwarmAgent(
            "reception",
            model([calls("to_refunds"), calls("to_sales")]),
            instructions="You are the reception of a shoe shop. Hand over to whoever can help; never answer.",
            tools=[
                navigation("sales", description="Hand over: the client wants to buy something."),
                navigation("refunds", description="Hand over: the client wants to give something back."),
            ],
        ),
        SwarmAgent(
            "sales",
            model(["The red ones come in 36 to 44, at 119.00. Which size may it be?"]),
            instructions="You sell shoes. There is one red pair of boots, in 36 to 44, at 119.00.",
            tools=[triage()],
        ),
        SwarmAgent(
            "refunds",
            model([calls("refund", order=17), "Done: 89.00 are on their way back to you.", calls("to_default")]),
            instructions="You refund orders. Anything else is not your topic: hand back.",
            tools=[refund, triage()],
        ),
    ],
)


async def main() -> None:
    async with swarm.start() as live, live.session("ann") as session, shown(live):
        await session.complete("The boots of order 17 do not fit. I want my money back.")
        await session.complete("Thanks. Do you have the red ones in 38?")


if __name__ == "__main__":
    anyio.run(main)
