"""The gate that guards the public API: what it lets through, and what it stops."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FACADE = '''"""A facade.

Stability: stable.
"""

from palaver.core import Message, beta, user

__all__ = ["Message", "beta", "user"]
'''
CORE = '''"""Values.

Stability: stable.
"""

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

def beta(n: int) -> int:
    """New.

    Stability: experimental.
    """
    return n
'''


@pytest.fixture
def gate(tmp_path):
    """A package with its lock: `gate(old, new)` checks it after one edit of its source."""
    package = tmp_path / "src" / "palaver"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FACADE)
    core = package / "core.py"
    core.write_text(CORE)

    def run(*flags):
        tool = [sys.executable, ROOT / "tools" / "api_lock.py", *flags]
        paths = ["--source", package.parent, "--lock", tmp_path / "api.lock"]
        return subprocess.run([*tool, *paths], capture_output=True, text=True, check=False)

    def edit_and_check(old="", new=""):
        assert old in CORE
        core.write_text(CORE.replace(old, new))
        return run("--check")

    assert run("--update").returncode == 0
    return edit_and_check


@pytest.mark.row("MSG-15")
def test_an_unchanged_api_passes_in_silence(gate):
    done = gate()
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.row("MSG-15")
@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        pytest.param("agent: str |", "agent: bytes |", "palaver.user", id="type-of-a-parameter"),
        pytest.param("agent: str | None = None", "agent: str", "palaver.user", id="default-gone"),
        pytest.param("agent:", "name:", "palaver.user", id="renamed-parameter"),
        pytest.param("-> Message", "-> str", "palaver.user", id="return-type"),
        pytest.param("def text", "def _text", "palaver.Message.text", id="inherited-accessor-gone"),
        pytest.param("    @property\n", "", "palaver.Message.text", id="accessor-becomes-a-method"),
        pytest.param("id: str | None = None", "id: str", "palaver.Message.id", id="field-default"),
        pytest.param(
            '"""A message."""',
            '"""A message.\n\n    Stability: experimental.\n    """',
            "palaver.Message",
            id="promise-withdrawn",
        ),
    ],
)
def test_a_stable_change_fails_and_is_named(gate, old, new, named):
    done = gate(old, new)
    assert done.returncode == 1
    broken = done.stdout.split("Stable API changed or gone:\n")[1]
    assert f" {named}" in broken.splitlines()[0]


@pytest.mark.row("MSG-15")
@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        pytest.param(
            '    """A message."""',
            '    """A message."""\n    tags: tuple[str, ...] = ()',
            "+ stable        palaver.Message.tags: tuple[str, ...] = ()",
            id="new-accessor",
        ),
        pytest.param("n: int", "n: float", "+ experimental  palaver.beta(n: float) -> int", id="experimental"),
    ],
)
def test_an_addition_or_an_experimental_change_passes_and_is_shown(gate, old, new, shown):
    done = gate(old, new)
    assert done.returncode == 0
    assert shown in done.stdout.splitlines()


def test_a_missing_lock_fails(tmp_path):
    tool = [sys.executable, ROOT / "tools" / "api_lock.py", "--check", "--lock", tmp_path / "none"]
    assert subprocess.run(tool, capture_output=True, check=False).returncode == 1
