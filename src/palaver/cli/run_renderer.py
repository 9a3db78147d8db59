"""Render the events of a run or of a swarm: as text for people, or as JSON objects for ``palaver run --json``.

- The model's text goes to standard output. On a terminal everything else is shown between it, dim or coloured;
  elsewhere it goes to standard error. A call is one line, and so is its result, cut to the width.
- While a call or an answer is pending, a terminal shows a status line at the bottom with its duration.
- An answer of a swarm that differs from the streamed text (after a policy or a hook) is shown after it. With ``events``
  every event of the bus is a line, except pieces of text.
- In JSON, ``event`` is the name of the event in snake case, followed by its fields. Messages, calls and usage are in
  the canonical form. An error is its ``code`` and ``text``; a run has no messages, which earlier events carried.
- All text is sanitized for the terminal.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, structs
from rich.text import Text as Line

from palaver.cli.bus import render_event
from palaver.cli.terminal import console, count, errors, safe, safe_line
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
    from palaver.turn.approvals import ApprovalRequest
    from palaver.turn.events import AgentEvent


_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STATUS_DELAY: Final = 0.3
_SLOW: Final = 1.0
"""A result shows its duration from this number of seconds on."""
_MAX_TEXT: Final = 2_000
"""The number of characters of a value that a line shows at most."""


class SafeStream:
    """Sanitizes pieces of text, also when a line break is split between two pieces."""

    def __init__(self) -> None:
        """Start with an empty carry."""
        self._carry = ""

    def feed(self, text: str) -> str:
        """Return the text that can be shown now."""
        text = self._carry + text
        self._carry = "\r" if text.endswith("\r") else ""
        return safe(text.removesuffix(self._carry))


class RunRenderer:
    """Renders the events of runs."""

    def __init__(self, out: Console | None = None, aside: Console | None = None) -> None:
        """Render on the terminal, or on standard output and standard error."""
        self.out = out or console()
        self.aside = aside or (self.out if self.out.is_terminal else errors())
        self._has_status = self.aside.is_terminal and not self.aside.is_dumb_terminal
        self._open: Console | None = None
        self._text_shown = False
        self._streamed = SafeStream()
        self._pending: dict[str, str] = {}
        self._since = monotonic()
        self._status_shown = False
        self._finished_calls: set[str] = set()
        self._reported: set[str] = set()
        self._handlers: Mapping[type[Any], Callable[[Any], None]] = {
            events.IterationStarted: self._on_iteration,
            events.TextDelta: self._on_text,
            events.ReasoningDelta: self._on_reasoning,
            events.MessageAdded: self._on_message,
            events.Lost: self._on_lost,
            events.ContextCompacted: self._on_compacted,
            events.Retrying: self._on_retry,
            events.ToolStarted: self._on_tool_started,
            events.ToolProgress: self._on_tool_progress,
            events.ToolFinished: self._on_tool_finished,
            events.ApprovalGiven: self._on_approval,
            events.Warned: self._on_warning,
            events.CallRefused: self._on_refused,
            events.SubagentEvent: self._on_subagent,
        }

    def show(self, event: events.AgentEvent) -> None:
        """Render an event."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    # -- lines -------------------------------------------------------------------------------------------------------

    def line(self, line: Line | str, style: str = "") -> None:
        """Print a line aside, cut to the width."""
        self.end_line()
        text = Line(line, style) if isinstance(line, str) else line
        if self.aside.is_terminal:
            self.aside.print(text, no_wrap=True, overflow="ellipsis")
        else:
            self.aside.print(text, soft_wrap=True)

    def wrapped(self, text: str) -> None:
        """Print a text aside, in as many lines as the width of a terminal needs."""
        self.end_line()
        self.aside.print(Line(text, "dim"), soft_wrap=not self.aside.is_terminal)

    def command(self, text: str) -> None:
        """Print a line that can be copied, such as the next command. It is never cut."""
        self.end_line()
        self.aside.print(Line(text, "dim"), soft_wrap=True)

    def draw(self, renderables: Iterable[RenderableType]) -> None:
        """Print renderables aside."""
        self.end_line()
        for each in renderables:
            self.aside.print(each, crop=False)

    def end_line(self) -> None:
        """End the open line, and remove the status line."""
        self._clear()
        if self._open is not None:
            self._open.print()
            self._open = None

    def _piece(self, to: Console, text: str, style: str) -> None:
        safe_text = self._streamed.feed(text)
        if not safe_text:
            return
        self._clear()
        if self._open is not to or self._style != style:
            self.end_line()
            safe_text = safe_text.lstrip("\n")
            if not safe_text:
                return
        self._style = style
        if to.is_terminal:
            to.print(Line(safe_text, style), end="", soft_wrap=True)
        else:
            to.file.write(safe_text)
            to.file.flush()
        self._open = to if not safe_text.endswith("\n") else None

    _style = ""

    def tick(self) -> None:
        """Draw the status line. Call this several times a second."""
        elapsed = monotonic() - self._since
        if not (self._has_status and self._pending and self._open is None and elapsed > _STATUS_DELAY):
            return
        frame = _FRAMES[int(elapsed * 10) % len(_FRAMES)]
        what = ", ".join(self._pending.values())
        text = f"{frame} {what} · {elapsed:.0f} s"[: max(self.aside.width - 1, 1)]
        text = safe_line(text)
        self.aside.file.write(f"\r\x1b[2K\x1b[2m{text}\x1b[0m" if not self.aside.no_color else f"\r\x1b[2K{text}")
        self.aside.file.flush()
        self._status_shown = True

    def _clear(self) -> None:
        if self._status_shown:
            self.aside.file.write("\r\x1b[2K")
            self.aside.file.flush()
            self._status_shown = False

    def _wait(self, key: str, what: str) -> None:
        if not self._pending:
            self._since = monotonic()
        self._pending[key] = what

    # -- events ------------------------------------------------------------------------------------------------------

    def _on_iteration(self, event: events.IterationStarted) -> None:
        self._text_shown = False
        self._wait("", "the model")
        if event.final:
            self.line("the last answer, without tools", "dim")

    def _on_text(self, event: events.TextDelta) -> None:
        self._pending.pop("", None)
        self._text_shown = True
        self._piece(self.out, event.text, "")

    def _on_reasoning(self, event: events.ReasoningDelta) -> None:
        self._pending.pop("", None)
        self._piece(self.aside, event.text, "dim italic")

    def _on_message(self, event: events.MessageAdded) -> None:
        message = event.message
        if isinstance(message, AssistantMessage):
            self._pending.pop("", None)
            if message.text and not self._text_shown:
                self._piece(self.out, message.text, "")
            for part in message.content:
                if isinstance(part, Refusal):
                    self.line(Line.assemble(("refused: ", "bold red"), safe_line(part.text)))
            self.end_line()
        elif isinstance(message, ToolMessage) and message.tool_call_id not in self._finished_calls:
            self._result(message.tool_name or "result", message, 0.0)

    def _on_lost(self, event: events.Lost) -> None:
        for text in [f"{safe_line(event.model)} is not sent as it is: {safe_line(str(loss))}" for loss in event.losses]:
            if text not in self._reported:  # a loss is reported once in a conversation
                self._reported.add(text)
                self.line(text, "dim")

    def _on_compacted(self, event: events.ContextCompacted) -> None:
        if event.changes:
            stages = ", ".join(safe_line(each.stage) for each in event.changes)
            size = f"{event.before:,} → {event.after:,} of {event.capacity:,} tokens"
            self.line(f"context compacted: {size} ({stages})", "dim")
        for failure in event.failures:
            self.line(f"compaction, {safe_line(failure.stage)}: {safe_line(str(failure.error))}", "yellow")

    def _on_retry(self, event: events.Retrying) -> None:
        then = "the next model is asked" if event.fallback else f"again in {event.wait:.1f} s"
        self.line(f"{safe_line(event.model)}: {safe_line(str(event.error))}; {then}", "yellow")

    def _on_tool_started(self, event: events.ToolStarted) -> None:
        self.line(call_line(event.call))
        self._wait(event.call.id, safe_line(event.tool))

    def _on_tool_progress(self, event: events.ToolProgress) -> None:
        self.line(f"  … {safe_line(_text(event.value))}", "dim")

    def _on_tool_finished(self, event: events.ToolFinished) -> None:
        self._pending.pop(event.call.id, None)
        self._finished_calls.add(event.call.id)
        self._result(event.call.name, event.message, event.seconds)

    def _result(self, name: str, message: ToolMessage, seconds: float) -> None:
        mark, style = ("✗ ", "red") if message.is_error else ("← ", "green")
        line = Line.assemble((mark, style), (safe_line(name), style), " ", safe_line(result_text(message)))
        if seconds >= _SLOW:
            line.append(f" · {seconds:.0f} s", "dim")
        self.line(line)

    def _on_approval(self, event: events.ApprovalGiven) -> None:
        self.line(f"{safe_line(event.call.name)}: {event.decision.kind}", "dim")

    def _on_refused(self, event: events.CallRefused) -> None:
        self.line(safe_line(f"refused: {event.call.name or 'a call'}: {event.call.reason}"), "yellow")

    def _on_warning(self, event: events.Warned) -> None:
        self.line(safe_line(event.text), "yellow")

    def _on_subagent(self, event: events.SubagentEvent) -> None:
        inner = event.event
        if isinstance(inner, events.ToolStarted):
            self.line(Line.assemble((f"  {safe_line(inner.agent)} ", "dim"), call_line(inner.call)))
        elif isinstance(inner, events.MessageAdded) and isinstance(inner.message, AssistantMessage):
            if inner.message.text:
                self.line(f"  {safe_line(inner.agent)}: {safe_line(inner.message.text[:_MAX_TEXT])}", "dim")
        elif isinstance(inner, events.SubagentEvent):
            self._on_subagent(inner)

    def finish(self, run: Run, thread: str | None) -> None:
        """Print how a run ended, its usage, and its thread, if it is stored."""
        self._pending.clear()
        self.end_line()
        if run.outcome in {"completed", "waiting", "cancelled"}:
            pieces: list[str] = [] if run.outcome == "completed" else [run.outcome]
        else:
            outcome, why = end_of(run)
            self.line(Line.assemble((outcome, "bold red"), f": {why}" if why else ""))
            pieces = []
        pieces += [] if thread is None else [f"thread {safe_line(thread)}"]
        pieces += [count(run.iterations, "step"), *_used(run), f"{run.seconds:.1f} s"]
        self.command("■ " + " · ".join(pieces))


