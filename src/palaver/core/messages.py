"""The message: one frozen class per role, one closed union.

Rules:

- ``Message`` is the union of seven classes, told apart by ``role`` (C1, C2). Every member has the
  same views: ``text``, ``reasoning``, ``images``, ``tool_calls``, ``client_tool_calls``,
  ``malformed_tool_calls``, ``is_summary``.
- Fields are given by keyword. The factories (``palaver.user``, ``palaver.assistant``, …) are the
  documented way to build; they are pure and invent neither id nor time. A thread stamps ``id`` and
  ``sent_at`` (MSG-06).
- Only the assistant calls tools (C21); one tool message answers one call (C24); the markers
  ``rescue`` and ``flush`` hold no parts and are never sent (C8, MSG-05).
- ``metadata`` is about the conversation, ``payload`` about this message and owned by the application; neither is sent,
  except the keys of ``metadata`` that a caller allows (C12, MSG-07). ``provider[wire]`` is read by that wire alone
  (C13, MSG-08).

Stability: stable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, Unpack, cast, final, get_args

from msgspec import UNSET, Raw, Struct, UnsetType, field

from palaver.core import jsontext, pydantic_schema
from palaver.core.errors import MessageError
from palaver.core.parts import (
    AnyPart,
    AssistantPart,
    Image,
    MalformedToolCall,
    Reasoning,
    Text,
    TextPart,
    ToolCall,
    ToolPart,
    UserPart,
)
from palaver.core.type_checks import Checked
from palaver.core.usage import Usage
from palaver.core.value import Value, mapping

if TYPE_CHECKING:
    from palaver.core.changes import AssistantChanges, MarkerChanges, MessageChanges, ToolMessageChanges

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool", "rescue", "flush"]
Mode: TypeAlias = Literal["user", "tool"]
Scope: TypeAlias = Literal["thread", "agent", "turn"]
FinishReason: TypeAlias = Literal[
    "stop", "length", "tool_calls", "content_filter", "refusal", "pause", "error", "other"
]


BOOKKEEPING = "@"
"""The prefix of keys of ``provider`` that belong to no wire. Such data are kept, and not sending them is not a loss."""

_COMPACTED = frozenset(("compaction", "summarization"))


class _Message(Value, frozen=True, kw_only=True, tag_field="role", metaclass=Checked):
    """Fields and views that every message has.

    ``id`` and ``sent_at`` (Unix milliseconds) are stamped by a thread; ``agent`` names who spoke or
    is spoken to; ``mode`` says whether a person typed it or a turn made it; ``source`` names the
    part of the runtime that made it, when no user, model or tool did; ``verbatim`` asks compaction
    to keep it byte for byte.
    """

    content: tuple[AnyPart, ...] = ()
    id: str | None = None
    agent: str | None = None
    mode: Mode | None = None
    tags: tuple[str, ...] = ()
    sent_at: int | None = None
    source: str | None = None
    verbatim: bool = False
    payload_json: Raw | UnsetType = field(default=UNSET, name="payload")
    metadata_json: Raw | UnsetType = field(default=UNSET, name="metadata")

    @property
    def role(self) -> Role:
        """The role: the tag of the class."""
        return cast("Role", type(self).__struct_config__.tag)

    def __replace__(self, **changes: object) -> Self:
        """Return a copy with some fields changed by ``changes``; ``content`` takes what the factories take.

        Raises ``MessageError`` for a field that does not exist, and for a part that this role
        cannot hold.
        """
        if "content" in changes:
            changes["content"] = parts_of(type(self), cast("Iterable[object]", changes["content"]))
        return super().__replace__(**changes)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show it in a notebook."""
        from palaver.core import notebook  # noqa: PLC0415 (it renders what this module defines)

        return notebook.bundle(self, notebook.message_html(cast("Message", self)))

    @property
    def payload(self) -> Any:
        """Application data of this message: any JSON value, ``None``, or ``UNSET``."""
        return UNSET if self.payload_json is UNSET else jsontext.view(self.payload_json)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Correlation data; empty when unset."""
        return mapping(self.metadata_json, "metadata")

    @property
    def text(self) -> str:
        """All text parts, joined without separator."""
        return "".join([part.text for part in self.content if type(part) is Text])

    @property
    def reasoning(self) -> str | None:
        """All reasoning texts, joined by a blank line.

        ``None`` when there is no reasoning.
        """
        parts = [part.text for part in self.content if type(part) is Reasoning]
        return "\n\n".join(filter(None, parts)) if parts else None

    @property
    def images(self) -> tuple[Image, ...]:
        """All images, in content order."""
        return tuple([part for part in self.content if type(part) is Image])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """All tool calls, in content order, with those that the provider ran and that need no result from you."""
        return tuple([part for part in self.content if type(part) is ToolCall])

    @property
    def client_tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that you answer, each with a tool message: all but those that the provider ran."""
        return tuple([call for call in self.tool_calls if not call.provider_executed])

    @property
    def malformed_tool_calls(self) -> tuple[MalformedToolCall, ...]:
        """All calls that did not parse, in content order."""
        return tuple([part for part in self.content if type(part) is MalformedToolCall])

    @property
    def is_summary(self) -> bool:
        """Whether it is the summary of a compaction; its older ``source`` is ``summarization``."""
        return self.source in _COMPACTED


