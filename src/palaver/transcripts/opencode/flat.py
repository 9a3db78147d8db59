"""Messages of version 2 of opencode's exports, which have no parts (docs/spec/dialects.md#7).

Rules:

- An answer is one message; the results of its calls follow it. ``executed`` calls have theirs beside them.
- ``synthetic`` and ``skill`` texts are sent and not shown; a ``shell`` command is what the user is told to have run.
- A ``compaction`` is its summary, and ``recent``, what it kept as a text.
- What nobody says (switches of agent, model and place, ``idle``) is a record.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from palaver.core import jsontext, trusted
from palaver.core.messages import Message, ToolMessage
from palaver.core.parts import AnyPart, ServerToolResult
from palaver.threads.view import PLACEHOLDER
from palaver.transcripts import packages
from palaver.transcripts.fields import as_json, inner, integer, listed, split, string, value
from palaver.transcripts.opencode import shapes
from palaver.transcripts.opencode.shapes import NAME
from palaver.transcripts.times import read_time

if TYPE_CHECKING:
    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.transcripts.unknown_fields import Watch


class Flat:
    """Reads messages of version 2."""

    def __init__(self, watch: Watch) -> None:
        """Report to ``watch``."""
        self._watch = watch

    def plain(self, fields: Fields) -> list[Message]:
        """What a record says; empty when it says nothing."""
        kind = string(fields, "type") or ""
        known = shapes.FLAT.get(kind)
        if known is None:
            self._watch.note("record", kind or "without a type")
            return []
        self._watch.keys(fields, known, kind)
        at = read_time(value(inner(fields, "time"), "created"))
        text = string(fields, "text")
        said = (trusted.Text(text),) if text is not None else ()
        match kind:
            case "user":
                content: Any = (*said, *(_file(split(each)) for each in listed(fields, "files")))
                return [trusted.UserMessage(content=content, sent_at=at)]
            case "synthetic" | "skill" if said:
                return [trusted.UserMessage(content=said, source=kind, sent_at=at)]
            case "system" if said:
                return [trusted.SystemMessage(content=said, sent_at=at)]
            case "shell":
                ran = f"Ran `{string(fields, 'command') or ''}`\n```\n{string(fields, 'output') or ''}\n```"
                return [trusted.UserMessage(content=(trusted.Text(ran),), sent_at=at)]
            case "compaction" if string(fields, "summary") is not None:
                texts = (string(fields, "summary"), string(fields, "recent"))
                return [trusted.UserMessage(content=(trusted.Text(each),), sent_at=at) for each in texts if each]
            case "assistant":
                return self._assistant(fields, at)
            case _:
                return []

    def _assistant(self, fields: Fields, at: int | None) -> list[Message]:
        content: list[Any] = []
        results: list[ToolMessage] = []
        for raw in listed(fields, "content"):
            made, result = self._block(raw)
            content += made
            results += () if result is None else (result,)
        usage = shapes.usage_of(fields)
        if not content and (usage is None or not usage.total):
            return []
        stop = string(fields, "finish")
        raw_stop = string(fields, "rawFinish") or stop
        failed = "error" in fields and not jsontext.is_null(fields["error"])
        answer = trusted.AssistantMessage(
            content=tuple(content),
            model=string(inner(fields, "model"), "id"),
            usage=usage,
            finish_reason="error" if failed else None if stop is None else shapes.FINISH.get(stop, "other"),
            finish_reason_raw=UNSET if raw_stop is None else raw_stop,
            sent_at=at,
        )
        if failed:
            answer = answer.replace(metadata={"error": jsontext.value(fields["error"])})
        tags = (PLACEHOLDER,) if failed and not content else ()
        return [answer.replace(tags=tags), *results]

    def _block(self, raw: Raw) -> tuple[list[AnyPart], ToolMessage | None]:
        fields = split(raw)
        kind = string(fields, "type") or "without a type"
        known = shapes.BLOCKS.get(kind)
        if known is None:
            self._watch.note("block", kind)
            return [trusted.Opaque(NAME, jsontext.own(raw))], None
        self._watch.keys(fields, known, kind)
        metadata = inner(fields, "providerState") or inner(fields, "providerMetadata")
        text = string(fields, "text") or ""
        match kind:
            case "text":
                return [packages.marked(trusted.Text(text), metadata, NAME)], None
            case "reasoning":
                return [packages.reasoning(text, metadata, NAME)], None
            case _:
                return self._tool(fields, metadata)

    def _tool(self, fields: Fields, metadata: Fields) -> tuple[list[AnyPart], ToolMessage | None]:
        state, name, named = inner(fields, "state"), string(fields, "name") or "", string(fields, "id") or ""
        self._watch.keys(state, shapes.STATE, "state")
        given = state.get("input", jsontext.EMPTY_OBJECT)
        text = jsontext.text(given) if jsontext.kind(given) == "a string" else bytes(given).decode()
        if not jsontext.is_json(text) or jsontext.kind(as_json(text)) != "an object":
            return [trusted.MalformedToolCall(text, "the arguments were still streaming", name, named)], None
        executed = value(fields, "executed") is True or value(inner(fields, "provider"), "executed") is True
        call = packages.marked(trusted.ToolCall(named, name, text, provider_executed=executed), metadata, NAME)
        status = string(state, "status")
        if status not in {"completed", "error"}:
            return [call], None
        content = [_content(each) for each in listed(state, "content")]
        if not content and inner(state, "structured"):
            content = [trusted.Json(jsontext.own(state["structured"]))]
        if status == "error":
            told = string(inner(state, "error"), "message")
            content = [*content, *(() if told is None else (trusted.Text(told),))]
        failed = (
            status == "error" or name == shapes.INVALID or integer(inner(state, "structured"), "exit") not in {None, 0}
        )
        at = read_time(value(inner(fields, "time"), "completed"))
        stored: Any = tuple(content)
        if executed:
            output = jsontext.own(state["result"]) if "result" in state else jsontext.raw(listed(state, "content"))
            return [call, ServerToolResult(named, output, NAME, name, is_error=failed)], None
        return [call], trusted.ToolMessage(
            content=stored, tool_call_id=named, tool_name=name, is_error=failed, sent_at=at
        )


def _content(raw: Raw) -> Any:
    fields = split(raw)
    if string(fields, "type") == "text":
        return trusted.Text(string(fields, "text") or "")
    return _file(fields) if "uri" in fields else trusted.Opaque(NAME, jsontext.own(raw))


def _file(fields: Fields) -> AnyPart:
    return packages.media(string(fields, "uri") or "", string(fields, "mime"), string(fields, "name"), NAME)
