"""How hard a model shall think: one table for effort, budget, on and off, across all wires, variants and models.

Rules:

- A request says it with two neutral settings: ``effort``, a word of ``SCALE``, and ``reasoning_tokens``, a budget in
  tokens, where 0 is off (``OFF``) and -1 as much as the model finds right (``DYNAMIC``). Each wire decodes its fields
  to these, and encodes these to what the target can express.
- ``ROWS`` says for each wire, for its variants and for families of models, which words, budgets and switches there are.
  The first row that holds is taken. A model that no row names gets what the wire itself can express.
- ``fit_effort`` brings the settings of a request to what a row can express: a budget becomes an effort and an effort a
  budget, by ``BUDGETS``, and each approximation is on the receipt.
- A field that says off wins over a budget and an effort, which stay unread where they stood.
- A request that goes back as it came is not fitted, nor is a switch that stays where the same vendor had it. The notes
  ``effort`` and ``reasoning_tokens`` name the field that was read, where it is not the first that is written; the note
  ``thinking`` has what else stood in an object.

Sources: docs/spec/wires.md#1.6; https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking;
https://platform.claude.com/docs/en/build-with-claude/effort; https://ai.google.dev/gemini-api/docs/thinking;
https://ai.google.dev/gemini-api/docs/openai (an effort as a budget: 1,024, 8,192, 24,576);
https://openrouter.ai/docs/use-cases/reasoning-tokens; https://console.groq.com/docs/reasoning;
https://docs.vllm.ai/en/latest/features/reasoning_outputs.html; https://docs.cohere.com/v2/docs/reasoning;
https://docs.ollama.com/capabilities/thinking;
https://docs.aws.amazon.com/nova/latest/nova2-userguide/extended-thinking.html;
https://www.alibabacloud.com/help/en/model-studio/deep-thinking.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from msgspec import Raw, Struct, structs

from palaver.core import jsontext
from palaver.core.errors import excerpt
from palaver.core.jsontext import Fields
from palaver.wires._engine import json_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.request import Settings
    from palaver.wires._engine.encode_state import Context

SCALE: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
BUDGETS: Final = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24_576, "xhigh": 32_768, "max": 65_536}
"""What an effort is worth in tokens; low, medium and high as Gemini's endpoint for OpenAI clients has them."""
OFF: Final = 0
DYNAMIC: Final = -1
Name: TypeAlias = Literal["effort", "reasoning_tokens"]


class Place(NamedTuple):
    """A setting, the path of its field, and how its value is read (``None``: no such form) and written.

    ``form`` names the form of a field that has several.
    """

    setting: Name
    path: tuple[str, ...]
    read: Callable[[Raw], Any]
    write: Callable[[Any], object]
    form: str | None = None

    @property
    def name(self) -> str:
        """The name of the place in notes."""
        return self.form or ".".join(self.path)


class Thinking(Struct, frozen=True, kw_only=True):
    """The forms of thinking on one wire, variant or family of models.

    ``efforts``: words, ``none`` among them where one switches it off. ``budgets``: the least and the most tokens, where
    a number can be expressed. ``off`` and ``dynamic``: the budgets 0 and -1 can be expressed. ``both``: an effort and a
    budget may stand together; else the one in ``first`` stays. ``needs_on``: an effort alone does not switch thinking
    on. ``places``: where the fields stand, for wires that have several; the first of each setting is written.
    """

    models: re.Pattern[str] | None = None
    efforts: tuple[str, ...] = ()
    budgets: tuple[int, int] | None = None
    off: bool = False
    dynamic: bool = False
    both: bool = False
    first: Name = "effort"
    needs_on: bool = False
    places: tuple[Place, ...] = ()
    on: Place | None = None
    """A switch that a number of tokens needs beside it."""


# -- forms -----------------------------------------------------------------------------------------


def _same(value: object) -> object:
    return value


def read_word(raw: Raw) -> str | None:
    """Read a text; ``None`` for anything else."""
    found = jsontext.value(raw)
    return found if isinstance(found, str) else None


def read_count(raw: Raw) -> int | None:
    """Read an integer; ``None`` for anything else."""
    found = jsontext.value(raw)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def read_positive(raw: Raw) -> int | None:
    """Read a number of tokens; ``None`` for zero, which another field expresses."""
    found = read_count(raw)
    return None if found is None or found < 1 else found


