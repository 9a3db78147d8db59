"""``palaver chat``: a conversation with an agent at the terminal.

Rules:

- A line is a turn; one that ends in a backslash goes on in the next. A line that begins with a slash is a command.
- Ctrl-C stops a turn and keeps what was said; at the prompt it leaves, as Ctrl-D does. What is typed while the agent
  works is told to it at its next step.
- Everything is in the thread: what ``/undo`` takes back stays there, on no branch.

The loop of ``palaver chat``: reads lines, runs turns, and does what commands say.

The commands of a chat: lines that begin with a slash.

Rules:

- ``/help`` and ``/quit`` are everywhere, ``/help`` first and ``/quit`` last; a command that there is not is told, and
  does nothing.

What is typed at a prompt, or comes from a pipe, as turns of a conversation.

Rules:

- A line is a turn; one that ends in a backslash goes on in the next.
- At a terminal the arrow keys bring back what was said. A pipe has no prompt.

Stability: experimental.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count as counter
from typing import TYPE_CHECKING, Any, Final

import click

from palaver.cli import agent_options, context
from palaver.cli.compact import told
from palaver.cli.conversation import images, opened
from palaver.cli.run_renderer import Teller
from palaver.cli.terminal import count, in_line
from palaver.core.errors import PalaverError
from palaver.core.messages import UserMessage
from palaver.core.parts import UserPart
from palaver.core.usage import Usage
from palaver.turn.approvals import left_open
from palaver.turn.notes import USER_PROMPT

if TYPE_CHECKING:
    from palaver.agent.agent import Input
    from palaver.cli.agent_options import Asked
    from palaver.cli.conversation import Conversation
    from palaver.turn.run import Run


# --- commands ---------------------------------------------------------------------------------------------------------


class Leave(Exception):  # noqa: N818 (not an error)
    """The user wants to leave."""


class Commands:
    """What can be typed in a chat: each command does something with the rest of its line, and says what it does."""

    def __init__(self, teller: Teller, own: Mapping[str, tuple[Callable[[str], None], str]]) -> None:
        """Take a chat's own commands."""
        self._teller = teller
        self._known: Mapping[str, tuple[Callable[[str], None], str]] = {
            "/help": (self._help, "say this"),
            **own,
            "/quit": (self._quit, "leave; so do Ctrl-D, and Ctrl-C at the prompt"),
        }

    def run(self, line: str) -> None:
        """Do what a line says. Raises ``Leave``, and what the command raises."""
        name, _, rest = line.strip().partition(" ")
        found = self._known.get(name)
        if found is None:
            self._teller.line(f"there is no {in_line(name)}; /help says what there is", "yellow")
        else:
            found[0](rest.strip())

    def _help(self, _: str) -> None:
        for name, (_does, about) in self._known.items():
            self._teller.line(f"{name:8} {about}", "dim")
        self._teller.line("a line that ends in \\ goes on in the next; Ctrl-C stops a turn", "dim")

    def _quit(self, _: str) -> None:
        raise Leave


# --- lines ------------------------------------------------------------------------------------------------------------


_MORE: Final = "… "


class Lines:
    """Reads turns; ``typed`` says that somebody types."""

    def __init__(self, teller: Teller, *, typed: bool) -> None:
        """Read from standard input."""
        self._teller, self._typed = teller, typed

    def read(self, prompt: str) -> str:
        """A turn, as it was typed. Raises ``EOFError``, and ``KeyboardInterrupt`` for Ctrl-C."""
        lines = [self._line(prompt)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(_MORE))
        return "\n".join(lines)

    def _line(self, prompt: str) -> str:
        if self._typed:
            self._teller.rest()
            return input(prompt)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def remember(self, texts: Iterable[str]) -> None:
        """Let the arrow keys bring back what was said before."""
        if not self._typed:
            return
        try:
            import readline
        except ImportError:
            return
        readline.clear_history()
        for text in texts:
            if text.isprintable():
                readline.add_history(text)


# --- chatting ---------------------------------------------------------------------------------------------------------


_PROMPT: Final = "> "
_INTERRUPTED: Final = 130
_REMEMBERED: Final = 200


