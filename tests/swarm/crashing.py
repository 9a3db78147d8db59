"""A swarm that is killed: `python -m tests.swarm.crashing FILE APPEND before|after`, or `… FILE crowd`.

The first form sends the same messages to the same agents each time, and the process kills itself before or after one
append. The second talks with five clients until it is killed, and prints the answers of each.
"""

import os
import signal
import sys
from pathlib import Path

import anyio

from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Swarm, navigation
from tests.swarm.scripts import agent, branching, calling, echo, last

CLIENTS = ("ann", "bob", "cem", "dee", "eve")
SAID = ("hi", "buy", "price?", "back", "buy", "more")


def price() -> str:
    """Say a price."""
    return "119.00"


def shop(name="shop"):
    def sells(prompt):
        message = last(prompt)
        if message.role == "tool":
            return f"it is {message.text}"
        return {"price?": calling("price"), "back": calling("to_desk")}.get(message.text, f"sold:{message.text}")

    desk = agent("desk", branching(buy=calling("to_sales"), hi=echo), tools=[navigation("sales", execute="a client")])
    sales = agent("sales", sells, tools=[price, navigation("desk", emit="back at the desk")])
    return Swarm(name, [desk, sales], realm="shop")


async def talk(store, client="ann"):
    """Send all messages, in one session."""
    async with shop().start(store=store) as live, live.session(client) as session:
        for text in SAID:
            await session.complete(text)


class Killing(SQLiteStore):
    """A store that kills its process at an append."""

    left = 0
    after = False

    def append(self, *arguments, **named):
        Killing.left -= 1
        if not Killing.left and not Killing.after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = super().append(*arguments, **named)
        if not Killing.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


async def crowd(store):
    """Talk with all clients, for ever."""
    async with shop().start(store=store) as live, anyio.create_task_group() as group:

        async def forever(client):
            async with live.session(client) as session:
                number = 0
                while True:
                    await session.change_to(("desk", "sales")[number % 2])
                    text = f"{client} {number}"
                    sys.stdout.write(f"{client}|{text}|{await session.complete(text)}|{session.agent}\n")
                    sys.stdout.flush()
                    number += 1

        for client in CLIENTS:
            group.start_soon(forever, client)


if __name__ == "__main__":
    path, *how = sys.argv[1:]
    if how == ["crowd"]:
        anyio.run(crowd, SQLiteStore(Path(path)))
    else:
        Killing.left, Killing.after = int(how[0]), how[1] == "after"
        anyio.run(talk, Killing(Path(path)))
