"""Anthropic: the Messages wire. Tokens are counted at an address of their own, by the same body.

Stability: experimental.
"""

from typing import Final

from palaver.models.endpoint import Counting
from palaver.models.providers.row import Provider, endpoint_for, key_in

COUNTED: Final = frozenset(
    {
        "cache_control",
        "compaction",
        "context_management",
        "mcp_servers",
        "messages",
        "model",
        "output_config",
        "speed",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    }
)
"""The fields that are counted; others (``max_tokens``, ``stream``) are refused."""

ROWS: Final = (
    Provider(
        name="anthropic",
        base="https://api.anthropic.com",
        endpoints=(
            endpoint_for(
                "anthropic",
                "anthropic_messages",
                counting=Counting(
                    url="{base}/v1/messages/count_tokens",
                    takes=COUNTED,
                    found=("input_tokens",),
                    page="https://platform.claude.com/docs/en/api/messages/count_tokens",
                ),
            ),
        ),
        keys=("ANTHROPIC_API_KEY",),
        bases=("ANTHROPIC_BASE_URL",),
        credentials=key_in("x-api-key"),
        page="https://docs.anthropic.com/en/api/overview",
    ),
)