def end_of(run: Run) -> tuple[str, str]:
    """Return the outcome of a run in words, and its reason, which may be empty, on one line."""
    return run.outcome.replace("_", " "), safe_line(run.reason or (str(run.error) if run.error else ""))


def _used(run: Run) -> list[str]:
    usage = run.usage
    read = sum(each or 0 for each in (usage.input, usage.cache_read, usage.cache_write))
    written = (usage.output or 0) + (usage.reasoning or 0)
    parts = [f"{number:,} {word}" for number, word in ((read, "in"), (written, "out")) if number]
    return parts if run.cost is None else [*parts, f"${run.cost:.4f}"]


def call_line(call: ToolCall) -> Line:
    """Return a call on one line."""
    try:
        arguments: Mapping[str, Any] = {} if call.custom else call.arguments
        text = ", ".join(f"{key}: {_text(value)}" for key, value in arguments.items())
    except ArgumentsError:
        text = call.arguments_json
    if call.custom:
        text = call.arguments_json
    return Line.assemble(("→ ", "yellow"), (safe_line(call.name), "bold yellow"), f"({safe_line(text[:_MAX_TEXT])})")


def _text(value: object) -> str:
    return value[:_MAX_TEXT] if isinstance(value, str) else jsontext.encode(value).decode()[:_MAX_TEXT]


