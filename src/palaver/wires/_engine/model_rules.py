"""What families of models refuse of a request that their wire can express.

``RULES`` has rows for families, by wire and id. Every row that holds is applied; what it refuses is left out, with a
loss. A model that no row names is sent what was asked for. Efforts and budgets have a table of their own
(``thinking``).

Stability: experimental.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from palaver.wires._engine.thinking import OFF

if TYPE_CHECKING:
    from palaver.core.request import Settings
    from palaver.wires._engine.encode_state import Context


class ModelRule(Struct, frozen=True, kw_only=True):
    """What one family of models refuses.

    ``wires`` are those on which the family is asked. ``refused`` are settings that it does not take;
    ``unless_off``: it does where thinking is switched off. ``excluded`` are settings of which it takes one, the first.
    ``later_system``: it takes system messages behind other messages. ``source`` is where that was read.
    """

    wires: frozenset[str]
    models: re.Pattern[str]
    source: str
    refused: tuple[str, ...] = ()
    unless_off: bool = False
    excluded: tuple[str, ...] = ()
    later_system: bool = True


_ANTHROPIC: Final = frozenset({"anthropic_messages"})
_CLAUDE: Final = frozenset({"anthropic_messages", "bedrock_converse"})
_OPENAI: Final = frozenset({"openai_chat", "openai_responses"})
_SAMPLING: Final = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
_FAMILY: Final = r"claude-(?:opus|sonnet|haiku)"

RULES: Final[tuple[ModelRule, ...]] = (
    ModelRule(
        wires=_CLAUDE,
        models=re.compile(rf"{_FAMILY}-(?:4[-.][7-9]|[5-9])|claude-(?:fable|mythos)"),
        refused=("temperature", "top_p", "top_k"),
        source="https://platform.claude.com/docs/en/models/haiku-5-5/migration-guide; "
        "https://docs.memberjunction.org/v6.2/api/functions/_memberjunction_ai-anthropic.RejectsSamplingParams.html",
    ),
    ModelRule(
        wires=_CLAUDE,
        models=re.compile(rf"{_FAMILY}-4[-.][1-6]\b"),
        excluded=("temperature", "top_p"),
        source="https://github.com/open-webui/functions/pull/9",
    ),
    ModelRule(
        wires=_ANTHROPIC,
        models=re.compile(
            rf"claude-(?:[123]|instant|sonnet-4|haiku-4|opus-4(?:$|@|-\d{{6,}}|[-.][0-7]\b))|{_FAMILY}-3|deepseek"
        ),
        later_system=False,
        source="https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages; "
        "https://github.com/vercel/ai/pull/15674; "
        "https://github.com/deepseek-ai/awesome-deepseek-integration/issues/639",
    ),
    ModelRule(
        wires=_OPENAI,
        models=re.compile(
            r"(?:^|[/:])(?:o[134]\b|codex-mini|gpt-5(?![.\d]|-chat)|gpt-5\.\d+-(?:codex|pro)|gpt-6-astra|gpt-6\.\d)"
        ),
        refused=_SAMPLING,
        source="https://developers.openai.com/api/docs/guides/reasoning; "
        "https://developers.openai.com/api/docs/guides/deployment-checklist",
    ),
    ModelRule(
        wires=_OPENAI,
        models=re.compile(r"(?:^|[/:])gpt-6-(?:sol|luna)"),
        refused=_SAMPLING,
        unless_off=True,
        source="https://developers.openai.com/api/docs/guides/deployment-checklist",
    ),
    ModelRule(
        wires=frozenset({"openai_chat"}),
        models=re.compile(r"(?:^|[/:])(?:o3\b|o4-mini)"),
        refused=("stop",),
        source="https://platform.openai.com/docs/api-reference/chat/create",
    ),
)


@lru_cache(maxsize=512)
def rules_of(wire: str, model: str) -> tuple[ModelRule, ...]:
    """Return the rows for a model on a wire."""
    return tuple([each for each in RULES if wire in each.wires and each.models.search(model)])


def _rules(context: Context) -> tuple[ModelRule, ...]:
    """Return the rows for the model that is asked; other vendors of OpenAI's wires have models of their own."""
    model = context.model
    if model is None or (context.variant is not None and context.wire in _OPENAI):
        return ()
    return rules_of(context.wire, model)


def takes_later_system(context: Context) -> bool:
    """Whether the model takes system messages behind other messages."""
    return all(each.later_system for each in _rules(context))


def fit_to_model(settings: Settings, context: Context) -> Settings:
    """Leave out settings that the model refuses."""
    lost: dict[str, str] = {}
    for each in _rules(context):
        if not (each.unless_off and (settings.effort == "none" or settings.reasoning_tokens == OFF)):
            lost |= dict.fromkeys(each.refused, "the model refuses it")
        first, *others = [name for name in each.excluded if getattr(settings, name) is not None] or [""]
        lost |= dict.fromkeys(others, f"the model refuses it beside {first}")
    lost = {name: why for name, why in lost.items() if getattr(settings, name) is not None}
    for name, why in lost.items():
        context.lose("dropped", name, why)
    return structs.replace(settings, **dict.fromkeys(lost)) if lost else settings
