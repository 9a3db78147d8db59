"""What the program's own types read of response items: what is written is cut to that.

Rules:

- The program reads a line whole or not at all: an unknown kind of content, or a field of another kind, and the line is
  passed over. So items are cut to the kinds and keys of the table (``ITEMS``), content to texts and images.
- Calls of tools that it does not know are function calls, and their results too. Those that a provider ran are left
  out.
- Arguments are text, and stay as the model wrote them, also where they are no JSON.
- Texts of a refusal are texts. What cannot be said is told to ``lose``.

Source: the program's types of response items (codex-rs/protocol).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext
from palaver.core.parts import Image, MalformedToolCall, ToolCall
from palaver.dialects.codex.forms import CONTENT, ITEMS, RESULTS, WIRE
from palaver.dialects.conversation import derived_id
from palaver.dialects.fields import listed, split, string

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.messages import AssistantMessage, Message
    from palaver.core.parts import AnyPart

M = TypeVar("M", bound="Message")

_TYPE: Final = "@@type"


# -- before the wire ---------------------------------------------------------------------------------------------------


def told_plainly(message: M) -> M:
    """A message whose calls and results the program knows, and whose images have no more fields than they had."""
    content = cast("tuple[AnyPart, ...]", message.content)
    parts: Any = tuple([_part(each) for each in content])
    plain = structs.replace(message, content=parts)
    kind = _native_type(plain)
    return plain if kind is None or kind in ITEMS else structs.replace(plain, provider_json=UNSET)


def _part(part: AnyPart) -> AnyPart:
    if isinstance(part, ToolCall) and not part.provider_executed:
        kind = _native_type(part)
        return part if kind is None or kind in ITEMS else structs.replace(part, provider_json=UNSET)
    if isinstance(part, Image):
        held = dict(part.provider.get(WIRE, {}))
        if "detail" not in held:
            return part.replace(provider={**part.provider, WIRE: {**held, "@@detail": "absent"}})
    return part


def with_calls(message: AssistantMessage, name: str) -> tuple[AssistantMessage, dict[str, str]]:
    """A message whose calls the wire takes, and the arguments of those that it would not, by id."""
    raws: dict[str, str] = {}
    content: list[Any] = []
    for place, part in enumerate(message.content):
        if isinstance(part, MalformedToolCall):
            named = part.id or derived_id(name, place)
            raws[named] = part.raw
            content.append(ToolCall(named, part.name or "unknown", provider_json=part.provider_json))
        else:
            content.append(part)
    return (structs.replace(message, content=tuple(content)) if raws else message), raws


def with_text(item: Raw, raws: dict[str, str]) -> Raw:
    """A call with its arguments as the model wrote them."""
    fields = split(item)
    raw = raws.get(string(fields, "call_id") or "")
    if raw is None or string(fields, "type") != "function_call":
        return item
    return jsontext.raw({**fields, "arguments": raw.encode("utf-8", "replace").decode()})


def _native_type(node: Any) -> str | None:
    found = node.provider.get(WIRE, {}).get(_TYPE)
    return found if isinstance(found, str) else None


# -- behind the wire ---------------------------------------------------------------------------------------------------


def strict(item: Raw, ids: frozenset[str], lose: Callable[[str, str], None]) -> Raw | None:
    """An item as the program reads it; ``None`` when it reads none of it. ``ids`` are those that items came with."""
    fields = split(item)
    kind = string(fields, "type") or ("message" if "role" in fields else "")
    if kind not in ITEMS:
        lose(kind or "item", "the program passes over such items")
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
    elif kind == "reasoning":
        kept.setdefault("encrypted_content", None)
    elif kind == "local_shell_call":
        kept.setdefault("status", "completed")
    elif kind == "web_search_call":
        kept.setdefault("action", {"type": "other"})
    elif kind == "image_generation_call":
        kept = {"id": "ig_0", "status": "completed", "result": ""} | kept
    elif kind == "tool_search_output":
        kept.setdefault("status", "completed")
    return jsontext.raw(kept)


def ids_of(message: Message) -> frozenset[str]:
    """The ids that items of a message came with: any other was made up by the wire."""
    held = [part.provider.get(WIRE, {}) for part in (message, *message.content)]
    found: list[Any] = []
    for fields in held:
        item = fields.get("item")
        inner = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {}
        found += [fields.get("id"), inner.get("id")]
    return frozenset(each for each in found if isinstance(each, str))


def _unmade(kept: dict[str, Any], ids: frozenset[str]) -> None:
    """Leave out an id and a status that the wire made up; the program reads no status of a message or a call."""
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
        if kind == "refusal":
            lose("refusal", "written as text")
            parts.append({"type": usual, "text": fields["refusal"]})
        elif kind == "input_image" and "image_url" not in fields:
            lose("image", "the program reads images by their URL only")
        elif kind not in CONTENT:
            lose((kind or "part").removeprefix("input_"), "the program reads texts and images only")
        else:
            parts.append({key: part for key, part in fields.items() if (key, bytes(part)) != ("annotations", b"[]")})
    return parts
