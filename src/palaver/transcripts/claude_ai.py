"""Claude.ai's account exports: ``conversations.json``, and single conversations of its web interface.

Source: docs/spec/dialects.md#18.2.

Read: a message of ``chat_messages`` follows the one that ``parent_message_uuid`` names; all branches are read, and the
main one ends in ``current_leaf_message_uuid``, else in the last message. Messages without these links are a line. One
message of the assistant holds its calls with their results: it becomes several, split at the results. Calls without an
id have one of their place, and a result without one is of the first open call of its tool. The text of an attachment is
a file with it; ``files`` are ids or names only. Without ``content``, a message is its ``text``.

Not represented: usage (an export has none), models (the web interface names one for all), and data of the interface,
which stay in the bytes of each record.

Stability: experimental.
"""

from __future__ import annotations

from binascii import b2a_base64
from mimetypes import guess_type
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, structs

from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import AnyPart, Text, ToolCall
from palaver.transcripts.account_export import Account, Node, account_reading
from palaver.transcripts.conversation import Session
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import as_object, flag, inner, integer, kind_of, listed, read_time, split, string, value
from palaver.transcripts.format import TranscriptFormat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason, Message
    from palaver.core.parts import Citation
    from palaver.transcripts.unknown_fields import Watch

NAME: Final = "claude_ai"

_ROOT: Final = "00000000-0000-4000-8000-000000000000"
"""The parent of a first message."""
_SENDERS: Final = frozenset(("human", "assistant"))
_MESSAGE: Final = frozenset(
    (
        "uuid", "text", "content", "sender", "index", "created_at", "updated_at", "edited_at", "truncated",
        "stop_reason", "chat_feedback", "input_mode", "metadata", "attachments", "files", "files_v2", "sync_sources",
        "parent_message_uuid", "nOptions", "selectedOption",
    )
)  # fmt: skip
_SILENT: Final = frozenset(("token_budget", "flag"))
"""Blocks of the interface, which have no contents."""
_UNSHOWN: Final = "This block is not supported on your current device yet."
"""What ``text`` has in place of a block that is not text."""
_FINISH: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
    "pause_turn": "pause",
}


def detect(head: Head) -> Detection | None:
    """Detect a conversation with ``chat_messages`` that have a sender."""
    for fields in (*head.items, head.fields, *head.lines):
        listed_messages: object = fields.get("chat_messages")
        found = cast("list[object]", listed_messages) if isinstance(listed_messages, list) else []
        if any(isinstance(each, dict) and cast("dict[str, object]", each).get("sender") in _SENDERS for each in found):
            return Detection(0.95)
        if isinstance(listed_messages, list) and {"uuid", "name"} <= fields.keys():
            return Detection(0.9)  # a conversation without messages
    return None


