"""Build the package, and check what would be released.

- `python tools/package.py` builds the source archive and, from it, the wheel; `twine check --strict` reads their
  descriptions, and each file of `src` must be in the wheel.
- `--install` installs the wheel into an empty environment, and runs what a user would type first.
- `--extras` resolves all extras together for each supported Python, without installing anything.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FIRST = (
    ["-c", "import palaver; print(palaver.user('Hello').text)"],
    ["-m", "palaver", "--version"],
    ["-m", "palaver", "run", "Which berth?", "-m", "demo", "--approve", "deny", "--store", "first.db"],
)


def run(*command: object, cwd: Path = ROOT) -> None:
    """Run a command; show what it printed only when it failed."""
    done = subprocess.run([str(each) for each in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def build(folder: Path) -> Path:
    """Build both archives into a folder, and check them; return the wheel."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ".")
    run(sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir())
    (wheel,) = folder.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    files = (path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    missing = sorted({path.relative_to(source).as_posix() for path in files} - packed)
    if missing:
        sys.exit(f"not in the wheel: {', '.join(missing)}")
    return wheel


def install(wheel: Path, folder: Path) -> None:
    """Install the wheel into an empty environment, and run what a user would type first."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    run(python, "-m", "pip", "-q", "--disable-pip-version-check", "install", wheel)
    for arguments in FIRST:
        run(python, *arguments, cwd=folder)


def extras(wheel: Path) -> None:
    """Resolve every extra for each supported Python."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = ",".join(each for each in named if each != "dev")
    requirement = wheel.with_suffix(".txt")
    requirement.write_text(f"palaver[{wanted}] @ {wheel.as_uri()}\n")
    for python in PYTHONS:  # uv, since pip judges markers by the Python that it runs on
        options = ["-q", "--python-version", python, "--only-binary", ":all:"]
        run(sys.executable, "-m", "uv", "pip", "compile", *options, requirement)
        print(f"{wanted}: resolved for Python {python}", flush=True)


def main() -> None:
    """Build, and do what else is asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--extras", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(Path(folder) / "dist")
        if asked.install:
            install(wheel, Path(folder))
            print(f"{wheel.name} installs into an empty environment and runs")
        if asked.extras:
            extras(wheel)


if __name__ == "__main__":
    main()