def result_text(message: ToolMessage) -> str:
    """Return the text of a result, shortened. Other parts are named by their type."""
    texts = [
        part.text
        if isinstance(part, Text)
        else bytes(part.value_json).decode()
        if isinstance(part, Json)
        else f"[{type(part).__name__.lower()}]"
        for part in message.content
    ]
    return " ".join(texts)[:_MAX_TEXT]


class SwarmRenderer(RunRenderer):
    """Renders the events of one client's turns."""

    def __init__(self, *, events: bool = False) -> None:
        """Render on the terminal, or on standard output and standard error."""
        super().__init__()
        self._show_events = events
        self._speaker = ""
        self._streamed_text = ""
        self._error = ""

    def begin(self, agent: str) -> None:
        """Start a turn of an agent."""
        self._speaker = self._streamed_text = self._error = ""
        self._wait("", safe_line(agent))

    def on_event(self, event: Event) -> None:
        """Render an event of the bus."""
        if event.source == "agent" and event.type == "delta":
            self._on_agent_text(event.agent or "", str(event.output.get("text", "")))
            return
        if self._show_events:
            line = render_event(event)
            line.stylize("dim")
            self.line(line)
        match event.source, event.type:
            case "history", "push":
                self._on_push(event.input.get("message"))
            case "swarm", "set-agent-name":
                name = safe_line(str(event.input.get("agentName", "")))
                self._streamed_text = ""
                self.line(f"⇒ {name}", "dim")
                self._wait("", name)
            case "agent", "error":
                self._error = str(event.output.get("error", ""))
                self.line(safe_line(self._error), "yellow")
            case _:
                pass

    def answer(self, agent: str, text: str) -> None:
        """Render the answer of a turn, by the agent that is active now."""
        self._pending.clear()
        if not text:
            self.line("no answer", "dim")
        elif text.strip() != self._streamed_text.strip():
            self._show_speaker(agent)
            self._piece(self.out, text, "")
        self.end_line()

    def waits(self, requests: Iterable[ApprovalRequest]) -> None:
        """Render the calls that a turn waits for."""
        self._pending.clear()
        for each in requests:
            self.line(f"{safe_line(each.tool)} waits for a decision: {safe_line(each.call.id)}", "yellow")
        self.end_line()

    def failed(self, error: Exception) -> None:
        """Render the error of a turn."""
        self._pending.clear()
        if f"{type(error).__name__}: {error}" != self._error:
            self.line(safe_line(str(error) or type(error).__name__), "red")
        self.end_line()

    def stopped(self) -> None:
        """Render that a turn was cancelled."""
        self._pending.clear()
        self.line("stopped", "dim")

    def logged(self, message: Message) -> None:
        """Render a message of the log."""
        who = message.role if message.agent is None else f"{message.role} ({safe_line(message.agent)})"
        tags = "".join(f" #{safe_line(tag)}" for tag in message.tags or ())
        text = message.reason if isinstance(message, RescueMarker | FlushMarker) else message.text
        self.line(Line.assemble((f"{who}{tags}: ", "bold"), (safe_line(text), "")))
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                self.line(Line.assemble("  ", call_line(call)))

    # -- parts -------------------------------------------------------------------------------------------------------

    def _show_speaker(self, agent: str) -> None:
        """Print the agent's name when the speaker changes."""
        self._pending.pop("", None)
        if agent != self._speaker:
            self._speaker = agent
            self.line(safe_line(agent), "bold green")

    def _on_agent_text(self, agent: str, text: str) -> None:
        self._show_speaker(agent)
        self._streamed_text += text
        self._piece(self.out, text, "")

    def _on_push(self, message: object) -> None:
        match message:
            case AssistantMessage() if message.tool_calls:
                self._streamed_text = ""
                for call in message.tool_calls:
                    line = call_line(call)
                    line.stylize("dim")
                    self.line(line)
                    self._wait(call.id, safe_line(call.name))
            case AssistantMessage() if DISCARDED in (message.tags or ()):
                if message.text.strip():  # a rescued message may be empty
                    self.line(f"not shown: {safe_line(message.text)}", "dim")
            case ToolMessage():
                self._pending.pop(message.tool_call_id or "", None)
                self._result(message.tool_name or "result", message, 0.0)
            case RescueMarker():
                self.line(f"rescued: {safe_line(message.reason)}", "yellow")
            case FlushMarker():
                self.line("earlier messages are hidden", "dim")
            case _:
                pass


_RUN = ("id", "outcome", "reason", "error", "branch", "text", "usage", "cost", "iterations", "seconds", "pending")


def as_json(event: AgentEvent) -> dict[str, Any]:
    """Return an event as a JSON object."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
    return {"event": name, **_fields(event)}


def _fields(value: Struct) -> dict[str, Any]:
    """Return the fields that are set, as JSON."""
    return {field: _plain(each) for field, each in structs.asdict(value).items() if each is not UNSET}


def _plain(value: object) -> Any:
    if isinstance(value, Run):
        run: Run[Any] = _any(value)
        fields = {name: _plain(getattr(run, name)) for name in _RUN}
        return {"thread": run.thread.id, "leaf": run.leaf, **fields}
    if isinstance(value, Record):
        return Raw(canonical.encode(value))
    if isinstance(value, Exception):
        code = value.error_code if isinstance(value, PalaverError) else type(value).__name__
        return {"code": code, "text": str(value)}
    if isinstance(value, Struct):
        return _fields(value)
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
    """Return the value as ``Any``."""
    return value