class Conversations(Account):
    """The conversations of an export."""

    name = NAME
    key = "chat_messages"

    def __init__(self, watch: Watch) -> None:
        """Start before the first conversation."""
        super().__init__(watch)
        self._model: str | None = None

    def session(self, fields: Fields) -> Session:
        """Return the session of a conversation."""
        self._model = string(fields, "model")
        project = string(inner(fields, "project"), "uuid") or string(fields, "project_uuid")
        more = {"summary": string(fields, "summary"), "project": project}
        return Session(
            file_format=NAME,
            id=string(fields, "uuid"),
            model=self._model,
            started_at=read_time(value(fields, "created_at")),
            more={key: each for key, each in more.items() if each},
        )

    def title(self, fields: Fields) -> str | None:
        """Return the name."""
        return string(fields, "name") or None

    def nodes(self, fields: Fields) -> Sequence[Node] | None:
        """Return the messages, each with its parent: without links, the one before."""
        if kind_of(fields, "chat_messages") != "an array":
            return None
        raws = listed(fields, "chat_messages")
        linked = any("parent_message_uuid" in as_object(raw) for raw in raws)
        nodes: list[Node] = []
        for raw in raws:
            said = as_object(raw)
            before = nodes[-1].id if nodes else None
            parent = string(said, "parent_message_uuid") if linked else before
            nodes.append(Node(string(said, "uuid"), None if parent == _ROOT else parent, raw))
        return nodes

    def leaf(self, fields: Fields, nodes: Sequence[Node]) -> str | None:
        """Return the leaf that is shown, or the last message."""
        return string(fields, "current_leaf_message_uuid") or (nodes[-1].id if nodes else None)

    def messages(self, node: Node, fields: Fields) -> list[Message]:
        """Return the messages of a record."""
        self.watch.keys(fields, _MESSAGE, "message")
        sender = string(fields, "sender")
        if sender not in _SENDERS:
            if fields:
                self.watch.note("unread", f"a message with the sender {sender}")
            return []
        groups = list(self._blocks(node, fields))
        text = string(fields, "text")
        blocks = [part for group in groups for part in _parts_of(group)]
        if text and not any(isinstance(part, Text) for part in blocks) and not (blocks and _UNSHOWN in text):
            groups[-1:] = [[*_parts_of(groups[-1]), trusted.Text(text)]]
        attached = list(self._files(fields))
        at = read_time(value(fields, "created_at"))
        made: list[Message] = []
        for group in groups:
            if isinstance(group, ToolMessage):
                made.append(structs.replace(group, sent_at=at))
                continue
            content: Any = (*attached, *group)
            attached = []
            if content and sender == "human":
                made.append(trusted.UserMessage(content=_user_parts(content), sent_at=at))
            elif content:
                made.append(trusted.AssistantMessage(content=content, model=self._model, sent_at=at))
        return _ended(made, string(fields, "stop_reason"))

    # -- contents --------------------------------------------------------------------------------------------------

    def _blocks(self, node: Node, fields: Fields) -> Iterator[list[AnyPart] | ToolMessage]:
        """Yield the contents between results, and the results."""
        parts: list[AnyPart] = []
        calls: list[ToolCall] = []
        for place, raw in enumerate(listed(fields, "content")):
            block = split(raw, "content")
            if string(block, "type") == "tool_result":
                yield parts
                parts = []
                yield self._result(block, calls)
                continue
            part = self._block(block, raw, f"{node.id or ''}:{place}")
            if isinstance(part, ToolCall):
                calls.append(part)
            if part is not None:
                parts.append(part)
        yield parts

    def _block(self, block: Fields, raw: Raw, place: str) -> AnyPart | None:
        match string(block, "type"):
            case "text":
                text = string(block, "text") or ""
                return trusted.Text(text, citations=tuple(_citations(block))) if text else None
            case "voice_note":
                return trusted.Text(string(block, "text") or "")
            case "thinking":
                return trusted.Reasoning(string(block, "thinking") or "", signature=string(block, "signature"))
            case "redacted_thinking":
                return trusted.Reasoning(encrypted=string(block, "data"))
            case "tool_use":
                arguments = bytes(block["input"]).decode() if "input" in block else ""
                return trusted.ToolCall(string(block, "id") or place, string(block, "name") or "", arguments)
            case kind if kind in _SILENT:
                return None
            case kind:
                self.watch.note("block", kind or "without a type")
                return trusted.Opaque(NAME, jsontext.own(raw))

    def _result(self, block: Fields, calls: list[ToolCall]) -> ToolMessage:
        """Return a result; its call is no longer open."""
        named, tool = string(block, "tool_use_id"), string(block, "name")
        found = next((each for each in calls if (each.id == named if named else each.name == tool)), None)
        if found is not None:
            calls.remove(found)
        parts: list[AnyPart] = []
        if kind_of(block, "content") == "a string":
            parts.append(trusted.Text(string(block, "content") or ""))
        else:
            parts += [self._part(raw) for raw in listed(block, "content")]
        content: Any = tuple(parts)
        return ToolMessage(
            content=content,
            tool_call_id=named or (None if found is None else found.id),
            tool_name=tool or (None if found is None else found.name),
            is_error=flag(block, "is_error"),
        )

    def _part(self, raw: Raw) -> AnyPart:
        """Return an item of a result: a text, one with its source, or an image."""
        fields = split(raw, "content")
        kind = string(fields, "type")
        source = inner(fields, "source")
        if kind == "image" and (data := string(source, "data")) is not None:
            return trusted.Image(trusted.Inline(data), string(source, "media_type"))
        if kind == "image" and (named := string(fields, "file_uuid")) is not None:
            return trusted.Image(trusted.FileId(named, NAME))
        if kind in {"text", "knowledge"} and (text := string(fields, "text")) is not None:
            url = string(fields, "url")
            cited = () if not url else (trusted.Citation(wire=NAME, url=url, title=string(fields, "title")),)
            return trusted.Text(text, citations=cited)
        return trusted.Opaque(NAME, jsontext.own(raw))

    def _files(self, fields: Fields) -> Iterator[AnyPart]:
        """Yield attachments with the text that was read from them, then files."""
        for raw in listed(fields, "attachments"):
            each = split(raw, "attachments")
            name, text = string(each, "file_name"), string(each, "extracted_content")
            if text is not None:
                data = b2a_base64(text.encode("utf-8", "replace"), newline=False).decode()
                yield trusted.File(trusted.Inline(data), "text/plain", name=name)
            elif name or string(each, "id"):
                yield _file(string(each, "id") or name or "", name)
        for raw in listed(fields, "files"):
            each = split(raw, "files")
            name = string(each, "file_name")
            if (named := string(each, "file_uuid") or name) is not None:
                yield _file(named, name)


