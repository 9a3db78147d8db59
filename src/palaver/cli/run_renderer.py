"""What a run says, as it says it, for people.

Rules:

- What the model says goes to standard output. On a terminal everything else stands between it, dim or coloured; where
  standard output is no terminal, everything else goes to standard error.
- A call is a line, and so is its result, cut to the width. While something is waited for, a line at the bottom says
  what, and for how long; it is drawn on a terminal only, and gone when anything is said.
- Nothing that a model, a tool or a file says can steer the terminal.

What the events of a swarm say to a person who talks with it.

Rules:

- What an agent says goes to standard output; who says it, hand-overs, calls and their results stand aside as lines.
- Text is shown as it comes where the agent streams. An answer that is not what was streamed (a policy refused it, a
  hook changed it) is shown after it.
- With ``events`` each event of the bus is a line too, but for pieces of text.

Events of a run as JSON objects, for ``palaver run --json``.

Rules:

- ``event`` is the name of the event, as words with underscores; its fields follow by their names. Messages, calls and
  usage are in the canonical form. An error is its ``code`` and ``text``; a run is what one would ask it for, without
  its messages, which the events before have told.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct, structs
from rich.text import Text as Line

from palaver.cli.bus import drawn
from palaver.cli.terminal import console, count, errors, in_line, safe
from palaver.core import canonical, jsontext
from palaver.core.errors import ArgumentsError, PalaverError
from palaver.core.messages import AssistantMessage, FlushMarker, Message, RescueMarker, ToolMessage
from palaver.core.parts import Json, Refusal, Text, ToolCall
from palaver.core.value import Record
from palaver.threads.view import DISCARDED
from palaver.turn import events
from palaver.turn.run import Run

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from palaver.swarm.events import Event
    from palaver.turn.events import AgentEvent


# --- telling ----------------------------------------------------------------------------------------------------------


_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PATIENCE: Final = 0.3
_LONG: Final = 1.0
"""Seconds from which on it is said how long a tool took."""
_MOST: Final = 2_000
"""Characters of a value that are looked at for a line."""


class Streamed:
    """Makes pieces of text harmless, also where a line break stands across two of them."""

    def __init__(self) -> None:
        """Hold nothing back yet."""
        self._held = ""

    def feed(self, text: str) -> str:
        """What can be shown now."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        return safe(text.removesuffix(self._held))


