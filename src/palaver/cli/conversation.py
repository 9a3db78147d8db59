"""A conversation at the terminal: an agent, its thread in the store, and turns that Ctrl-C stops.

- Runs go on in an event loop in another thread; this thread draws, asks and handles Ctrl-C. So a question at the
  terminal blocks nothing, connections and MCP servers last from one turn to the next, and a signal never interrupts a
  write.
- The first Ctrl-C in a turn cancels the run, which keeps its messages. The second one leaves at once.
- Pending calls are decided between two runs: they are in the thread before anybody is asked. The call is shown
  completely, or says how much is hidden.
- A thread that waits for a tool that is not given is left as it is.
- A prompt that stands unanswered at the end of the thread is not added again: it is answered. So a command that failed
  can be repeated.
- A decision is a letter or a word; a text may follow ``reject`` and ``answer``. ``edit`` opens the arguments in
  ``$VISUAL`` or ``$EDITOR``, else in the line; the tool checks them. Ctrl-D leaves this call and all later ones
  pending.

Stability: experimental.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from queue import Empty, Queue
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import anyio
import click
from anyio.from_thread import start_blocking_portal
from msgspec import structs
from rich.text import Text as Line

from palaver.agent import Agent, Limits
from palaver.agent.active_run import ActiveRun
from palaver.cli import agent_options, key_store, stores, thread_model
from palaver.cli.agent_options import TypedDecision, toolset
from palaver.cli.progress import interrupts
from palaver.cli.stored_model import ThreadModel
from palaver.cli.terminal import safe, safe_line
from palaver.context.compaction import DEFAULT
from palaver.context.contents import contents
from palaver.core import jsontext
from palaver.core.errors import MessageError, NotFoundError, PalaverError
from palaver.core.messages import UserMessage
from palaver.core.prompt_input import prompt_messages
from palaver.core.usage import Usage
from palaver.store.location import open_store
from palaver.threads.ids import now_ms, uuid7
from palaver.threads.thread import MAIN
from palaver.threads.view import for_model
from palaver.turn import compaction
from palaver.turn.approvals import ApprovalRequest, Decision, missing_tools
from palaver.turn.compaction import Compactor
from palaver.turn.open_calls import open_answer
from palaver.turn.results import CutResults
from palaver.turn.tool import DecisionKind

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from palaver.agent.agent import Input
    from palaver.cli.agent_options import AgentOptions
    from palaver.cli.run_renderer import RunRenderer
    from palaver.context.contents import Contents
    from palaver.core.parts import ToolCall
    from palaver.store.store import Store
    from palaver.store.stored_thread import StoredThread
    from palaver.swarm.tool import SwarmTool
    from palaver.turn.compaction import Compaction
    from palaver.turn.events import AgentEvent
    from palaver.turn.run import Run
    from palaver.turn.tool import AgentTool, Judgement, Policy

    FindTool: TypeAlias = Callable[[str], AgentTool | SwarmTool | None]

_MAX_LINES: Final = 20
_MAX_LINE: Final = 2_000
_KINDS_BY_WORD: Final[Mapping[str, DecisionKind]] = {
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


def ask_decisions(requests: Iterable[ApprovalRequest], find: FindTool, renderer: RunRenderer) -> dict[str, Decision]:
    """Ask for a decision on each request. Return the decisions by call id. Raises ``KeyboardInterrupt``.

    ``find`` looks up the tool that checks edited arguments.
    """
    decided: dict[str, Decision] = {}
    for request in requests:
        decision = _ask_one(request, find, renderer)
        if decision is None:
            break
        decided[request.call.id] = decision
    return decided


def _ask_one(request: ApprovalRequest, find: FindTool, renderer: RunRenderer) -> Decision | None:
    _show_request(request, renderer, _MAX_LINES)
    choices = ", ".join([*(_PROMPTS[kind] for kind in request.choices), "[v]iew all"])
    while True:
        try:
            renderer.wrapped(choices)
            word, _, text = input("? ").strip().partition(" ")
        except EOFError:
            renderer.line("left pending", "dim")
            return None
        if word == "v":
            _show_request(request, renderer, None)
            continue
        kind = _KINDS_BY_WORD.get(word.lower().rstrip(":"))
        if kind not in request.choices:
            continue
        if kind != "edit":
            return Decision(kind=kind, text=text.strip())
        edited = _edit(request, find, renderer)
        if edited is not None:
            return edited


def _show_request(request: ApprovalRequest, renderer: RunRenderer, most: int | None) -> None:
    head = Line.assemble(("? ", "bold magenta"), (safe_line(request.tool), "bold magenta"), " wants to run")
    if request.reason:
        head.append(f": {safe_line(request.reason)}", "")
    renderer.line(head)
    lines = safe(_arguments_text(request.call)).split("\n")
    for line in lines[:most]:
        shown = line if most is None or len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"
        renderer.aside.print(Line(f"    {shown}"), soft_wrap=True)
    if most is not None and len(lines) > most:
        renderer.line(f"    … {len(lines) - most:,} more lines", "yellow")


def _arguments_text(call: ToolCall) -> str:
    """Return the arguments, one on each line; text keeps its line breaks."""
    try:
        values: Mapping[str, Any] = call.arguments
    except PalaverError:
        return call.arguments_json
    return "\n".join(
        f"{key}: {value if isinstance(value, str) else jsontext.encode(value).decode()}"
        for key, value in values.items()
    )


def _edit(request: ApprovalRequest, find: FindTool, renderer: RunRenderer) -> Decision | None:
    """Return the edit; ``None`` when nothing was edited, or when an editor failed or left arguments that do not fit."""
    text = request.call.arguments_json
    while True:
        try:
            text = _edit_text(text)
            if not text.strip():
                return None
            return _edited_decision(request, text, find)
        except EOFError:
            return None
        except (PalaverError, click.ClickException) as error:
            renderer.line(safe_line(str(error)), "red")
            if _has_editor():
                return None


def _has_editor() -> bool:
    return bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))


def _edit_text(text: str) -> str:
    if _has_editor():
        edited = click.edit(jsontext.pretty(jsontext.value(text)).decode(), extension=".json")
        return "" if edited is None else edited
    return _edit_line(text)


def _edit_line(text: str) -> str:
    """Read a line of input that starts with a text."""
    set_hook: Callable[..., None]
    try:
        import readline
    except ImportError:  # without it, the line starts empty
        return input("arguments (JSON): ")
    set_hook = readline.set_startup_hook
    set_hook(lambda: readline.insert_text(text))
    try:
        return input("arguments (JSON): ")
    finally:
        set_hook()


def _edited_decision(request: ApprovalRequest, text: str, find: FindTool) -> Decision:
    arguments = _object(text)
    tool = find(request.tool)
    if tool is not None:
        tool.check(structs.replace(request.call, arguments_json=text))
    return Decision(kind="edit", arguments=arguments)


def parse_decisions(values: Iterable[TypedDecision]) -> dict[str, Decision]:
    """Return the decisions of ``--decide``. Raises ``click.UsageError`` for arguments that are not JSON."""
    decided: dict[str, Decision] = {}
    for call, kind, text in values:
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
        raise MessageError("arguments must be a JSON object")
    return cast("dict[str, Any]", value)


_TICK: Final = 0.1
_MAX_QUEUED: Final = 1_000
_MAX_TITLE: Final = 80
EXITS: Final[Mapping[str, int]] = {"completed": 0, "waiting": 3, "cancelled": 130}
"""Exit codes by outcome; anything else is 1."""


class Conversation:
    """An agent and its thread. Made by ``open_conversation``."""

    def __init__(
        self,
        portal: BlockingPortal,
        agent: Agent,
        thread: StoredThread,
        asked: ThreadModel,
        *,
        existed: bool,
        stored: bool = True,
    ) -> None:
        """Use an agent and its thread.

        ``asked`` names the agent's model; ``existed``: the thread is not new; ``stored``: it outlasts the command.
        """
        self._portal = portal
        self.agent = agent
        self._asked = asked
        self.thread = thread
        self.existed = existed
        self.stored = stored
        self.busy = False
        """Whether a run is in progress, also after a second Ctrl-C has abandoned it."""
        self._previous: Run | None = None

    @property
    def address(self) -> str:
        """The thread's address as a command takes it."""
        of = self.thread
        return stores.short(of.id) if of.branch == MAIN else f"{stores.short(of.id)}@{of.branch}"

    def set_title(self, text: str) -> None:
        """Make the start of a prompt the thread's title, if the thread is new."""
        if not self.existed and not self.thread.path():
            self.thread.store.update(self.thread.id, title=" ".join(text.split())[:_MAX_TITLE] or None)

    def move_to(self, thread: StoredThread | None = None) -> None:
        """Continue on another branch, or at the moved head of this one."""
        self.thread = thread or self.thread
        self._previous = None

    def change_model(self, name: str) -> None:
        """Ask another model from now on; after ``--url``, a model of that server. Raises as ``choose_model``."""
        asked = ThreadModel(name)
        if self._asked.url is not None:
            asked = structs.replace(self._asked, model=name.removeprefix(f"{key_store.SERVER}/"))
        self.agent = self.agent.replace(model=agent_options.choose_model(asked.model, url=asked.url, wire=asked.wire))
        self._asked = asked

    def run_once(
        self,
        prompt: Input,
        show: Callable[[AgentEvent | None], object],
        *,
        decisions: Mapping[str, Decision] | None = None,
        steered: Callable[[str], object] | None = None,
    ) -> Run:
        """Run once. ``show`` gets the events, and ``None`` several times a second while there are none.

        With ``steered``, lines that the user types meanwhile go to the agent and to ``steered``. Raises as
        ``Agent.run``.
        """
        if self._repeats(prompt):
            prompt = None
        if prompt is None or decisions:
            self.check_tools(closing=prompt is not None, decisions=decisions or {})
        if self.stored:
            thread_model.keep(self.thread, self._asked)
        queue: Queue[AgentEvent | None] = Queue()  # SimpleQueue.get may hang after a signal (CPython 3.11)
        active: list[ActiveRun] = []
        cancelled, self.busy = False, True
        with interrupts() as interrupted:
            task = self._portal.start_task_soon(self._run, prompt, decisions, queue, active)
            task.add_done_callback(lambda _: queue.put(None))
            while True:
                if interrupted and active and not cancelled:
                    self._portal.call(active[0].cancel)
                    cancelled = True
                if steered is not None and active and (line := _typed_line()):
                    self._portal.call(active[0].steer, line)
                    steered(line)
                try:
                    event = queue.get(timeout=_TICK)
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

    def _repeats(self, prompt: Input) -> bool:
        """Whether ``prompt`` is the unanswered message at the end of the thread."""
        if prompt is None:
            return False
        new, seen = prompt_messages(prompt), for_model(self.thread.path())
        last = seen[-1] if seen else None
        return len(new) == 1 and isinstance(last, UserMessage) and last.content == new[0].content

    def check_tools(self, *, closing: bool = False, decisions: Mapping[str, Decision] = MappingProxyType({})) -> None:
        """Raise ``MessageError`` when a call waits for a tool that is not given, unless the run closes the call."""
        opened = open_answer(self.thread.path())
        find = self.agent.toolbox.find
        for each in missing_tools(opened.recorded, decisions, find, closing=closing) if opened is not None else ():
            raise MessageError(
                f"thread {safe_line(self.address)}: {safe_line(each.tool)} waits for a decision "
                f"({safe_line(each.call.id)}), but there is no such tool: give it with --tools"
            )

    def run_with_approvals(
        self,
        prompt: Input,
        renderer: RunRenderer,
        *,
        decisions: Mapping[str, Decision] | None = None,
        asks: bool,
        steered: Callable[[str], object] | None = None,
    ) -> Run:
        """Run, and ask for decisions at the terminal until no call is pending. Raises as ``run_once``.

        Return the last run, with the usage of all of them.
        """

        def show(event: AgentEvent | None) -> None:
            if event is None:
                renderer.tick()
            else:
                renderer.show(event)

        runs = [self.run_once(prompt, show, decisions=decisions, steered=steered)]
        while asks and runs[-1].outcome == "waiting":
            renderer.end_line()
            decided = ask_decisions(runs[-1].pending, self.agent.toolbox.find, renderer)
            if not decided:
                break
            runs.append(self.run_once(None, show, decisions=decided, steered=steered))
        run = _combined(runs)
        renderer.finish(run, self.address if self.stored else None)
        return run

    def compact(self, to: int | None) -> Compaction:
        """Compact the conversation. Ctrl-C stops that and changes nothing. Raises as ``compaction.compact`` does."""
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
        if done.original_branch is not None:
            self.move_to()
        return done

    def contents(self) -> Contents:
        """Return what fills the window of the agent's model."""
        agent = self.agent
        can = agent.model.capabilities
        path = self.thread.path()
        was_cut = CutResults().in_thread(self.thread.tree.entries)
        return contents(
            path,
            for_model(path),
            model=agent.model.name,
            window=can.window,
            max_output=can.max_output,
            settings=agent.settings,
            system=agent.system or (),
            tools=agent.definitions if was_cut else agent.first_definitions,  # as the next prompt has them
            stages=DEFAULT,
            now=now_ms(),
        )

    async def _run(
        self,
        prompt: Input,
        decisions: Mapping[str, Decision] | None,
        queue: Queue[AgentEvent | None],
        active: list[ActiveRun],
    ) -> Run:
        how: dict[str, Any] = {"thread": self.thread} if self._previous is None else {"previous": self._previous}
        async with self.agent.stream(prompt, decisions=decisions, **how) as active_run:
            active.append(active_run)
            async for event in active_run:
                queue.put(event)
                while queue.qsize() > _MAX_QUEUED:  # noqa: ASYNC110 (the reader is a thread)
                    await anyio.sleep(_TICK)
        return active_run.result


