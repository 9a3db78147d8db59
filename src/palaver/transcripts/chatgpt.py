"""ChatGPT's account exports: ``conversations.json``, and single conversations of its web interface.

Source: docs/spec/dialects.md#18.1.

Read: a node of ``mapping`` with a message is a message; all branches are read, and ``current_node`` is the end of the
main one. Nodes without contents (the root, empty system messages) and the line about the time that a model thought
(``reasoning_recap``) are records. ``thoughts`` are reasoning. A message of an assistant to a tool (``recipient``) is a
call; the export gives calls no id, so they have that of their message, and a tool's message is the result of the oldest
open call of a tool of that name, or another result of the last one. Media are ids of files, which are beside the
export. What the program adds unseen (``user_editable_context``, hidden messages) has a ``source``; a model's memory is
a system message.

Not represented: usage (an export has none), and metadata of the interface, which stay in the bytes of each record.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import UNSET, structs

from palaver.core import jsontext, trusted
from palaver.core.parts import AnyPart, FileId, Media, Opaque, Reasoning, Text
from palaver.transcripts.account_export import Account, Node, account_reading
from palaver.transcripts.conversation import Session
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import as_object, inner, integer, kind_of, listed, read_time, split, string, value
from palaver.transcripts.format import TranscriptFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason, Message
    from palaver.core.parts import Citation
    from palaver.transcripts.unknown_fields import Watch

NAME: Final = "chatgpt"

_NODE: Final = frozenset(("id", "message", "parent", "children"))
_MESSAGE: Final = frozenset(
    (
        "id", "author", "create_time", "update_time", "content", "status", "end_turn", "weight", "metadata",
        "recipient", "channel",
    )
)  # fmt: skip
_MORE: Final = ("gizmo_id", "conversation_template_id", "conversation_origin", "is_archived", "voice", "update_time")

_TEXTS: Final = {
    "text": (),
    "multimodal_text": (),
    "code": ("text",),
    "execution_output": ("text",),
    "system_error": ("text",),
    "tether_quote": ("text",),
    "tether_browsing_code": ("text",),
    "tether_browsing_display": ("result", "summary"),
    "sonic_webpage": ("text",),
    "computer_output": (),
    "citable_code_output": ("output_str",),
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context", "repo_summary"),
}
"""The keys of a content that have text beside ``parts``, by its type."""

_POINTERS: Final[Mapping[str, Callable[..., AnyPart]]] = {
    "image_asset_pointer": trusted.Image,
    "audio_asset_pointer": trusted.Audio,
    "video_container_asset_pointer": trusted.Video,
}
_SELF: Final = frozenset(("", "all", "assistant"))
_FINISH: Final[Mapping[str, FinishReason]] = {"stop": "stop", "max_tokens": "length", "interrupted": "other"}
_SILENT: Final = frozenset(("reasoning_recap",))
_FAILED: Final = ("fail", "cancel", "error")
_MOST: Final = 16
"""The most open calls that wait for a result."""


def detect(head: Head) -> Detection | None:
    """Detect a conversation with a ``mapping`` of nodes, each with a message or ``null`` and a parent."""
    for fields in (*head.items, head.fields, *head.lines):
        mapping: object = fields.get("mapping")
        nodes = cast("dict[str, object]", mapping).values() if isinstance(mapping, dict) else ()
        if any(isinstance(each, dict) and {"id", "message"} <= each.keys() for each in nodes):
            return Detection(0.95)
        if any(isinstance(each, dict) and {"message", "parent"} <= each.keys() for each in nodes):
            return Detection(0.9)
    return None


class _Open(NamedTuple):
    """The calls before a node: those without a result, and the last one that has one. Each is an id and a name."""

    calls: tuple[tuple[str, str], ...] = ()
    last: tuple[str, str] | None = None


class Conversations(Account):
    """The conversations of an export."""

    name = NAME
    key = "mapping"

    def __init__(self, watch: Watch) -> None:
        """Start before the first conversation."""
        super().__init__(watch)
        self._open: dict[str | None, _Open] = {}

    def session(self, fields: Fields) -> Session:
        """Return the session of a conversation."""
        more = {key: value(fields, key) for key in _MORE if kind_of(fields, key) != "null"}
        return Session(
            file_format=NAME,
            id=string(fields, "conversation_id") or string(fields, "id"),
            model=string(fields, "default_model_slug"),
            agent=string(fields, "gizmo_id"),
            started_at=read_time(value(fields, "create_time")),
            more=more,
        )

    def title(self, fields: Fields) -> str | None:
        """Return the title."""
        return string(fields, "title")

    def nodes(self, fields: Fields) -> Sequence[Node] | None:
        """Return the nodes of ``mapping``."""
        self._open = {}
        if kind_of(fields, "mapping") != "an object":
            return None
        return [Node(key, string(as_object(raw), "parent"), raw) for key, raw in inner(fields, "mapping").items()]

    def leaf(self, fields: Fields, nodes: Sequence[Node]) -> str | None:
        """Return ``current_node``, or the last node."""
        return string(fields, "current_node") or (nodes[-1].id if nodes else None)

    def messages(self, node: Node, fields: Fields) -> list[Message]:
        """Return the message of a node."""
        self._open[node.id] = self._open.get(node.parent, _Open())
        self.watch.keys(fields, _NODE, "node")
        said = inner(fields, "message")
        if not said:
            return []
        self.watch.keys(said, _MESSAGE, "message")
        message = self._message(node, said)
        return [] if message is None else [structs.replace(message, sent_at=read_time(value(said, "create_time")))]

    def _message(self, node: Node, fields: Fields) -> Message | None:
        author, content, metadata = inner(fields, "author"), inner(fields, "content"), inner(fields, "metadata")
        role, kind = string(author, "role"), string(content, "content_type") or ""
        if kind in _SILENT:
            return None
        parts = self._parts(content, kind)
        source = "hidden" if value(metadata, "is_visually_hidden_from_conversation") is True else None
        if kind.endswith("_editable_context"):
            source, role = kind, "user" if role == "user" else "system"
        made: Message | None = None
        match role:
            case "user":
                parts += _attached(metadata, parts)
                made = trusted.UserMessage(content=_shown(parts), source=source)
                self._open[node.id] = _Open()
            case "system":
                texts = tuple([part for part in parts if isinstance(part, (Text, Opaque))])
                made = trusted.SystemMessage(content=texts, source=source)
            case "assistant":
                made = self._assistant(node, fields, metadata, parts)
            case "tool":
                made = self._result(node, string(author, "name"), kind, metadata, parts)
            case _:
                self.watch.note("unread", f"a message of {role}")
        return made if made is not None and made.content else None

    def _assistant(self, node: Node, fields: Fields, metadata: Fields, parts: list[AnyPart]) -> Message:
        recipient = string(fields, "recipient") or ""
        finish = string(inner(metadata, "finish_details"), "type")
        if recipient not in _SELF and all(isinstance(part, Text) for part in parts):
            text = "".join([part.text for part in parts if isinstance(part, Text)])
            known = self._open[node.id]
            call = (string(fields, "id") or node.id or "", recipient)
            self._open[node.id] = _Open((*known.calls, call)[-_MOST:], known.last)
            parts = [_call(*call, text)]
        elif parts and isinstance(parts[0], Text) and (cited := tuple(_citations(metadata))):
            parts[0] = structs.replace(parts[0], citations=cited)
        content: Any = tuple(parts)
        return trusted.AssistantMessage(
            content=content,
            model=string(metadata, "model_slug"),
            finish_reason=None if finish is None else _FINISH.get(finish, "other"),
            finish_reason_raw=UNSET if finish is None else finish,
        )

    def _result(self, node: Node, name: str | None, kind: str, metadata: Fields, parts: list[AnyPart]) -> Message:
        known = self._open[node.id]
        family = (name or "").partition(".")[0]
        found = next((each for each in known.calls if each[1].partition(".")[0] == family), None)
        if found is not None:
            left = tuple([each for each in known.calls if each is not found])
            self._open[node.id] = _Open(left, found)
        elif known.last is not None and known.last[1].partition(".")[0] == family:
            found = known.last
        if found is not None and not parts:
            parts.append(trusted.Text(""))
        outcome = inner(metadata, "aggregate_result")
        urls = (string(as_object(raw), "image_url") for raw in listed(outcome, "messages"))
        parts += [trusted.Image(trusted.FileId(url, NAME)) for url in urls if url is not None]
        failed = (string(outcome, "status") or "").startswith(_FAILED)
        return trusted.ToolMessage(
            content=_shown(parts),
            tool_call_id=None if found is None else found[0],
            tool_name=name or (None if found is None else found[1]),
            is_error=failed or kind == "system_error",
        )

    # -- contents --------------------------------------------------------------------------------------------------

    def _parts(self, content: Fields, kind: str) -> list[AnyPart]:
        if kind == "thoughts":
            if kind_of(content, "thoughts") == "a string":
                return [trusted.Reasoning(string(content, "thoughts") or "")]
            return [_thought(split(raw)) for raw in listed(content, "thoughts")]
        keys = _TEXTS.get(kind)
        if keys is None and content:
            self.watch.note("block", kind or "without a type")
        found = [part for raw in listed(content, "parts") if (part := self._part(raw)) is not None]
        if keys is None and kind_of(content, "text") == "a string":
            keys = ("text",)
        found += [trusted.Text(text) for key in keys or () if (text := string(content, key))]
        if not found and keys is None and content:
            return [trusted.Opaque(NAME, jsontext.raw(content))]
        url, title = string(content, "url"), string(content, "title")
        if url and found and isinstance(found[0], Text):
            found[0] = structs.replace(found[0], citations=(trusted.Citation(wire=NAME, url=url, title=title),))
        return found

    def _part(self, raw: Raw) -> AnyPart | None:
        """Return an item of ``parts``; ``None`` for an empty text."""
        if jsontext.kind(raw) == "a string":
            text = jsontext.text(raw)
            return trusted.Text(text) if text else None
        fields = split(raw)
        kind = string(fields, "content_type") or ""
        if kind == "audio_transcription":
            return trusted.Text(string(fields, "text") or "")
        if kind == "real_time_user_audio_video_asset_pointer":
            kind, fields = "audio_asset_pointer", inner(fields, "audio_asset_pointer")
        pointer = string(fields, "asset_pointer")
        if kind in _POINTERS and pointer is not None:
            return _POINTERS[kind](trusted.FileId(pointer, NAME))
        self.watch.note("block", kind or "a part without a type")
        return trusted.Opaque(NAME, jsontext.own(raw))


def _shown(parts: Sequence[AnyPart]) -> Any:
    """Return the parts of a message that is not the model's: reasoning in it is text."""
    return tuple([trusted.Text(part.text) if isinstance(part, Reasoning) else part for part in parts])


