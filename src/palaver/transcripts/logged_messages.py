"""The messages of a logged call, whose request and answer may be of any wire, of LangChain, or a text.

Rules:

- ``palaver.wires.detect`` says of which wire a value is; messages of LangChain are known by their type.
- A text is a user's message, or an answer; a text that is JSON is read as what it holds. Lists in lists are LangChain's
  batches: the first counts. Another object is an answer as JSON text.
- A message that cannot be read is noted, and the others are read.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message
from palaver.transcripts.calls import answered
from palaver.transcripts.fields import as_object, integer, listed, split, string
from palaver.transcripts.langchain.reader import plain_message
from palaver.transcripts.unknown_fields import Watch
from palaver.wires.detect import LIST_KEYS, detect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.core.usage import Usage
    from palaver.transcripts.calls import Note

_LC_TYPES: Final = frozenset(("human", "ai", "system", "tool", "function", "chat", "constructor", "AIMessageChunk"))
_INSIDE: Final = ("messages", "input", "inputs", "prompts", "prompt", "question", "query")
_EMPTY: Final = frozenset((b"null", b'""', b"[]", b"{}", b'"{}"', b'"[]"'))
_ANSWERS: Final = ("output", "outputs", "answer", "response", "text", "content", "result")


def asked(fields: Fields, key: str, note: Note) -> list[Message]:
    """Return the messages of a request under a key."""
    return _noted(fields.get(key), _asked(fields.get(key), note), key, note)


def answers(fields: Fields, key: str, note: Note) -> list[Message]:
    """Return the answers of a response under a key: several if there are several choices."""
    return _noted(fields.get(key), _answers(fields.get(key), note), key, note)


def _noted(raw: Raw | None, found: list[Message], key: str, note: Note) -> list[Message]:
    """Return messages; a value without any is noted."""
    if raw is not None and not found and bytes(raw).strip() not in _EMPTY:
        note("unread", f"{key}: no messages in {jsontext.kind(raw)}")
    return found


def _asked(raw: Raw | None, note: Note, depth: int = 0) -> list[Message]:
    kind = "null" if raw is None or depth > len(_INSIDE) else jsontext.kind(raw)
    if raw is None or kind == "null":
        return []
    if kind == "a string":
        text = jsontext.text(raw)
        inside = _json_in(text)
        return _asked(inside, note, depth + 1) if inside is not None else _user(text)
    if kind == "an array":
        items = jsontext.items(raw)
        if items and jsontext.kind(items[0]) == "an array":
            return _asked(items[0], note, depth + 1)
        if items and all(jsontext.kind(each) == "a string" for each in items):
            return [message for each in items for message in _user(jsontext.text(each))]
        return _listed(raw, note)
    fields = as_object(raw)
    found = detect(jsontext.value(raw)) if fields else None
    if found is not None and found.kind == "request" and found.wires and not _is_langchain_list(fields):
        try:
            return list(wires.get(found.wires[0]).decode_request(bytes(raw)).messages)
        except PalaverError:
            pass  # message by message
    if _is_message(fields):
        return _listed(jsontext.raw([raw]), note)
    key = next((key for key in _INSIDE if key in fields), None)
    return _asked(fields[key], note, depth + 1) if key is not None else []


def _answers(raw: Raw | None, note: Note, depth: int = 0) -> list[Message]:
    kind = "null" if raw is None or depth > len(_ANSWERS) else jsontext.kind(raw)
    if raw is None or kind == "null":
        return []
    if kind == "a string":
        text = jsontext.text(raw)
        inside = _json_in(text)
        return _answers(inside, note, depth + 1) if inside is not None else _said(text)
    if kind == "an array":
        said = _listed(raw, note) or _content(raw, note)
        return list(filter(_is_answer, said))[-1:]
    fields = as_object(raw)
    if not fields:
        return []
    if "generations" in fields:
        return _generations(fields, note, depth)
    found = detect(jsontext.value(raw))
    if found is not None and found.kind == "response" and found.wires:
        try:
            response = wires.get(found.wires[0]).decode_response(bytes(raw))
        except PalaverError as error:
            note("unread", str(error))
            return []
        return [response.message, *response.alternatives]
    if _is_message(fields):
        return list(filter(_is_answer, _listed(jsontext.raw([raw]), note)))
    if "messages" in fields:
        return _answers(fields["messages"], note, depth + 1)
    key = next((key for key in _ANSWERS if key in fields), None)
    if key is not None:
        return _answers(fields[key], note, depth + 1)
    return _said(bytes(raw).decode("utf-8", "replace"))


def usage_of(fields: Fields, given: Sequence[str], made: Sequence[str]) -> Usage | None:
    """Return the usage of counters, each under the first of its keys that is there."""
    counts = [next((n for key in keys if (n := integer(fields, key)) is not None), None) for keys in (given, made)]
    if counts == [None, None]:
        return None
    return trusted.Usage(input=counts[0], output=counts[1], raw_json=jsontext.own(jsontext.raw(dict(fields))))


def _user(text: str) -> list[Message]:
    return [trusted.UserMessage(content=(trusted.Text(text),))] if text else []


def _said(text: str) -> list[Message]:
    return [trusted.AssistantMessage(content=(trusted.Text(text),))] if text else []


def _is_answer(message: Message) -> bool:
    return isinstance(message, AssistantMessage)


def _json_in(text: str) -> Raw | None:
    """Return an object or a list that a text holds."""
    bare = text.strip()
    if not bare.startswith(("{", "[")) or not jsontext.is_json(bare):
        return None
    return jsontext.raw(jsontext.value(bare.encode("utf-8", "surrogatepass")))


def _is_langchain(fields: Fields) -> bool:
    return (
        "role" not in fields
        and (string(fields, "type") or "") in _LC_TYPES
        and ("content" in fields or "data" in fields or "kwargs" in fields)
    )


def _is_message(fields: Fields) -> bool:
    return ("role" in fields and ("content" in fields or "tool_calls" in fields or "parts" in fields)) or _is_langchain(
        fields
    )


def _is_langchain_list(fields: Fields) -> bool:
    raw = fields.get("messages")
    items = jsontext.items(raw) if raw is not None and jsontext.kind(raw) == "an array" else []
    return bool(items) and (jsontext.kind(items[0]) != "an object" or _is_langchain(split(items[0])))


def _listed(raw: Raw, note: Note) -> list[Message]:
    """Return the messages of a list."""
    items = [each for each in map(split, jsontext.items(raw)) if _is_message(each)]
    if any(map(_is_langchain, items)):
        return [message for each in items for message in _one(each, note)]
    found = detect(jsontext.value(raw))
    wire = found.wires[0] if found is not None and found.wires else "openai_chat"
    try:
        body = jsontext.encode({LIST_KEYS[wire]: raw})
        return list(wires.get(wire).decode_request(body).messages) if items else []
    except PalaverError:
        return [message for each in items for message in _one(each, note, wire)]


def _one(fields: Fields, note: Note, wire: str = "openai_chat") -> list[Message]:
    try:
        if _is_langchain(fields):
            return [plain_message(fields, Watch(), None)]
        return list(wires.get(wire).decode_request(jsontext.encode({LIST_KEYS[wire]: [fields]})).messages)
    except PalaverError as error:
        note("unread", str(error))
        return []


def _content(raw: Raw, note: Note) -> list[Message]:
    """Return an answer whose content is a list of blocks."""
    if not all("type" in split(each) for each in jsontext.items(raw)):
        return []
    return _listed(jsontext.raw([{"role": "assistant", "content": raw}]), note)


def _generations(fields: Fields, note: Note, depth: int) -> list[Message]:
    """Return the answers of LangChain's result: those of the first prompt."""
    batches = listed(fields, "generations")
    nested = bool(batches) and jsontext.kind(batches[0]) == "an array"
    first = jsontext.items(batches[0]) if nested else batches
    found: list[Message] = []
    for each in map(split, first):
        raw = each.get("message", each.get("text"))
        found += _answers(raw, note, depth + 1)
    return found


def with_data(messages: Sequence[Message], **beside: Any) -> list[Message]:
    """Return answers with data from beside them; usage goes to the first."""
    found: list[Message] = []
    for place, message in enumerate(messages):
        mine = beside if place == 0 else {**beside, "usage": None}
        found.append(answered(cast("AssistantMessage", message), **mine))
    return found