class Teller:
    """Tells the events of runs."""

    def __init__(self, out: Console | None = None, aside: Console | None = None) -> None:
        """Tell on the terminal, or on standard output and standard error."""
        self.out = out or console()
        self.aside = aside or (self.out if self.out.is_terminal else errors())
        self._spins = self.aside.is_terminal and not self.aside.is_dumb_terminal
        self._open: Console | None = None
        self._spoken = False
        self._streamed = Streamed()
        self._waits: dict[str, str] = {}
        self._since = monotonic()
        self._drawn = False
        self._answered: set[str] = set()
        self._told: set[str] = set()
        self._does: Mapping[type[Any], Callable[[Any], None]] = {
            events.IterationStarted: self._asks,
            events.TextDelta: self._says,
            events.ReasoningDelta: self._thinks,
            events.MessageAdded: self._added,
            events.Lost: self._lost,
            events.ContextCompacted: self._compacted,
            events.Retrying: self._retries,
            events.ToolStarted: self._begins,
            events.ToolProgress: self._progresses,
            events.ToolFinished: self._ends,
            events.ApprovalGiven: self._decided,
            events.Warned: self._warned,
            events.CallRefused: self._refused,
            events.SubagentEvent: self._inner,
        }

    def show(self, event: events.AgentEvent) -> None:
        """Tell an event."""
        does = self._does.get(type(event))
        if does is not None:
            does(event)

    # -- lines -------------------------------------------------------------------------------------------------------

    def line(self, line: Line | str, style: str = "") -> None:
        """Say something aside, on a line of its own, cut to the width."""
        self.rest()
        said = Line(line, style) if isinstance(line, str) else line
        if self.aside.is_terminal:
            self.aside.print(said, no_wrap=True, overflow="ellipsis")
        else:
            self.aside.print(said, soft_wrap=True)

    def command(self, text: str) -> None:
        """Say on a line of its own what can be typed next. It is never cut, so that it can be copied whole."""
        self.rest()
        self.aside.print(Line(text, "dim"), soft_wrap=True)

    def draw(self, drawn: Iterable[RenderableType]) -> None:
        """Draw something aside."""
        self.rest()
        for each in drawn:
            self.aside.print(each)

    def rest(self) -> None:
        """End the line that is open, and take away the one at the bottom."""
        self._clear()
        if self._open is not None:
            self._open.print()
            self._open = None

    def _piece(self, to: Console, text: str, style: str) -> None:
        shown = self._streamed.feed(text)
        if not shown:
            return
        self._clear()
        if self._open is not to or self._style != style:
            self.rest()
            shown = shown.lstrip("\n")
            if not shown:
                return
        self._style = style
        if to.is_terminal:
            to.print(Line(shown, style), end="", soft_wrap=True)
        else:
            to.file.write(shown)
            to.file.flush()
        self._open = to if not shown.endswith("\n") else None

    _style = ""

    # -- the line at the bottom ----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Say what is waited for; call it some times a second."""
        waited = monotonic() - self._since
        if not (self._spins and self._waits and self._open is None and waited > _PATIENCE):
            return
        frame = _FRAMES[int(waited * 10) % len(_FRAMES)]
        what = ", ".join(self._waits.values())
        text = f"{frame} {what} · {waited:.0f} s"[: max(self.aside.width - 1, 1)]
        text = in_line(text)
        self.aside.file.write(f"\r\x1b[2K\x1b[2m{text}\x1b[0m" if not self.aside.no_color else f"\r\x1b[2K{text}")
        self.aside.file.flush()
        self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            self.aside.file.write("\r\x1b[2K")
            self.aside.file.flush()
            self._drawn = False

    def _wait(self, key: str, what: str) -> None:
        if not self._waits:
            self._since = monotonic()
        self._waits[key] = what

    # -- events ------------------------------------------------------------------------------------------------------

    def _asks(self, event: events.IterationStarted) -> None:
        self._spoken = False
        self._wait("", "the model")
        if event.final:
            self.line("the last answer, without tools", "dim")

    def _says(self, event: events.TextDelta) -> None:
        self._waits.pop("", None)
        self._spoken = True
        self._piece(self.out, event.text, "")

    def _thinks(self, event: events.ReasoningDelta) -> None:
        self._waits.pop("", None)
        self._piece(self.aside, event.text, "dim italic")

    def _added(self, event: events.MessageAdded) -> None:
        message = event.message
        if isinstance(message, AssistantMessage):
            self._waits.pop("", None)
            if message.text and not self._spoken:
                self._piece(self.out, message.text, "")
            for part in message.content:
                if isinstance(part, Refusal):
                    self.line(Line.assemble(("refused: ", "bold red"), in_line(part.text)))
            self.rest()
        elif isinstance(message, ToolMessage) and message.tool_call_id not in self._answered:
            self._result(message.tool_name or "result", message, 0.0)

    def _lost(self, event: events.Lost) -> None:
        for text in [f"{in_line(event.model)} is not sent as it is: {in_line(str(loss))}" for loss in event.losses]:
            if text not in self._told:  # a receipt is told once in a conversation
                self._told.add(text)
                self.line(text, "dim")

    def _compacted(self, event: events.ContextCompacted) -> None:
        if event.changes:
            stages = ", ".join(in_line(each.stage) for each in event.changes)
            size = f"{event.before:,} → {event.after:,} of {event.capacity:,} tokens"
            self.line(f"context compacted: {size} ({stages})", "dim")
        for failure in event.failures:
            self.line(f"compaction, {in_line(failure.stage)}: {in_line(str(failure.error))}", "yellow")

    def _retries(self, event: events.Retrying) -> None:
        then = "the next model is asked" if event.fallback else f"again in {event.wait:.1f} s"
        self.line(f"{in_line(event.model)}: {in_line(str(event.error))}; {then}", "yellow")

    def _begins(self, event: events.ToolStarted) -> None:
        self.line(called(event.call))
        self._wait(event.call.id, in_line(event.tool))

    def _progresses(self, event: events.ToolProgress) -> None:
        self.line(f"  … {in_line(_text(event.value))}", "dim")

    def _ends(self, event: events.ToolFinished) -> None:
        self._waits.pop(event.call.id, None)
        self._answered.add(event.call.id)
        self._result(event.call.name, event.message, event.seconds)

    def _result(self, name: str, message: ToolMessage, seconds: float) -> None:
        mark, style = ("✗ ", "red") if message.is_error else ("← ", "green")
        line = Line.assemble((mark, style), (in_line(name), style), " ", in_line(result_text(message)))
        if seconds >= _LONG:
            line.append(f" · {seconds:.0f} s", "dim")
        self.line(line)

    def _decided(self, event: events.ApprovalGiven) -> None:
        self.line(f"{in_line(event.call.name)}: {event.decision.kind}", "dim")

    def _refused(self, event: events.CallRefused) -> None:
        self.line(in_line(f"refused: {event.call.name or 'a call'}: {event.call.reason}"), "yellow")

    def _warned(self, event: events.Warned) -> None:
        self.line(in_line(event.text), "yellow")

    def _inner(self, event: events.SubagentEvent) -> None:
        inner = event.event
        if isinstance(inner, events.ToolStarted):
            self.line(Line.assemble((f"  {in_line(inner.agent)} ", "dim"), called(inner.call)))
        elif isinstance(inner, events.MessageAdded) and isinstance(inner.message, AssistantMessage):
            if inner.message.text:
                self.line(f"  {in_line(inner.agent)}: {in_line(inner.message.text[:_MOST])}", "dim")
        elif isinstance(inner, events.SubagentEvent):
            self._inner(inner)

    def over(self, run: Run, thread: str) -> None:
        """Say how a run ended, what it used, and where it is kept."""
        self._waits.clear()
        self.rest()
        if run.outcome in {"completed", "waiting", "cancelled"}:
            pieces: list[str] = [] if run.outcome == "completed" else [run.outcome]
        else:
            why = run.reason or (str(run.error) if run.error else "")
            self.line(Line.assemble((f"{run.outcome.replace('_', ' ')}: ", "bold red"), in_line(why)))
            pieces = []
        pieces += [f"thread {in_line(thread)}", count(run.iterations, "step"), *_used(run), f"{run.seconds:.1f} s"]
        self.command("■ " + " · ".join(pieces))


