"""``palaver chat``: a conversation with an agent at the terminal.

- A line is a turn. A line that ends in a backslash continues on the next. A line that starts with a slash is a command:
  ``/help`` comes first and ``/quit`` last, and an unknown command only prints a note.
- Ctrl-C during a turn stops it and keeps its messages. At the prompt it leaves, as Ctrl-D does. A line that is typed
  while the agent works reaches it at its next step.
- Everything is kept in the thread: messages that ``/undo`` removes stay there, on no branch.
- At a terminal the arrow keys recall earlier lines. A pipe has no prompt.

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
from palaver.cli.attachments import attachments
from palaver.cli.compact import render_compaction
from palaver.cli.conversation import open_conversation
from palaver.cli.run_renderer import RunRenderer
from palaver.cli.suggestions import meant
from palaver.cli.terminal import count, safe_line
from palaver.core.errors import PalaverError
from palaver.core.messages import UserMessage
from palaver.core.parts import UserPart
from palaver.core.usage import Usage
from palaver.turn.notes import USER_PROMPT
from palaver.turn.open_calls import open_answer

if TYPE_CHECKING:
    from palaver.agent.agent import Input
    from palaver.cli.agent_options import AgentOptions
    from palaver.cli.conversation import Conversation
    from palaver.turn.run import Run


class QuitChat(Exception):  # noqa: N818 (not an error)
    """The user wants to leave the chat."""


class SlashCommands:
    """The commands of a chat. Each one gets the rest of its line and has a help text."""

    def __init__(self, renderer: RunRenderer, own: Mapping[str, tuple[Callable[[str], None], str]]) -> None:
        """Add a chat's own commands to ``/help`` and ``/quit``."""
        self._renderer = renderer
        self._commands_by_name: Mapping[str, tuple[Callable[[str], None], str]] = {
            "/help": (self._help, "show this help"),
            **own,
            "/quit": (self._quit, "leave; Ctrl-D, or Ctrl-C at the prompt, does the same"),
        }

    def run(self, line: str) -> None:
        """Run the command of a line. Raises ``QuitChat``, and what the command raises."""
        name, _, rest = line.strip().partition(" ")
        found = self._commands_by_name.get(name)
        if found is None:
            hint = meant(name, self._commands_by_name) or "; /help lists the commands"
            self._renderer.line(f"unknown command {safe_line(name)}{hint}", "yellow")
        else:
            found[0](rest.strip())

    def _help(self, _: str) -> None:
        for name, (_does, about) in self._commands_by_name.items():
            self._renderer.wrapped(f"{name:8} {about}")
        self._renderer.wrapped("a line that ends in \\ continues on the next; Ctrl-C stops a turn")

    def _quit(self, _: str) -> None:
        raise QuitChat


_MORE: Final = "… "


class PromptReader:
    """Reads turns from standard input. ``interactive``: a person types at a terminal."""

    def __init__(self, renderer: RunRenderer, *, interactive: bool) -> None:
        """Read from standard input."""
        self._renderer, self._interactive = renderer, interactive

    def read(self, prompt: str) -> str:
        """Read one turn. Raises ``EOFError``, and ``KeyboardInterrupt`` for Ctrl-C."""
        lines = [self._line(prompt)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(_MORE))
        return "\n".join(lines)

    def _line(self, prompt: str) -> str:
        if self._interactive:
            self._renderer.end_line()
            return input(prompt)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def remember(self, texts: Iterable[str]) -> None:
        """Let the arrow keys recall these lines."""
        if not self._interactive:
            return
        try:
            import readline
        except ImportError:
            return
        readline.clear_history()
        for text in texts:
            if text.isprintable():
                readline.add_history(text)


_PROMPT: Final = "> "
_INTERRUPTED: Final = 130
_REMEMBERED: Final = 200


