"""API keys that ``palaver keys`` stores: in the platform's keyring where there is one, else in a private file.

- The keyring is used where the package ``keyring`` is installed (extra ``keyring``) and has a backend. The file is
  ``keys.json`` in the user's configuration folder, readable by its owner only.
- Only the command line reads stored keys, and only where the environment has none. ``palaver.models`` never does.

Stability: experimental.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

import platformdirs

from palaver.cli.terminal import bad_input
from palaver.models.endpoint import first_set
from palaver.models.providers import PROVIDERS

_SERVICE: Final = "palaver"
_NAMES: Final = "palaver-names"
"""The keyring's entry with the names that have a key: a keyring cannot be listed."""
_FOLDER: Final = "PALAVER_CONFIG"
SERVER: Final = "server"
"""Stands for the server of ``--url``, which is no provider of the table."""
_SERVER_KEY: Final = "PALAVER_API_KEY"


def path() -> Path:
    """Return the file that holds the keys where there is no keyring."""
    folder = os.environ.get(_FOLDER, "").strip() or platformdirs.user_config_dir("palaver", appauthor=False)
    return Path(folder) / "keys.json"


def keyring() -> Any:
    """Return the keyring's backend, or ``None`` where the package is not installed or has no backend."""
    if os.environ.get(_FOLDER, "").strip() or find_spec("keyring") is None:
        return None
    with _keyring_errors():
        backend = import_module("keyring").get_keyring()
        return backend if backend.priority > 0 else None


@contextmanager
def _keyring_errors() -> Generator[None]:
    """End the command with one line when the keyring is locked, or cannot be reached."""
    try:
        yield
    except import_module("keyring.errors").KeyringError as error:
        bad_input("the keyring", str(error) or type(error).__name__)


def place() -> str:
    """Return where keys are stored, for people."""
    ring = keyring()
    return str(path()) if ring is None else f"the keyring ({type(ring).__module__})"


def names() -> tuple[str, ...]:
    """Return the names that have a key, sorted.

    This and the functions below raise ``click.ClickException`` for a damaged file, and for a keyring that fails.
    """
    ring = keyring()
    if ring is None:
        return tuple(sorted(_read()))
    with _keyring_errors():
        return tuple(sorted(json.loads(ring.get_password(_SERVICE, _NAMES) or "[]")))


def find(name: str) -> str | None:
    """Return the key of a name; ``None`` where there is none."""
    ring = keyring()
    if ring is None:
        return _read().get(name)
    with _keyring_errors():
        return cast("str | None", ring.get_password(_SERVICE, name))


def provider_key(provider: str) -> str | None:
    """Return the stored key of ``provider``; ``None`` where there is none, or the environment has one."""
    row = PROVIDERS.get(provider)
    return None if row is None or first_set(row.keys) else find(provider)


def missing_key(provider: str) -> str | None:
    """Return what is missing when ``provider`` needs a key that is neither set nor stored, else ``None``."""
    row = PROVIDERS.get(provider)
    if row is None or not row.needs_key or not row.keys or first_set(row.keys) or find(provider) is not None:
        return None
    return f"{provider}: no key: set {' or '.join(row.keys)}"


def server_key() -> str | None:
    """Return the key for the server of ``--url``; ``None`` where there is none."""
    return os.environ.get(_SERVER_KEY, "").strip() or find(SERVER)


def store(name: str, key: str) -> None:
    """Store a key, in place of an earlier one."""
    ring = keyring()
    if ring is None:
        _write(_read() | {name: key})
        return
    known = names()
    with _keyring_errors():
        ring.set_password(_SERVICE, name, key)
        ring.set_password(_SERVICE, _NAMES, json.dumps(sorted({*known, name})))


def remove(name: str) -> bool:
    """Remove a key. Return whether there was one."""
    known = names()
    if name not in known:
        return False
    ring = keyring()
    if ring is None:
        _write({each: key for each, key in _read().items() if each != name})
        return True
    with _keyring_errors():
        ring.delete_password(_SERVICE, name)
        ring.set_password(_SERVICE, _NAMES, json.dumps([each for each in known if each != name]))
    return True


def _read() -> dict[str, str]:
    file = path()
    try:
        found: Any = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        bad_input(str(file), "the file of keys cannot be read")
    stored = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in stored.values()):
        bad_input(str(file), "the file of keys cannot be read")
    return stored


def _write(keys: dict[str, str]) -> None:
    """Replace the file, which nobody else may read at any time."""
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        json.dump(keys, out, indent=2)
    temporary.replace(file)