def read_switch(raw: Raw) -> int | None:
    """Read ``true`` as as much as the model likes, ``false`` as none."""
    found = jsontext.value(raw)
    return None if not isinstance(found, bool) else DYNAMIC if found else OFF


def write_switch(budget: int) -> bool:
    """Write whether to think at all."""
    return budget != OFF


def read_typed(key: str) -> Callable[[Raw], int | None]:
    """Read ``{"type": "enabled", key: tokens}``, ``{"type": "adaptive"}`` or ``{"type": "disabled"}``."""

    def read(raw: Raw) -> int | None:
        match jsontext.value(raw):
            case {"type": "enabled", **rest}:
                budget = rest.get(key, DYNAMIC)
                return budget if isinstance(budget, int) and not isinstance(budget, bool) else None
            case {"type": "adaptive"}:
                return DYNAMIC
            case {"type": "disabled"}:
                return OFF
            case _:
                return None

    return read


def write_typed(key: str, dynamic: str = "enabled") -> Callable[[int], dict[str, Any]]:
    """Write the same; ``dynamic`` is the word without a number."""

    def write(budget: int) -> dict[str, Any]:
        if budget == OFF:
            return {"type": "disabled"}
        return {"type": dynamic} if budget == DYNAMIC else {"type": "enabled", key: budget}

    return write


_EFFORT: Final = Place("effort", ("reasoning_effort",), read_word, _same)
_ROUTED: Final = (
    Place("effort", ("reasoning", "effort"), read_word, _same),
    Place("reasoning_tokens", ("reasoning", "max_tokens"), read_positive, _same),
    Place("reasoning_tokens", ("reasoning", "enabled"), read_switch, write_switch),
)
_SWITCH: Final = Place("reasoning_tokens", ("enable_thinking",), read_switch, write_switch)
_BUDGET: Final = Place("reasoning_tokens", ("thinking_budget",), read_positive, _same)
_TEMPLATE: Final = Place("reasoning_tokens", ("chat_template_kwargs", "enable_thinking"), read_switch, write_switch)
_TYPED: Final = Place("reasoning_tokens", ("thinking",), read_typed("budget_tokens"), write_typed("budget_tokens"))


def _read_adaptive(raw: Raw) -> int | None:
    match jsontext.value(raw):
        case {"type": "adaptive"}:
            return DYNAMIC
        case _:
            return None


_ADAPTIVE: Final = Place(
    "reasoning_tokens", ("thinking",), _read_adaptive, write_typed("budget_tokens", "adaptive"), "thinking.adaptive"
)

CHAT_PLACES: Final = (_EFFORT, *_ROUTED, _BUDGET, _SWITCH, _TEMPLATE, _ADAPTIVE, _TYPED)
"""Every field of a Chat Completions body for thinking, of any vendor."""

SERVER_PLACES: Final = (_SWITCH, _TEMPLATE)
"""Switches that servers of open models read, whatever the model is."""


# -- the table -------------------------------------------------------------------------------------