def _parts_of(group: list[AnyPart] | ToolMessage) -> list[AnyPart]:
    return [] if isinstance(group, ToolMessage) else group


def _file(named: str, name: str | None) -> AnyPart:
    media = guess_type(name or "")[0]
    source = trusted.FileId(named, NAME)
    image = media is not None and media.startswith("image/")
    return trusted.Image(source, media) if image else trusted.File(source, media, name=name)


def _user_parts(parts: Sequence[AnyPart]) -> Any:
    """Return the parts of a user's message; others, which no user sends, are kept as they are."""
    fits = {"text", "image", "audio", "video", "file", "opaque"}
    tags = [cast("str", part.__struct_config__.tag) for part in parts]
    return tuple(
        [
            part if tag in fits else trusted.Opaque(NAME, jsontext.raw(part))
            for part, tag in zip(parts, tags, strict=True)
        ]
    )


def _ended(messages: list[Message], reason: str | None) -> list[Message]:
    """Return messages of which the last answer says why it ended."""
    if reason is not None and messages and isinstance(messages[-1], AssistantMessage):
        messages[-1] = structs.replace(
            messages[-1], finish_reason=_FINISH.get(reason, "other"), finish_reason_raw=reason or UNSET
        )
    return messages


def _citations(block: Fields) -> Iterator[Citation]:
    for raw in listed(block, "citations"):
        fields = split(raw, "citations")
        details = inner(fields, "details")
        url = string(details, "url") or string(fields, "url")
        if url is not None:
            yield trusted.Citation(
                wire=NAME,
                url=url,
                title=string(fields, "title") or string(details, "title"),
                start=integer(fields, "start_index"),
                end=integer(fields, "end_index"),
            )


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Claude.ai account exports",
    fidelity="read",
    detector=detect,
    record_reader=account_reading(Conversations),
    record_writer=None,
    layout="either",
    tree=True,
    many=True,
    extension=".json",
    keeps=("branches", "reasoning", "tool calls and results", "texts of attachments", "citations", "ids of files"),
    loses=("only read", "usage", "models of an account's export"),
)
