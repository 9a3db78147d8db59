"""OpenAI: the Responses wire by default, Chat Completions under a name of its own.

Stability: experimental.
"""

from typing import Final

from palaver.models.endpoint import Counting
from palaver.models.providers.row import Provider, endpoint_for

_PAGE: Final = "https://platform.openai.com/docs/api-reference"
_KEYS: Final = ("OPENAI_API_KEY",)
_BASES: Final = ("OPENAI_BASE_URL",)

_COUNTING: Final = Counting(
    url="{base}/responses/input_tokens",
    takes=frozenset(
        {
            "conversation",
            "input",
            "instructions",
            "model",
            "parallel_tool_calls",
            "personality",
            "previous_response_id",
            "reasoning",
            "text",
            "tool_choice",
            "tools",
            "truncation",
        }
    ),
    found=("input_tokens",),
    page="https://developers.openai.com/api/reference/resources/responses/subresources/input_tokens",
)
"""Of the Responses wire; nothing counts what Chat Completions would send."""

ROWS: Final = (
    Provider(
        name="openai",
        base="https://api.openai.com/v1",
        endpoints=(
            endpoint_for("openai", "openai_responses", counting=_COUNTING),
            endpoint_for("openai", "openai_chat"),
        ),
        keys=_KEYS,
        bases=_BASES,
        page=_PAGE,
    ),
    Provider(
        name="openai-chat",
        base="https://api.openai.com/v1",
        endpoints=(
            endpoint_for("openai-chat", "openai_chat"),
            endpoint_for("openai-chat", "openai_responses", counting=_COUNTING),
        ),
        keys=_KEYS,
        bases=_BASES,
        page=_PAGE,
    ),
)
