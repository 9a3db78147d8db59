"""Where programs look for the sessions of a folder, and how each is told to resume one.

- ``{id}`` in a command stands for the id of a session, and ``{file}`` for its file.
- A program that reads sessions from a database only has no place: ``importer`` is its own command, which reads a file.
- The rules were read off what the programs write, and off their source where it is published.

Stability: experimental.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, cast
from uuid import uuid4

from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.threads.ids import uuid7
from palaver.transcripts.opencode.writer import session_id


class NewSession(NamedTuple):
    """A session that does not exist yet: its id, the folder that it belongs to, and its time in Unix milliseconds."""

    id: str
    folder: str
    at: int


class Place(NamedTuple):
    """The path of a session's file, and further files that the program needs, by their path relative to its folder."""

    path: Path
    beside: Mapping[str, bytes] = {}


PlaceRule: TypeAlias = Callable[[Path, NewSession], Place]


class Program(Struct, frozen=True, kw_only=True):
    """A program that resumes sessions.

    Its data are in the folder that the first set one of ``variables`` names, and what stands after it, else in ``home``
    beneath the user's own. ``place`` returns the place of a session in there, and ``sessions`` is the
    folder of them all.
    """

    name: str
    title: str
    file_format: str
    command: tuple[str, ...]
    package: str
    variables: tuple[tuple[str, str], ...] = ()
    home: str = ""
    place: PlaceRule | None = None
    sessions: str = ""
    importer: tuple[str, ...] = ()
    new_id: Callable[[int], str] = lambda _: str(uuid4())

    def resume_command(self, id: str) -> list[str]:
        """Return the command that resumes a session."""
        return [part.replace("{id}", id) for part in self.command]

    def import_command(self, file: str) -> list[str]:
        """Return the command by which the program reads a file."""
        return [part.replace("{file}", file) for part in self.importer]

    def data_folder(self, environment: Mapping[str, str]) -> Path:
        """Return the folder of the program's data."""
        for variable, beneath in self.variables:
            if environment.get(variable):
                return Path(os.path.abspath(os.path.expanduser(environment[variable])), beneath)  # noqa: PTH100, PTH111 (without links)
        return Path.home() / self.home


def session_folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders of sessions that exist on this machine."""
    folders = (each.data_folder(environment) / each.sessions for each in PROGRAMS if each.sessions)
    return [each for each in folders if each.is_dir()]


def is_session(name: str) -> bool:
    """Return whether a file in such a folder is named as sessions are; others hold settings and outputs."""
    return name.endswith(".jsonl") or (name.startswith("session-") and name.endswith(".json"))


def find_program(name: str) -> Program:
    """Return a program by its name."""
    return next(each for each in PROGRAMS if each.name == name)


# -- Claude Code and Qwen Code: the folder's path with hyphens --------------------------------------------------------


_LONGEST: Final = 200
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_OTHER: Final = re.compile("[^a-zA-Z0-9]")


def _hyphenated(folder: str) -> str:
    """Return a path with a hyphen for each UTF-16 unit that is no ASCII letter or digit."""
    return _OTHER.sub(lambda found: "-" * len(_units(found[0])), folder)


def _units(text: str) -> memoryview:
    return memoryview(text.encode("utf-16-le" if sys.byteorder == "little" else "utf-16-be", "surrogatepass")).cast("H")


def _hash(text: str) -> str:
    """Return the 32-bit hash that names longer paths, in base 36."""
    number = 0
    for unit in _units(text):
        number = (number * 31 + unit) & 0xFFFF_FFFF
    number = abs(number - (1 << 32) if number >> 31 else number)
    digits = ""
    while number or not digits:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def _claude_code(home: Path, session: NewSession) -> Place:
    name = _hyphenated(session.folder)
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{_hash(session.folder)}"
    return Place(home / "projects" / name / f"{session.id}.jsonl")


def _qwen_code(home: Path, session: NewSession) -> Place:
    return Place(home / "projects" / _hyphenated(_normal(session.folder)) / "chats" / f"{session.id}.jsonl")


def _normal(folder: str) -> str:
    return folder.lower() if sys.platform == "win32" else folder


# -- Codex: the local date ---------------------------------------------------------------------------------------------


def _codex(home: Path, session: NewSession) -> Place:
    at = datetime.fromtimestamp(session.at / 1000).astimezone()
    return Place(home / "sessions" / f"{at:%Y/%m/%d}" / f"rollout-{at:%Y-%m-%dT%H-%M-%S}-{session.id}.jsonl")


# -- Gemini CLI: a short name for each folder --------------------------------------------------------------------------


_MARK: Final = ".project_root"
"""The file in a project's folder that names the folder that it is for."""


