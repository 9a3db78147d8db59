"""The programs: how each is started for one prompt, and the tool by which it runs a command."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = Path(os.environ.get("PALAVER_NODE_CLIENTS") or Path(__file__).parent / "node_modules")


@dataclass(frozen=True)
class Program:
    """``start`` returns arguments and variables, given the URL, a model, a prompt and its home."""

    name: str
    command: str
    start: Callable[[str, str, str, Path], tuple[list[str], dict[str, str]]]
    tool: str
    arguments: Callable[[str], dict[str, Any]]


def claude_code(url: str, model: str, prompt: str, _: Path) -> tuple[list[str], dict[str, str]]:
    return ["-p", prompt, "--model", model, "--allowedTools", "Bash"], {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "any",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def codex(url: str, model: str, prompt: str, _: Path) -> tuple[list[str], dict[str, str]]:
    provider = f'{{name="Palaver", base_url="{url}/v1", wire_api="responses", env_key="PALAVER_KEY"}}'
    return [
        *["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", model],
        *["-c", "model_provider=palaver", "-c", f"model_providers.palaver={provider}", prompt],
    ], {"PALAVER_KEY": "any"}


def gemini_cli(url: str, model: str, prompt: str, home: Path) -> tuple[list[str], dict[str, str]]:
    settings = home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}), "utf-8")
    return ["-m", model, "--yolo", "-p", prompt], {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": "any",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


def qwen_code(url: str, model: str, prompt: str, _: Path) -> tuple[list[str], dict[str, str]]:
    return ["--yolo", "-p", prompt], {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "any",
        "OPENAI_MODEL": model,
    }


def opencode(url: str, model: str, prompt: str, home: Path) -> tuple[list[str], dict[str, str]]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "any"},
        "models": {model: {}},
    }
    (home / "opencode.json").write_text(json.dumps({"provider": {"palaver": provider}}), "utf-8")
    return ["run", "-m", f"palaver/{model}", prompt], {"OPENCODE_DISABLE_AUTOUPDATE": "1"}


PROGRAMS = {
    each.name: each
    for each in (
        Program(
            "claude-code",
            "claude",
            claude_code,
            "Bash",
            lambda line: {"command": line, "description": "Say where it is"},
        ),
        Program("codex", "codex", codex, "exec_command", lambda line: {"cmd": line}),
        Program("gemini-cli", "gemini", gemini_cli, "run_shell_command", lambda line: {"command": line}),
        Program(
            "qwen-code",
            "qwen",
            qwen_code,
            "run_shell_command",
            lambda line: {"command": line, "is_background": False},
        ),
        Program("opencode", "opencode", opencode, "bash", lambda line: {"command": line, "description": "Say where"}),
    )
}


def run(program: Program, url: str, model: str, prompt: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program for one prompt, in a folder that is its home too."""
    arguments, variables = program.start(url, model, prompt, home)
    return subprocess.run(
        [str(PACKAGES / ".bin" / program.command), *arguments],
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