def _used(run: Run) -> list[str]:
    usage = run.usage
    read = sum(each or 0 for each in (usage.input, usage.cache_read, usage.cache_write))
    written = (usage.output or 0) + (usage.reasoning or 0)
    told = [f"{number:,} {word}" for number, word in ((read, "in"), (written, "out")) if number]
    return told if run.cost is None else [*told, f"${run.cost:.4f}"]


def called(call: ToolCall) -> Line:
    """A call on one line."""
    try:
        given: Mapping[str, Any] = {} if call.custom else call.arguments
        text = ", ".join(f"{key}: {_text(value)}" for key, value in given.items())
    except ArgumentsError:
        text = call.arguments_json
    if call.custom:
        text = call.arguments_json
    return Line.assemble(("→ ", "yellow"), (in_line(call.name), "bold yellow"), f"({in_line(text[:_MOST])})")


def _text(value: object) -> str:
    return value[:_MOST] if isinstance(value, str) else jsontext.encode(value).decode()[:_MOST]


def result_text(message: ToolMessage) -> str:
    """What a result says, shortened; what is no text is named."""
    said = [
        part.text
        if isinstance(part, Text)
        else bytes(part.value_json).decode()
        if isinstance(part, Json)
        else f"[{type(part).__name__.lower()}]"
        for part in message.content
    ]
    return " ".join(said)[:_MOST]


# --- swarm telling ----------------------------------------------------------------------------------------------------


