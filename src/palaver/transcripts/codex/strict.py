"""The parts of response items that the program's own types read: written items are reduced to them.

Rules:

- The program reads a line whole or not at all: with an unknown kind of content, or a field of another type, it skips
  the line. So items are reduced to the kinds and keys of the table (``ITEMS``), content to texts and images.
- Calls of tools that it does not know are function calls, and their results too. Those that a provider ran are left
  out.
- Arguments are text, and stay as the model wrote them, even if they are not JSON.
- Texts of a refusal are texts. Losses are reported to ``lose``.

Source: the program's types of response items (codex-rs/protocol).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.transcripts.codex.shapes import CONTENT, ITEMS, NOTES, RESULTS, WIRE, native_type
from palaver.transcripts.conversation import derived_id
from palaver.transcripts.fields import listed, split, string

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.messages import AssistantMessage, Message
    from palaver.core.parts import AnyPart

M = TypeVar("M", bound="Message")

_STRING: Final = ("a string", "null")
_STRINGS: Final = frozenset(("id", "status", "phase", "namespace", "encrypted_content", "revised_prompt"))
_NEEDED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "message": {"role": ("a string",)},
    "reasoning": {"summary": ("an array",)},
    "function_call": dict.fromkeys(("name", "arguments", "call_id"), ("a string",)),
    "custom_tool_call": dict.fromkeys(("name", "input", "call_id"), ("a string",)),
    "function_call_output": {"call_id": ("a string",), "output": ("a string", "an array")},
    "custom_tool_call_output": {"call_id": ("a string",), "output": ("a string", "an array")},
    "local_shell_call": {"action": ("an object",)},
    "tool_search_output": {"tools": ("an array",)},
    "compaction": {"encrypted_content": ("a string",)},
}
"""The required fields of an item, and their types."""
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "reasoning": {"encrypted_content": None},
    "local_shell_call": {"status": "completed"},
    "web_search_call": {"action": {"type": "other"}},
    "tool_search_call": {"execution": "server"},
    "tool_search_output": {"execution": "server", "status": "completed"},
    "image_generation_call": {"id": "ig_0", "status": "completed", "result": ""},
}
_UNSAID: Final = frozenset((("annotations", b"[]"), ("detail", b'"auto"')))
"""The values that the wire writes for missing fields of a part."""
_KINDS: Final = {("web_search_call", "action"): "an object"}


# -- before the wire ---------------------------------------------------------------------------------------------------


def without_extra_fields(message: M) -> M:
    """Return a message with only calls and results that the program knows."""
    content = cast("tuple[AnyPart, ...]", message.content)
    parts: Any = tuple([_part(each) for each in content])
    plain = structs.replace(message, content=parts)
    kind = native_type(plain)
    return plain if kind is None or kind in ITEMS else structs.replace(plain, provider_json=UNSET)


def _part(part: AnyPart) -> AnyPart:
    if isinstance(part, ToolCall) and not part.provider_executed:
        kind = native_type(part)
        return part if kind is None or kind in ITEMS else structs.replace(part, provider_json=UNSET)
    return part


def with_calls(message: AssistantMessage, name: str) -> tuple[AssistantMessage, dict[str, str]]:
    """Return a message with calls that the wire accepts, and the arguments of other calls, by id."""
    raws: dict[str, str] = {}
    content: list[Any] = []
    for place, part in enumerate(message.content):
        if isinstance(part, MalformedToolCall):
            named = part.id or derived_id(name, place)
            raws[named] = part.raw
            content.append(trusted.ToolCall(named, part.name or "unknown", provider_json=part.provider_json))
        else:
            content.append(part)
    return (structs.replace(message, content=tuple(content)) if raws else message), raws


def with_text(item: Raw, raws: dict[str, str]) -> Raw:
    """Return a call with its arguments as the model wrote them."""
    fields = split(item)
    raw = raws.get(string(fields, "call_id") or "")
    if raw is None or string(fields, "type") != "function_call":
        return item
    return jsontext.raw({**fields, "arguments": raw.encode("utf-8", "replace").decode()})


# -- behind the wire ---------------------------------------------------------------------------------------------------


def strict(item: Raw, ids: frozenset[str], lose: Callable[[str, str], None]) -> Raw | None:
    """Return an item as the program reads it; ``None`` for an unreadable one. ``ids`` are those of original items."""
    fields = split(item)
    kind = string(fields, "type") if "type" in fields else "message" if "role" in fields else None
    if kind is None or kind not in ITEMS:
        lose(kind or "item", "the program ignores such items")
        return None
    kept: dict[str, Any] = {"type": kind}
    for key, each in fields.items():
        if key in ITEMS[kind]:
            kept |= {} if key == "type" else {key: each}
        else:
            lose(key, f"the program has no such field of a {kind}")
    _unmade(kept, ids)
    if kind == "message":
        kept["content"] = _content(kept, lose)
    elif kind in RESULTS and jsontext.kind(kept.get("output", jsontext.NULL)) == "an array":
        kept["output"] = _parts(kept["output"], "input_text", lose)
    return _checked(kept, lose)


def _checked(kept: dict[str, Any], lose: Callable[[str, str], None]) -> Raw | None:
    """Return an item whose fields have the types that the program reads."""
    kind = kept["type"]
    fields = split(jsontext.raw(kept))
    for key, default in _DEFAULTS.get(kind, {}).items():
        if key not in fields or jsontext.kind(fields[key]) not in _KINDS.get((kind, key), "a string"):
            fields[key] = jsontext.raw(default)
    for key in [key for key in fields if key in _STRINGS and jsontext.kind(fields[key]) not in _STRING]:
        lose(key, "the program reads a string there")
        del fields[key]
    for key, wanted in _NEEDED.get(kind, {}).items():
        if key not in fields or jsontext.kind(fields[key]) not in wanted:
            lose(kind, f"the program expects {' or '.join(wanted)} as {key}")
            return None
    return jsontext.raw(fields)


def ids_of(message: Message) -> frozenset[str]:
    """Return the original ids of a message's items: any other was made by the wire."""
    found: list[Any] = []
    for each in (message, *message.content):
        item: Any = each.provider.get(NOTES, {}).get("item", {})
        named = cast("Mapping[str, Any]", item).get("id") if isinstance(item, Mapping) else None
        found += [each.provider.get(WIRE, {}).get("id"), named]
    return frozenset(each for each in found if isinstance(each, str))


