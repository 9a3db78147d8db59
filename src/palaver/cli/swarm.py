"""``palaver swarm``: a conversation with a swarm of agents at the terminal, one message, or a drawing of the swarm.

- Speakers, hand-overs, calls and results are printed aside; the agents' answers go to standard output.
- The swarm runs in an event loop in another thread. This thread draws, reads and handles Ctrl-C: the first Ctrl-C in a
  turn cancels it and keeps its messages, the second one leaves.
- At a terminal the user answers the questions to the people of the swarm (``Operator``). If the program also answers
  them, the first answer counts. Ctrl-D gives no answer.
- The conversation is the client's thread in the store; ``--client`` continues one. A new client without messages leaves
  no thread behind.
- A call that the policy asks for is decided at the terminal, or later by ``--decide``. Until then it waits, and the
  command that decides it is printed.
- Exit codes: 0; 1 for a message without an answer and for unusable input; 3 for a call that waits for a decision; 130
  after Ctrl-C.

Stability: experimental.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from queue import Empty, Queue
from typing import TYPE_CHECKING, Final

import click
from anyio.from_thread import start_blocking_portal
from rich.text import Text as Line

from palaver.cli import agent_options, conversation, files, stores, swarm_file
from palaver.cli.chat import PromptReader, QuitChat, SlashCommands
from palaver.cli.progress import interrupts
from palaver.cli.run_renderer import SwarmRenderer
from palaver.cli.suggestions import Choice, meant
from palaver.cli.terminal import count, safe_line
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

    from palaver.cli.agent_options import TypedDecision
    from palaver.cli.run_renderer import RunRenderer
    from palaver.swarm.events import Event
    from palaver.swarm.session import Session
    from palaver.swarm.swarm import Swarm
    from palaver.swarm.tool import SwarmTool
    from palaver.turn.approvals import ApprovalRequest, Decision


_STYLE: Final = "bold magenta"


def operators(swarm: Swarm) -> Iterable[Operator]:
    """Return the operators of a swarm without duplicates."""
    found = (agent.operator for agent in swarm.agents.values())
    return {id(each): each for each in found if isinstance(each, Operator)}.values()


def ask(question: Question, renderer: RunRenderer) -> str:
    """Ask the user. Return ``""`` for no answer. Raises ``KeyboardInterrupt`` for Ctrl-C."""
    name = safe_line(question.place.agent)
    renderer.line(Line.assemble(("? ", _STYLE), (name, _STYLE), f" is asked: {safe_line(question.text)}"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return PromptReader(renderer, interactive=True).read(f"as {name}: ")
    except EOFError:
        return ""
    finally:
        signal.signal(signal.SIGINT, before)


_TICK: Final = 0.1
_INTERRUPTED: Final = 130
_WAITING: Final = 3
_REMEMBERED: Final = 200


class SwarmConversation:
    """A session in a swarm that runs in another thread. Made by ``open_swarm``."""

    def __init__(
        self, portal: BlockingPortal, session: Session, listener: Listener, queue: Queue[Event | Question]
    ) -> None:
        """Use an open session."""
        self._portal, self.session, self._listener, self._queue = portal, session, listener, queue
        self.busy = False
        """Whether a turn is in progress, also after a second Ctrl-C has abandoned it."""

    def turn(self, text: str, renderer: SwarmRenderer) -> int:
        """Run a turn and show its events and errors.

        Return 0, 1 for no answer, 3 when a call waits for a decision, or 130 after Ctrl-C.
        """
        return self._show(partial(self.session.complete, text), renderer)

    def decide(self, decisions: Mapping[str, Decision], renderer: SwarmRenderer) -> int:
        """Decide waiting calls, by their ids, and continue their turn. Return as ``turn`` does."""
        return self._show(partial(self.session.decide, decisions), renderer)

    def ask_decisions(self, renderer: SwarmRenderer) -> int | None:
        """Ask for decisions until no call waits. Return as ``turn``; ``None`` when nothing was decided.

        Raises ``KeyboardInterrupt``.
        """
        code: int | None = None
        while code in {None, _WAITING} and (requests := self.pending()):
            decided = conversation.ask_decisions(requests, self._find_tool, renderer)
            if not decided:
                break
            code = self.decide(decided, renderer)
        return code

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Return the calls that wait for a decision."""
        return self._portal.call(self.session.pending)

    def _find_tool(self, name: str) -> SwarmTool | None:
        tools = self.session.swarm.agents[self.session.agent].tools
        return next((each for each in tools if each.name == name), None)

    def _show(self, work: Callable[[], Awaitable[str]], renderer: SwarmRenderer) -> int:
        self.busy, cancelled = True, False
        renderer.begin(self.session.agent)
        with interrupts() as interrupted:
            task = self._portal.start_task_soon(self._completed, work)
            while not (task.done() and self._queue.empty()):
                if interrupted and not cancelled:
                    cancelled = bool(self._portal.call(self.session.cancel)) or task.done()
                try:
                    self._handle(self._queue.get(timeout=_TICK), renderer, interrupted)
                except Empty:
                    renderer.tick()
        self.busy = False
        error = task.exception()
        if isinstance(error, Exception):
            renderer.failed(error)
            return 1
        answer = task.result()
        if interrupted and not answer:
            renderer.stopped()
            return _INTERRUPTED
        if not answer and (requests := self.pending()):
            renderer.waits(requests)
            return _WAITING
        renderer.answer(self.session.agent, answer)
        return 0

    def change_to(self, agent: str, renderer: SwarmRenderer) -> None:
        """Change the active agent. Raises ``NavigationError`` and ``StoreError``."""
        self._portal.call(self._change, agent)
        while not self._queue.empty():
            self._handle(self._queue.get(), renderer, [])

    def _handle(self, what: Event | Question, renderer: SwarmRenderer, interrupted: list[bool]) -> None:
        if not isinstance(what, Question):
            renderer.on_event(what)
            return
        text = ""
        try:
            if what.is_open:
                text = ask(what, renderer)
        except KeyboardInterrupt:
            interrupted.append(True)
        if not self._portal.call(what.answer, text) and text:
            renderer.line("the question was closed before the answer", "yellow")

    async def _completed(self, work: Callable[[], Awaitable[str]]) -> str:
        try:
            return await work()
        finally:
            await _drain_events(self.session, self._listener)

    async def _change(self, agent: str) -> None:
        self.session.navigator.route.clear()  # the client navigates, not an agent
        await self.session.change_to(agent)
        await _drain_events(self.session, self._listener)