_ANY: Final = 2**31
_LEAST: Final = 1024
_WORDS: Final = ("low", "medium", "high")
_CLAUDE_BUDGET_ONLY: Final = re.compile(
    r"claude-(?:[123]|instant)|claude-(?:opus|sonnet|haiku)-4(?:$|@|[-.](?:[01]\b|\d{6,}))|claude-(?:sonnet|haiku)-4[-.]5"
)
_CLAUDE: Final = (
    Thinking(models=_CLAUDE_BUDGET_ONLY, budgets=(_LEAST, _ANY), off=True),
    Thinking(models=re.compile(r"claude-opus-4[-.]5"), efforts=_WORDS, budgets=(_LEAST, _ANY), off=True, both=True),
    Thinking(
        models=re.compile(r"claude-(?:opus|sonnet|haiku)-4[-.]6"),
        efforts=(*_WORDS, "max"),
        budgets=(_LEAST, _ANY),
        off=True,
        dynamic=True,
        both=True,
        needs_on=True,
    ),
    Thinking(  # https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking: a budget is refused
        models=re.compile(r"claude-(?:(?:opus|sonnet|haiku)-(?:4[-.][7-9]|[5-9])|fable|mythos)"),
        efforts=(*_WORDS, "xhigh", "max"),
        off=True,
        dynamic=True,
        both=True,
        needs_on=True,
    ),
)
_OPENAI_EFFORTS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"o\d\S*-deep-research", ("medium",)),
    (r"o1-(?:mini|preview)", ()),
    (r"o[134]\b|codex-mini", _WORDS),
    (r"gpt-5(?:\.\d+)?-chat", ("medium",)),
    (r"gpt-5-pro", ("high",)),
    (r"gpt-5\.\d+-pro", ("medium", "high", "xhigh")),
    (r"gpt-5-codex|gpt-5\.1-codex(?!-max)", _WORDS),
    (r"gpt-5\.\d+-codex", (*_WORDS, "xhigh")),
    (r"gpt-5(?![.\d])", ("minimal", *_WORDS)),
    (r"gpt-5\.1\b", ("none", *_WORDS)),
    (r"gpt-5\.[2-5]\b", ("none", *_WORDS, "xhigh")),
    (r"gpt-5\.[6-9]\b", ("none", *_WORDS, "xhigh", "max")),
    (r"gpt-6-astra|gpt-6\.\d", (*_WORDS, "xhigh", "max")),
)
"""The words of OpenAI's models, by the beginning of the id.

https://developers.openai.com/api/docs/guides/reasoning; https://github.com/openai/codex/issues/6647;
https://github.com/anomalyco/opencode/pull/26268 (the values that the server's refusals name);
https://github.com/anomalyco/opencode/issues/36141; https://developers.openai.com/api/docs/guides/deployment-checklist
"""


def _openai(places: tuple[Place, ...] = ()) -> tuple[Thinking, ...]:
    return tuple(
        [
            Thinking(models=re.compile(rf"(?:^|[/:])(?:{models})"), efforts=efforts, places=places)
            for models, efforts in _OPENAI_EFFORTS
        ]
    )


_GOOGLE: Final = (
    Thinking(models=re.compile(r"gemini-2\.5-pro"), budgets=(128, 32_768), dynamic=True, first="reasoning_tokens"),
    Thinking(
        models=re.compile(r"gemini-2\.5-flash-lite"),
        budgets=(512, 24_576),
        off=True,
        dynamic=True,
        first="reasoning_tokens",
    ),
    Thinking(models=re.compile(r"gemini-2\.5"), budgets=(1, 24_576), off=True, dynamic=True, first="reasoning_tokens"),
    Thinking(models=re.compile(r"gemini-[01]|gemini-2\.0")),
    Thinking(models=re.compile(r"gemini-3-pro"), efforts=("low", "high"), budgets=(1, _ANY)),
    Thinking(models=re.compile(r"gemini-3(?:\.[1-5])?-flash"), efforts=("minimal", *_WORDS), budgets=(1, _ANY)),
    Thinking(models=re.compile(r"gemini-[3-9]"), efforts=_WORDS, budgets=(1, _ANY)),
    Thinking(efforts=("minimal", *_WORDS, "xhigh"), budgets=(1, _ANY), off=True, dynamic=True),
)
"""Gemini 2.5 takes a number only, and later models a level. Some of these have no ``MINIMAL``, and none is ever off.

https://ai.google.dev/gemini-api/docs/thinking; https://docs.cloud.google.com/vertex-ai/generative-ai/docs/thinking;
https://github.com/earendil-works/pi/issues/9455 (what gemini-3.8-flash refuses)
"""
_SWITCHED: Final = Thinking(off=True, dynamic=True, places=(_TYPED,))

