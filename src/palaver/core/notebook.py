"""Show values in a notebook: the HTML that ``_repr_mimebundle_`` returns beside the plain text.

Rules:

- All text is escaped. The HTML is one piece with inline styles, fits light and dark pages, and loads nothing: media is
  shown from its own bytes, up to ``MEDIA_BYTES``, and media at a URL is named, not fetched.
- Reasoning, calls, results and long text are folded. Of a long conversation the last ``MESSAGES`` are shown.

Source: https://ipython.readthedocs.io/en/stable/config/integrating.html#rich-display

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import (
    Audio,
    File,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Url,
    Video,
)

if TYPE_CHECKING:
    from palaver.core.messages import Message
    from palaver.core.parts import Part
    from palaver.core.request import Encoded, Loss, Request, Response
    from palaver.core.usage import Usage

MESSAGES: Final = 100
"""The most messages of a conversation that are shown."""
MEDIA_BYTES: Final = 2_000_000
"""The most characters of base64 text of a picture or a recording that are shown."""
_FOLDED: Final = 600
_SHOWN_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_COLOURS: Final = {
    "system": "#8250df",
    "developer": "#8250df",
    "user": "#1a7f37",
    "assistant": "#0969da",
    "tool": "#1b7c83",
    "rescue": "#cf222e",
    "flush": "#9a6700",
}
_PRE: Final = "white-space:pre-wrap;overflow-wrap:anywhere;margin:.25em 0"


def bundle(value: object, html: str) -> dict[str, str]:
    """Return what ``_repr_mimebundle_`` returns: the plain text of ``value``, and ``html``."""
    return {"text/plain": repr(value), "text/html": f'<div style="font-size:.95em;max-width:60em">{html}</div>'}


# -- messages ------------------------------------------------------------------------------------------------------


def messages_html(messages: Sequence[Message]) -> str:
    """Return a conversation as HTML."""
    hidden = len(messages) - MESSAGES
    note = f'<div style="opacity:.6">{hidden:,} earlier messages</div>' if hidden > 0 else ""
    return note + "".join(message_html(each) for each in messages[-MESSAGES:])


def message_html(message: Message) -> str:
    """Return a message as HTML."""
    colour = _COLOURS.get(message.role, "gray")
    about = [message.role, message.agent]
    if isinstance(message, ToolMessage):
        about += [message.tool_name, "failed" if message.is_error else None]
    if isinstance(message, AssistantMessage):
        about += [message.model]
    head = " · ".join(escape(each) for each in about if each)
    parts = "".join(part_html(each, folded=isinstance(message, ToolMessage)) for each in message.content)
    return (
        f'<div style="border-left:3px solid {colour};padding-left:.75em;margin:.5em 0">'
        f'<div style="color:{colour};font-weight:600">{head}</div>{parts}</div>'
    )


def part_html(part: Part, *, folded: bool = False) -> str:
    """Return a part as HTML; with ``folded``, a long one is folded."""
    for kind, render in _RENDERERS:
        if isinstance(part, kind):
            html = render(part)
            return _fold(kind.__name__.lower(), html) if folded and len(html) > _FOLDED else html
    return _fold(type(part).__name__, _pre(repr(part)))


def _pre(text: str) -> str:
    shown = f'<div style="{_PRE}">{escape(text)}</div>'
    return shown if len(text) <= 10 * _FOLDED else _fold(f"{len(text):,} characters", shown)


def _fold(title: str, html: str) -> str:
    return f'<details><summary style="cursor:pointer;opacity:.75">{escape(title)}</summary>{html}</details>'


def _code(text: str) -> str:
    return f'<pre style="{_PRE}">{escape(text)}</pre>'


def _media(part: Image | Audio | Video | File) -> str:
    kind, source = type(part).__name__.lower(), part.source
    about = " ".join(filter(None, (kind, part.media_type)))
    match source:
        case Inline(data) if len(data) <= MEDIA_BYTES and isinstance(part, Image) and part.media_type in _SHOWN_IMAGES:
            address = escape(f"data:{part.media_type};base64,{data}")
            return f'<img src="{address}" alt="{escape(about)}" style="max-width:24em;max-height:18em;display:block">'
        case Inline(data) if len(data) <= MEDIA_BYTES and isinstance(part, Audio):
            address = escape(f"data:{part.media_type or 'audio/wav'};base64,{data}")
            return f'<audio controls src="{address}"></audio>'
        case Inline(data):
            return _pre(f"({about}, {len(data) * 3 // 4:,} bytes)")
        case Url(url):
            return _pre(f"({about}: {url})")
        case FileId():
            return _pre(f"({about}: {source!r})")
        case _:
            return _pre(f"({about}, stored)")


_RENDERERS: Final[tuple[tuple[type, Callable[[Any], str]], ...]] = (
    (Text, lambda part: _pre(part.text)),
    (Refusal, lambda part: _pre(part.text)),
    (Reasoning, lambda part: _fold("reasoning", _pre(part.text or "(hidden by the provider)"))),
    (ToolCall, lambda part: _fold(f"→ {part.name}", _code(part.arguments_json))),
    (MalformedToolCall, lambda part: _fold(f"→ {part.name or '?'}: {part.reason}", _code(part.raw))),
    (Json, lambda part: _code(bytes(part.value_json).decode("utf-8", "replace"))),
    (Image, _media),
    (Audio, _media),
    (Video, _media),
    (File, _media),
)


# -- requests, responses, receipts ---------------------------------------------------------------------------------


def request_html(request: Request) -> str:
    """Return a request as HTML."""
    about = [request.model or "", f"{len(request.tools)} tools" if request.tools else ""]
    head = " · ".join(escape(each) for each in about if each)
    return (f'<div style="opacity:.75">{head}</div>' if head else "") + messages_html(request.messages)


def response_html(response: Response) -> str:
    """Return a response as HTML."""
    answers = (response.message, *response.alternatives)
    usage = "" if response.usage is None else usage_html(response.usage)
    return messages_html(answers) + usage


def usage_html(usage: Usage) -> str:
    """Return a usage as HTML; counts are in tokens."""
    names = ("input", "cache_read", "cache_write", "output", "reasoning")
    rows = [(name.replace("_", " "), getattr(usage, name)) for name in names if getattr(usage, name) is not None]
    return table_html([(name, f"{count:,}") for name, count in rows])


def table_html(rows: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a table."""
    cells = "".join(
        f'<tr><td style="text-align:left;opacity:.75">{escape(name)}</td>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>{cells}</table>"


def receipt_html(encoded: Encoded) -> str:
    """Return the receipt of an encoded body as HTML, and the body folded."""
    size = sum(map(len, encoded.chunks))
    lost = "nothing lost" if not encoded.losses else f"{len(encoded.losses)} not carried as they were"
    body = encoded.body[: 20 * _FOLDED].decode("utf-8", "replace")
    return f"<div>{size:,} bytes, {lost}</div>{table_html(_loss_rows(encoded.losses))}{_fold('body', _code(body))}"


def _loss_rows(losses: Sequence[Loss]) -> Iterator[tuple[str, str]]:
    for loss in losses[:MESSAGES]:
        yield loss.where, f"{loss.what} {loss.kind} ({loss.why})"
    if len(losses) > MESSAGES:
        yield "", f"and {len(losses) - MESSAGES:,} more"


# -- runs and threads ----------------------------------------------------------------------------------------------


def run_html(head: Sequence[tuple[str, str]], error: str | None, text: str, messages: Sequence[Message]) -> str:
    """Return a run as HTML: ``head`` are names and values, ``error`` what went wrong, ``text`` the answer."""
    failed = "" if error is None else f'<div style="color:#cf222e;{_PRE}">{escape(error)}</div>'
    return table_html(head) + failed + _pre(text) + _fold(f"{len(messages)} messages", messages_html(messages))


def thread_html(id: str, branches: Iterable[str], messages: Sequence[Message]) -> str:
    """Return a thread as HTML: its id, its branches, and the messages of one of them."""
    head = table_html([("thread", id), ("branches", ", ".join(branches)), ("messages", f"{len(messages):,}")])
    return head + messages_html(messages)