async def _drain_events(session: Session, listener: Listener) -> None:
    """Wait until all published events are in the queue."""
    await session.live.bus.flush()
    await listener.idle()


@contextmanager
def open_swarm(swarm: Swarm, client: str | None, location: str | None, *, asks: bool) -> Generator[SwarmConversation]:
    """Open the store and a session of the client, or of a new client. Raises ``PalaverError``."""
    queue: Queue[Event | Question] = Queue()

    @asynccontextmanager
    async def running_session(name: str) -> AsyncGenerator[tuple[Session, Listener]]:
        async with swarm.start(store=store) as live:
            listener = await live.bus.listen(queue.put, Where(client=name))
            async with live.session(name) as session:
                await _drain_events(session, listener)
                while not queue.empty():
                    queue.get()

                async def forward_questions(operator: Operator) -> None:
                    async for question in operator.inbox:
                        await _drain_events(session, listener)  # show the events before the question
                        queue.put(question)

                for operator in operators(swarm) if asks else ():
                    live.spawn(forward_questions, operator)
                yield session, listener

    with open_store(location) as store, start_blocking_portal() as portal:
        name = client or stores.short(uuid7())
        thread = client_thread(swarm.realm, name)
        existed = True
        try:
            store.info(thread)
        except NotFoundError:
            existed = False
        try:
            with portal.wrap_async_context_manager(running_session(name)) as (session, listener):
                yield SwarmConversation(portal, session, listener, queue)
        finally:
            with suppress(NotFoundError):
                if not existed and not store.info(thread).length:
                    store.delete(thread)


