"""The gate that guards the public API: what it lets through, and what it stops (docs/spec/kairo.md#6)."""

import dataclasses
import importlib
import importlib.util
import re
from pathlib import Path

import pytest
from msgspec import NODEFAULT

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "docs" / "reference" / "api.lock"
FACADE = '''"""A facade.

Stability: stable.
"""

from palaver.core import LIMIT, Colour, Encoder, Kind, Message, Point, Source, beta, send, user

__all__ = ["LIMIT", "Colour", "Encoder", "Kind", "Message", "Point", "Source", "beta", "send", "user"]
'''
CORE = '''"""Values.

Stability: stable.
"""

from abc import ABC, abstractmethod
from enum import Enum
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

LIMIT: Final = 20

Kind: TypeAlias = Literal["a", "b"]

class Colour(Enum):
    """A colour."""
    RED = 1
    BLUE = 2

class Point(Struct):
    """A point."""
    x: int
    y: int = 0

class Source(Protocol):
    """Where texts come from."""

    def read(self) -> str:
        """Read."""
        ...

class Encoder(ABC):
    """Writes texts."""

    @abstractmethod
    def encode(self, text: str) -> bytes:
        """Write."""

    def decode(self, data: bytes) -> str:
        """Read."""
        return data.decode()

class _Base:
    id: str | None = None

    @property
    def text(self) -> str:
        """The text."""
        return ""

class Message(_Base):
    """A message."""

def user(*content: str, agent: str | None = None) -> Message:
    """A message of the user."""
    return Message()

async def send(message: Message, to: str, /, times: int = 1) -> None:
    """Send."""

def beta(n: int) -> int:
    """New.

    Stability: experimental.
    """
    return n
'''

spec = importlib.util.spec_from_file_location("api_lock", ROOT / "tools" / "api_lock.py")
assert spec is not None
assert spec.loader is not None
api_lock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(api_lock)


@pytest.fixture
def gate(tmp_path, capsys):
    """A package with its lock: `gate(old, new)` checks it after one edit of its source; gives code and output."""
    package = tmp_path / "src" / "palaver"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FACADE)
    core = package / "core.py"
    core.write_text(CORE)

    def run(*flags):
        code = api_lock.main([*flags, "--source", str(package.parent), "--lock", str(tmp_path / "api.lock")])
        return code, capsys.readouterr().out

    def edit_and_check(old="", new=""):
        assert old in CORE
        core.write_text(CORE.replace(old, new, 1))
        return run("--check")

    assert run("--update") == (0, "")
    return edit_and_check


@pytest.mark.row("MSG-15")
@pytest.mark.row("KAI-30")
def test_an_unchanged_api_passes_in_silence(gate):
    assert gate() == (0, "")


BREAKING = {
    # the sixteen
    "object-gone": ("def user(", "def _user(", "palaver.user"),
    "attribute-becomes-a-method": ("    @property\n", "", "palaver.Message.text"),
    "required-parameter": ("*content: str, agent", "*content: str, to: str, agent", "palaver.user"),
    "parameters-change-places": ("message: Message, to: str", "to: str, message: Message", "palaver.send"),
    "default-of-a-parameter": ("times: int = 1", "times: int = 2", "palaver.send"),
    "field-in-between": ("    y: int = 0", "    z: int = 0\n    y: int = 0", "palaver.Point.y"),
    "members-change-places": ("RED = 1\n    BLUE = 2", "BLUE = 2\n    RED = 1", "palaver.Colour.BLUE"),
    "value-of-a-member": ("BLUE = 2", "BLUE = 3", "palaver.Colour.BLUE"),
    "abstract-method": (
        "    def decode(",
        "    @abstractmethod\n    def flush(self) -> None: ...\n\n    def decode(",
        "palaver.Encoder.flush",
    ),
    "method-of-a-protocol": (
        "    def read(",
        "    def peek(self) -> str:\n        return ''\n\n    def read(",
        "palaver.Source.peek",
    ),
    "base": ("class Message(_Base)", "class Message(_Base, dict)", "palaver.Message"),
    "type-of-a-parameter": ("agent: str |", "agent: bytes |", "palaver.user"),
    "type-of-a-result": ("-> Message", "-> str", "palaver.user"),
    "no-coroutine": ("async def send", "def send", "palaver.send"),
    "value-of-a-constant": ("LIMIT: Final = 20", "LIMIT: Final = 30", "palaver.LIMIT"),
    "private-now": ("def text", "def _text", "palaver.Message.text"),
    # and more
    "default-gone": ("agent: str | None = None", "agent: str", "palaver.user"),
    "renamed-parameter": ("agent:", "name:", "palaver.user"),
    "by-name-alone": ("/, times: int = 1", "/, *, times: int = 1", "palaver.send"),
    "parameter-before-the-rest": ("*content: str", "first: str = '', *content: str", "palaver.user"),
    "optional-parameter-of-an-abstract-method": ("self, text: str)", "self, text: str, n: int = 0)", "palaver.Encoder"),
    "optional-parameter-of-a-protocol": ("def read(self)", "def read(self, n: int = 0)", "palaver.Source.read"),
    "method-becomes-abstract": ("    def decode(", "    @abstractmethod\n    def decode(", "palaver.Encoder.decode"),
    "attribute-of-a-protocol": ('texts come from."""', 'texts come from."""\n    name: str', "palaver.Source.name"),
    "field-without-a-default": ("    y: int = 0", "    y: int = 0\n    z: int", "palaver.Point.z"),
    "default-of-a-field": ("id: str | None = None", "id: str", "palaver.Message.id"),
    "values-of-a-literal-change-places": ('"a", "b"', '"b", "a"', "palaver.Kind"),
    "value-of-a-literal-gone": ('"a", "b"', '"a"', "palaver.Kind"),
    "promise-withdrawn": (
        '"""A message."""',
        '"""A message.\n\n    Stability: experimental.\n    """',
        "palaver.Message",
    ),
}