def _thought(fields: Fields) -> AnyPart:
    texts = [text for key in ("summary", "content") if (text := string(fields, key))]
    return trusted.Reasoning("\n\n".join(texts))


def _call(id: str, name: str, text: str) -> AnyPart:
    """Return a call: its arguments are an object, or a text that the tool takes as it is (code)."""
    if jsontext.is_json(text) and text.lstrip().startswith("{"):
        return trusted.ToolCall(id, name, text)
    return trusted.ToolCall(id, name, jsontext.encode(text).decode(), custom=True)


def _attached(metadata: Fields, parts: Sequence[AnyPart]) -> Iterator[AnyPart]:
    """Yield the attached files that are not among the parts."""
    shown = [part.source.id for part in parts if isinstance(part, Media) and isinstance(part.source, FileId)]
    for raw in listed(metadata, "attachments"):
        fields = split(raw)
        named = string(fields, "id")
        if named is not None and not any(named in each for each in shown):
            media = string(fields, "mime_type") or string(fields, "mimeType")
            yield trusted.File(trusted.FileId(named, NAME), media, name=string(fields, "name"))


def _citations(metadata: Fields) -> Iterator[Citation]:
    """Yield the sources of an answer: of older exports, and of newer ones, alone or in groups."""
    for raw in listed(metadata, "citations"):
        fields = split(raw)
        if (url := string(inner(fields, "metadata"), "url")) is not None:
            title = string(inner(fields, "metadata"), "title")
            yield _citation(url, title, integer(fields, "start_ix"), integer(fields, "end_ix"))
    for raw in listed(metadata, "content_references"):
        fields = split(raw)
        start, end = integer(fields, "start_idx"), integer(fields, "end_idx")
        for each in (fields, *map(as_object, listed(fields, "items"))):
            if kind_of(each, "url") == "a string" and (url := string(each, "url")):
                yield _citation(url, string(each, "title"), start, end)


def _citation(url: str, title: str | None, start: int | None, end: int | None) -> Citation:
    return trusted.Citation(wire=NAME, url=url, title=title, start=start, end=end)


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="ChatGPT account exports",
    fidelity="read",
    detector=detect,
    record_reader=account_reading(Conversations),
    record_writer=None,
    layout="either",
    tree=True,
    many=True,
    extension=".json",
    keeps=("branches", "reasoning", "tool calls and results", "model of each answer", "citations", "ids of media"),
    loses=("only read", "usage", "ids of calls (those of their messages)"),
)