@final
class SystemMessage(_Message, frozen=True, kw_only=True, tag="system"):
    """Instructions, or a notification of the system; allowed anywhere in a conversation."""

    content: tuple[TextPart, ...] = ()

    def replace(self, **changes: Unpack[MessageChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


@final
class DeveloperMessage(_Message, frozen=True, kw_only=True, tag="developer"):
    """Instructions of the developer; a wire without that role gets them as system."""

    content: tuple[TextPart, ...] = ()

    def replace(self, **changes: Unpack[MessageChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


@final
class UserMessage(_Message, frozen=True, kw_only=True, tag="user"):
    """The text and media of the user, or of the runtime in the user's place."""

    content: tuple[UserPart, ...] = ()

    def replace(self, **changes: Unpack[MessageChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


@final
class AssistantMessage(_Message, frozen=True, kw_only=True, tag="assistant"):
    """An answer of the model: text, reasoning, calls.

    ``finish_reason`` is neutral; ``finish_reason_raw`` the wire's own word.
    """

    content: tuple[AssistantPart, ...] = ()
    model: str | None = None
    usage: Usage | None = None
    finish_reason: FinishReason | None = None
    finish_reason_raw: str | UnsetType | None = UNSET
    response_id: str | None = None

    def replace(self, **changes: Unpack[AssistantChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


@final
class ToolMessage(_Message, frozen=True, kw_only=True, tag="tool"):
    """The result of one tool call.

    Without ``tool_call_id`` it answers no call and is sent as user text.
    """

    content: tuple[ToolPart, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False

    def replace(self, **changes: Unpack[ToolMessageChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


@final
class RescueMarker(_Message, frozen=True, kw_only=True, tag="rescue"):
    """Marks that the turn before it failed.

    ``reason`` says how. ``scope`` says what it hides: the failed ``turn`` (the default), or everything before it from
    its ``agent`` or from all of the ``thread``. Holds no parts, is never sent.
    """

    content: tuple[()] = ()
    reason: str = ""
    scope: Scope | None = None

    def replace(self, **changes: Unpack[MarkerChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


@final
class FlushMarker(_Message, frozen=True, kw_only=True, tag="flush"):
    """Marks that everything before it is hidden from every agent.

    ``scope`` narrows that: to its ``agent`` or to its ``turn``; the default is the ``thread``. Holds no parts, is
    never sent.
    """

    content: tuple[()] = ()
    reason: str = ""
    scope: Scope | None = None

    def replace(self, **changes: Unpack[MarkerChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


Message: TypeAlias = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | RescueMarker | FlushMarker,
    pydantic_schema.ByTag("role"),
]
"""Any message. It is a type to write in annotations; ``isinstance`` takes ``MESSAGE_CLASSES``."""
MESSAGE_CLASSES = (
    SystemMessage,
    DeveloperMessage,
    UserMessage,
    AssistantMessage,
    ToolMessage,
    RescueMarker,
    FlushMarker,
)

_HOLDS: dict[type, tuple[type, ...]] = {
    SystemMessage: get_args(TextPart),
    DeveloperMessage: get_args(TextPart),
    UserMessage: get_args(UserPart),
    AssistantMessage: get_args(AssistantPart),
    ToolMessage: get_args(ToolPart),
    RescueMarker: (),
    FlushMarker: (),
}


def holds(cls: type, part: object) -> bool:
    """Whether messages of a class can hold such a part."""
    return type(part) in _HOLDS[cls]


def parts_of(cls: type, content: Iterable[object]) -> tuple[Any, ...]:
    """Check parts against the role; strings become text parts. Raises ``MessageError``."""
    given = cast("object", content)
    if isinstance(given, (bytes, bytearray, memoryview, Struct)) or not isinstance(given, Iterable):
        raise MessageError(f"content: expected strings and parts, got {type(content).__name__}")
    parts: list[object] = []
    for index, item in enumerate([content] if isinstance(content, str) else content):
        part = Text(item) if isinstance(item, str) else item
        if not holds(cls, part):
            raise MessageError(f"content[{index}]: {cls.__name__} cannot hold {type(part).__name__}")
        parts.append(part)
    return tuple(parts)