class Chat:
    """One conversation at the terminal."""

    def __init__(
        self, options: AgentOptions, conversation: Conversation, first: Sequence[UserPart], *, interactive: bool
    ) -> None:
        """Chat about a thread. ``first`` joins the first turn; ``interactive``: a person types at a terminal."""
        self._options, self._conversation, self._interactive = options, conversation, interactive
        self._renderer = RunRenderer()
        self._lines = PromptReader(self._renderer, interactive=interactive)
        self._attached = first
        self._usage, self._cost = Usage(), 0.0
        self._unpriced = False
        own: Mapping[str, tuple[Callable[[str], None], str]] = {
            "/undo": (self._undo, "undo the last turn"),
            "/fork": (self._fork, "[NAME]: continue on a new branch; this one stays unchanged"),
            "/model": (self._model, "[M]: show or change the model"),
            "/tools": (self._tools, "list the tools"),
            "/context": (self._context, "show what fills the model's window"),
            "/compact": (self._compact, "[TOKENS]: compact the conversation; the original stays as a branch"),
            "/cost": (self._cost_of_chat, "show the usage and cost of this chat"),
        }
        self._commands = SlashCommands(self._renderer, own)

    def go(self) -> int:
        """Chat until the user leaves. Return the exit code."""
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
                    self._conversation.set_title(line)
                    self._turn([line, *self._attached] if self._attached else line)
                    self._attached = ()
            except QuitChat:
                break
            except KeyboardInterrupt:
                self._renderer.line("stopped", "dim")
                if self._conversation.busy:  # the second one in a turn
                    self._leave()
                    raise
            except PalaverError as error:
                self._renderer.line(safe_line(str(error)), "red")
        self._leave()
        return code

    def _leave(self) -> None:
        if not self._conversation.stored or not self._conversation.thread.path():
            return
        self._renderer.command(f"continue: {safe_line(self._options.again('chat', self._conversation.address))}")

    # -- a turn ------------------------------------------------------------------------------------------------------

    def _turn(self, prompt: Input) -> None:
        asks = self._interactive and sys.stderr.isatty()
        run = self._conversation.run_with_approvals(
            prompt, self._renderer, asks=asks, steered=self._steered if self._interactive else None
        )
        self._count(run)

    def _steered(self, _line: str) -> None:
        self._renderer.line("the agent gets this at its next step", "dim")

    def _resume(self) -> None:
        """Ask at once for the decisions that an earlier process left pending."""
        if self._conversation.existed and self._has_pending():
            with suppress(KeyboardInterrupt):
                self._turn(None)

    def _has_pending(self) -> bool:
        opened = open_answer(self._conversation.thread.path())
        return opened is not None and bool(opened.recorded.pending) and self._interactive

    def _count(self, run: Run) -> None:
        self._usage += run.usage
        self._cost += run.cost or 0.0
        self._unpriced = self._unpriced or (run.cost is None and run.usage.total > 0)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """Let the arrow keys recall the prompts of this thread."""
        messages = [entry.message for entry in self._conversation.thread.path()[-_REMEMBERED:]]
        self._lines.remember(
            message.text for message in messages if isinstance(message, UserMessage) and USER_PROMPT in message.tags
        )

    def _greet(self) -> None:
        conversation = self._conversation
        where = f"thread {safe_line(conversation.address)}" if conversation.stored else "not stored"
        length = len(conversation.thread.path().messages)
        pieces = [safe_line(conversation.agent.model.name), f"{where}, {count(length, 'message')}" if length else where]
        self._renderer.command(" · ".join([*pieces, "/help"]))

    # -- commands ----------------------------------------------------------------------------------------------------

    def _undo(self, _: str) -> None:
        path = self._conversation.thread.path()
        for at in range(len(path) - 1, -1, -1):
            message = path[at].message
            if isinstance(message, UserMessage) and USER_PROMPT in message.tags:
                self._conversation.thread.rewind(path[at - 1].id if at else None)
                self._conversation.move_to()
                self._renderer.line(f"undone: {safe_line(message.text)}", "dim")
                return
        self._renderer.line("nothing to undo", "yellow")

    def _fork(self, name: str) -> None:
        thread = self._conversation.thread
        branches = thread.tree.branches
        name = name or next(free for number in counter(2) if (free := f"chat-{number}") not in branches)
        if name in branches:
            self._renderer.line(f"branch {safe_line(name)} exists already", "yellow")
            return
        self._conversation.move_to(thread.fork(name))
        self._renderer.command(f"on branch {safe_line(name)}")

    def _model(self, name: str) -> None:
        if name:
            with suppress(click.exceptions.Exit):  # choose_model has printed what to set
                self._conversation.change_model(name)
                self._options = self._options._replace(model=name)
        self._renderer.command(safe_line(self._conversation.agent.model.name))

    def _tools(self, _: str) -> None:
        tools = self._conversation.agent.toolbox.tools
        for tool in tools:
            about = (tool.definition.description or "").partition("\n")[0]
            self._renderer.line(f"{safe_line(tool.name)} ({tool.effect}): {safe_line(about)}", "dim")
        if not tools:
            self._renderer.line("none; --tools adds some", "dim")

    def _context(self, _: str) -> None:
        self._renderer.draw(context.render_contents(self._conversation.contents(), self._renderer.aside))

    def _compact(self, size: str) -> None:
        if size and not (size.isascii() and size.isdigit() and int(size)):
            self._renderer.line(f"{safe_line(size)} is not a number of tokens", "yellow")
            return
        self._renderer.line("compacting; Ctrl-C stops it", "dim")
        done = self._conversation.compact(int(size) if size else None)
        self._renderer.draw(render_compaction(done, safe_line(self._conversation.address)))

    def _cost_of_chat(self, _: str) -> None:
        usage = self._usage
        read = sum(each or 0 for each in (usage.input, usage.cache_read, usage.cache_write))
        written = (usage.output or 0) + (usage.reasoning or 0)
        price = "" if self._unpriced and not self._cost else f", ${self._cost:.4f}"
        more = " and calls of unknown price" if self._unpriced else ""
        self._renderer.line(f"{read:,} tokens in, {written:,} out{price}{more}", "dim")


@click.command(name="chat")
@agent_options.options
def command(**given: Any) -> int:
    """Chat with an agent; /help lists the commands.

    The conversation is a thread of the store; --thread continues one.
    """
    options = agent_options.parse(given)
    first = attachments(options.attachments)
    with open_conversation(options) as conversation:
        conversation.check_tools()
        return Chat(options, conversation, first, interactive=sys.stdin.isatty()).go()
