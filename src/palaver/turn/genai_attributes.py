"""Attributes of spans, by the GenAI conventions (https://opentelemetry.io/docs/specs/semconv/gen-ai/).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from palaver.core.errors import PalaverError

if TYPE_CHECKING:
    from palaver.core.usage import Usage

_PROVIDERS: Final[Mapping[str, str]] = {
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "vertex-anthropic": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "bedrock-anthropic": "aws.bedrock",
    "azure": "azure.ai.openai",
    "azure-deployments": "azure.ai.openai",
    "openai-chat": "openai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "moonshot": "moonshot_ai",
}
"""The conventions' names of providers, where they differ from ours."""


def span_name(operation: str, model: str) -> str:
    """Return the name of a span: ``chat gpt-…``."""
    return f"{operation} {model.partition('/')[2] or model}"


def model_attributes(name: str) -> dict[str, str]:
    """Return the attributes of the model ``provider/id``."""
    provider, slash, model = name.partition("/")
    if not slash:
        return {"gen_ai.request.model": name}
    return {"gen_ai.provider.name": _PROVIDERS.get(provider, provider), "gen_ai.request.model": model}


def usage_attributes(usage: Usage | None) -> dict[str, Any]:
    """Return the attributes of token counters."""
    if usage is None:
        return {}
    counted = {
        "gen_ai.usage.input_tokens": _sum(usage.input, usage.cache_read, usage.cache_write),
        "gen_ai.usage.output_tokens": _sum(usage.output, usage.reasoning),
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    return {key: count for key, count in counted.items() if count is not None}


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def error_type(error: Exception) -> str:
    """Return the value of ``error.type``."""
    return error.error_code if isinstance(error, PalaverError) else type(error).__qualname__
