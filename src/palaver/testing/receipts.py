"""Is a receipt complete? Compare what a request says with what the body says, value by value.

``check_receipt`` returns complaints, an empty list for a body and a receipt that account for everything:

- Each value of the request (text, call, result, medium, proof, field, setting, tool and its fields, form of the
  answer) stands in the body, or a loss names its place.
- Each text of the body stands in the request, unless the receipt tells of something that was converted.
- No empty value (``null``, ``""``, ``[]``) stands in the body of a fitted request unless somebody said it or the format
  has it.
- No address in the body is one that only this machine can open.

What no wire is meant to say (ids, times, tags, agents, modes, sources, payloads, metadata) is not looked at. A request
that goes back unedited is compared by law 2 instead.

Stability: experimental.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, Raw, Struct, structs

from palaver import wires
from palaver.core import canonical, jsontext, media_types
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, FlushMarker, RescueMarker, ToolMessage
from palaver.core.parts import (
    Blob,
    File,
    FileId,
    Inline,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
)
from palaver.core.surrogates import sayable, sayable_json
from palaver.core.tools import ProviderTool, Tool
from palaver.testing.tables import row
from palaver.wires._engine import json_fields, metadata, vendors
from palaver.wires._engine.thinking import DYNAMIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.parts import AnyPart
    from palaver.core.request import Encoded, OutputFormat, Request
    from palaver.core.value import Value

__all__ = ["check_receipt"]

_EMPTY: Final = ("null", '""', "[]")
_FORMS: Final[dict[str, frozenset[tuple[str, str]]]] = {
    "openai_chat": frozenset({("content", "null"), ("arguments", '""'), ("reasoning_content", '""')}),
    "openai_responses": frozenset(
        {("summary", "[]"), ("annotations", "[]"), ("arguments", '""'), ("parameters", "null")}
    ),
    "anthropic_messages": frozenset(),
    "google_generate": frozenset(),
    "bedrock_converse": frozenset({("system", "[]")}),
    "cohere_chat": frozenset({("arguments", '""')}),
    "ollama_chat": frozenset({("content", '""'), ("messages", "[]")}),
}
"""Empty values that a format itself has, by their field: Chat Completions wants ``content: null`` beside calls."""
_WORDS: Final = frozenset({"role", "type", "status", "mode", "format", "phase"})
"""Fields whose values are words of a format."""
_FETCHED: Final = ("http://", "https://", "gs://", "s3://", "data:")
_ADDRESSES: Final = frozenset(
    {"url", "image_url", "file_uri", "fileUri", "file_url", "uri", "document_url", "video_url"}
)


class _Said(Struct, frozen=True):
    """One value that a request says. ``json`` values are compared as values, all others as texts."""

    what: str
    value: Any
    message: int | None = None
    part: int | None = None
    json: bool = False
    of_tool: bool = False


class _Body:
    """What a body says: its texts, and all its values in a form that can be looked up."""

    def __init__(self, body: bytes) -> None:
        self.values: set[str] = set()
        self.leaves: list[tuple[str, Any]] = []
        self.names: set[str] = set()
        self._body = json.loads(sayable_json(body.decode()))  # blocks of the wire itself go back as they came
        self._add("", self._body)
        self.texts = "\n".join(each for _, each in self.leaves if isinstance(each, str))
        self.run = "".join("".join(str(each).split()) for key, each in self.leaves if key not in _WORDS)

    def _add(self, key: str, node: Any) -> None:
        self.values.add(_normal(node))
        match node:
            case {**table} if table:
                for name, each in cast("dict[str, Any]", table).items():
                    self.names.add(name)
                    self._add(name, each)
            case [*items] if items:
                for each in items:
                    self._add(key, each)
            case _:
                leaf: Any = node
                self.leaves.append((key, leaf))
                if isinstance(leaf, str):
                    self.values.add(_normal(_parsed(leaf)))

    @cached_property
    def folded(self) -> set[str]:
        """All objects, with their keys folded."""
        return {_folded(each) for each in _objects(self._body)}

    def _holds(self, schema: Any) -> bool:
        """Whether an object has all fields of a schema: most wires want a ``type`` beside them."""
        if not isinstance(schema, dict):
            return False
        asked = {key: _folded(each) for key, each in cast("dict[str, Any]", schema).items()}
        return any(
            asked.items() <= {key: _folded(value) for key, value in each.items()}.items()
            for each in _objects(self._body)
            if asked.keys() <= each.keys()
        )

    def says(self, said: _Said) -> bool:
        """Whether a value of the request stands in the body."""
        if said.json:
            return (
                _normal(said.value) in self.values
                or _written(said.value) in self.texts
                or (said.what == "output" and _folded(said.value) in self.folded)
                or (said.what == "tool parameters" and self._holds(said.value))
            )
        text = str(said.value)
        if text in self.texts:
            return True
        if said.what in _KINDS:
            bare = self.texts.replace("=", "")
            return _standard(text) in bare or _recoded(text) in bare or _decoded(text) in self.texts
        return "".join(text.split()) in self.run  # some formats hold a text in pieces


_KINDS: Final = frozenset({"image", "audio", "video", "file"})


def _standard(data: str) -> str:
    """Base64 in the standard alphabet, without its padding."""
    return data.translate(str.maketrans("-_", "+/")).rstrip("=")


def _recoded(data: str) -> str:
    """Base64 of the same bytes as it is written today: old writers leave bits set behind the last byte."""
    source = Inline(data)
    return b64encode(source.bytes).decode().rstrip("=") if source.valid else data


def _decoded(data: str) -> str:
    """The text that base64 holds, which some wires send as text; the base64 itself where it holds none."""
    try:
        return Inline(data).bytes.decode()
    except (PalaverError, UnicodeDecodeError):
        return data


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    match node:
        case {**table}:
            found = cast("dict[str, Any]", table)
            yield found
            for each in found.values():
                yield from _objects(each)
        case [*items]:
            for each in items:
                yield from _objects(each)
        case _:
            pass


def _folded(node: Any) -> str:
    """A value as JSON without the difference of ``any_of`` and ``anyOf``: Gemini takes a schema in both spellings."""
    return _normal(node).replace("_", "").lower()


def _normal(node: Any) -> str:
    return json.dumps(node, sort_keys=True)


def _written(node: Any) -> str:
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False)


def check_receipt(name: str, request: Request, encoded: Encoded) -> list[str]:
    """Return what is neither in the body nor on the receipt, and what is in the body though nobody said it.

    ``name`` is the wire that encoded the request, with its variant: ``"openai_chat:groq"``.

    Stability: experimental.
    """
    wire, _, variant = name.partition(":")
    if request.origin == name:
        return []
    body = _Body(encoded.body)
    complaints = [
        f"{_place(each)}: {each.what} {_short(each.value)} is neither sent nor on the receipt"
        for each in _of_request(request, name)
        if not body.says(each) and not _on_receipt(each, encoded) and not _is_carried_mark(each, body)
    ]
    complaints += [
        f"{_place(each)}: {each.what} {_short(each.value)} belongs to another vendor and has no loss"
        for each in _foreign(request, wire, variant)
        if not _on_receipt(each, encoded) and not _is_carried_mark(each, body)
    ]
    complaints += _unheard(request, name, encoded)
    complaints += [f"the body names {each!r}, which no provider fetches" for each in _unreachable(request, body)]
    complaints += _unsaid_empties(wire, request, body, encoded)
    if not any(loss.kind != "dropped" for loss in encoded.losses):
        complaints += _unsaid_texts(request, body)
    return complaints


_MARKS: Final = frozenset({"cache_control", "cachePoint"})


def _is_carried_mark(said: _Said, body: _Body) -> bool:
    """Whether it is a cache mark, which the body says in the words of its own wire."""
    value: Any = said.value
    verbatim = said.what in {"block", "provider tool"}
    block = verbatim and isinstance(value, dict) and any(name in value for name in _MARKS)
    return (block or said.what in _MARKS) and not _MARKS.isdisjoint(body.names)


def _place(said: _Said) -> str:
    if said.message is None:
        return "request"
    return f"messages[{said.message}]" + ("" if said.part is None else f".content[{said.part}]")


def _short(value: Any) -> str:
    return repr(value)[:60]


def _on_receipt(said: _Said, encoded: Encoded) -> bool:
    for loss in encoded.losses:
        if said.message is None:
            if loss.message is None and loss.what in {
                said.what,
                "request",
                *_TOGETHER.get("tool" if said.of_tool else said.what, ()),
            }:
                return True
        elif loss.message == said.message and (loss.part in {said.part, None} or loss.what == said.what):
            return True
    return False


_TOGETHER: Final = {
    **dict.fromkeys(("output name", "output description", "output strict"), ("output",)),
    "tool_choice": ("tool name", "tools"),
    "strict": ("tools", "tool_choice"),
    "tool name": ("tool", "tools", "tool_choice"),
    "tool parameters": ("parameters", "tool", "tools", "tool_choice"),
    "custom tool": ("tool", "tools", "tool_choice"),
    "provider tool": ("tool", "tools", "tool_choice"),
    "tool": ("tools", "tool_choice"),
}
"""Losses that account for another value too: a wire may have to leave the tools out."""


# -- what a request says ---------------------------------------------------------------------------


def _of_request(request: Request, name: str) -> Iterator[_Said]:
    wire, _, variant = name.partition(":")
    if request.model is not None and wires.get(wire, variant or None).capabilities.names_model:
        yield _Said("model", request.model)
    for key in ("max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"):
        if (value := getattr(request.settings, key)) is not None:
            yield _Said(key, value, json=True)
    for word in request.settings.stop or ():
        yield _Said("stop", word)
    yield from _of_tools(request)
    yield from _own_fields(request, name, None, None, request)
    yield from _of_output(request.settings.output)
    for index, message in enumerate(request.messages):
        if isinstance(message, RescueMarker | FlushMarker):
            continue
        yield from _own_fields(message, name, index, None, message)
        if isinstance(message, ToolMessage) and message.is_error and message.content:
            continue
        for position, part in enumerate(message.content):
            for said in _of_part(part, wire):
                yield _Said(said.what, said.value, index, position, said.json)
            if not isinstance(part, Reasoning):  # each vendor has another field for it
                yield from _own_fields(part, name, index, position, message)


def _of_tools(request: Request) -> Iterator[_Said]:
    for tool in request.tools:
        if isinstance(tool, Tool):
            yield _Said("tool name", tool.name)
            if tool.description:
                yield _Said("tool", tool.description)
            if tool.strict:
                yield _Said("strict", tool.strict, json=True)
            if tool.custom:
                yield _Said("custom tool", "custom", json=True)
            if tool.parameters_json is not UNSET:
                yield _Said("tool parameters", _value(tool.parameters_json), json=True)
        else:
            yield _Said("provider tool", _value(tool.raw_json), json=True)
    choice = request.settings.tool_choice
    declared = {tool.name for tool in request.tools if isinstance(tool, Tool)}
    for word in () if choice is None or choice.mode == "none" else choice.names:
        if word in declared:
            yield _Said("tool_choice", word)


def _of_output(output: OutputFormat | None) -> Iterator[_Said]:
    if output is None or output.kind != "json_schema":
        return
    if output.schema_json is not UNSET:
        yield _Said("output", _value(output.schema_json), json=True)
    for key in ("name", "description"):
        if getattr(output, key):
            yield _Said(f"output {key}", sayable(getattr(output, key)))
    if output.strict:
        yield _Said("output strict", output.strict, json=True)


_UNSPOKEN: Final = frozenset(
    {
        ("anthropic_messages", "parallel_tool_calls", True),
        *((wire, "stream", asked) for wire in ("google_generate", "bedrock_converse") for asked in (True, False)),
    }
)
"""Settings that a body says by saying nothing: what the wire does anyway, and streams that have an address."""


def _unheard(request: Request, name: str, encoded: Encoded) -> list[str]:
    """Settings of one word each, which are not looked up but left out: the body must differ, or a loss name them."""
    wire, settings, silent = name.partition(":")[0], request.settings, list[str]()
    choice, output = settings.tool_choice, settings.output
    functions = any(isinstance(each, Tool) for each in request.tools)
    asked = {
        "tool_choice": choice is not None and choice.mode != "auto" and functions,
        "output": output is not None and output.kind != "text",
    }
    asked |= {
        key: (value := getattr(settings, key)) is not None
        and (wire, key, value) not in _UNSPOKEN
        and (key != "parallel_tool_calls" or (functions and (choice is None or choice.mode != "none")))
        for key in ("parallel_tool_calls", "effort", "reasoning_tokens", "stream")
    }
    if settings.effort is not None and settings.reasoning_tokens == DYNAMIC:  # a word leaves the number to the model
        asked["reasoning_tokens"] = False
    for key, held in asked.items():
        if held and not any(loss.message is None and loss.what.partition(" ")[0] == key for loss in encoded.losses):
            without = request.replace(settings=structs.replace(settings, **{key: None}))
            if wires.get(name).encode_request(without).body == encoded.body:
                silent.append(f"request: {key} {_short(getattr(settings, key))} changes nothing and has no loss")
    return silent


def _of_part(part: AnyPart, wire: str) -> Iterator[_Said]:
    match part:
        case Text(text) | Refusal(text):
            if text.strip():
                yield _Said("text", sayable(text.strip()))
        case Reasoning():
            for key, value in (("text", part.text), ("signature", part.signature), ("encrypted", part.encrypted)):
                if value:
                    yield _Said(f"reasoning {key}", sayable(value))
        case ToolCall():
            if part.provider_executed:  # a block of its wire
                return
            yield _Said("tool name", part.name)
            if part.arguments_json.strip():
                yield _json_said("arguments", part.arguments_json)
        case MalformedToolCall():
            yield _Said("malformed call", sayable(part.raw))
        case Json():
            yield _json_said("json", bytes(part.value_json).decode())
        case Opaque() | ServerToolResult():
            raw = part.raw_json if isinstance(part, Opaque) else part.output_json
            yield _json_said("block", bytes(raw).decode())
        case Media():
            yield _of_media(part)
            if isinstance(part, File) and part.name and wire not in {"cohere_chat", "ollama_chat"}:
                yield _Said("file name", sayable(part.name))


def _value(raw: Raw) -> Any:
    """A value as a body can say it: U+FFFD for halves of characters."""
    return json.loads(sayable_json(bytes(raw).decode()))


def _json_said(what: str, text: str) -> _Said:
    try:
        return _Said(what, json.loads(sayable_json(text)), json=True)
    except ValueError:
        return _Said(what, sayable(text))


def _of_media(part: Media) -> _Said:
    kind = type(part).__name__.lower()
    match part.source:
        case Inline(data):
            return _Said(kind, _joined(data))
        case Url(url):
            try:
                return _Said(kind, _joined(media_types.split_data_uri(url)[1]))
            except PalaverError:
                return _Said(kind, sayable(url))
        case FileId(file_id):
            return _Said(kind, sayable(file_id))
        case Blob(digest):
            return _Said(kind, digest)


def _joined(data: str) -> str:
    """Base64 without the white space in it; a text that is no base64 as it is."""
    joined = "".join(data.split())
    return joined if Inline(joined).valid else sayable(data)


def _vendor(message: Value, wire: str) -> str | None:
    """Whose answer a message is; ``None``: it is no answer."""
    if not isinstance(message, AssistantMessage):
        return None
    hint = json_fields.native(message, wire).get("@@vendor")
    return None if hint is None else jsontext.text(hint)


def _own_fields(value: Value, name: str, index: int | None, part: int | None, message: Value) -> Iterator[_Said]:
    """Fields of the wire itself, which it takes back."""
    wire, _, variant = name.partition(":")
    vendor = _vendor(message, wire)
    if vendor is not None and vendor != variant:
        return
    for key, raw in json_fields.visible(json_fields.native(value, wire)).items():
        if not vendors.says_nothing(raw) and json_fields.named(key, raw) is not None:
            yield from (_Said(key, each, index, part, json=True) for each in _within(_value(raw)))


def _within(node: Any) -> list[Any]:
    """The values inside an object, which may be spread over the body; any other value is itself."""
    if not isinstance(node, dict):
        return [node]
    table = cast("dict[str, Any]", node)
    if table.keys() == {"id"}:
        return [*table.values()]
    kept = [each for key, each in table.items() if json_fields.named(key, jsontext.raw(each)) is not None]
    return [inner for each in kept if _written(each) not in _EMPTY for inner in _within(each)]


def _foreign(request: Request, wire: str, variant: str) -> Iterator[_Said]:
    """Fields of other wires, and of other vendors of this one: each needs a loss."""
    values: list[tuple[Value, int | None, int | None]] = [(request, None, None)]
    values += [(tool, None, None) for tool in request.tools if isinstance(tool, Tool)]
    values += [] if request.settings.output is None else [(request.settings.output, None, None)]
    for index, message in enumerate(request.messages):
        if not isinstance(message, RescueMarker | FlushMarker):
            values.append((message, index, None))
            values += [(part, index, position) for position, part in enumerate(message.content)]
    for value, at, position in values:
        for other, key, raw in json_fields.foreign(value, wire):
            field = metadata.BODY_FIELDS.get(other)
            of_caller = value is request and key.partition(".")[0] == field
            what = "metadata" if of_caller else key
            yield _Said(what, jsontext.value(raw), at, position, of_tool=isinstance(value, Tool))
        vendor = None if at is None else _vendor(request.messages[at], wire)
        if vendor is not None and vendor != variant and not isinstance(value, Reasoning):
            for key, raw in json_fields.visible(json_fields.native(value, wire)).items():
                if not vendors.says_nothing(raw) and json_fields.named(key, raw) is not None and key != "name":
                    yield _Said(key, jsontext.value(raw), at, position)


# -- what a body says ------------------------------------------------------------------------------


def _unreachable(request: Request, body: _Body) -> list[str]:
    """Addresses of media that no provider fetches; ids of files, which stand in the same fields, are none."""
    parts: list[AnyPart] = [part for message in request.messages for part in message.content]
    urls = {part.source.url for part in parts if isinstance(part, Media) and isinstance(part.source, Url)}
    return [
        text
        for key, text in body.leaves
        if key in _ADDRESSES and text in urls and not str(text).lower().startswith(_FETCHED)
    ]


def _unsaid_empties(wire: str, request: Request, body: _Body, encoded: Encoded) -> list[str]:
    """Empty values that nobody said: a request says those that stand in its data, a receipt what was put in."""
    said = _empties_of(wire, request)
    said |= {'""' for loss in encoded.losses if loss.what == "message" and loss.why.endswith("an empty text was added")}
    found = [(key, _normal(value)) for key, value in body.leaves]
    odd = [(key, value) for key, value in found if value in _EMPTY and value not in said]
    return [f"the body says {key}: {value}, and nobody did" for key, value in odd if (key, value) not in forms_of(wire)]


def forms_of(wire: str) -> frozenset[tuple[str, str]]:
    """The empty values that a wire's format has. Raises ``MissingRowError``.

    Stability: experimental.
    """
    return row(_FORMS, wire, "_FORMS in src/palaver/testing/receipts.py")


def _empties_of(wire: str, request: Request) -> set[str]:
    """The empty values that stand in the data of a request: arguments, results, schemas, fields of the caller's."""
    alike = wires.get(wire).capabilities.answer_fields is None
    values: list[Value] = [request, *request.tools]
    texts: list[str] = [bytes(each.raw_json).decode() for each in request.tools if isinstance(each, ProviderTool)]
    texts += [
        bytes(each.parameters_json).decode()
        for each in request.tools
        if isinstance(each, Tool) and each.parameters_json is not UNSET
    ]
    texts += ['""' for each in request.tools if isinstance(each, Tool) and each.description == ""]
    texts += ['""' for each in (request.model, *(request.settings.stop or ())) if each == ""]
    texts += ["[]"] if request.settings.stop == () else []
    output = request.settings.output
    if output is not None:
        values.append(output)
        texts += ['""' for each in (output.name, output.description) if each == ""]
        texts += [] if output.schema_json is UNSET else [bytes(output.schema_json).decode()]
    for message in request.messages:
        if alike or not isinstance(message, AssistantMessage):
            values += [message, *message.content]
        else:
            for value in (message, *message.content):
                fields = json_fields.visible(json_fields.native(value, wire)).values()
                texts += [bytes(raw).decode() for raw in fields if not vendors.says_nothing(raw)]
        if isinstance(message, ToolMessage) and not message.content:
            texts.append('""')
        if isinstance(message, AssistantMessage) and all(isinstance(part, Reasoning) for part in message.content):
            texts.append('""')  # a content beside reasoning, which some vendors demand
        for part in message.content:
            texts += _data_of(part)
    texts += [bytes(each.provider_json).decode() for each in values if each.provider_json is not UNSET]
    joined = "\n".join(texts).replace(" ", "")
    return {each for each in _EMPTY if each in joined}


