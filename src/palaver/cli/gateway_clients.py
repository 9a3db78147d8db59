"""How programs are pointed at a gateway: what to set, or what to write, and the command.

``{url}`` stands for the address of the gateway, and ``{model}`` for the name of a model.

Source: docs/spec/gateway.md#1, and the documentation of each program.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from palaver.core.errors import UnknownNameError


class Client(Struct, frozen=True):
    """A program: its name, its title, and the lines that a person types or writes."""

    name: str
    title: str
    lines: tuple[str, ...]


_CODEX: Final = (
    "PALAVER_KEY=any codex -m {model} -c model_provider=palaver -c 'model_providers.palaver="
    '{name="Palaver", base_url="{url}/v1", wire_api="responses", env_key="PALAVER_KEY"}\''
)
CLIENTS: Final[tuple[Client, ...]] = (
    Client(
        "claude-code",
        "Claude Code",
        ("ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=any claude --model {model}",),
    ),
    Client(
        "codex",
        "Codex",
        (_CODEX,),
    ),
    Client(
        "gemini-cli",
        "Gemini CLI",
        ("GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY=any gemini -m {model}",),
    ),
    Client(
        "qwen-code",
        "Qwen Code",
        ("OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=any OPENAI_MODEL={model} qwen",),
    ),
    Client("aider", "aider", ("aider --openai-api-base {url}/v1 --openai-api-key any --model openai/{model}",)),
    Client("openai", "the client of OpenAI", ('OpenAI(base_url="{url}/v1", api_key="any")',)),
    Client("anthropic", "the client of Anthropic", ('Anthropic(base_url="{url}", api_key="any")',)),
    Client(
        "google-genai", "the client of Google", ('genai.Client(api_key="any", http_options={"base_url": "{url}"})',)
    ),
)


def client_lines(name: str, url: str, model: str) -> tuple[str, ...]:
    """Return the lines for a program. Raises ``UnknownNameError`` listing those that are known."""
    found = next((each for each in CLIENTS if each.name == name), None)
    if found is None:
        raise UnknownNameError.among(f"no client {name!r}", [each.name for each in CLIENTS], name)
    return tuple([each.replace("{url}", url).replace("{model}", model) for each in found.lines])
