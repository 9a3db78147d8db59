"""OpenAI: the Responses wire by default, Chat Completions under a name of its own.

Stability: experimental.
"""

from typing import Final

from palaver.models.providers.row import Provider, speaking

_PAGE: Final = "https://platform.openai.com/docs/api-reference"
_KEYS: Final = ("OPENAI_API_KEY",)
_BASES: Final = ("OPENAI_BASE_URL",)

ROWS: Final = (
    Provider(
        name="openai",
        base="https://api.openai.com/v1",
        endpoints=(speaking("openai", "openai_responses"), speaking("openai", "openai_chat")),
        keys=_KEYS,
        bases=_BASES,
        page=_PAGE,
    ),
    Provider(
        name="openai-chat",
        base="https://api.openai.com/v1",
        endpoints=(speaking("openai-chat", "openai_chat"), speaking("openai-chat", "openai_responses")),
        keys=_KEYS,
        bases=_BASES,
        page=_PAGE,
    ),
)
