"""A short run of the fuzzers: their seeds, and simple mutations of them. atheris itself is not needed."""

from __future__ import annotations

import importlib
import random
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"
MUTATIONS = {"fuzz_wires": 40, "fuzz_streams": 40, "fuzz_stores": 12}
"""How many mutations of a seed are tried. Damaged files of SQLite take minutes; no request is sent there."""


@pytest.fixture
def fuzzer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A fuzzer, imported without its instruments."""
    monkeypatch.syspath_prepend(str(FUZZ))
    instruments = SimpleNamespace(instrument_imports=lambda **_: nullcontext())
    monkeypatch.setitem(sys.modules, "atheris", instruments)
    monkeypatch.setenv("PALAVER_SCRATCH", str(tmp_path))
    monkeypatch.delenv("PALAVER_FINDINGS", raising=False)
    monkeypatch.delenv("PALAVER_FUZZ", raising=False)
    for name in ("findings", request.param):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(request.param)
    assert isinstance(module, ModuleType)
    yield module
    for name in ("findings", request.param):
        sys.modules.pop(name, None)


def mutated(data: bytes, seed: str) -> bytes:
    """An input with one to three small changes behind the two bytes that choose."""
    luck = random.Random(seed)
    out = bytearray(data)
    for _ in range(luck.randint(1, 3)):
        at = luck.randrange(min(2, len(out) - 1), len(out))
        match luck.randrange(4):
            case 0:
                out[at] = luck.choice(b'0"{}[]:,\\ntfe-.x\xff')
            case 1:
                del out[at : at + luck.randint(1, 8)]
            case 2:
                out[at:at] = luck.choice([b"null", b"[]", b'""', b"{}", b"\\ud83d", b"0", b"1e400", b'"a":1,'])
            case _:
                start = luck.randrange(len(out))
                out[at:at] = out[start : start + luck.randint(1, 40)]
        if len(out) < 3:
            break
    return bytes(out)


@pytest.mark.finding("S-04")
@pytest.mark.parametrize(("fuzzer", "times"), MUTATIONS.items(), indirect=["fuzzer"], ids=list(MUTATIONS))
def test_a_short_run_finds_nothing(fuzzer: Any, times: int, tmp_path: Path):
    seeds = tmp_path / "seeds"
    fuzzer.write_seeds(seeds)
    inputs = {path.name: path.read_bytes() for path in sorted(seeds.iterdir())}
    assert inputs
    for name, data in inputs.items():
        fuzzer.test_one_input(data)
        for number in range(times):
            fuzzer.test_one_input(mutated(data, f"{name} {number}"))


@pytest.mark.finding("S-04")
@pytest.mark.parametrize("fuzzer", MUTATIONS, indirect=True)
def test_every_fuzzer_that_sends_asks_for_whole_receipts(fuzzer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(fuzzer, "check_receipt", lambda *_: ["a complaint"])
    fuzzer.write_seeds(tmp_path / "seeds")
    refused = 0
    for path in (tmp_path / "seeds").iterdir():
        try:
            fuzzer.test_one_input(path.read_bytes())
        except AssertionError as error:
            refused += "a complaint" in str(error)
    assert refused
