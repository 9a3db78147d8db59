"""The programs: how each is started for one prompt, and the tool by which it runs a command."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def png(width: int, height: int) -> bytes:
    """Return a grey picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = b"".join(b"\x00" + bytes([128]) * width for _ in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


PNG = png(64, 64)
PACKAGES = Path(os.environ.get("PALAVER_NODE_CLIENTS") or Path(__file__).parent / "node_modules")


@dataclass(frozen=True)
class Program:
    """``start`` returns arguments and variables, given the URL, a model, a prompt and its home.

    ``compact`` changes both, and files, so that the program compacts a conversation of 60,000 tokens. ``resume``
    returns the arguments that resume a session with the prompt.
    """

    name: str
    command: str
    start: Callable[[str, str, str, Path], tuple[list[str], dict[str, str]]]
    tool: str
    arguments: Callable[[str], dict[str, Any]]
    compact: Callable[[list[str], dict[str, str], Path], None]
    with_image: Callable[[list[str], str], list[str]] = lambda given, prompt: [
        f"@harbour.png {each}" if each == prompt else each for each in given
    ]
    resume: Callable[[list[str], str], list[str]] = lambda given, session: ["--resume", session, *given]


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
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}), "utf-8")
    return ["-m", model, "--yolo", "-p", prompt], {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": "any",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


def qwen_code(url: str, model: str, prompt: str, home: Path) -> tuple[list[str], dict[str, str]]:
    settings = home / ".qwen" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"model": {"generationConfig": {"modalities": {"image": True}}}}), "utf-8")
    return ["--yolo", "-p", prompt], {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "any",
        "OPENAI_MODEL": model,
    }


def opencode(url: str, model: str, prompt: str, home: Path) -> tuple[list[str], dict[str, str]]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "any"},
        "models": {model: {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}},
    }
    (home / "opencode.json").write_text(json.dumps({"provider": {"palaver": provider}}), "utf-8")
    return ["run", "-m", f"palaver/{model}", prompt], {"OPENCODE_DISABLE_AUTOUPDATE": "1"}


def claude_compacts(_: list[str], variables: dict[str, str], __: Path) -> None:
    variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = "100000"


def codex_compacts(arguments: list[str], _: dict[str, str], __: Path) -> None:
    arguments[1:1] = ["-c", "model_auto_compact_token_limit=60000"]


def gemini_compacts(_: list[str], __: dict[str, str], home: Path) -> None:
    """Compact always: it counts the tokens of a conversation that is resumed itself."""
    change(home / ".gemini" / "settings.json", lambda it: it.update(model={"compressionThreshold": 0.0001}))


def qwen_compacts(_: list[str], __: dict[str, str], home: Path) -> None:
    share = {"contextPercentageThreshold": 0.1}
    change(home / ".qwen" / "settings.json", lambda it: it["model"].update(chatCompression=share))


def opencode_compacts(_: list[str], __: dict[str, str], home: Path) -> None:
    def limit(settings: dict[str, Any]) -> None:
        for each in settings["provider"]["palaver"]["models"].values():
            each["limit"] = {"context": 64_000, "output": 8192}

    change(home / "opencode.json", limit)


def change(file: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    settings = json.loads(file.read_text("utf-8"))
    edit(settings)
    file.write_text(json.dumps(settings), "utf-8")


def environment(home: Path) -> dict[str, str]:
    """Return the variables of a process that finds the programs, and whose home is a folder."""
    path = f"{PACKAGES / '.bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "NO_PROXY": "127.0.0.1"}


PROGRAMS = {
    each.name: each
    for each in (
        Program(
            "claude-code",
            "claude",
            claude_code,
            "Bash",
            lambda line: {"command": line, "description": "Say where it is"},
            claude_compacts,
        ),
        Program(
            "codex",
            "codex",
            codex,
            "exec_command",
            lambda line: {"cmd": line},
            codex_compacts,
            lambda given, _: ["exec", "-i", "harbour.png", *given[1:]],
            lambda given, session: ["exec", "resume", *given[1:-1], session, given[-1]],
        ),
        Program(
            "gemini-cli", "gemini", gemini_cli, "run_shell_command", lambda line: {"command": line}, gemini_compacts
        ),
        Program(
            "qwen-code",
            "qwen",
            qwen_code,
            "run_shell_command",
            lambda line: {"command": line, "is_background": False},
            qwen_compacts,
        ),
        Program(
            "opencode",
            "opencode",
            opencode,
            "bash",
            lambda line: {"command": line, "description": "Say where"},
            opencode_compacts,
            lambda given, _: [*given, "-f", "harbour.png"],
            lambda given, session: ["run", "--session", session, *given[1:]],
        ),
    )
}


def run(
    program: Program,
    url: str,
    model: str,
    prompt: str,
    home: Path,
    *,
    image: bytes | None = None,
    compact: bool = False,
    session: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program for one prompt, in a folder that is its home too. ``image`` is a picture for the prompt.

    With ``compact`` the program compacts a conversation of 60,000 tokens. ``session`` is the one that it resumes.
    """
    with started(program, url, model, prompt, home, image=image, compact=compact, session=session) as process:
        output, errors = process.communicate(timeout=180)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


@contextlib.contextmanager
def started(
    program: Program,
    url: str,
    model: str,
    prompt: str,
    home: Path,
    *,
    image: bytes | None = None,
    compact: bool = False,
    session: str | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Start a program for one prompt, and end it with all that it started."""
    arguments, variables = program.start(url, model, prompt, home)
    if compact:
        program.compact(arguments, variables, home)
    if image is not None:
        (home / "harbour.png").write_bytes(image)
        arguments = program.with_image(arguments, prompt)
    if session is not None:
        arguments = program.resume(arguments, session)
    process = subprocess.Popen(
        [str(PACKAGES / ".bin" / program.command), *arguments],
        cwd=home,
        env={**environment(home), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
