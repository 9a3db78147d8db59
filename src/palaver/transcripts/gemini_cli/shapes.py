"""The names in Gemini CLI's chat files, and the reading of one message (docs/spec/dialects.md#14).

Rules:

- A ``gemini`` message is one answer and the results of its calls: thoughts, then the content, then the calls.
- Contents are parts of ``google_generate``; a string is a text, and "" beside thoughts or calls is no part.
- Thoughts are summaries: ``**subject**`` and the description, without a proof. They are never sent again.
- ``tokens.input`` includes cached tokens; the input of Google's tools (``tool``) is input too.
- ``info``, ``error`` and ``warning`` were shown to the user: placeholders, which no model sees.
- ``displayContent`` and ``resultDisplay`` are what the user saw of a message: they stay in its record.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.messages import Message, ToolMessage
from palaver.core.parts import AssistantPart, MalformedToolCall, Reasoning, ToolCall
from palaver.core.usage import Usage
from palaver.threads.view import PLACEHOLDER
from palaver.transcripts import extension_slot
from palaver.transcripts.fields import inner, integer, listed, read_time, split, string, value
from palaver.transcripts.salvage import salvaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.jsontext import Fields
    from palaver.transcripts.unknown_fields import Watch

NAME: Final = "gemini_cli"
WIRE: Final = "google_generate"
NOTICES: Final = frozenset(("info", "error", "warning"))

METADATA: Final = frozenset(
    (
        "sessionId",
        "projectHash",
        "startTime",
        "lastUpdated",
        "kind",
        "directories",
        "summary",
        "messages",
        "memoryScratchpad",
        extension_slot.SLOT,
    )
)
_MESSAGE: Final = frozenset(("id", "timestamp", "type", "content", "displayContent", extension_slot.SLOT))
_KEYS: Final = {
    "user": _MESSAGE,
    "gemini": _MESSAGE | {"toolCalls", "thoughts", "tokens", "model"},
    **dict.fromkeys(NOTICES, _MESSAGE),
}
_CALL: Final = frozenset(
    (
        "id",
        "name",
        "args",
        "result",
        "status",
        "timestamp",
        "agentId",
        "resultDisplay",
        "displayName",
        "description",
        "renderOutputAsMarkdown",
    )
)
_THOUGHT: Final = frozenset(("subject", "description", "timestamp"))
_LINES: Final = re.compile(rb"[\r\n]+[ \t]*")  # strings contain none
_FAILED: Final = frozenset(("error", "cancelled"))


class Form:
    """Reads messages."""

    def __init__(self, watch: Watch) -> None:
        """Report unexpected contents to ``watch``."""
        self._watch = watch
        self._wire = wires.get(WIRE)

    def messages(self, fields: Fields, line: int | None) -> list[Message]:
        """Return the messages of a row, with carried data. Raises ``PalaverError``."""
        plain = self.plain(fields, line)
        slot = fields.get(extension_slot.SLOT)
        found = None if slot is None else extension_slot.restored(plain, jsontext.value(slot))
        return plain if found is None else list(found)

    def plain(self, fields: Fields, line: int | None = None) -> list[Message]:
        """Return the messages of a row; empty for an unknown type. Raises ``PalaverError``."""
        fields = {key: _on_one_line(raw) for key, raw in fields.items()}
        kind = string(fields, "type") or ""
        if kind not in _KEYS:
            self._watch.note("unread", f"message of type {kind}", line)
            return []
        self._watch.keys(fields, _KEYS[kind], kind, line)
        sent_at = read_time(value(fields, "timestamp"))
        if kind == "user":
            read = self._contents("user", fields.get("content"))
            return [structs.replace(each, sent_at=sent_at) for each in read]
        if kind == "gemini":
            return self._answer(fields, line, sent_at)
        said = self._contents("model", fields.get("content"))
        content = said[0].content if said else ()
        notice = trusted.AssistantMessage(content=content, tags=(PLACEHOLDER,), sent_at=sent_at)  # type: ignore[arg-type]
        return [notice.replace(provider={NAME: {"type": kind}})]

    def _contents(self, role: str, content: Raw | None) -> tuple[Message, ...]:
        """Return the messages of a string, a part, or parts and strings."""
        if content is None or jsontext.is_null(content):
            given: list[Any] = []
        elif jsontext.kind(content) == "an array":
            given = [_part(each) for each in jsontext.items(content)]
        else:
            given = [_part(content)]
        body = jsontext.encode({"contents": [{"role": role, "parts": given}]})
        read: list[Any] = salvaged(
            lambda given: self._wire.decode_request(given).messages, body, NAME, self._watch.note
        )
        return tuple(read) or (trusted.UserMessage(),)

    def _answer(self, fields: Fields, line: int | None, sent_at: int | None) -> list[Message]:
        said = self._contents("model", fields.get("content"))[0]
        thoughts = [_thought(split(raw)) for raw in listed(fields, "thoughts")]
        for raw in listed(fields, "thoughts"):
            self._watch.keys(split(raw), _THOUGHT, "thoughts", line)
        calls = [split(raw) for raw in listed(fields, "toolCalls")]
        content: list[Any] = list(said.content)
        if value(fields, "content") == "" and (thoughts or calls):
            content = []
        listed_once = {string(call, "id") for call in calls}  # the program may repeat a call in the content
        content = [each for each in content if not (isinstance(each, ToolCall) and each.id in listed_once)]
        made: list[AssistantPart] = [*thoughts, *content]
        results: list[Message] = []
        for place, call in enumerate(calls):
            self._watch.keys(call, _CALL, "toolCalls", line)
            part = _call(call, f"{string(fields, 'id') or 'call'}_{place}")
            made.append(part)
            results += self._result(call, part, sent_at)
        message = trusted.AssistantMessage(
            content=tuple(made),
            model=string(fields, "model"),
            usage=usage_of(fields),
            finish_reason="tool_calls" if calls else None,
            sent_at=sent_at,
            provider_json=said.provider_json,
        )
        return [message, *results]

    def _result(self, call: Fields, part: ToolCall | MalformedToolCall, sent_at: int | None) -> Iterator[ToolMessage]:
        """Yield the result of a call, if it was recorded."""
        raw = call.get("result")
        if raw is None or jsontext.is_null(raw):
            return
        given = jsontext.items(raw) if jsontext.kind(raw) == "an array" else [raw]
        asked: dict[str, Any] = {"functionCall": {"id": part.id or "", "name": part.name or "", "args": {}}}
        contents: list[Any] = [
            {"role": "model", "parts": [asked]},
            {"role": "user", "parts": [_part(each) for each in given]},
        ]
        read = self._wire.decode_request(jsontext.encode({"contents": contents})).messages[1:]
        failed = any(isinstance(each, ToolMessage) and each.is_error for each in read)
        at = read_time(value(call, "timestamp"))
        content: Any = tuple([each for message in read for each in message.content])
        yield trusted.ToolMessage(
            content=content,
            tool_call_id=part.id,
            tool_name=part.name,
            is_error=failed or string(call, "status") in _FAILED,
            sent_at=sent_at if at is None else at,
        )


def usage_of(fields: Fields) -> Usage | None:
    """Return the usage of an answer."""
    counts = inner(fields, "tokens")
    if not counts:
        return None
    cached, tools, given = integer(counts, "cached"), integer(counts, "tool"), integer(counts, "input")
    fresh = None if given is None else max(0, given - (cached or 0)) + (tools or 0)
    return trusted.Usage(
        input=fresh,
        cache_read=cached,
        output=integer(counts, "output"),
        reasoning=integer(counts, "thoughts"),
        raw_json=jsontext.own(fields["tokens"]),
    )


def _on_one_line(raw: Raw) -> Raw:
    """Return a value of an indented document on one line, as a message can hold it."""
    text = bytes(raw)
    return raw if b"\n" not in text else jsontext.own(Raw(_LINES.sub(b" ", text)))


def _part(raw: Raw) -> Any:
    """Return a part; a string is a text part."""
    return {"text": jsontext.text(raw)} if jsontext.kind(raw) == "a string" else raw


def _thought(fields: Fields) -> Reasoning:
    subject, description = string(fields, "subject") or "", string(fields, "description") or ""
    text = f"**{subject}**\n{description}" if subject else description
    at = {"timestamp": value(fields, "timestamp")} if "timestamp" in fields else {}
    return trusted.Reasoning(text, provider_json=jsontext.raw({NAME: at}) if at else UNSET)


def _call(fields: Fields, made_id: str) -> ToolCall | MalformedToolCall:
    called, name = string(fields, "id") or made_id, string(fields, "name") or ""
    given = fields.get("args", jsontext.EMPTY_OBJECT)
    text = bytes(given).decode()
    if jsontext.kind(given) != "an object":
        return trusted.MalformedToolCall(text, "the arguments are not an object", name, called)
    agent = string(fields, "agentId")
    return trusted.ToolCall(
        called, name, text, provider_json=UNSET if agent is None else jsontext.raw({NAME: {"agentId": agent}})
    )