def _combined(runs: Sequence[Run]) -> Run:
    """Return the last of several runs, with the usage of all of them."""
    costs = [each.cost for each in runs if each.usage.total]
    return structs.replace(
        runs[-1],
        usage=sum((each.usage for each in runs), Usage()),
        cost=None if not costs or None in costs else sum(each or 0.0 for each in costs),
        iterations=sum(each.iterations for each in runs),
        seconds=sum(each.seconds for each in runs),
    )


def _typed_line() -> str:
    """Return the line that the user typed, without waiting for one; ``""`` when there is none."""
    if os.name != "posix" or not sys.stdin.isatty() or not select.select([sys.stdin], [], [], 0)[0]:
        return ""
    return os.read(sys.stdin.fileno(), 65_536).decode(errors="replace").strip()


@contextmanager
def open_conversation(options: AgentOptions, *, create: bool = True) -> Generator[Conversation]:
    """Open the store, thread, tools and model. Without ``create``, the thread must exist.

    A new thread without messages is deleted at the end. Raises ``click.ClickException`` and ``PalaverError``.
    """
    options = thread_model.complete(options)
    asked = thread_model.from_options(options)
    model = agent_options.choose_model(asked.model, url=asked.url, wire=asked.wire)
    if options.window is not None:
        model = structs.replace(model, capabilities=structs.replace(model.capabilities, window=options.window))
    names = (*options.tools, *(["demo"] if model.name.startswith("demo/") and "demo" not in options.tools else []))
    if (options.last or not create) and not stores.exists(options.location):
        missing = "there is no thread to continue" if options.last else f"no thread is named {options.thread!r}"
        raise NotFoundError(f"{missing}: there is no store at {stores.display_name(options.location)}")
    with (
        open_store(options.location) as store,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(toolset(names)) as tools,
    ):
        thread, existed = _thread(store, stores.last_thread(store) if options.last else options.thread, create=create)
        stores.warn_of_damage(thread.id, thread.path() if existed else (), options.location)
        agent = Agent(
            model,
            instructions=options.system,
            settings=options.settings,
            output=options.output,
            tools=tools,
            policy=_policy(options.approve, tools),
            limits=Limits() if options.steps is None else Limits(iterations=options.steps),
            middleware=() if options.no_compaction else (Compactor(),),
        )
        try:
            yield Conversation(portal, agent, thread, asked, existed=existed, stored=options.stored)
        finally:
            if not existed and not store.info(thread.id).length:
                store.delete(thread.id)


def _policy(mode: Judgement, tools: tuple[AgentTool, ...]) -> Policy:
    """Return a policy that allows tools that only read, and applies ``mode`` to the others."""
    return {tool.name: mode for tool in tools if tool.effect != "read"}


def _thread(store: Store, name: str | None, *, create: bool) -> tuple[StoredThread, bool]:
    """Find a thread, or create it when ``create`` is true. Return it and whether it existed."""
    if name is None:
        return store.open(uuid7()), False
    try:
        found = stores.find_address(store, name)
    except NotFoundError:
        if not create or stores.has_position(store, name):
            raise
        return store.open(name), False
    if found.position_or_main in found.info.branches:
        return store.open(found.info.id, found.position_or_main), True
    entry = found.position_or_main
    thread = store.open(found.info.id)
    ends_there = (branch for branch, head in found.info.branches.items() if head == entry)
    if (branch := next(ends_there, None)) is not None:
        return thread.on(branch), True
    name = f"from-{stores.short(entry)}"
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return thread.fork(next(each for each in names if each not in found.info.branches), at=entry), True