ROWS: Final[dict[str, tuple[Thinking, ...]]] = {
    "anthropic_messages": (
        *_CLAUDE,
        Thinking(efforts=(*_WORDS, "xhigh", "max"), budgets=(_LEAST, _ANY), off=True, dynamic=True, both=True),
    ),
    "openai_responses": (*_openai(), Thinking(efforts=SCALE)),
    "openai_chat": (*_openai((_EFFORT,)), Thinking(efforts=SCALE[:-1], places=(_EFFORT,))),
    "openai_chat:groq": (
        Thinking(efforts=("none", "default"), models=re.compile("(?i)qwen"), places=(_EFFORT,)),
        Thinking(efforts=_WORDS, places=(_EFFORT,)),
    ),
    "openai_chat:openrouter": (
        Thinking(
            efforts=SCALE[:-1], budgets=(1, _ANY), off=True, dynamic=True, first="reasoning_tokens", places=_ROUTED
        ),
    ),
    "openai_chat:vllm": (
        Thinking(models=re.compile("(?i)gpt-oss"), efforts=_WORDS, places=(_EFFORT,)),
        Thinking(off=True, dynamic=True, places=(_TEMPLATE,)),
    ),
    "openai_chat:compatible": (
        Thinking(
            models=re.compile("(?i)qwen"),
            budgets=(1, _ANY),
            off=True,
            dynamic=True,
            places=(_BUDGET, _SWITCH),
            on=_SWITCH,
        ),
        Thinking(efforts=SCALE[:-1], places=(_EFFORT,)),
    ),
    "openai_chat:deepseek": (_SWITCHED,),
    "openai_chat:zai": (_SWITCHED,),
    "openai_chat:moonshot": (_SWITCHED,),
    "openai_chat:mistral": (Thinking(efforts=("none", "high"), places=(_EFFORT,)),),
    "openai_chat:xai": (Thinking(efforts=("low", "high"), places=(_EFFORT,)),),
    "openai_chat:cerebras": (Thinking(efforts=("none", *_WORDS), places=(_EFFORT,)),),
    "openai_chat:ollama": (Thinking(efforts=("none", *_WORDS), places=(_EFFORT,)),),
    "google_generate": _GOOGLE,
    "bedrock_converse": (
        *_CLAUDE,
        Thinking(
            models=re.compile(r"anthropic\."),
            efforts=(*_WORDS, "xhigh", "max"),
            budgets=(_LEAST, _ANY),
            off=True,
            dynamic=True,
            both=True,
        ),
        Thinking(models=re.compile(r"amazon\."), efforts=("none", *_WORDS)),
        Thinking(models=re.compile(r"openai\."), efforts=_WORDS),
        Thinking(efforts=(*_WORDS, "xhigh", "max")),
    ),
    "cohere_chat": (Thinking(budgets=(1, _ANY), off=True, dynamic=True),),
    "ollama_chat": (Thinking(efforts=(*_WORDS, "max"), off=True, dynamic=True),),
}
"""The rows by wire, or by wire and variant; a variant without a row has those of its wire."""


def row(wire: str, variant: str | None, model: str | None) -> Thinking:
    """The row for a wire, a variant of it and a model."""
    rows = ROWS.get(f"{wire}:{variant}") or ROWS.get(wire) or (Thinking(),)
    return next((each for each in rows if each.models is None or each.models.search(model or "")), Thinking())


# -- fitting ---------------------------------------------------------------------------------------


def effort_of(budget: int) -> str:
    """The least effort that is worth so many tokens."""
    return next((word for word, tokens in BUDGETS.items() if budget <= tokens and word != "minimal"), "max")


def fit_effort(settings: Settings, context: Context, *, alone: bool = False) -> Settings:
    """The settings with an effort and a budget that the target can express; every change is on the receipt.

    ``alone``: the effort came from this wire without a switch, and does not switch thinking on.
    """
    effort, budget = settings.effort, settings.reasoning_tokens
    if context.own or (effort is None and budget is None):
        return settings
    support = row(context.wire, context.variant, context.model)
    if effort is not None and effort not in SCALE and effort not in support.efforts:
        context.lose("dropped", "effort", f"{effort!r} is not a value of this wire")
        effort = None
    if budget == OFF or effort == "none":
        requested = None if effort == "none" else effort
        if effort == "none" and budget not in {None, OFF}:
            context.lose("dropped", "reasoning_tokens", "the effort “none” switches thinking off")
        effort, budget = _off(support, context, "reasoning_tokens" if budget == OFF else "effort")
        if requested is not None and support.both and requested in support.efforts:
            effort = requested  # such an effort also says how long the answer shall be
        elif requested is not None and requested != effort:
            context.lose("dropped", "effort", "thinking is switched off")
    else:
        effort, budget = _on(effort, budget, support, context)
        if support.needs_on and effort is not None and budget is None and not alone:
            budget = DYNAMIC
    return structs.replace(settings, effort=effort, reasoning_tokens=budget)


