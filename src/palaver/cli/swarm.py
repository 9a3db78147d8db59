"""``palaver swarm``: a conversation with a swarm of agents at the terminal, or one message; or a drawing of the swarm.

Rules:

- Who speaks, hand-overs, calls and results are lines aside; what the agents say goes to standard output.
- At a terminal, what a person in the swarm is asked is asked here.
- The conversation is the client's thread in the store; ``--client`` goes on with one.
- Exit codes: 0, 1 for a message that came to no answer and for what cannot be used, 130 after Ctrl-C.

The loop of ``palaver swarm``: a client's session in a swarm, turn by turn.

Rules:

- The swarm works in an event loop of its own, in another thread; this one draws, reads, and hears Ctrl-C. The first
  Ctrl-C in a turn cancels it, and what was said stays in the log; the second leaves.
- With ``asks``, who types is also asked in the place of the swarm's people (``operating``).
- A client that was begun here, and said nothing, leaves no thread behind.

People in a swarm, at the terminal: whoever talks with it answers in their place.

Rules:

- A question is taken from the desk (``Operator``) of the agent who is asked; where the program's file has somebody else
  who takes it, whoever is first has it.
- What is typed is the answer. Ctrl-D gives none; Ctrl-C stops the turn, and goes through.

Stability: experimental.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from queue import Empty, Queue
from typing import TYPE_CHECKING, Final

import click
from anyio.from_thread import start_blocking_portal
from rich.text import Text as Line

from palaver.cli import files, stores, swarm_file
from palaver.cli.chat import Commands, Leave, Lines
from palaver.cli.progress import interrupts
from palaver.cli.run_renderer import SwarmTeller
from palaver.cli.terminal import count, in_line
from palaver.core.errors import NotFoundError
from palaver.store.location import open_store
from palaver.swarm.bus import Listener, Where
from palaver.swarm.extras.diagrams import FORMATS
from palaver.swarm.extras.operator import Operator, Question
from palaver.swarm.names import client_thread
from palaver.threads.ids import uuid7

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anyio.from_thread import BlockingPortal

    from palaver.cli.run_renderer import Teller
    from palaver.swarm.events import Event
    from palaver.swarm.session import Session
    from palaver.swarm.swarm import Swarm


# --- operating --------------------------------------------------------------------------------------------------------


_STYLE: Final = "bold magenta"


def desks(swarm: Swarm) -> Iterable[Operator]:
    """The desks of a swarm, each once."""
    found = (agent.operator for agent in swarm.agents.values())
    return {id(each): each for each in found if isinstance(each, Operator)}.values()


def ask(question: Question, teller: Teller) -> str:
    """Ask; ``""`` for no answer. Raises ``KeyboardInterrupt`` for Ctrl-C."""
    name = in_line(question.place.agent)
    teller.line(Line.assemble(("? ", _STYLE), (name, _STYLE), f" is asked: {in_line(question.text)}"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return Lines(teller, typed=True).read(f"as {name}: ")
    except EOFError:
        return ""
    finally:
        signal.signal(signal.SIGINT, before)


# --- swarm chat -------------------------------------------------------------------------------------------------------


_TICK: Final = 0.1
_INTERRUPTED: Final = 130
_REMEMBERED: Final = 200


class Talk:
    """A session in a swarm that is at work elsewhere. Made by ``opened``."""

    def __init__(
        self, portal: BlockingPortal, session: Session, listener: Listener, waiting: Queue[Event | Question]
    ) -> None:
        """Hold what was opened."""
        self._portal, self.session, self._listener, self._waiting = portal, session, listener, waiting
        self.busy = False
        """Whether a turn is under way: also when a second Ctrl-C has left it behind."""

    def turn(self, text: str, teller: SwarmTeller) -> int:
        """Say something, and tell what happens, also what goes wrong. Gives 0, 1 for no answer, 130 after Ctrl-C."""
        self.busy, told = True, False
        teller.begin(self.session.agent)
        with interrupts() as interrupted:
            task = self._portal.start_task_soon(self._complete, text)
            while not (task.done() and self._waiting.empty()):
                if interrupted and not told:
                    told = bool(self._portal.call(self.session.cancel)) or task.done()
                try:
                    self._hear(self._waiting.get(timeout=_TICK), teller, interrupted)
                except Empty:
                    teller.tick()
        self.busy = False
        error = task.exception()
        if isinstance(error, Exception):
            teller.failed(error)
            return 1
        answer = task.result()
        if interrupted and not answer:
            teller.stopped()
            return _INTERRUPTED
        teller.answer(self.session.agent, answer)
        return 0

    def change_to(self, agent: str, teller: SwarmTeller) -> None:
        """Let another agent speak. Raises ``NavigationError``, and ``StoreError``."""
        self._portal.call(self._change, agent)
        while not self._waiting.empty():
            self._hear(self._waiting.get(), teller, [])

    def _hear(self, what: Event | Question, teller: SwarmTeller, interrupted: list[bool]) -> None:
        if not isinstance(what, Question):
            teller.hear(what)
            return
        said = ""
        try:
            if what.is_open:
                said = ask(what, teller)
        except KeyboardInterrupt:
            interrupted.append(True)
        if not self._portal.call(what.answer, said) and said:
            teller.line("nobody waits for that answer any more", "yellow")

    async def _complete(self, text: str) -> str:
        try:
            return await self.session.complete(text)
        finally:
            await _told(self.session, self._listener)

    async def _change(self, agent: str) -> None:
        self.session.navigator.route.clear()  # it is the client who moves
        await self.session.change_to(agent)
        await _told(self.session, self._listener)


async def _told(session: Session, listener: Listener) -> None:
    """Wait until everything that happened is in the queue."""
    await session.live.bus.flush()
    await listener.idle()


@contextmanager
def opened(swarm: Swarm, client: str | None, location: str | None, *, asks: bool) -> Generator[Talk]:
    """Open the store, and a session of the client, or of a new one. Raises ``PalaverError`` as the parts of it do."""
    waiting: Queue[Event | Question] = Queue()

    @asynccontextmanager
    async def at_work(name: str) -> AsyncGenerator[tuple[Session, Listener]]:
        async with swarm.start(store=store) as live:
            listener = await live.bus.listen(waiting.put, Where(client=name))
            async with live.session(name) as session:
                await _told(session, listener)
                while not waiting.empty():
                    waiting.get()

                async def sit(dispatcher: Operator) -> None:
                    async for question in dispatcher.inbox:
                        await _told(session, listener)  # what led to it is told before
                        waiting.put(question)

                for dispatcher in desks(swarm) if asks else ():
                    live.spawn(sit, dispatcher)
                yield session, listener

    with open_store(location) as store, start_blocking_portal() as portal:
        name = client or stores.short(uuid7())
        thread = client_thread(swarm.realm, name)
        known = True
        try:
            store.info(thread)
        except NotFoundError:
            known = False
        try:
            with portal.wrap_async_context_manager(at_work(name)) as (session, listener):
                yield Talk(portal, session, listener, waiting)
        finally:
            with suppress(NotFoundError):
                if not known and not store.info(thread).length:
                    store.delete(thread)


class SwarmChat:
    """A conversation with a swarm at the terminal."""

    def __init__(self, talk: Talk, teller: SwarmTeller, again: list[str], *, typed: bool) -> None:
        """Hold the session. ``again`` is what to type to go on; ``typed`` says that somebody types."""
        self._talk, self._session, self._teller = talk, talk.session, teller
        self._again = shlex.join([*again, "--client", talk.session.client])
        self._lines = Lines(teller, typed=typed)
        own: Mapping[str, tuple[Callable[[str], None], str]] = {
            "/agent": (self._agent, "[NAME]: list the agents, or let one of them speak"),
            "/log": (self._log, "show what is in the log, also what nobody was shown"),
        }
        self._commands = Commands(self._teller, own)

    def go(self) -> int:
        """Talk until the user leaves; give the exit code."""
        code = 0
        self._greet()
        while True:
            try:
                line = self._lines.read(f"{in_line(self._session.agent)}> ")
                if line.startswith("/"):
                    self._commands.run(line)
                elif line.strip():
                    self._talk.turn(line, self._teller)
            except (EOFError, Leave):
                break
            except KeyboardInterrupt:  # at the prompt, or the second one in a turn
                code = _INTERRUPTED
                break
        self._teller.command(f"go on: {in_line(self._again)}")
        return code

    def _greet(self) -> None:
        session = self._session
        length = len(session.messages)
        who = f"client {in_line(session.client)}"
        pieces = [
            f"swarm {in_line(session.swarm.name)}, {count(len(session.swarm.agents), 'agent')}",
            f"{who}, {count(length, 'message')}" if length else who,
            "/help",
        ]
        self._teller.command(" · ".join(pieces))
        self._lines.remember([each.text for each in session.user_history[-_REMEMBERED:]])

    # -- commands ----------------------------------------------------------------------------------------------------

    def _agent(self, name: str) -> None:
        agents = self._session.swarm.agents
        if not name:
            for each in agents.values():
                mark = "●" if each.name == self._session.agent else " "
                about = f": {in_line(each.description)}" if each.description else ""
                self._teller.line(f"{mark} {in_line(each.name)}{about}", "dim")
        elif name not in agents:
            self._teller.line(f"there is no agent {in_line(name)}; /agent lists them", "yellow")
        elif name != self._session.agent:
            self._talk.change_to(name, self._teller)

    def _log(self, _: str) -> None:
        for message in self._session.messages:
            self._teller.logged(message)
        if not self._session.messages:
            self._teller.line("nothing was said yet", "dim")


def once(talk: Talk, teller: SwarmTeller, text: str, again: list[str]) -> int:
    """Say one thing; give the exit code."""
    try:
        code = talk.turn(text, teller)
    except KeyboardInterrupt:
        return _INTERRUPTED
    teller.command(f"go on: {in_line(shlex.join([*again, '--client', talk.session.client]))}")
    return code


# --- swarm ------------------------------------------------------------------------------------------------------------


_DRAWINGS: Final = ("markdown", "mermaid", "plantuml")


@click.command(name="swarm")
@click.argument("named", metavar="FILE")
@click.option("--client", metavar="X", help="Whose conversation it is; without it a new one begins.")
@stores.option
@click.option("--message", metavar="TEXT", help="Say one thing, and leave; - reads it from standard input.")
@click.option("--events", is_flag=True, help="Show each event of the swarm's bus as a line.")
@click.option("--draw", "drawing", type=click.Choice(_DRAWINGS), help="Print what the swarm is, and leave.")
def command(
    named: str,
    *,
    client: str | None,
    location: str | None,
    message: str | None,
    events: bool,
    drawing: str | None,
) -> int:
    """Talk with the swarm of FILE.py, FILE.py:NAME or FILE.toml; /help says what can be typed."""
    if client == "":
        raise click.UsageError("a client needs a name")
    made = swarm_file.swarm(named)
    if drawing is not None:
        drawn = FORMATS[drawing](made)
        files.write(files.STANDARD, drawn.encode())
        return 0

    again = ["palaver", "swarm", named, *([] if location is None else ["--store", stores.shown(location)])]
    said = files.read("-").decode("utf-8-sig", errors="replace").strip() if message == "-" else message
    typed = sys.stdin.isatty()
    with opened(made, client, location, asks=typed and sys.stderr.isatty()) as talk:
        teller = SwarmTeller(events=events)
        if said is not None:
            return once(talk, teller, said, again)
        return SwarmChat(talk, teller, again, typed=typed).go()
