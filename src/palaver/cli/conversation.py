"""A conversation at the terminal: an agent, a thread in the store, and turns that Ctrl-C stops.

Rules:

- Runs go on in an event loop of their own, in another thread; this one draws, asks, and hears Ctrl-C. So a question at
  the terminal blocks nothing, connections and MCP servers last from one turn to the next, and a signal never tears
  apart what is being written.
- The first Ctrl-C in a turn cancels the run, which then keeps what was said; the second gives up at once.
- What waits for a decision is asked between two runs: it is in the thread before anybody is asked.

Asks at the terminal what becomes of calls that wait for a decision.

Rules:

- What would run is shown whole, or as far as it says, and harmless: nobody approves what they cannot see.
- A decision is a letter or a word; behind ``reject`` and ``answer`` may stand a text. ``edit`` opens the arguments in
  ``$VISUAL`` or ``$EDITOR``, else in the line; they are checked by the tool, and asked for again when they do not fit.
- The end of input (Ctrl-D) leaves it pending, with all that follow. Ctrl-C goes through.

Stability: experimental.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import click
from anyio.from_thread import start_blocking_portal
from msgspec import structs
from rich.text import Text as Line

from palaver.agent import Agent, Limits
from palaver.agent.driver import ActiveRun
from palaver.cli import agent_options, stores
from palaver.cli.agent_options import Typed, toolset
from palaver.cli.progress import interrupts
from palaver.cli.terminal import in_line, safe
from palaver.context.compaction import DEFAULT
from palaver.context.contents import contents
from palaver.core import jsontext
from palaver.core.errors import MessageError, NotFoundError, PalaverError
from palaver.core.parts import Image, UserPart
from palaver.core.usage import Usage
from palaver.store.location import open_store
from palaver.threads.ids import now_ms, uuid7
from palaver.threads.model_view import for_model
from palaver.threads.thread import MAIN
from palaver.turn import compaction
from palaver.turn.approvals import ApprovalRequest, Decision
from palaver.turn.compaction import Compactor
from palaver.turn.policy import DecisionKind

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from palaver.agent.agent import Input
    from palaver.cli.agent_options import Asked
    from palaver.cli.run_renderer import Teller
    from palaver.context.contents import Contents
    from palaver.core.parts import ToolCall
    from palaver.store.store import Store
    from palaver.store.stored_thread import StoredThread
    from palaver.turn.compaction import Compaction
    from palaver.turn.events import AgentEvent
    from palaver.turn.policy import Judgement, Policy
    from palaver.turn.run import Run
    from palaver.turn.tool import AgentTool


# --- deciding ---------------------------------------------------------------------------------------------------------


_LINES: Final = 20
_LINE: Final = 2_000
_WORDS: Final[Mapping[str, DecisionKind]] = {
    "a": "approve",
    "approve": "approve",
    "y": "approve",
    "yes": "approve",
    "e": "edit",
    "edit": "edit",
    "r": "reject",
    "reject": "reject",
    "n": "reject",
    "no": "reject",
    "t": "answer",
    "answer": "answer",
}
_PROMPTS: Final[Mapping[DecisionKind, str]] = {
    "approve": "[a]pprove",
    "edit": "[e]dit",
    "reject": "[r]eject [reason]",
    "answer": "answer instead: [t] text",
}


def ask(requests: Iterable[ApprovalRequest], agent: Agent, teller: Teller) -> dict[str, Decision]:
    """Ask for each. Gives what was decided; raises ``KeyboardInterrupt``."""
    decided: dict[str, Decision] = {}
    for request in requests:
        decision = _asked(request, agent, teller)
        if decision is None:
            break
        decided[request.call.id] = decision
    return decided


def _asked(request: ApprovalRequest, agent: Agent, teller: Teller) -> Decision | None:
    _shown(request, teller, _LINES)
    choices = ", ".join([*(_PROMPTS[kind] for kind in request.choices), "[v]iew all"])
    while True:
        try:
            teller.line(choices, "dim")
            word, _, text = input("? ").strip().partition(" ")
        except EOFError:
            teller.line("left pending", "dim")
            return None
        if word == "v":
            _shown(request, teller, None)
            continue
        kind = _WORDS.get(word.lower().rstrip(":"))
        if kind not in request.choices:
            continue
        if kind != "edit":
            return Decision(kind=kind, text=text.strip())
        edited = _edited(request, agent, teller)
        if edited is not None:
            return edited


def _shown(request: ApprovalRequest, teller: Teller, most: int | None) -> None:
    head = Line.assemble(("? ", "bold magenta"), (in_line(request.tool), "bold magenta"), " wants to run")
    if request.reason:
        head.append(f": {in_line(request.reason)}", "")
    teller.line(head)
    lines = safe(_told(request.call)).split("\n")
    for line in lines[:most]:
        shown = line if most is None or len(line) <= _LINE else f"{line[:_LINE]}…"
        teller.aside.print(Line(f"    {shown}"), soft_wrap=True)
    if most is not None and len(lines) > most:
        teller.line(f"    … {len(lines) - most:,} more lines", "yellow")


def _told(call: ToolCall) -> str:
    """The arguments, a line for each, text with its own line breaks."""
    try:
        given: Mapping[str, Any] = call.arguments
    except PalaverError:
        return call.arguments_json
    return "\n".join(
        f"{key}: {value if isinstance(value, str) else jsontext.encode(value).decode()}" for key, value in given.items()
    )


# -- editing -----------------------------------------------------------------------------------------------------------


def _edited(request: ApprovalRequest, agent: Agent, teller: Teller) -> Decision | None:
    text = request.call.arguments_json
    while True:
        try:
            text = _changed(text)
            if not text.strip():
                return None
            return _checked(request, text, agent)
        except EOFError:
            return None
        except (PalaverError, click.ClickException) as error:
            teller.line(in_line(str(error)), "red")


def _changed(text: str) -> str:
    if os.environ.get("VISUAL") or os.environ.get("EDITOR"):
        edited = click.edit(jsontext.pretty(jsontext.value(text)).decode(), extension=".json")
        return "" if edited is None else edited
    return _prefilled(text)


def _prefilled(text: str) -> str:
    """A line of input that begins with a text."""
    set_hook: Callable[..., None]
    try:
        import readline
    except ImportError:  # without it, the line begins empty
        return input("arguments (JSON): ")
    set_hook = readline.set_startup_hook
    set_hook(lambda: readline.insert_text(text))
    try:
        return input("arguments (JSON): ")
    finally:
        set_hook()


def _checked(request: ApprovalRequest, text: str, agent: Agent) -> Decision:
    arguments = _object(text)
    tool = agent.toolbox.find(request.tool)
    if tool is not None:
        tool.check(structs.replace(request.call, arguments_json=text))
    return Decision(kind="edit", arguments=arguments)


def typed(given: Iterable[Typed]) -> dict[str, Decision]:
    """Decisions that were typed as options. Raises ``click.UsageError`` for arguments that are no JSON."""
    decided: dict[str, Decision] = {}
    for call, kind, text in given:
        if kind != "edit":
            decided[call] = Decision(kind=kind, text=text)
            continue
        try:
            decided[call] = Decision(kind=kind, arguments=_object(text))
        except PalaverError as error:
            raise click.UsageError(f"--decide {call}=edit: {error}") from None
    return decided


def _object(text: str) -> dict[str, Any]:
    value = jsontext.value(text)
    if not isinstance(value, dict):
        raise MessageError("arguments are an object of JSON")
    return cast("dict[str, Any]", value)


# --- conversation -----------------------------------------------------------------------------------------------------


_TICK: Final = 0.1
_ROOM: Final = 1_000
_TITLE: Final = 80
EXITS: Final[Mapping[str, int]] = {"completed": 0, "waiting": 3, "cancelled": 130}
"""Exit codes by outcome; anything else is 1."""


class Conversation:
    """An agent and its thread. Made by ``opened``."""

    def __init__(self, portal: BlockingPortal, agent: Agent, thread: StoredThread, *, known: bool) -> None:
        """Hold what was opened; ``known`` says that the thread was there before."""
        self._portal = portal
        self.agent = agent
        self.thread = thread
        self.known = known
        self.busy = False
        """Whether a run is under way: also when a second Ctrl-C has left it behind."""
        self._previous: Run | None = None

    @property
    def place(self) -> str:
        """The thread as a command takes it."""
        of = self.thread
        return stores.short(of.id) if of.branch == MAIN else f"{stores.short(of.id)}@{of.branch}"

    def entitle(self, text: str) -> None:
        """Name the thread by the first line of what was said, if it has no name yet."""
        if not self.known and not self.thread.path():
            self.thread.store.update(self.thread.id, title=" ".join(text.split())[:_TITLE] or None)

    def moved(self, thread: StoredThread | None = None) -> None:
        """Go on at another place: on another branch, or where the head of this one was moved to."""
        self.thread = thread or self.thread
        self._previous = None

    def turn(
        self,
        prompt: Input,
        show: Callable[[AgentEvent | None], object],
        *,
        decisions: Mapping[str, Decision] | None = None,
        steered: Callable[[str], object] | None = None,
    ) -> Run:
        """Run once. ``show`` gets the events, and ``None`` some times a second while there are none.

        With ``steered``, lines typed meanwhile are told to the agent, and to it. Raises as ``Agent.run`` does.
        """
        waiting: Queue[AgentEvent | None] = Queue()  # SimpleQueue.get may hang after a signal (CPython 3.11)
        held: list[ActiveRun] = []
        told, self.busy = False, True
        with interrupts() as interrupted:
            task = self._portal.start_task_soon(self._run, prompt, decisions, waiting, held)
            task.add_done_callback(lambda _: waiting.put(None))
            while True:
                if interrupted and held and not told:
                    self._portal.call(held[0].cancel)
                    told = True
                if steered is not None and held and (line := _typed()):
                    self._portal.call(held[0].steer, line)
                    steered(line)
                try:
                    event = waiting.get(timeout=_TICK)
                except Empty:
                    show(None)
                    continue
                if event is None:
                    break
                show(event)
            self.busy = False
            run: Run = task.result()
            self._previous = run
        return run

    def talk(
        self,
        prompt: Input,
        teller: Teller,
        *,
        decisions: Mapping[str, Decision] | None = None,
        asks: bool,
        steered: Callable[[str], object] | None = None,
    ) -> Run:
        """Run, and ask at the terminal what becomes of calls that wait, until nothing does. Raises as ``turn``.

        What it gives is the last run, with what all of them used.
        """

        def show(event: AgentEvent | None) -> None:
            if event is None:
                teller.tick()
            else:
                teller.show(event)

        runs = [self.turn(prompt, show, decisions=decisions, steered=steered)]
        while asks and runs[-1].outcome == "waiting":
            teller.rest()
            decided = ask(runs[-1].pending, self.agent, teller)
            if not decided:
                break
            runs.append(self.turn(None, show, decisions=decided, steered=steered))
        run = _together(runs)
        teller.over(run, self.place)
        return run

    def compact(self, to: int | None) -> Compaction:
        """Compact the conversation now; Ctrl-C stops that and changes nothing. Raises as ``compact`` does."""
        agent = self.agent
        work = partial(
            compaction.compact,
            self.thread,
            agent.model,
            to=to,
            system=agent.system or (),
            tools=agent.definitions,
        )
        task = self._portal.start_task_soon(work)
        try:
            done = task.result()
        except KeyboardInterrupt:
            task.cancel()
            raise
        if done.kept is not None:
            self.moved()
        return done

    def contents(self) -> Contents:
        """What fills the window of the agent's model."""
        agent = self.agent
        can = agent.model.capabilities
        path = self.thread.path()
        return contents(
            path,
            for_model(path),
            model=agent.model.name,
            window=can.window,
            max_output=can.max_output,
            settings=agent.settings,
            system=agent.system or (),
            tools=agent.definitions,
            stages=DEFAULT,
            now=now_ms(),
        )

    async def _run(
        self,
        prompt: Input,
        decisions: Mapping[str, Decision] | None,
        waiting: Queue[AgentEvent | None],
        held: list[ActiveRun],
    ) -> Run:
        how: dict[str, Any] = {"thread": self.thread} if self._previous is None else {"previous": self._previous}
        async with self.agent.start(prompt, decisions=decisions, **how) as running:
            held.append(running)
            async for event in running:
                waiting.put(event)
                while waiting.qsize() > _ROOM:  # noqa: ASYNC110 (the reader is a thread)
                    await anyio.sleep(_TICK)
        return running.result