def _off(support: Thinking, context: Context, name: Name) -> tuple[str | None, int | None]:
    if "none" in support.efforts:
        return "none", None
    if support.off:
        return None, OFF
    if support.efforts:
        context.lose("approximated", name, f"thinking cannot be switched off; {support.efforts[0]!r} was sent")
        return support.efforts[0], None
    if support.budgets is not None:
        least = support.budgets[0]
        context.lose("approximated", name, f"thinking cannot be switched off; a budget of {least} tokens was sent")
        return None, least
    context.lose("dropped", name, "thinking cannot be switched off")
    return None, None


def _on(effort: str | None, budget: int | None, support: Thinking, context: Context) -> tuple[str | None, int | None]:
    if budget is not None and budget != DYNAMIC:
        effort, budget = _with_budget(effort, budget, support, context)
    if effort is not None:
        effort, budget = _with_effort(effort, budget, support, context)
    if budget == DYNAMIC and not support.dynamic:
        budget = None
        if effort is None:
            context.lose(
                "dropped", "reasoning_tokens", "the wire has no setting that lets the model choose how much to think"
            )
    return effort, budget


def _with_budget(effort: str | None, budget: int, support: Thinking, context: Context) -> tuple[str | None, int | None]:
    """Fit a number of tokens: into the range, else to an effort, else to a mere switch."""
    if budget < DYNAMIC:
        context.lose("dropped", "reasoning_tokens", f"{_shown(budget)} is not a number of tokens")
        return effort, None
    if support.budgets is not None:
        least, most = support.budgets
        nearest = min(max(budget, least), most)
        if nearest != budget:
            why = f"{_shown(budget)} is not within {least} to {most}; {nearest} was sent"
            context.lose("approximated", "reasoning_tokens", why)
        return effort, nearest
    if effort is not None and support.efforts:
        context.lose("dropped", "reasoning_tokens", "the effort expresses it")
        return effort, DYNAMIC if support.dynamic else None
    if support.efforts:
        effort = nearest_effort(effort_of(budget), support.efforts)
        context.lose("approximated", "reasoning_tokens", f"{_shown(budget)} tokens are sent as the effort {effort!r}")
        return effort, None
    if support.dynamic:
        context.lose("approximated", "reasoning_tokens", "thinking can only be switched on")
        return effort, DYNAMIC
    context.lose("dropped", "reasoning_tokens", "the wire has no such setting")
    return effort, None


def _shown(budget: int) -> str:
    """A budget in words; Python writes no decimal number of any length."""
    return str(budget) if budget.bit_length() <= _LONG else excerpt(hex(budget), 24)


_LONG: Final = 64


def _with_effort(effort: str, budget: int | None, support: Thinking, context: Context) -> tuple[str | None, int | None]:
    """Fit a word: to the nearest, else to a budget, else to a mere switch."""
    if support.efforts and (support.both or budget in {None, DYNAMIC} or support.first == "effort"):
        if budget not in {None, DYNAMIC} and not support.both:
            context.lose("dropped", "reasoning_tokens", "does not go with an effort")
        nearest = nearest_effort(effort, support.efforts)
        if nearest != effort:
            context.lose("approximated", "effort", f"{effort!r} is sent as {nearest!r}")
        return nearest, budget if support.both else None
    if budget not in {None, DYNAMIC} or (budget == DYNAMIC and support.budgets is None):
        context.lose("dropped", "effort", "the budget expresses it")
        return None, budget
    if support.budgets is not None:
        budget = min(max(BUDGETS[effort], support.budgets[0]), support.budgets[1])
        context.lose("approximated", "effort", f"{effort!r} is sent as a budget of {budget} tokens")
        return None, budget
    if support.dynamic:
        context.lose("approximated", "effort", "thinking can only be switched on")
        return None, DYNAMIC
    context.lose("dropped", "effort", "the wire has no such setting")
    return None, None


def nearest_effort(effort: str, words: Sequence[str]) -> str:
    """The nearest of a wire's words; "off" is near to nothing but itself, and a word beside the scale to the rest."""
    known = [word for word in words if word in SCALE and word != "none"]
    if effort in words:
        return effort
    if not known:
        return next(word for word in words if word != "none")
    return min(known, key=lambda word: abs(SCALE.index(word) - SCALE.index(effort)))


# -- fields ----------------------------------------------------------------------------------------


