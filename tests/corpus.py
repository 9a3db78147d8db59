"""Recorded provider traffic, if available: one JSON file for each exchange.

It is in the folder that `PALAVER_CORPUS` names, or in `../shared/corpus` beside the repository. It is not copied
here, so a checkout without it skips the tests that read it, by name.

A test with the fixture `exchange` gets every recording;
`@pytest.mark.recorded("ollama_chat")` narrows it to some wires.
One case of a test runs over `FOLD` recordings of one wire, because a case costs more than most tests themselves. Each
recording that fails is named, and the others still run.
`--recording PART` runs those that have PART in their name.

A costly law has `@pytest.mark.recorded(share=4)`: it reads every fourth recording of each wire and kind (a stream, an
answer, neither), at least one of each, and always the same ones; the others are read in a case marked `long`.
Only what crosses recordings with something else (every other wire, some damage, an agent) is shared out.
What a wire does with its own traffic reads all of it, so no shape of a body is met by chance.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("PALAVER_CORPUS") or ROOT.parent / "shared" / "corpus")
FOLD = 100


@dataclass(frozen=True)
class Exchange:
    """One recorded request with its response; the file is read on demand."""

    file: Path

    @property
    def wire(self) -> str:
        return self.file.parent.name

    @property
    def name(self) -> str:
        return f"{self.wire}/{self.file.stem}"

    @cached_property
    def record(self) -> dict[str, Any]:
        """The keys are described in the corpus' own README: `request`, `response`, `stream`, ..."""
        return json.loads(self.file.read_bytes())


NO_COMPLETION = {"test_invalid_response--0-3a2427"}
"""Recorded replies with status 200 that contain no completion (docs/spec/wires.md#1.3)."""


def _holds(file: Path, what: str) -> bool:
    """Return whether a recording is a `stream`, or has a whole `answer`."""
    if what == "stream":
        return bool(Exchange(file).record.keys() & {"stream", "stream_base64"})
    record = Exchange(file).record
    return "response" in record and record["status"] == 200 and file.stem not in NO_COMPLETION


@cache
def _files() -> tuple[Path, ...]:
    return tuple(sorted((CORPUS / "wires").glob("*/*.json")))


@cache
def _holding(what: str) -> frozenset[Path]:
    return frozenset(file for file in _files() if _holds(file, what))


def exchanges(*wires: str, has: str | tuple[str, ...] = ()) -> list[Any]:
    """Return parameters for a test over the recordings of these wires, or of all; `has` names their required kind."""
    chosen = _chosen(*wires, has=has)
    return [pytest.param(each, id=each.name) for each in chosen] or [_absent(*wires)]


def folded(*wires: str, has: str | tuple[str, ...] = (), share: int = 1, recording: str = "") -> list[Any]:
    """Return the same in lists, each of at most `FOLD` recordings of one wire; `recording` is a part of their names.

    One of `share` recordings is in the first lists, and the others in lists that are marked `long`.
    Recordings requested by name are all in the first.
    """
    chosen = [each for each in _chosen(*wires, has=has) if recording in each.name]
    if not chosen:
        return [_absent(*wires)]
    first = spread(((each.name, f"{each.wire} {_kind(each.file)}") for each in chosen), 1 if recording else share)
    params: list[Any] = []
    for wire, every in groupby(chosen, key=lambda each: each.wire):
        of_wire = list(every)
        now = [each for each in of_wire if each.name in first]
        later = [each for each in of_wire if each.name not in first]
        params += [pytest.param(part, id=f"{wire}-{start}") for start, part in _parts(now)]
        params += [
            pytest.param(part, id=f"{wire}-more-{start}", marks=pytest.mark.long) for start, part in _parts(later)
        ]
    return params


def spread(named: Iterable[tuple[str, str]], share: int) -> set[str]:
    """One of `share` names of each kind, and at least one; `named` are pairs of a name and its kind.

    Which ones hangs on the names alone, so a name that is added moves few others in or out.
    """
    chosen: set[str] = set()
    kinds: dict[str, list[str]] = {}
    for name, kind in named:
        kinds.setdefault(kind, []).append(name)
    for names in kinds.values():
        names.sort(key=lambda name: crc32(name.encode()))
        chosen.update(names[: -(-len(names) // share)])
    return chosen


def _parts(recordings: list[Exchange]) -> list[tuple[int, list[Exchange]]]:
    return [(start, recordings[start : start + FOLD]) for start in range(0, len(recordings), FOLD)]


def _kind(file: Path) -> str:
    return next((kind for kind in ("stream", "answer") if file in _holding(kind)), "neither")


def _chosen(*wires: str, has: str | tuple[str, ...] = ()) -> list[Exchange]:
    files = [file for file in _files() if not wires or file.parent.name in wires]
    kinds = (has,) if isinstance(has, str) else has
    return [Exchange(file) for file in files if not kinds or any(file in _holding(kind) for kind in kinds)]


def _absent(*wires: str) -> Any:
    reason = "the recorded corpus is absent; PALAVER_CORPUS names its folder"
    return pytest.param(None, id="-".join(["no-corpus", *wires]), marks=pytest.mark.skip(reason=reason))