def _gemini_cli(home: Path, session: NewSession) -> Place:
    folder = _normal(session.folder)
    name, is_new = _gemini_project(home, folder)
    stamp = datetime.fromtimestamp(session.at / 1000, UTC)
    file = f"session-{stamp:%Y-%m-%dT%H-%M}-{session.id[:8]}.jsonl"
    mark = {f"../{_MARK}": folder.encode("utf-8", "surrogateescape")} if is_new else {}
    return Place(home / "tmp" / name / "chats" / file, mark)


def _gemini_project(home: Path, folder: str) -> tuple[str, bool]:
    """Return the name of a folder's project, and whether it is new.

    It is the name in the list of projects, or the one that a mark gives, or the hash of older versions if it is used.
    """
    listed = _gemini_projects(home)
    name = listed.get(folder)
    if name is not None and all(_owner(each, name) in {None, folder} for each in _bases(home)):
        return name, not (home / "tmp" / name / _MARK).exists()
    for base in _bases(home):
        names = sorted(each.name for each in base.iterdir()) if base.is_dir() else []
        if (marked := next((each for each in names if _owner(base, each) == folder), None)) is not None:
            return marked, not (home / "tmp" / marked / _MARK).exists()
    hashed = sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()
    if (home / "tmp" / hashed).is_dir():
        return hashed, False
    taken = {each for path, each in listed.items() if path != folder}
    for candidate in _gemini_names(folder):
        if candidate not in taken and all(_owner(each, candidate) is None for each in _bases(home)):
            return candidate, True
    raise AssertionError


def _bases(home: Path) -> tuple[Path, ...]:
    return home / "tmp", home / "history"


def _owner(base: Path, name: str) -> str | None:
    """Return the folder that a project is for; ``None`` without a mark."""
    try:
        return (base / name / _MARK).read_text("utf-8", "surrogateescape").strip()
    except OSError:
        return None


def _gemini_projects(home: Path) -> Mapping[str, str]:
    """Return the names of projects by their folders."""
    try:
        found: Any = jsontext.value((home / "projects.json").read_bytes())
    except (OSError, PalaverError):
        return {}
    listed: Any = cast("dict[str, Any]", found).get("projects") if isinstance(found, dict) else None
    if not isinstance(listed, dict):
        return {}
    pairs = cast("dict[str, Any]", listed).items()
    return {folder: name for folder, name in pairs if isinstance(name, str) and re.fullmatch("[a-z0-9-]+", name)}


def _gemini_names(folder: str) -> Iterator[str]:
    """Yield the names that a new project may get, the best first."""
    name = re.sub("[^a-z0-9]+", "-", os.path.basename(folder).lower()).strip("-") or "project"  # noqa: PTH119 (a root has no name)
    yield name
    number = 1
    while True:
        yield f"{name}-{number}"
        number += 1


PROGRAMS: Final = (
    Program(
        name="claude-code",
        title="Claude Code",
        file_format="claude_code",
        command=("claude", "--resume", "{id}"),
        package="npm install -g @anthropic-ai/claude-code",
        variables=(("CLAUDE_CONFIG_DIR", ""),),
        home=".claude",
        place=_claude_code,
        sessions="projects",
    ),
    Program(
        name="codex",
        title="Codex",
        file_format="codex",
        command=("codex", "resume", "{id}"),
        package="npm install -g @openai/codex",
        variables=(("CODEX_HOME", ""),),
        home=".codex",
        place=_codex,
        sessions="sessions",
        new_id=uuid7,
    ),
    Program(
        name="gemini-cli",
        title="Gemini CLI",
        file_format="gemini_cli",
        command=("gemini", "--resume", "{id}"),
        package="npm install -g @google/gemini-cli",
        variables=(("GEMINI_CLI_HOME", ".gemini"),),
        home=".gemini",
        place=_gemini_cli,
        sessions="tmp",
    ),
    Program(
        name="qwen-code",
        title="Qwen Code",
        file_format="qwen_code",
        command=("qwen", "--resume", "{id}"),
        package="npm install -g @qwen-code/qwen-code",
        variables=(("QWEN_RUNTIME_DIR", ""), ("QWEN_HOME", "")),
        home=".qwen",
        place=_qwen_code,
        sessions="projects",
    ),
    Program(
        name="opencode",
        title="opencode",
        file_format="opencode",
        command=("opencode", "--session", "{id}"),
        package="npm install -g opencode-ai",
        importer=("opencode", "import", "{file}"),
        new_id=lambda at: session_id(at, uuid7(at)),
    ),
)
