"""How programs are pointed at a gateway: the variables, the command, or what to write.

``{url}`` stands for the address of the gateway, and ``{model}`` for the name of a model.

Source: docs/spec/gateway.md#1, and the documentation of each program.

Stability: experimental.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from palaver.core.errors import UnknownNameError


class Client(Struct, frozen=True, kw_only=True):
    """A program: its name, its title, and how it is started; or the ``line`` in which its library is used.

    ``package`` says what to install.
    """

    name: str
    title: str
    command: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    package: str = ""
    line: str = ""
    settings: str = ""
    """What stands in the file that ``{settings}`` names in the variables."""


_CODEX: Final = (
    'model_providers.palaver={name="Palaver", base_url="{url}/v1", wire_api="responses", env_key="PALAVER_KEY"}'
)
_OPENCODE: Final = (
    '{"provider": {"palaver": {"npm": "@ai-sdk/openai-compatible", '
    '"options": {"baseURL": "{url}/v1", "apiKey": "any"}, "models": {"{model}": {}}}}}'
)
CLIENTS: Final[tuple[Client, ...]] = (
    Client(
        name="claude-code",
        title="Claude Code",
        command=("claude", "--model", "{model}"),
        variables={"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "any"},
        package="npm install -g @anthropic-ai/claude-code",
    ),
    Client(
        name="codex",
        title="Codex",
        command=("codex", "-m", "{model}", "-c", "model_provider=palaver", "-c", _CODEX),
        variables={"PALAVER_KEY": "any"},
        package="npm install -g @openai/codex",
    ),
    Client(
        name="gemini-cli",
        title="Gemini CLI",
        command=("gemini", "-m", "{model}"),
        variables={
            "GOOGLE_GEMINI_BASE_URL": "{url}",
            "GEMINI_API_KEY": "any",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_CLI_SYSTEM_SETTINGS_PATH": "{settings}",
        },
        settings='{"security": {"auth": {"selectedType": "gemini-api-key"}}}',
        package="npm install -g @google/gemini-cli",
    ),
    Client(
        name="qwen-code",
        title="Qwen Code",
        command=("qwen",),
        variables={"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "any", "OPENAI_MODEL": "{model}"},
        package="npm install -g @qwen-code/qwen-code",
    ),
    Client(
        name="opencode",
        title="opencode",
        command=("opencode", "-m", "palaver/{model}"),
        variables={"OPENCODE_CONFIG_CONTENT": _OPENCODE},
        package="npm install -g opencode-ai",
    ),
    Client(
        name="aider",
        title="aider",
        command=("aider", "--openai-api-base", "{url}/v1", "--openai-api-key", "any", "--model", "openai/{model}"),
        package="pip install aider-chat",
    ),
    Client(name="openai", title="the client of OpenAI", line='OpenAI(base_url="{url}/v1", api_key="any")'),
    Client(name="anthropic", title="the client of Anthropic", line='Anthropic(base_url="{url}", api_key="any")'),
    Client(
        name="google-genai",
        title="the client of Google",
        line='genai.Client(api_key="any", http_options={"base_url": "{url}"})',
    ),
)
SETTINGS: Final = "palaver-settings.json"
"""The file for settings in the lines that are printed."""
PROGRAMS: Final = tuple(each for each in CLIENTS if each.command)
"""Those that can be started."""


def find_client(name: str) -> Client:
    """Return a client by its name. Raises ``UnknownNameError`` listing those that are known."""
    found = next((each for each in CLIENTS if each.name == name), None)
    if found is None:
        raise UnknownNameError.among(f"no client {name!r}", [each.name for each in CLIENTS], name)
    return found


def start_of(client: Client, url: str, model: str, settings: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the variables that start a program with a model of the gateway at ``url``.

    ``settings`` is the file in which its settings stand.
    """
    return (
        [_filled(each, url, model) for each in client.command],
        {name: _filled(text, url, model).replace("{settings}", settings) for name, text in client.variables.items()},
    )


def client_line(client: Client, url: str, model: str) -> str:
    """Return what a person types, or writes into a program."""
    if client.line:
        return _filled(client.line, url, model)
    command, variables = start_of(client, url, model, SETTINGS)
    line = " ".join([f"{name}={shlex.quote(text)}" for name, text in variables.items()] + [shlex.join(command)])
    return f"echo {shlex.quote(client.settings)} > {SETTINGS}; {line}" if client.settings else line


def _filled(text: str, url: str, model: str) -> str:
    return text.replace("{url}", url).replace("{model}", model)