def take(rest: Fields, notes: Fields, places: Sequence[Place]) -> dict[str, Any]:
    """Take both settings out of a body, from the first place that has them; a note names any but the first.

    A place that switches thinking off is taken alone.
    """
    found: dict[str, Any] = {}
    off = [place for place in places if _is_off(rest, place)]
    for place in off[:1] or places:
        raw = None if place.setting in found else _find(rest, place.path)
        value = None if raw is None else place.read(raw)
        if raw is None or value is None:
            continue
        found[place.setting] = value
        _drop(rest, place.path)
        written = place.write(value)
        if isinstance(written, dict):
            left = {key: item for key, item in jsontext.fields(raw).items() if key not in written}
            if left:
                notes["thinking"] = jsontext.raw(left)
        if place.path != next(each.path for each in places if each.setting == place.setting):
            notes[place.setting] = json_fields.word(place.name)
    return found


def _is_off(rest: Fields, place: Place) -> bool:
    raw = _find(rest, place.path)
    return raw is not None and place.read(raw) in ({OFF} if place.setting == "reasoning_tokens" else {"none"})


def stays(notes: Fields, settings: Settings, places: Sequence[Place]) -> bool:
    """Whether one of ``places`` is the field that was read, and can express a switch that stands alone."""
    name: Name = "reasoning_tokens" if settings.effort is None else "effort"
    value = getattr(settings, name)
    if value not in {OFF, DYNAMIC, "none"} or (name == "effort" and settings.reasoning_tokens is not None):
        return False
    return any(_is_noted(each, notes) and each.setting == name and _matches(each, value) for each in places)


def _is_noted(place: Place, notes: Fields) -> bool:
    return notes.get(place.setting) == json_fields.word(place.name)


def drop_unread(rest: Fields, places: Sequence[Place], context: Context) -> None:
    """Drop the fields beside a switch that was off, for a vendor that may read them."""
    for place in places:
        if _find(rest, place.path) is not None:
            _drop(rest, place.path)
            context.lose("dropped", ".".join(place.path), "thinking is switched off")


def put(  # noqa: PLR0917 (where it goes, what was noted, and what is said)
    fields: dict[str, Any],
    rest: Fields,
    notes: Fields,
    settings: Settings,
    places: Sequence[Place],
    on: Place | None = None,
) -> None:
    """Write both settings: each where it stood, if that is one of ``places``, else where the first that fits stands."""
    for name in ("effort", "reasoning_tokens"):
        value = getattr(settings, name)
        if value is None:
            continue
        allowed = [each for each in places if each.setting == name and _matches(each, value)]
        place = next((each for each in allowed if _is_noted(each, notes)), allowed[0] if allowed else None)
        if place is None:
            continue
        written: Any = place.write(value)
        if isinstance(written, dict) and _is_noted(place, notes):
            written = json_fields.with_note(cast("dict[str, Any]", written), notes, "thinking")
        _set(fields, rest, place.path, cast("object", written))
        if on is not None and name == "reasoning_tokens" and value > OFF:
            _set(fields, rest, on.path, on.write(value))


def _matches(place: Place, value: Any) -> bool:
    return bool(place.read(jsontext.raw(place.write(value))) == value)


def _find(rest: Fields, path: Sequence[str]) -> Raw | None:
    *outer, last = path
    for key in outer:
        raw = rest.get(key)
        if raw is None or jsontext.kind(raw) != "an object":
            return None
        rest = jsontext.fields(raw)
    return rest.get(last)


def _drop(rest: Fields, path: Sequence[str]) -> None:
    key, *further = path
    if not further:
        del rest[key]
        return
    inner = jsontext.fields(rest[key])
    _drop(inner, further)
    if inner:
        rest[key] = jsontext.raw(inner)
    else:
        del rest[key]


def _set(fields: dict[str, Any], rest: Fields, path: Sequence[str], value: object) -> None:
    """Set a field, beside what else stands in the objects on the way."""
    *outer, last = path
    for key in outer:
        preserved = rest.pop(key, None)
        inner: dict[str, Any] = cast("dict[str, Any]", fields.setdefault(key, {}))
        if preserved is not None and jsontext.kind(preserved) == "an object":
            inner.update(jsontext.fields(preserved))
        fields = inner
    fields[last] = value
