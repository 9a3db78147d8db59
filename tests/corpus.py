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


NO_COMPLETION = {"test_invalid_response--0-3a2427"}
"""Recorded replies with status 200 that hold no completion at all (docs/spec/wires.md#1.3)."""


def _holds(file: Path, what: str) -> bool:
    """Whether a recording is a `stream`, or has an `answer` that came whole."""
    if what == "stream":
        return bool(Exchange(file).record.keys() & {"stream", "stream_base64"})
    record = Exchange(file).record
    return "response" in record and record["status"] == 200 and file.stem not in NO_COMPLETION


@cache
def _holding(what: str) -> frozenset[Path]:
    return frozenset(file for file in (CORPUS / "wires").glob("*/*.json") if _holds(file, what))


def exchanges(*wires: str, has: str | tuple[str, ...] = ()) -> list[Any]:
    """Parameters for a test over the recordings of these wires, or of all; `has` names what they must be."""
    files = sorted((CORPUS / "wires").glob("*/*.json"))
    chosen = [file for file in files if not wires or file.parent.name in wires]
    kinds = (has,) if isinstance(has, str) else has
    chosen = [file for file in chosen if not kinds or any(file in _holding(kind) for kind in kinds)]
    if not chosen:
        name = "-".join(["no-corpus", *wires])
        reason = "the recorded corpus is absent; PALAVER_CORPUS names its folder"
        return [pytest.param(None, id=name, marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(Exchange(file), id=f"{file.parent.name}/{file.stem}") for file in chosen]