def _together(runs: Sequence[Run]) -> Run:
    """The last of several runs, with what all of them used."""
    costs = [each.cost for each in runs if each.usage.total]
    return structs.replace(
        runs[-1],
        usage=sum((each.usage for each in runs), Usage()),
        cost=None if not costs or None in costs else sum(each or 0.0 for each in costs),
        iterations=sum(each.iterations for each in runs),
        seconds=sum(each.seconds for each in runs),
    )


def _typed() -> str:
    """A line that was typed at the terminal, without waiting for one."""
    if os.name != "posix" or not sys.stdin.isatty() or not select.select([sys.stdin], [], [], 0)[0]:
        return ""
    return os.read(sys.stdin.fileno(), 65_536).decode(errors="replace").strip()


# -- opening -----------------------------------------------------------------------------------------------------------


@contextmanager
def opened(asked: Asked, *, begins: bool = True) -> Generator[Conversation]:
    """Open store, thread, tools and model. Without ``begins``, the thread must be there.

    A thread that was begun here, and in which nothing was said, is gone afterwards.
    Raises ``click.ClickException``, and ``PalaverError`` as the parts of it do.
    """
    model = agent_options.chosen(asked.model)
    named = (*asked.tools, *(["demo"] if model.name.startswith("demo/") and "demo" not in asked.tools else []))
    if not begins and not stores.is_there(asked.location):
        raise NotFoundError(f"no thread goes by {asked.thread!r}: there is no store at {stores.shown(asked.location)}")
    with (
        open_store(asked.location) as store,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(toolset(named)) as tools,
    ):
        thread, known = _thread(store, asked.thread, begins=begins)
        agent = Agent(
            model,
            instructions=asked.system,
            tools=tools,
            policy=_policy(asked.approve, tools),
            limits=Limits() if asked.steps is None else Limits(iterations=asked.steps),
            middleware=() if asked.no_compaction else (Compactor(),),
        )
        try:
            yield Conversation(portal, agent, thread, known=known)
        finally:
            if not known and not store.info(thread.id).length:
                store.delete(thread.id)


def _policy(mode: Judgement, tools: tuple[AgentTool, ...]) -> Policy:
    """What only reads is allowed; the rest is asked for, allowed or denied."""
    return {tool.name: mode for tool in tools if tool.effect != "read"}


def _thread(store: Store, name: str | None, *, begins: bool) -> tuple[StoredThread, bool]:
    """The thread that is meant, begun where it may be."""
    if name is None:
        return store.open(uuid7()), False
    try:
        found = stores.address(store, name)
    except NotFoundError:
        if not begins or "@" in name:
            raise
        return store.open(name), False
    if found.of in found.info.branches:
        return store.open(found.info.id, found.of), True
    branch = f"from-{stores.short(found.of)}"
    thread = store.open(found.info.id)
    with suppress(NotFoundError):
        return thread.on(branch), True
    return thread.fork(branch, at=found.of), True


def images(files: Sequence[str]) -> list[UserPart]:
    """Read images. Raises ``OSError``, and ``click.UsageError`` for what is none."""
    found = [Image.from_path(each) for each in files]
    for each, image in zip(files, found, strict=True):
        if not (image.media_type or "").startswith("image/"):
            raise click.UsageError(f"--image {each}: not an image")
    return [*found]
