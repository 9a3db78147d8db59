"""Build messages: strings and parts in order, fields by keyword.

Rules (F90 to F94, R16):

- A string becomes a text part. Everything else must be a part the role can hold; else
  ``MessageError``.
- A value of a wrong type is a ``MessageError`` that names the field.
- Factories are pure: they invent neither id nor time.
- ``metadata``, ``payload`` and ``provider`` take plain Python values and are kept as JSON text.

Stability: stable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext
from palaver.core.errors import MessageError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FinishReason,
    FlushMarker,
    Mode,
    RescueMarker,
    Scope,
    SystemMessage,
    ToolMessage,
    UserMessage,
    parts_of,
)
from palaver.core.parts import (
    AssistantPart,
    Json,
    MalformedToolCall,
    Reasoning,
    TextPart,
    ToolCall,
    ToolPart,
    UserPart,
)
from palaver.core.usage import Usage
from palaver.core.value import json_text


def _json(item: object, name: str) -> Raw | UnsetType:
    return UNSET if item is UNSET else json_text(item, name)


def system(
    *content: str | TextPart,
    id: str | None = None,
    agent: str | None = None,
    mode: Mode | None = None,
    tags: tuple[str, ...] | list[str] = (),
    sent_at: int | None = None,
    source: str | None = None,
    verbatim: bool = False,
    payload: object = UNSET,
    metadata: Mapping[str, object] | UnsetType = UNSET,
    provider: Mapping[str, object] | UnsetType = UNSET,
) -> SystemMessage:
    """Build a system message.

    ``content`` are texts and parts, in order. The keywords are the fields of ``SystemMessage``: ``id``, ``agent`` (who
    wrote or reads it), ``mode`` (``"user"`` or ``"tool"``), ``tags``, ``sent_at`` (Unix milliseconds), ``source``,
    ``verbatim`` (never compacted), ``payload`` (the application's data), ``metadata`` and ``provider`` (fields of one
    wire). Raises ``MessageError`` for a value of another type.
    """
    return SystemMessage(
        content=parts_of(SystemMessage, content),
        id=id,
        agent=agent,
        mode=mode,
        tags=cast("tuple[str, ...]", tags),
        sent_at=sent_at,
        source=source,
        verbatim=verbatim,
        payload_json=_json(payload, "payload"),
        metadata_json=_json(metadata, "metadata"),
        provider_json=_json(provider, "provider"),
    )


def developer(
    *content: str | TextPart,
    id: str | None = None,
    agent: str | None = None,
    mode: Mode | None = None,
    tags: tuple[str, ...] | list[str] = (),
    sent_at: int | None = None,
    source: str | None = None,
    verbatim: bool = False,
    payload: object = UNSET,
    metadata: Mapping[str, object] | UnsetType = UNSET,
    provider: Mapping[str, object] | UnsetType = UNSET,
) -> DeveloperMessage:
    """Build a developer message.

    ``content`` are texts and parts, in order. The keywords are the fields of ``DeveloperMessage``: ``id``, ``agent``
    (who wrote or reads it), ``mode`` (``"user"`` or ``"tool"``), ``tags``, ``sent_at`` (Unix milliseconds), ``source``,
    ``verbatim`` (never compacted), ``payload`` (the application's data), ``metadata`` and ``provider`` (fields of one
    wire). Raises ``MessageError`` for a value of another type.
    """
    return DeveloperMessage(
        content=parts_of(DeveloperMessage, content),
        id=id,
        agent=agent,
        mode=mode,
        tags=cast("tuple[str, ...]", tags),
        sent_at=sent_at,
        source=source,
        verbatim=verbatim,
        payload_json=_json(payload, "payload"),
        metadata_json=_json(metadata, "metadata"),
        provider_json=_json(provider, "provider"),
    )


def user(
    *content: str | UserPart,
    id: str | None = None,
    agent: str | None = None,
    mode: Mode | None = None,
    tags: tuple[str, ...] | list[str] = (),
    sent_at: int | None = None,
    source: str | None = None,
    verbatim: bool = False,
    payload: object = UNSET,
    metadata: Mapping[str, object] | UnsetType = UNSET,
    provider: Mapping[str, object] | UnsetType = UNSET,
) -> UserMessage:
    """Build a user message: ``user("What is this?", Image.from_path("a.png"))``.

    ``content`` are texts and parts, in order. The keywords are the fields of ``UserMessage``: ``id``, ``agent`` (who
    wrote or reads it), ``mode`` (``"user"`` or ``"tool"``), ``tags``, ``sent_at`` (Unix milliseconds), ``source``,
    ``verbatim`` (never compacted), ``payload`` (the application's data), ``metadata`` and ``provider`` (fields of one
    wire). Raises ``MessageError`` for a value of another type.
    """
    return UserMessage(
        content=parts_of(UserMessage, content),
        id=id,
        agent=agent,
        mode=mode,
        tags=cast("tuple[str, ...]", tags),
        sent_at=sent_at,
        source=source,
        verbatim=verbatim,
        payload_json=_json(payload, "payload"),
        metadata_json=_json(metadata, "metadata"),
        provider_json=_json(provider, "provider"),
    )


def assistant(
    *content: str | AssistantPart,
    tool_calls: Iterable[ToolCall | MalformedToolCall] = (),
    reasoning: str | Reasoning | None = None,
    model: str | None = None,
    usage: Usage | None = None,
    finish_reason: FinishReason | None = None,
    finish_reason_raw: str | UnsetType | None = UNSET,
    response_id: str | None = None,
    id: str | None = None,
    agent: str | None = None,
    mode: Mode | None = None,
    tags: tuple[str, ...] | list[str] = (),
    sent_at: int | None = None,
    source: str | None = None,
    verbatim: bool = False,
    payload: object = UNSET,
    metadata: Mapping[str, object] | UnsetType = UNSET,
    provider: Mapping[str, object] | UnsetType = UNSET,
) -> AssistantMessage:
    """Build an assistant message; parts stand in the order reasoning, content, calls.

    ``content`` are texts and parts, ``reasoning`` is a text or a part, ``tool_calls`` are made by ``tool_call``. The
    keywords are the fields of ``AssistantMessage``: those of every message (see ``user``), and ``model``, ``usage``,
    ``finish_reason``, ``finish_reason_raw`` (the provider's own word) and ``response_id``. Raises ``MessageError``.
    """
    parts = (*_reasoning(reasoning), *content, *_calls(tool_calls))
    return AssistantMessage(
        content=parts_of(AssistantMessage, parts),
        model=model,
        usage=usage,
        finish_reason=finish_reason,
        finish_reason_raw=finish_reason_raw,
        response_id=response_id,
        id=id,
        agent=agent,
        mode=mode,
        tags=cast("tuple[str, ...]", tags),
        sent_at=sent_at,
        source=source,
        verbatim=verbatim,
        payload_json=_json(payload, "payload"),
        metadata_json=_json(metadata, "metadata"),
        provider_json=_json(provider, "provider"),
    )


def _reasoning(given: str | Reasoning | None) -> tuple[Reasoning, ...]:
    if given is None:
        return ()
    return (given if isinstance(given, Reasoning) else Reasoning(given),)


def _calls(given: Iterable[ToolCall | MalformedToolCall]) -> list[ToolCall | MalformedToolCall]:
    alone = isinstance(given, (str, Struct)) or not hasattr(given, "__iter__")
    calls: list[object] = [given] if alone else list(given)
    for index, call in enumerate(calls):
        if type(call) is not ToolCall and type(call) is not MalformedToolCall:
            raise MessageError(f"tool_calls[{index}]: expected a ToolCall, got {type(call).__name__}; see tool_call()")
    return cast("list[ToolCall | MalformedToolCall]", calls)


def tool(
    *outputs: str | ToolPart | Mapping[str, Any],
    tool_call_id: str | None = None,
    tool_name: str | None = None,
    is_error: bool = False,
    id: str | None = None,
    agent: str | None = None,
    mode: Mode | None = None,
    tags: tuple[str, ...] | list[str] = (),
    sent_at: int | None = None,
    source: str | None = None,
    verbatim: bool = False,
    payload: object = UNSET,
    metadata: Mapping[str, object] | UnsetType = UNSET,
    provider: Mapping[str, object] | UnsetType = UNSET,
) -> ToolMessage:
    """Build the result of a tool call.

    ``outputs`` are strings, parts, and dicts (``Json`` parts). ``tool_call_id`` names the call, ``tool_name`` its tool,
    and ``is_error`` says that it failed. The other keywords are the fields of ``ToolMessage`` (see ``user``). Raises
    ``MessageError``.
    """
    made = [Json.of(item) if isinstance(item, dict) else item for item in outputs]
    return ToolMessage(
        content=parts_of(ToolMessage, made),
        tool_call_id=tool_call_id,
        tool_name=tool_name,
        is_error=is_error,
        id=id,
        agent=agent,
        mode=mode,
        tags=cast("tuple[str, ...]", tags),
        sent_at=sent_at,
        source=source,
        verbatim=verbatim,
        payload_json=_json(payload, "payload"),
        metadata_json=_json(metadata, "metadata"),
        provider_json=_json(provider, "provider"),
    )


def rescue(
    reason: str = "",
    *,
    scope: Scope | None = None,
    id: str | None = None,
    agent: str | None = None,
    mode: Mode | None = None,
    tags: tuple[str, ...] | list[str] = (),
    sent_at: int | None = None,
    source: str | None = None,
    verbatim: bool = False,
    payload: object = UNSET,
    metadata: Mapping[str, object] | UnsetType = UNSET,
    provider: Mapping[str, object] | UnsetType = UNSET,
) -> RescueMarker:
    """Build the marker of a failed turn; models do not see what it hides.

    ``reason`` is for people; ``scope`` says how far back it reaches. The other
    keywords are the fields of ``RescueMarker`` (see ``user``). Raises ``MessageError``.
    """
    return RescueMarker(
        reason=reason,
        scope=scope,
        id=id,
        agent=agent,
        mode=mode,
        tags=cast("tuple[str, ...]", tags),
        sent_at=sent_at,
        source=source,
        verbatim=verbatim,
        payload_json=_json(payload, "payload"),
        metadata_json=_json(metadata, "metadata"),
        provider_json=_json(provider, "provider"),
    )


def flush(
    *,
    reason: str = "",
    scope: Scope | None = None,
    id: str | None = None,
    agent: str | None = None,
    mode: Mode | None = None,
    tags: tuple[str, ...] | list[str] = (),
    sent_at: int | None = None,
    source: str | None = None,
    verbatim: bool = False,
    payload: object = UNSET,
    metadata: Mapping[str, object] | UnsetType = UNSET,
    provider: Mapping[str, object] | UnsetType = UNSET,
) -> FlushMarker:
    """Build the marker that hides all that came before it from models.

    ``reason`` is for people; ``scope`` says how far back it reaches. The other
    keywords are the fields of ``FlushMarker`` (see ``user``). Raises ``MessageError``.
    """
    return FlushMarker(
        reason=reason,
        scope=scope,
        id=id,
        agent=agent,
        mode=mode,
        tags=cast("tuple[str, ...]", tags),
        sent_at=sent_at,
        source=source,
        verbatim=verbatim,
        payload_json=_json(payload, "payload"),
        metadata_json=_json(metadata, "metadata"),
        provider_json=_json(provider, "provider"),
    )


def tool_call(
    name: str,
    arguments: Mapping[str, Any] | str = "",
    *,
    id: str,
    custom: bool = False,
    provider: Mapping[str, Any] | None = None,
) -> ToolCall:
    """Build a tool call.

    ``name`` is that of the tool, ``arguments`` are parsed arguments, or the model's own text. ``id`` pairs the call
    with its result. ``custom`` says that the arguments are free text; ``provider`` are fields of one wire, by its
    name. Raises ``MessageError``.
    """
    if not isinstance(arguments, (str, dict)):
        raise MessageError(f"arguments: expected a dict or JSON text, got {type(arguments).__name__}")
    text = arguments if isinstance(arguments, str) else bytes(jsontext.checked(arguments, "arguments")).decode()
    if custom and isinstance(arguments, str):
        text = jsontext.encode(arguments).decode()
    call = ToolCall(id, name, text, custom)
    return call if provider is None else call.replace(provider=provider)
