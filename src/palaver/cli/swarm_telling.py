"""What the events of a swarm say to a person who talks with it.

Rules:

- What an agent says goes to standard output; who says it, hand-overs, calls and their results stand aside as lines.
- Text is shown as it comes where the agent streams. An answer that is not what was streamed (a policy refused it, a
  hook changed it) is shown after it.
- With ``events`` each event of the bus is a line too, but for pieces of text.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text as Line

from palaver.cli.bus import drawn
from palaver.cli.harmless import in_line
from palaver.cli.telling import Teller, called
from palaver.core.messages import AssistantMessage, FlushMarker, Message, RescueMarker, ToolMessage
from palaver.threads.view import DISCARDED

if TYPE_CHECKING:
    from palaver.swarm.events import Event


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