class SwarmChat:
    """A conversation with a swarm at the terminal."""

    def __init__(
        self, conversation: SwarmConversation, renderer: SwarmRenderer, again: list[str], *, interactive: bool
    ) -> None:
        """Chat in a session. ``again`` is the command that continues it; ``interactive``: a person types."""
        self._conversation, self._session, self._renderer = conversation, conversation.session, renderer
        self._again = shlex.join([*again, "--client", conversation.session.client])
        self._lines = PromptReader(renderer, interactive=interactive)
        self._asks = interactive and sys.stderr.isatty()
        own: Mapping[str, tuple[Callable[[str], None], str]] = {
            "/agent": (self._agent, "[NAME]: list the agents, or change the active one"),
            "/log": (self._log, "show the log, including hidden messages"),
        }
        self._commands = SlashCommands(self._renderer, own)

    def go(self) -> int:
        """Chat until the user leaves. Return the exit code."""
        code = 0
        self._greet()
        self._decide()
        while True:
            try:
                line = self._lines.read(f"{safe_line(self._session.agent)}> ")
                if line.startswith("/"):
                    self._commands.run(line)
                elif line.strip():
                    self._conversation.turn(line, self._renderer)
                    self._decide()
            except (EOFError, QuitChat):
                break
            except KeyboardInterrupt:  # at the prompt, or the second one in a turn
                code = _INTERRUPTED
                break
        self._renderer.command(f"continue: {safe_line(self._again)}")
        return code

    def _decide(self) -> None:
        """Ask for the decisions that are pending, at a terminal. Ctrl-C leaves them so."""
        with suppress(KeyboardInterrupt):
            if self._asks:
                self._conversation.ask_decisions(self._renderer)

    def _greet(self) -> None:
        session = self._session
        length = len(session.messages)
        who = f"client {safe_line(session.client)}"
        pieces = [
            f"swarm {safe_line(session.swarm.name)}, {count(len(session.swarm.agents), 'agent')}",
            f"{who}, {count(length, 'message')}" if length else who,
            "/help",
        ]
        self._renderer.command(" · ".join(pieces))
        self._lines.remember([each.text for each in session.user_history[-_REMEMBERED:]])

    # -- commands ----------------------------------------------------------------------------------------------------

    def _agent(self, name: str) -> None:
        agents = self._session.swarm.agents
        if not name:
            for each in agents.values():
                mark = "●" if each.name == self._session.agent else " "
                about = f": {safe_line(each.description)}" if each.description else ""
                self._renderer.line(f"{mark} {safe_line(each.name)}{about}", "dim")
        elif name not in agents:
            hint = meant(name, agents) or "; /agent lists them"
            self._renderer.line(f"unknown agent {safe_line(name)}{hint}", "yellow")
        elif name != self._session.agent:
            self._conversation.change_to(name, self._renderer)

    def _log(self, _: str) -> None:
        for message in self._session.messages:
            self._renderer.logged(message)
        if not self._session.messages:
            self._renderer.line("no messages yet", "dim")


def send_once(
    conversation: SwarmConversation,
    renderer: SwarmRenderer,
    work: Callable[[], int],
    again: list[str],
    *,
    asks: bool,
) -> int:
    """Do one turn, and ask for its decisions with ``asks``. Return the exit code."""
    try:
        code = work()
        if code == _WAITING and asks:
            code = conversation.ask_decisions(renderer) or (_WAITING if conversation.pending() else 0)
    except KeyboardInterrupt:
        return _INTERRUPTED
    requests = conversation.pending() if code == _WAITING else ()
    decide = [word for each in requests for word in ("--decide", f"{each.call.id}=approve")]
    words = [*again, "--client", conversation.session.client, *decide]
    renderer.command(f"continue: {safe_line(shlex.join(words))}")
    return code


_DRAWINGS: Final = ("markdown", "mermaid", "plantuml")


@click.command(name="swarm")
@click.argument("named", metavar="FILE")
@click.option("--client", metavar="X", help="Continue the conversation of this client. Default: a new client.")
@stores.option
@click.option("--message", metavar="TEXT", help="Send one message and leave; - reads it from standard input.")
@agent_options.decide_option("Decide a call of --client that waits, as palaver run does; may be repeated.")
@click.option("--events", is_flag=True, help="Show each event of the swarm's bus as a line.")
@click.option("--draw", "drawing", type=Choice(_DRAWINGS), help="Print a drawing of the swarm and leave.")
def command(
    named: str,
    *,
    client: str | None,
    location: str | None,
    message: str | None,
    typed: tuple[TypedDecision, ...],
    events: bool,
    drawing: str | None,
) -> int:
    """Chat with the swarm in FILE.py, FILE.py:NAME or FILE.toml; /help lists the commands."""
    if client == "":
        raise click.UsageError("a client needs a name")
    if typed and (client is None or message is not None):
        raise click.UsageError("--decide needs --client, and excludes --message")
    decisions = conversation.parse_decisions(typed)
    swarm = swarm_file.swarm(named)
    if drawing is not None:
        drawn = FORMATS[drawing](swarm)
        files.write(files.STDIO, drawn.encode())
        return 0

    again = ["palaver", "swarm", named, *([] if location is None else ["--store", stores.display_name(location)])]
    text = files.read("-").decode("utf-8-sig", errors="replace").strip() if message == "-" else message
    interactive = sys.stdin.isatty()
    asks = interactive and sys.stderr.isatty()
    with open_swarm(swarm, client, location, asks=asks) as opened:
        renderer = SwarmRenderer(events=events)
        if decisions:
            return send_once(opened, renderer, partial(opened.decide, decisions, renderer), again, asks=asks)
        if text is not None:
            return send_once(opened, renderer, partial(opened.turn, text, renderer), again, asks=asks)
        return SwarmChat(opened, renderer, again, interactive=interactive).go()