def _data_of(part: AnyPart) -> list[str]:
    match part:
        case Text(text, citations=citations):
            told = [bytes(each.raw_json).decode() for each in citations if each.raw_json is not UNSET]
            return told if text.strip() else [*told, '""']
        case Refusal(text) | Reasoning(text):
            return [] if text.strip() else ['""']
        case ToolCall():
            return [part.arguments_json, '""'] if not part.arguments_json else [part.arguments_json]
        case Json():
            return [bytes(part.value_json).decode()]
        case Opaque():
            return [bytes(part.raw_json).decode()]
        case ServerToolResult():
            return [bytes(part.output_json).decode()]
        case File(name="") | Media(source=FileId("") | Url("")):
            return ['""']
        case _:
            return []


def _unsaid_texts(request: Request, body: _Body) -> list[str]:
    """Texts of a body that stand nowhere in the request; asked only where nothing was converted."""
    parts: list[AnyPart] = [part for message in request.messages for part in message.content]
    media = [_recoded(str(_of_media(part).value)) for part in parts if isinstance(part, Media)]
    known = "\n".join([*_texts(json.loads(canonical.encode(request))), *media])
    return [
        f"the body says {key}: {_short(text)}, and nobody did"
        for key, text in body.leaves
        if isinstance(text, str) and len(text) > _LETTERS and key not in _WORDS and not _known(text, known)
    ]


_LETTERS: Final = 40
"""Texts up to this length may be words of a format."""


def _texts(node: Any) -> list[str]:
    """All texts of a value, also those inside a text that is JSON."""
    match node:
        case str():
            inner = _parsed(node)
            return [sayable(node), *([] if inner is None else _texts(inner))]
        case {**table}:
            return [text for each in cast("dict[str, Any]", table).values() for text in _texts(each)]
        case [*items]:
            return [text for each in items for text in _texts(each)]
        case _:
            return []


def _parsed(text: str) -> Any:
    """The object or array that a text holds; ``None`` when it holds none."""
    if text[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _known(text: str, known: str) -> bool:
    data = text.partition(";base64,")[2] if text.startswith("data:") else text
    if data in known or _standard(data) in _standard(known.replace("=", "")):
        return True
    inner = _parsed(text)
    pieces = text.split("\n\n") if inner is None else _texts(inner)
    return all(piece in known for piece in pieces)
