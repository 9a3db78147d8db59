"""Ids of models as clouds, routers and servers write them, as a table of rules.

Rules:

- A rule is for the ids of some providers. The id that it matches as a whole is one of another provider, the *home*,
  under another id: ``us.anthropic.claude-opus-4-8-v1:0`` of Bedrock is ``claude-opus-4-8`` of Anthropic.
- The capabilities are the same there; the prices only when the rule has ``priced``.
- The first rule that matches counts. A dated id needs no rule, since rows are found by the beginning of an id.

Source: the pages that stand at the rules.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple


class HomeId(NamedTuple):
    """A model under its id at its home provider. ``priced``: it costs the same there."""

    provider: str
    id: str
    priced: bool


class IdRule(NamedTuple):
    """A form of ids: of which ``providers``, whose models they name (``home``), and their id there.

    ``pattern`` matches the whole id; ``id`` is what it becomes, with the groups of the pattern. ``priced`` says that
    the price is that of the home.
    """

    providers: tuple[str, ...]
    pattern: str
    home: str
    id: str
    priced: bool = False


_REGION: Final = r"(?:arn:aws[a-z-]*:bedrock:.*/)?(?:(?:us|us-gov|eu|apac|jp|au|ca|sa|global)\.)?"
_BEDROCK: Final = ("bedrock", "bedrock-anthropic")
_AZURE: Final = ("azure", "azure-deployments")
_OPENAI: Final = ("openai", "openai-chat")
_ROUTED: Final = r"(?::[a-z]+)?"

RULES: Final[tuple[IdRule, ...]] = (
    # The names that listings of the Gemini API give: https://ai.google.dev/api/models
    IdRule(("google",), r"models/(.+)", "google", r"\1", priced=True),
    IdRule(("vertex",), r"(?:publishers/google/)?(?:models/)?(gemini-.+)", "google", r"\1"),
    # Versions behind an at sign: https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai
    IdRule(("vertex-anthropic",), r"(claude-[^@]+)@(\d{8})", "anthropic", r"\1-\2"),
    IdRule(("vertex-anthropic",), r"(claude-[^@]+)(?:@.*)?", "anthropic", r"\1"),
    # Inference profiles, versions and windows: https://docs.aws.amazon.com/bedrock/latest/userguide/models-supported.html
    IdRule(_BEDROCK, rf"{_REGION}anthropic\.(claude-.+?)(?:-v\d+)?(?::\d+k?)*", "anthropic", r"\1"),
    IdRule(("bedrock",), rf"{_REGION}([a-z0-9]+\..+)", "bedrock", r"\1", priced=True),
    # A deployment that is named as its model: https://learn.microsoft.com/en-us/azure/ai-foundry/openai/how-to/create-resource
    IdRule(_AZURE, r"(.+)", "openai", r"\1"),
    # Fine-tuned models: https://developers.openai.com/api/docs/guides/supervised-fine-tuning
    IdRule(_OPENAI, r"ft:([^:]+):.*", "openai", r"\1"),
    # A router's names, with its variants: https://openrouter.ai/docs/guides/routing/model-variants
    IdRule(("openrouter",), rf"anthropic/claude-([a-z]+)-(\d+)\.(\d+){_ROUTED}", "anthropic", r"claude-\1-\2-\3"),
    IdRule(("openrouter",), rf"anthropic/claude-(\d)\.(\d)-([a-z]+){_ROUTED}", "anthropic", r"claude-\1-\2-\3"),
    IdRule(("openrouter",), rf"anthropic/(claude-[a-z]+-\d){_ROUTED}", "anthropic", r"\1-0"),
    *(
        IdRule(("openrouter",), rf"{vendor}/(.+?){_ROUTED}", home, r"\1")
        for vendor, home in (
            ("anthropic", "anthropic"),
            ("cohere", "cohere"),
            ("deepseek", "deepseek"),
            ("google", "google"),
            ("minimax", "minimax"),
            ("mistralai", "mistral"),
            ("moonshotai", "moonshot"),
            ("openai", "openai"),
            ("qwen", "alibaba"),
            ("x-ai", "xai"),
            ("z-ai", "zai"),
        )
    ),
)

_PATTERNS: Final = tuple((rule, re.compile(rule.pattern, re.IGNORECASE)) for rule in RULES)


def home_ids(provider: str, model_id: str) -> Iterator[HomeId]:
    """Return the possible ids at the home provider, the most likely first; empty for an id of that provider."""
    for rule, pattern in _PATTERNS:
        if provider in rule.providers and (found := pattern.fullmatch(model_id)) is not None:
            home = HomeId(rule.home, found.expand(rule.id), rule.priced)
            if (home.provider, home.id) != (provider, model_id):
                yield home