class Chat:
    """One conversation at the terminal."""

    def __init__(self, asked: Asked, talk: Conversation, first: Sequence[UserPart], *, typed: bool) -> None:
        """Hold the conversation; ``first`` joins the first turn, ``typed`` says that somebody types."""
        self._asked, self._talk, self._typed = asked, talk, typed
        self._teller = Teller()
        self._lines = Lines(self._teller, typed=typed)
        self._images = first
        self._usage, self._cost = Usage(), 0.0
        self._unpriced = False
        own: Mapping[str, tuple[Callable[[str], None], str]] = {
            "/undo": (self._undo, "take the last turn back"),
            "/fork": (self._fork, "[NAME]: go on on a new branch; this one stays as it is"),
            "/model": (self._model, "[M]: say, or change, which model is asked"),
            "/tools": (self._tools, "list the tools"),
            "/context": (self._context, "say what fills the window of the model"),
            "/compact": (self._compact, "[TOKENS]: make it shorter; what it was stays as a branch"),
            "/cost": (self._costs, "say what this chat has used"),
        }
        self._commands = Commands(self._teller, own)

    def go(self) -> int:
        """Talk until the user leaves; give the exit code."""
        code = 0
        self._greet()
        self._remember()
        self._resume()
        while True:
            try:
                line = self._lines.read(_PROMPT)
            except EOFError:
                break
            except KeyboardInterrupt:
                code = _INTERRUPTED
                break
            try:
                if line.startswith("/"):
                    self._commands.run(line)
                elif line.strip():
                    self._talk.entitle(line)
                    self._turn([line, *self._images] if self._images else line)
                    self._images = ()
            except Leave:
                break
            except KeyboardInterrupt:
                self._teller.line("stopped", "dim")
                if self._talk.busy:  # the second one in a turn
                    self._leave()
                    raise
            except PalaverError as error:
                self._teller.line(in_line(str(error)), "red")
        self._leave()
        return code

    def _leave(self) -> None:
        self._teller.command(f"go on: {in_line(self._asked.again('chat', self._talk.place))}")

    # -- a turn ------------------------------------------------------------------------------------------------------

    def _turn(self, said: Input) -> None:
        asks = self._typed and sys.stderr.isatty()
        run = self._talk.talk(said, self._teller, asks=asks, steered=self._steered if self._typed else None)
        self._count(run)

    def _steered(self, _line: str) -> None:
        self._teller.line("it will hear that at its next step", "dim")

    def _resume(self) -> None:
        """Ask at once what an earlier process left waiting."""
        if self._talk.known and self._waits():
            with suppress(KeyboardInterrupt):
                self._turn(None)

    def _waits(self) -> bool:
        opened = left_open(self._talk.thread.path())
        return opened is not None and bool(opened.recorded.pending) and self._typed

    def _count(self, run: Run) -> None:
        self._usage += run.usage
        self._cost += run.cost or 0.0
        self._unpriced = self._unpriced or (run.cost is None and run.usage.total > 0)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """Let the arrow keys bring back what was said in this thread."""
        said = [entry.message for entry in self._talk.thread.path()[-_REMEMBERED:]]
        self._lines.remember(
            message.text for message in said if isinstance(message, UserMessage) and USER_PROMPT in message.tags
        )

    def _greet(self) -> None:
        talk = self._talk
        where = f"thread {in_line(talk.place)}"
        length = len(talk.thread.path())
        pieces = [in_line(talk.agent.model.name), f"{where}, {count(length, 'message')}" if length else where]
        self._teller.command(" · ".join([*pieces, "/help"]))

    # -- commands ----------------------------------------------------------------------------------------------------

    def _undo(self, _: str) -> None:
        path = self._talk.thread.path()
        for at in range(len(path) - 1, -1, -1):
            message = path[at].message
            if isinstance(message, UserMessage) and USER_PROMPT in message.tags:
                self._talk.thread.rewind(path[at - 1].id if at else None)
                self._talk.moved()
                self._teller.line(f"taken back: {in_line(message.text)}", "dim")
                return
        self._teller.line("there is nothing to take back", "yellow")

    def _fork(self, name: str) -> None:
        thread = self._talk.thread
        branches = thread.tree.branches
        name = name or next(free for number in counter(2) if (free := f"chat-{number}") not in branches)
        if name in branches:
            self._teller.line(f"there is a branch {in_line(name)}", "yellow")
            return
        self._talk.moved(thread.fork(name))
        self._teller.command(f"on branch {in_line(name)}")

    def _model(self, name: str) -> None:
        if name:
            with suppress(click.exceptions.Exit):  # it has said what to set
                self._talk.agent = self._talk.agent.replace(model=agent_options.chosen(name))
        self._teller.command(in_line(self._talk.agent.model.name))

    def _tools(self, _: str) -> None:
        tools = self._talk.agent.toolbox.tools
        for tool in tools:
            about = (tool.definition.description or "").partition("\n")[0]
            self._teller.line(f"{in_line(tool.name)} ({tool.effect}): {in_line(about)}", "dim")
        if not tools:
            self._teller.line("none; --tools gives some", "dim")

    def _context(self, _: str) -> None:
        self._teller.draw(context.drawn(self._talk.contents(), self._teller.aside))

    def _compact(self, size: str) -> None:
        if size and not (size.isascii() and size.isdigit() and int(size)):
            self._teller.line(f"{in_line(size)} is no number of tokens", "yellow")
            return
        self._teller.line("compacting; Ctrl-C stops it", "dim")
        done = self._talk.compact(int(size) if size else None)
        self._teller.draw(told(done, in_line(self._talk.place)))

    def _costs(self, _: str) -> None:
        usage = self._usage
        read = sum(each or 0 for each in (usage.input, usage.cache_read, usage.cache_write))
        written = (usage.output or 0) + (usage.reasoning or 0)
        price = "" if self._unpriced and not self._cost else f", ${self._cost:.4f}"
        more = " and what has no known price" if self._unpriced else ""
        self._teller.line(f"{read:,} tokens in, {written:,} out{price}{more}", "dim")


# --- chat -------------------------------------------------------------------------------------------------------------


@click.command(name="chat")
@agent_options.options
def command(**given: Any) -> int:
    """Talk with an agent; /help says what can be typed.

    The conversation is a thread of the store; --thread goes on with one.
    """
    asked = agent_options.asked(given)
    first = images(asked.images)
    with opened(asked) as talk:
        return Chat(asked, talk, first, typed=sys.stdin.isatty()).go()
