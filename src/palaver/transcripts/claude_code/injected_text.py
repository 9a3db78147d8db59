"""Text in a session that the user did not type: wrappers in prompts, attachments, steering.

Rules (docs/spec/dialects.md#2):

- A text block with only wrappers of the program, of a hook or an editor is not the user's, even if the same record has
  typed text: that record is then several messages, those of the program with a ``source``. A wrapper inside typed text
  stays in place.
- An attachment of a kind for the model is a user message with its kind as ``source``; its text is the content of the
  attachment, without the sentence that the program adds when it sends it. Every other attachment is a link of the
  chain.
- A ``queued_command`` was typed while the model worked; so was a text that left the queue by ``remove``. Programs write
  one of the two or both: the second one with the same text adds nothing.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Raw, structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.messages import Message, UserMessage
from palaver.core.parts import Text
from palaver.transcripts.claude_code.shapes import WIRE
from palaver.transcripts.fields import either, string

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.jsontext import Fields
    from palaver.core.parts import AnyPart

_WRAPPERS: Final = (
    "system-reminder",
    "ide_opened_file",
    "ide_selection",
    "ide_diagnostics",
    "local-command-caveat",
    "local-command-stdout",
    "local-command-stderr",
    "session-start-hook",
    "user-prompt-submit-hook",
    "user-memory-input",
    "task-notification",
)
_TELLING: Final = {
    "hook_additional_context": ("content",),
    "hook_blocking_error": ("blockingError",),
    "hook_success": ("content",),
    "hook_stopped_continuation": ("message",),
    "file": ("content",),
    "directory": ("content",),
    "edited_text_file": ("snippet",),
    "nested_memory": ("content",),
    "selected_lines_in_ide": ("content",),
    "opened_file_in_ide": ("filename",),
    "todo_reminder": ("content",),
    "task_reminder": ("content",),
    "skill_listing": ("content",),
    "invoked_skills": ("skills",),
    "plan_file_reference": ("planContent",),
    "compact_file_reference": ("filename",),
    "mcp_resource": ("content",),
    "critical_system_reminder": ("content",),
    "date_change": ("newDate",),
    "deferred_tools_delta": ("addedLines", "addedNames"),
    "agent_listing_delta": ("addedLines",),
    "mcp_instructions_delta": ("addedBlocks",),
}
"""The attachments for the model, and the keys of their text."""

_SILENT: Final = frozenset(
    (
        "queued_command", "hook_non_blocking_error", "hook_error_during_execution", "hook_cancelled",
        "hook_permission_decision", "hook_system_message", "async_hook_response", "command_permissions", "plan_mode",
        "plan_mode_exit", "plan_mode_reentry", "auto_mode", "auto_mode_exit", "output_style", "task_status",
        "goal_status", "max_turns_reached", "structured_output", "total_tokens_reminder", "diagnostics",
        "ultra_effort_enter", "ultra_effort_exit",
    )
)  # fmt: skip
"""The known attachments without text for the model."""

_HEARD: Final = frozenset(("SessionStart", "UserPromptSubmit"))
"""The events whose hook output the model gets."""

_INNER: Final = ("blockingError", "content", "text", "subject", "file", "snippet")
_REMEMBERED: Final = 64


def source_of(text: str) -> str | None:
    """Return the wrapper that encloses a whole text; of several, the first; else ``None``."""
    first: str | None = None
    rest = text.strip()
    while rest:
        name = next((each for each in _WRAPPERS if rest.startswith(f"<{each}>")), None)
        end = -1 if name is None else rest.find(f"</{name}>")
        if name is None or end < 0:
            return None
        first = first or name
        rest = rest[end + len(name) + 3 :].lstrip()
    return first


def parted(message: Message, source: str | None) -> Iterator[Message]:
    """Yield a message of a record, split where typed and added text are side by side."""
    if not isinstance(message, UserMessage):
        yield message
        return
    runs = [(name, tuple(run)) for name, run in groupby(message.content, _source)]
    if len(runs) < 2:  # noqa: PLR2004 (one run is the message as it is)
        name = runs[0][0] if runs else None
        yield structs.replace(message, source=name or source)
        return
    for place, (name, run) in enumerate(runs):
        stored = message.provider_json if place == 0 else UNSET
        yield structs.replace(message, content=run, source=name or source, provider_json=stored)


def _source(part: AnyPart) -> str | None:
    return source_of(part.text) if isinstance(part, Text) else None


class Attachments:
    """Reads attachments and the queue of a session, in order."""

    def __init__(self) -> None:
        """Start before the first record."""
        self._wire = wires.get(WIRE)
        self._queue: deque[str] = deque(maxlen=_REMEMBERED)
        self._attached: deque[str] = deque(maxlen=_REMEMBERED)
        self._removed: deque[str] = deque(maxlen=_REMEMBERED)

    def knows(self, fields: Fields) -> bool:
        """Return whether the kind of an attachment is known."""
        kind = string(fields, "type")
        return kind in _TELLING or kind in _SILENT

    def told(self, fields: Fields, sent_at: int | None) -> list[Message]:
        """Return the messages of an attachment; empty for none. Raises ``DecodeError``."""
        kind = string(fields, "type") or ""
        if kind == "queued_command":
            return self._command(fields, sent_at)
        if kind == "hook_success" and string(fields, "hookEvent") not in _HEARD:
            return []
        keys = [key for key in _TELLING.get(kind, ()) if key in fields]
        text = next((said for key in keys if (said := _said(fields[key], key))), "")
        return [trusted.UserMessage(content=(trusted.Text(text),), source=kind, sent_at=sent_at)] if text else []

    def queued(self, fields: Fields, sent_at: int | None) -> list[Message]:
        """Return the messages of an operation on the queue; empty for none."""
        content = string(fields, "content")
        match string(fields, "operation"):
            case "enqueue" if content is not None:
                self._queue.append(content)
            case "dequeue" if self._queue:
                self._queue.popleft()
            case "popAll":
                self._queue.clear()
            case "remove":
                if content is None and len(self._queue) == 1:
                    content = self._queue[0]
                if content is not None and content in self._queue:
                    self._queue.remove(content)
                if content is not None and source_of(content) is None and not _again(self._attached, content):
                    self._removed.append(content)
                    return [trusted.UserMessage(content=(trusted.Text(content),), sent_at=sent_at)]
            case _:
                pass
        return []

    def _command(self, fields: Fields, sent_at: int | None) -> list[Message]:
        prompt = fields.get("prompt", jsontext.NULL)
        if either(prompt, "prompt", "a string", "an array") == "null":
            return []
        body = b'{"messages":[{"role":"user","content":%b}]}' % bytes(prompt)
        said = [structs.replace(each, sent_at=sent_at) for each in self._wire.decode_request(body).messages]
        mode = string(fields, "commandMode") or "prompt"
        if mode != "prompt":
            return [each for message in said for each in parted(message, mode)]
        text = "".join(message.text for message in said)
        if _again(self._removed, text):
            return []
        self._attached.append(text)
        return [each for message in said for each in parted(message, None)]


def _again(told: deque[str], text: str) -> bool:
    """Return whether a text occurred in the other form already; it is then removed from the memory."""
    if text not in told:
        return False
    told.remove(text)
    return True


def _said(raw: Raw, key: str) -> str:
    """Return the text of a value: of a list, a line for each item; of an object, its text field."""
    match either(raw, key, "a string", "an array", "an object"):
        case "a string":
            return jsontext.text(raw)
        case "an array":
            return "\n".join(filter(None, [_said(each, key) for each in jsontext.items(raw)]))
        case "an object":
            fields = jsontext.fields(raw)
            text = next((said for name in _INNER if name in fields and (said := _said(fields[name], name))), None)
            if text is None and fields and fields.keys().isdisjoint(_INNER):
                either(raw, key, "a string", "an array")
            return text or ""
        case _:
            return ""