def _unmade(kept: dict[str, Any], ids: frozenset[str]) -> None:
    """Remove an id and a status that the wire added; the program reads no status of a message or a call."""
    if "id" in kept and string(kept, "id") not in ids and kept["type"] != "image_generation_call":
        del kept["id"]
    if kept["type"] in {"message", "function_call"}:
        kept.pop("status", None)


def _content(kept: dict[str, Any], lose: Callable[[str, str], None]) -> list[Any]:
    said = string(kept, "role") == "assistant"
    usual = "output_text" if said else "input_text"
    content = kept.get("content", jsontext.raw([]))
    if jsontext.kind(content) == "a string":
        return [{"type": usual, "text": content}]
    return _parts(content, usual, lose)


def _parts(content: Raw, usual: str, lose: Callable[[str, str], None]) -> list[Any]:
    parts: list[Any] = []
    for each in listed({"content": content}, "content"):
        fields = split(each)
        kind = string(fields, "type")
        if kind == "refusal" and string(fields, "refusal") is not None:
            lose("refusal", "written as text")
            parts.append({"type": usual, "text": fields["refusal"]})
        elif kind == "input_image" and string(fields, "image_url") is None:
            lose("image", "the program reads images by their URL only")
        elif kind not in CONTENT or (kind != "input_image" and string(fields, "text") is None):
            lose((kind or "part").removeprefix("input_"), "the program reads texts and images only")
        else:
            parts.append({key: part for key, part in fields.items() if (key, bytes(part)) not in _UNSAID})
    return parts