class SwarmTeller(Teller):
    """Tells what happens in one client's turns."""

    def __init__(self, *, events: bool = False) -> None:
        """Tell on the terminal, or on standard output and standard error."""
        super().__init__()
        self._all = events
        self._speaker = ""
        self._streamed_text = ""
        self._error = ""

    def begin(self, agent: str) -> None:
        """A turn begins, and an agent is asked."""
        self._speaker = self._streamed_text = self._error = ""
        self._wait("", in_line(agent))

    def hear(self, event: Event) -> None:
        """Tell an event of the bus."""
        if event.source == "agent" and event.type == "delta":
            self._heard_text(event.agent or "", str(event.output.get("text", "")))
            return
        if self._all:
            line = drawn(event)
            line.stylize("dim")
            self.line(line)
        match event.source, event.type:
            case "history", "push":
                self._pushed(event.input.get("message"))
            case "swarm", "set-agent-name":
                name = in_line(str(event.input.get("agentName", "")))
                self._streamed_text = ""
                self.line(f"⇒ {name}", "dim")
                self._wait("", name)
            case "agent", "error":
                self._error = str(event.output.get("error", ""))
                self.line(in_line(self._error), "yellow")
            case _:
                pass

    def answer(self, agent: str, text: str) -> None:
        """A turn was answered, by the agent that is active now."""
        self._waits.clear()
        if not text:
            self.line("no answer", "dim")
        elif text.strip() != self._streamed_text.strip():
            self._speaks(agent)
            self._piece(self.out, text, "")
        self.rest()

    def failed(self, error: Exception) -> None:
        """A turn came to no answer."""
        self._waits.clear()
        if f"{type(error).__name__}: {error}" != self._error:
            self.line(in_line(str(error) or type(error).__name__), "red")
        self.rest()

    def stopped(self) -> None:
        """A turn was cancelled."""
        self._waits.clear()
        self.line("stopped", "dim")

    def logged(self, message: Message) -> None:
        """Tell a message of the log."""
        who = message.role if message.agent is None else f"{message.role} ({in_line(message.agent)})"
        tags = "".join(f" #{in_line(tag)}" for tag in message.tags or ())
        text = message.reason if isinstance(message, RescueMarker | FlushMarker) else message.text
        self.line(Line.assemble((f"{who}{tags}: ", "bold"), (in_line(text), "")))
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                self.line(Line.assemble("  ", called(call)))

    # -- parts -------------------------------------------------------------------------------------------------------

    def _speaks(self, agent: str) -> None:
        """Say who speaks, where it is somebody else."""
        self._waits.pop("", None)
        if agent != self._speaker:
            self._speaker = agent
            self.line(in_line(agent), "bold green")

    def _heard_text(self, agent: str, text: str) -> None:
        self._speaks(agent)
        self._streamed_text += text
        self._piece(self.out, text, "")

    def _pushed(self, message: object) -> None:
        match message:
            case AssistantMessage() if message.tool_calls:
                self._streamed_text = ""
                for call in message.tool_calls:
                    line = called(call)
                    line.stylize("dim")
                    self.line(line)
                    self._wait(call.id, in_line(call.name))
            case AssistantMessage() if DISCARDED in (message.tags or ()):
                if message.text.strip():  # nothing is told by what it was rescued from
                    self.line(f"not shown: {in_line(message.text)}", "dim")
            case ToolMessage():
                self._waits.pop(message.tool_call_id or "", None)
                self._result(message.tool_name or "result", message, 0.0)
            case RescueMarker():
                self.line(f"rescued: {in_line(message.reason)}", "yellow")
            case FlushMarker():
                self.line("what was said before is hidden", "dim")
            case _:
                pass


# --- event json -------------------------------------------------------------------------------------------------------


_RUN = ("id", "outcome", "reason", "error", "branch", "text", "usage", "cost", "iterations", "seconds", "pending")


def as_json(event: AgentEvent) -> dict[str, Any]:
    """One event."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
    return {"event": name, **{field: _plain(value) for field, value in structs.asdict(event).items()}}


def _plain(value: object) -> Any:
    if isinstance(value, Run):
        run: Run[Any] = _any(value)
        told = {name: _plain(getattr(run, name)) for name in _RUN}
        return {"thread": run.thread.id, "leaf": run.leaf, **told}
    if isinstance(value, Record):
        return Raw(canonical.encode(value))
    if isinstance(value, Exception):
        code = value.error_code if isinstance(value, PalaverError) else type(value).__name__
        return {"code": code, "text": str(value)}
    if isinstance(value, Struct):
        return {field: _plain(each) for field, each in structs.asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in _any(value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_plain(each) for each in _any(value)]
    try:
        jsontext.encode(value)
    except (PalaverError, msgspec.MsgspecError, TypeError):
        return repr(value)
    return value


def _any(value: Any) -> Any:
    """The same; what is in it may be anything."""
    return value
