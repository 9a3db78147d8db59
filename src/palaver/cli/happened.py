"""List the events of a stream, one line an event.

Rules:

- A line is the event's name, the number of its part, and what it says, shortened to the width of the terminal.
- Text is quoted as JSON, so that blanks and line ends are seen.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from rich.text import Text as Line

from palaver.cli.harmless import safe
from palaver.core import canonical, jsontext
from palaver.core.events import Delta, Failed, Start, Update

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from palaver.core.events import Event

_STYLES: Final = {"start": "bold", "finish": "bold", "failed": "bold red", "part_start": "blue", "part_end": "blue"}
_NAME: Final = 16
_INDEX: Final = 3
_LONGEST: Final = 1000
"""Characters that are looked at before they are shortened to a line."""


def listed(events: Iterable[Event], out: Console) -> str | None:
    """Print events as they come; give the reason when the last is a failure."""
    failed = None
    for event in events:
        name = str(type(event).__struct_config__.tag)
        index = getattr(event, "index", "")
        line = Line(f"{name:<{_NAME}}{index!s:>{_INDEX}}", _STYLES.get(name, ""))
        if said := _said(event):
            line.append(f"  {safe(said)}", "dim")
        out.print(line, no_wrap=True, overflow="ellipsis")
        if isinstance(event, Failed):
            failed = f"{event.kind}: {event.reason}"
    return failed


def _said(event: Event) -> str:
    """What an event says beside its name and index."""
    if isinstance(event, Delta):
        return jsontext.encode(event.text[:_LONGEST]).decode()
    fields = cast("dict[str, Any]", jsontext.value(canonical.encode(event)))
    said = [each for key, each in fields.items() if key not in {"event", "index"}]
    if isinstance(event, (Start, Update)):
        said = [event.response.model, event.response.id, *said]
    pieces = [each if isinstance(each, str) else jsontext.encode(each).decode() for each in said if each is not None]
    return " · ".join(pieces)[:_LONGEST]
