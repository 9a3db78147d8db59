"""The layers contract holds, and each clause of it is proven by breaking it in a copy."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "pyproject.toml"
CONTRACTS = {
    contract["id"]: contract["name"]
    for contract in tomllib.loads(CONFIG.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
}
# Modules that the offences below are written into, for a tree that does not have them.
STUBS = (
    "cli/__init__.py",
    "core/__init__.py",
    "testing/__init__.py",
    "wires/__init__.py",
    "wires/anthropic_messages/__init__.py",
    "wires/anthropic_messages/encode.py",
    "wires/detect.py",
    "wires/openai_chat/__init__.py",
    "wires/openai_chat/encode.py",
)


@pytest.fixture
def package(tmp_path):
    """A copy of the package, in a folder of its own."""
    copy = tmp_path / "palaver"
    shutil.copytree(ROOT / "src/palaver", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for stub in STUBS:
        file = copy / stub
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return copy


def lint(package):
    """Run the contracts over a copy; the first folder of PYTHONPATH is where it is found."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--config", CONFIG, "--no-cache"],
        cwd=package.parent,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_package_as_it_is_keeps_the_contracts(package):
    code, output = lint(package)
    assert code == 0, output
    assert all(f"{name} KEPT" in output for name in CONTRACTS.values())


@pytest.mark.parametrize(
    ("contract", "module", "offence"),
    [
        pytest.param("layers", "core/__init__.py", "import palaver.wires", id="core-imports-wires"),
        pytest.param("layers", "wires/detect.py", "import palaver.testing", id="wires-import-testing"),
        pytest.param("layers", "turn/calls.py", "import palaver.agent.machine", id="turn-imports-agent"),
        pytest.param("layers", "cli/__init__.py", "import palaver.testing", id="a-sibling-imports-a-sibling"),
        pytest.param("layers", "novel/__init__.py", "", id="a-package-that-the-layers-do-not-draw"),
        pytest.param("facade", "core/__init__.py", "import palaver", id="a-module-imports-the-facade"),
        pytest.param(
            "facade",
            "wires/openai_chat/encode.py",
            "from palaver import user",
            id="a-module-imports-a-name-from-the-facade",
        ),
        pytest.param(
            "wires",
            "wires/openai_chat/encode.py",
            "from palaver.wires.anthropic_messages import encode",
            id="a-wire-imports-another",
        ),
        pytest.param(
            "wires",
            "wires/detect.py",
            "from palaver.wires import openai_chat",
            id="a-shared-module-imports-a-wire",
        ),
        pytest.param(
            "wires",
            "wires/openai_chat/encode.py",
            "from palaver.wires import novel",
            id="a-shared-module-that-is-not-listed",
        ),
    ],
)
@pytest.mark.share(2)
def test_an_offence_breaks_its_contract(package, contract, module, offence):
    (package / "wires/novel.py").touch()
    file = package / module
    file.parent.mkdir(exist_ok=True)
    with file.open("a", encoding="utf-8") as source:
        source.write(f"\n{offence}\n")
    code, output = lint(package)
    assert code == 1, output
    assert f"{CONTRACTS[contract]} BROKEN" in output


def test_a_wire_may_not_reach_another_through_the_table(package):
    with (package / "wires/__init__.py").open("a", encoding="utf-8") as table:
        table.write("\nfrom palaver.wires import anthropic_messages, openai_chat\n")
    with (package / "wires/openai_chat/encode.py").open("a", encoding="utf-8") as encode:
        encode.write("\nimport palaver.wires\n")
    code, output = lint(package)
    assert code == 1, output
    assert f"{CONTRACTS['wires']} BROKEN" in output