@pytest.mark.row("MSG-15")
@pytest.mark.row("KAI-30")
@pytest.mark.parametrize(("old", "new", "named"), BREAKING.values(), ids=BREAKING)
def test_a_stable_change_fails_and_is_named(gate, old, new, named):
    code, out = gate(old, new)
    assert code == 1
    broken = out.split("Stable API changed or gone:\n")[1]
    assert f" {named}" in broken.splitlines()[0]


MORE = "times: int = 1, fast: bool = False, **more: str"
ADDITIVE = {
    "accessor": (
        '    """A message."""',
        '    """A message."""\n    tags: tuple[str, ...] = ()',
        "+ stable        palaver.Message.tags: tuple[str, ...] = ()",
    ),
    "method": (
        "    def decode(",
        "    def flush(self) -> None: ...\n\n    def decode(",
        "+ stable        palaver.Encoder.flush(self) -> None",
    ),
    "field-at-the-end": (
        "    y: int = 0",
        "    y: int = 0\n    z: int = 0",
        "+ stable        palaver.Point.z: int = 0 [3]",
    ),
    "member-at-the-end": ("BLUE = 2", "BLUE = 2\n    PINK = 3", "+ stable        palaver.Colour.PINK = 3 [3]"),
    "value-at-the-end": (
        '"a", "b"',
        '"a", "b", "c"',
        "+ stable        palaver.Kind: TypeAlias = Literal['a', 'b', 'c']",
    ),
    "optional-parameter": (
        "*content: str, agent",
        "*content: str, to: str = '', agent",
        "+ stable        palaver.user(*content: str, to: str = '', agent: str | None = None) -> Message",
    ),
    "optional-parameter-at-the-end": (
        "times: int = 1",
        MORE,
        f"+ stable        palaver.send(message: Message, to: str, /, {MORE}) -> None [async]",
    ),
    "experimental": ("n: int", "n: float", "+ experimental  palaver.beta(n: float) -> int"),
}


@pytest.mark.row("MSG-15")
@pytest.mark.row("KAI-30")
@pytest.mark.parametrize(("old", "new", "shown"), ADDITIVE.values(), ids=ADDITIVE)
def test_an_addition_or_an_experimental_change_passes_and_is_shown(gate, old, new, shown):
    code, out = gate(old, new)
    assert code == 0
    assert shown in out.splitlines()


@pytest.mark.row("KAI-30")
def test_a_public_name_with_two_marks_fails(gate):
    code, out = gate("Stability: experimental.", "Stability: experimental.\n    Stability: stable.")
    assert code == 1
    marked = out.split("Public, with no mark of stability, or two:\n")[1]
    assert marked.splitlines()[0] == "two           palaver.beta(n: int) -> int"


@pytest.mark.row("KAI-30")
def test_a_public_name_with_no_mark_fails(gate, tmp_path):
    facade = tmp_path / "src" / "palaver" / "__init__.py"
    facade.write_text(FACADE.replace("Stability: stable.", ""))
    code, out = gate("Stability: stable.", "")
    assert code == 1
    unmarked = out.split("Public, with no mark of stability, or two:\n")[1].split("Stable API changed or gone")[0]
    assert "none          palaver.user(" in unmarked
    assert "palaver.beta" not in unmarked


def test_a_missing_lock_fails(tmp_path):
    assert api_lock.main(["--check", "--lock", str(tmp_path / "none")]) == 1


def demanded(made):
    """The fields of a class that have no default."""
    if dataclasses.is_dataclass(made):
        return {f.name for f in dataclasses.fields(made) if f.default is f.default_factory is dataclasses.MISSING}
    names, defaults = made.__struct_fields__, made.__struct_defaults__
    standing = (*[NODEFAULT] * (len(names) - len(defaults)), *defaults)
    return {name for name, default in zip(names, standing, strict=True) if default is NODEFAULT}


@pytest.mark.row("KAI-30")
def test_places_and_demands_of_fields_are_those_of_the_constructors():
    locked = {}
    for path, line in api_lock.read_lock(LOCK).items():
        placed = re.search(r" \[(\d+)\]( \[required\])?$", line)
        if placed:
            locked.setdefault(path.rpartition(".")[0], []).append((int(placed[1]), path, bool(placed[2])))
    assert len(locked) > 20
    for name, fields in locked.items():
        module, _, cls = name.rpartition(".")
        made = getattr(importlib.import_module(module), cls)
        assert tuple(path.rpartition(".")[2] for _, path, _ in sorted(fields)) == made.__match_args__, name
        needed = demanded(made) & set(made.__match_args__)
        assert {path.rpartition(".")[2] for _, path, required in fields if required} == needed, name
