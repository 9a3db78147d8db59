"""Recorded provider traffic, when there is any: one JSON file for each exchange.

It lies in the folder that `PALAVER_CORPUS` names, or in `../shared/corpus` beside the repository.
Nothing of it is copied here, so a checkout without it skips the tests that read it, by name.

A test asks for the fixture `exchange` and gets every recording;
`@pytest.mark.recorded("ollama_chat")` narrows it to some wires.
"""

import json
import os
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("PALAVER_CORPUS") or ROOT.parent / "shared" / "corpus")


@dataclass(frozen=True)
class Exchange:
    """One recorded request with what came back; the file is read when it is asked for."""

    file: Path

    @property
    def wire(self) -> str:
        return self.file.parent.name

    @cached_property
    def record(self) -> dict[str, Any]:
        """The keys are described in the corpus' own README: `request`, `response`, `stream`, ..."""
        return json.loads(self.file.read_bytes())


@cache
def _holding(key: str) -> frozenset[Path]:
    """The recordings whose record has a field of that name; ``stream`` may be ``stream_base64`` too."""
    names = (f'"{key}":'.encode(), f'"{key}_base64":'.encode())
    files = (CORPUS / "wires").glob("*/*.json")
    maybe = [file for file in files if any(name in file.read_bytes() for name in names)]
    return frozenset(file for file in maybe if Exchange(file).record.keys() & {key, f"{key}_base64"})


def exchanges(*wires: str, has: str | None = None) -> list[Any]:
    """Parameters for a test over the recordings of these wires, or of all; `has` names a field they must have."""
    files = sorted((CORPUS / "wires").glob("*/*.json"))
    chosen = [file for file in files if not wires or file.parent.name in wires]
    chosen = [file for file in chosen if has is None or file in _holding(has)]
    if not chosen:
        name = "-".join(["no-corpus", *wires])
        reason = "the recorded corpus is absent; PALAVER_CORPUS names its folder"
        return [pytest.param(None, id=name, marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(Exchange(file), id=f"{file.parent.name}/{file.stem}") for file in chosen]
