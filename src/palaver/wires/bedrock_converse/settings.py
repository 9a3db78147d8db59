"""Settings of a Converse request: where each stands, how it reads, how it is written.

Rules:

- A setting may stand in several places: what Converse itself does not name stands in ``additionalModelRequestFields``,
  where each model family has words of its own and an unknown one is refused (docs/spec/wires.md#6.1). The first place
  that holds it wins; a place that is not the first is the note ``<setting>_at``. Fields beside the meaning, at any
  depth, are the note ``<setting>``. ``effort_alone``: no budget, which would switch thinking on, stood beside it.
- A value of an odd type is no setting: it stays where it stands.
- A setting without a place of its own is written only where the model, which stands in the URL, is known by
  ``Request.model`` to belong to a family that reads it; else it is a loss.

Source: docs/spec/wires.md#6.1, #6.5; ``ConverseRequest`` in botocore's ``bedrock-runtime``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from msgspec import UNSET, Raw

from palaver.core import jsontext, trusted
from palaver.core.jsontext import Fields
from palaver.core.request import OutputFormat, Settings, ToolChoice
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.schemas import BEDROCK, fit_output

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.wires._engine.encode_state import Context

Path: TypeAlias = "tuple[str, ...]"

_MORE: Final = "additionalModelRequestFields"
_TOOL_CHOICE: Final = ("toolConfig", "toolChoice")


# -- reading and writing one value -----------------------------------------------------------------


def _integer(raw: Raw) -> int | None:
    found = jsontext.value(raw)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _number(raw: Raw) -> float | None:
    found = jsontext.value(raw)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def _text(raw: Raw) -> str | None:
    found = jsontext.value(raw)
    return found if isinstance(found, str) else None


def _texts(raw: Raw) -> tuple[str, ...] | None:
    found = jsontext.value(raw)
    if isinstance(found, list) and all(isinstance(item, str) for item in cast("list[object]", found)):
        return tuple(cast("list[str]", found))
    return None


_budget = thinking.read_typed("budget_tokens")
_enabled = thinking.write_typed("budget_tokens", "adaptive")


def _read_nova(raw: Raw) -> str | None:
    match jsontext.value(raw):
        case {"type": "enabled", "maxReasoningEffort": str(word)}:
            return word
        case {"type": "disabled"}:
            return "none"
        case _:
            return None


def _write_nova(effort: str) -> object:
    return {"type": "disabled"} if effort == "none" else {"type": "enabled", "maxReasoningEffort": effort}


def _same(value: object) -> object:
    return value


def read_tool_choice(raw: Raw) -> ToolChoice | None:
    """Read ``toolChoice``; ``None`` for a form that has no neutral meaning. There is no ``none``.

    Source: docs/spec/wires.md#6.1.
    """
    found = jsontext.value(raw)
    if not isinstance(found, dict) or len(_CHOICES & cast("dict[str, Any]", found).keys()) != 1:
        return None
    match cast("dict[str, Any]", found):
        case {"auto": dict()}:
            return trusted.ToolChoice("auto")
        case {"any": dict()}:
            return trusted.ToolChoice("required")
        case {"tool": {"name": str(name)}}:
            return trusted.ToolChoice("required", (name,))
        case _:
            return None


_CHOICES: Final = frozenset({"auto", "any", "tool"})


def write_tool_choice(choice: ToolChoice) -> object:
    """Write ``toolChoice``; more names than one cannot be expressed."""
    if choice.mode == "required" and len(choice.names) == 1:
        return {"tool": {"name": choice.names[0]}}
    return {"any": {}} if choice.mode == "required" else {"auto": {}}


def read_output_format(raw: Raw) -> OutputFormat | None:
    """Read ``textFormat``, whose schema is JSON inside a string; ``None`` for a form without a neutral meaning."""
    match jsontext.value(raw):
        case {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(schema), **inner}}}:
            name, description = inner.get("name"), inner.get("description")
        case _:
            return None
    if not (name is None or isinstance(name, str)) or not (description is None or isinstance(description, str)):
        return None
    if not jsontext.is_json(schema):
        return None
    schema_json = Raw(jsontext.source(schema))
    return trusted.OutputFormat(kind="json_schema", schema_json=schema_json, name=name, description=description)


def write_output_format(output: OutputFormat) -> object:
    """Write ``textFormat``."""
    schema = output.schema_json
    fields: dict[str, Any] = {"schema": bytes(schema).decode() if isinstance(schema, Raw) else "{}"}
    if output.name is not None:
        fields["name"] = output.name
    if output.description is not None:
        fields["description"] = output.description
    return {"type": "json_schema", "structure": {"jsonSchema": fields}}


# -- where they stand ------------------------------------------------------------------------------


class Place(NamedTuple):
    """A setting and one path where it may stand; ``known`` are the fields that are read of an object."""

    setting: str
    path: Path
    read: Callable[[Raw], Any]
    write: Callable[[Any], object] = _same
    known: frozenset[str] = frozenset()


_OF_CHOICE: Final = _CHOICES | {"name"}
_OF_OUTPUT: Final = frozenset({"type", "structure", "jsonSchema", "schema", "name", "description"})
_OF_BUDGET: Final = frozenset({"type", "budget_tokens"})
_OF_NOVA: Final = frozenset({"type", "maxReasoningEffort"})


PLACES: Final = (
    Place("max_tokens", ("inferenceConfig", "maxTokens"), _integer),
    Place("temperature", ("inferenceConfig", "temperature"), _number),
    Place("top_p", ("inferenceConfig", "topP"), _number),
    Place("stop", ("inferenceConfig", "stopSequences"), _texts),
    Place("tool_choice", _TOOL_CHOICE, read_tool_choice, write_tool_choice, _OF_CHOICE),
    Place("output", ("outputConfig", "textFormat"), read_output_format, write_output_format, _OF_OUTPUT),
    Place("effort", ("outputConfig", "effort"), _text),
    Place("effort", (_MORE, "output_config", "effort"), _text),
    Place("effort", (_MORE, "reasoning_effort"), _text),
    Place("effort", (_MORE, "reasoning_config"), _text),
    Place("effort", (_MORE, "reasoningConfig", "maxReasoningEffort"), _text),
    Place("reasoning_tokens", (_MORE, "thinking"), _budget, _enabled, _OF_BUDGET),
    Place("reasoning_tokens", (_MORE, "reasoning_config"), _budget, _enabled, _OF_BUDGET),
    Place("effort", (_MORE, "reasoningConfig"), _read_nova, _write_nova, _OF_NOVA),
    Place("top_k", (_MORE, "top_k"), _integer),
    Place("top_k", (_MORE, "inferenceConfig", "topK"), _integer),
)

CHOICE: Final = next(place for place in PLACES if place.setting == "tool_choice")
_BY_PATH: Final = {(place.setting, ".".join(place.path)): place for place in PLACES}
_USUAL: Final = {place.setting: place for place in reversed(PLACES) if place.path[0] != _MORE}

_FAMILIES: Final[dict[tuple[str, str], Place]] = {
    ("reasoning_tokens", "anthropic"): _BY_PATH["reasoning_tokens", f"{_MORE}.thinking"],
    ("top_k", "anthropic"): _BY_PATH["top_k", f"{_MORE}.top_k"],
    ("top_k", "amazon"): _BY_PATH["top_k", f"{_MORE}.inferenceConfig.topK"],
    ("effort", "openai"): _BY_PATH["effort", f"{_MORE}.reasoning_effort"],
    ("effort", "amazon"): _BY_PATH["effort", f"{_MORE}.reasoningConfig"],
}
"""Where a family reads a setting that Converse does not name."""

_WORDS: Final = ("anthropic", "amazon", "openai", "meta", "mistral", "deepseek", "qwen", "cohere", "writer", "ai21")


def family(model: str | None) -> str | None:
    """Return the family by a model id or an ARN that names it: ``us.anthropic.claude-…``; ``None`` when it does not.

    The name that Anthropic's own wire has for a model says it too.
    """
    if model is None:
        return None
    last = model.rpartition("/")[2]
    if last.startswith("claude-"):
        return "anthropic"
    return next((word for word in _WORDS if f"{word}." in last), None)


def take(rest: Fields, notes: Fields) -> Settings:
    """Take the settings out of a request body; ``notes`` get where they stood, and what stood beside them."""
    found: dict[str, Any] = {}
    for place in PLACES:
        raw = None if place.setting in found else _find(rest, place.path)
        value = None if raw is None else place.read(raw)
        if raw is None or value is None:
            continue
        found[place.setting] = value
        _drop(rest, place.path)
        if place.known and (beside := _beside(raw, place.known)):
            notes[place.setting] = jsontext.raw(beside)
        if place is not _USUAL.get(place.setting):
            notes[f"{place.setting}_at"] = json_fields.word(".".join(place.path))
    if "effort" in found and "reasoning_tokens" not in found:
        notes["effort_alone"] = jsontext.TRUE
    return trusted.Settings(**found)


def _beside(raw: Raw, known: frozenset[str]) -> dict[str, Any]:
    """The fields of an object, at any depth, that have no neutral meaning."""
    found: dict[str, Any] = {}
    for key, item in jsontext.fields(raw).items():
        if key not in known:
            found[key] = item
        elif jsontext.kind(item) == "an object" and (inner := _beside(item, known)):
            found[key] = inner
    return found


def _with_beside(written: object, raw: Raw | None, known: frozenset[str]) -> object:
    """Write such fields beside a meaning, where the objects that held them are still there."""
    if raw is None or not isinstance(written, dict):
        return written
    fields: dict[str, Any] = dict(cast("dict[str, Any]", written))
    for key, item in jsontext.fields(raw).items():
        if key not in known:
            fields[key] = item
        elif key in fields:
            fields[key] = _with_beside(fields[key], item, known)
    return fields


def written_at(place: Place, value: object, notes: Fields) -> object:
    """Write a value for its place, with what stood beside it."""
    return _with_beside(place.write(value), notes.get(place.setting), place.known)


def _find(rest: Fields, path: Path) -> Raw | None:
    *outer, last = path
    for key in outer:
        raw = rest.get(key)
        if raw is None or jsontext.kind(raw) != "an object":
            return None
        rest = jsontext.fields(raw)
    return rest.get(last)


def _drop(rest: Fields, path: Path) -> None:
    """Take a path out; an object that held nothing else goes too, for ``put`` makes it again."""
    key, *further = path
    if not further:
        del rest[key]
        return
    inner = jsontext.fields(rest[key])
    _drop(inner, tuple(further))
    if inner:
        rest[key] = Raw(jsontext.encode(inner))
    else:
        del rest[key]


def put(fields: dict[str, Any], path: Path, value: object) -> None:
    """Put a value at a path, making the objects on the way."""
    *outer, last = path
    for key in outer:
        found = fields.get(key)
        inner: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        if isinstance(found, Raw) and jsontext.kind(found) == "an object":
            inner = dict(jsontext.fields(found))
        fields[key] = inner
        fields = inner
    fields[last] = value


_UNSUPPORTED: Final = ("seed", "frequency_penalty", "presence_penalty", "parallel_tool_calls")


def write(fields: dict[str, Any], notes: Fields, settings: Settings, context: Context) -> None:
    """Put the settings into a request body, all but the tool choice, which is written with the tools."""
    model = context.model
    found_here = family(model) is None and not notes.keys().isdisjoint(("effort_at", "reasoning_tokens_at"))
    if not found_here:  # else the body itself showed which fields the unnamed model reads
        settings = thinking.fit_effort(settings, context, alone="effort_alone" in notes)
    for name in ("max_tokens", "temperature", "top_p", "stop", "output", "effort", "reasoning_tokens", "top_k"):
        value = getattr(settings, name)
        if value is None:
            continue
        at = notes.get(f"{name}_at")
        place = None if at is None else _BY_PATH.get((name, jsontext.text(at)))
        if place is None:
            place = _FAMILIES.get((name, family(model) or "")) or _USUAL.get(name)
        if place is None:
            context.lose("dropped", name, "the wire has no such setting; where it goes depends on the model's family")
            continue
        if not context.own:
            value = _fitted(name, value, context)
        if value is not None:
            put(fields, place.path, written_at(place, value, notes))
    for name in _UNSUPPORTED:
        if getattr(settings, name) is not None:
            context.lose("dropped", name, "the wire has no such setting")


def _fitted(name: str, value: Any, context: Context) -> Any:
    """Fit a value into what its place takes; ``None`` when nothing fits."""
    match name:
        case "stop" if not all(value):
            context.lose("dropped", "stop", "an empty stop sequence is refused")
            return tuple(word for word in value if word) or None
        case "output":
            return _fitted_output(value, context)
        case _:
            return value


def _fitted_output(output: OutputFormat, context: Context) -> OutputFormat | None:
    if output.kind == "json" or (output.kind == "json_schema" and output.schema_json is UNSET):
        context.lose("dropped", "output", "JSON without a schema cannot be asked for")
        return None
    if output.strict is False:
        context.lose("approximated", "output", "a schema is always enforced")
    elif output.strict and output.kind == "json_schema":
        context.lose("dropped", "output strict", "the wire has no such setting; it enforces every schema")
    return None if output.kind == "text" else fit_output(output, BEDROCK, context)
