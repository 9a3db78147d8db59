"""A test over many cases runs them all, names each that failed, and is skipped only when all of them are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from tests.corpus import exchanges, folded, spread
from tests.folding import over, run_each

ROOT = Path(__file__).resolve().parents[1]
INNER = """
import pytest

@pytest.mark.recorded("ollama_chat")
@pytest.mark.parametrize("twice", [1, 2])
def test_over_recordings(exchange, twice, tmp_path):
    assert exchange.wire == "ollama_chat"
    with open("seen", "a") as seen:
        print(exchange.name, twice, tmp_path.exists(), file=seen)
    assert exchange.file.stem not in {"b", "d"}
"""


def test_every_case_runs_and_each_failure_is_named():
    ran = []

    def case(name, error):
        ran.append(name)
        if error is not None:
            raise error

    cases = {"a": None, "b": AssertionError("no b"), "c": pytest.fail.Exception("no c"), "d": None, "e": KeyError("e")}
    with pytest.raises(BaseExceptionGroup, match="3 of 5 cases failed: b, c, e") as caught:
        run_each((name, lambda name=name, error=error: case(name, error)) for name, error in cases.items())
    assert ran == list(cases)
    assert [error.__notes__ for error in caught.value.exceptions] == [["case: b"], ["case: c"], ["case: e"]]


def test_only_what_is_skipped_in_every_case_is_skipped():
    def skip():
        pytest.skip("not here")

    run_each([("a", skip), ("b", list)])
    with pytest.raises(pytest.skip.Exception, match="not here"):
        run_each([("a", skip), ("b", skip)])


@pytest.mark.parametrize(
    ("options", "names", "failed"),
    [
        ([], "abcde", ["2 of 5 cases failed: ollama_chat/b, ollama_chat/d"]),
        (["--recording=t/b"], "b", ["1 of 1 cases failed: ollama_chat/b"]),
        pytest.param(["--recording=t/c"], "c", [], marks=pytest.mark.long),
    ],
)
def test_a_test_over_recordings_runs_over_them_all(tmp_path, options, names, failed):
    (tmp_path / "wires" / "ollama_chat").mkdir(parents=True)
    (tmp_path / "wires" / "cohere_chat").mkdir()
    for file in ("ollama_chat/a", "ollama_chat/b", "ollama_chat/c", "ollama_chat/d", "ollama_chat/e", "cohere_chat/f"):
        (tmp_path / "wires" / f"{file}.json").write_text("{}")
    (tmp_path / "test_inner.py").write_text(INNER)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-n", "0", *options]
    done = subprocess.run(
        [*command, "-p", "tests.conftest", "-p", "no:cacheprovider", "test_inner.py"],
        cwd=tmp_path,
        env={**os.environ, "PALAVER_CORPUS": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == bool(failed), done.stdout + done.stderr
    seen = (tmp_path / "seen").read_text().splitlines()
    assert seen == [f"ollama_chat/{name} {twice} True" for twice in (1, 2) for name in names]
    for text in failed:
        assert text in done.stdout


@pytest.mark.parametrize("has", [(), "stream", "answer"])
def test_a_share_of_the_recordings_has_every_wire_and_the_others_are_run_by_the_long_tests(has):
    every = [param.values[0] for param in exchanges(has=has)]
    if None in every:
        pytest.skip("the recorded corpus is absent")
    shared = folded(has=has, share=4)
    now, later = ([each for p in shared if bool(p.marks) is long for each in p.values[0]] for long in (False, True))
    assert {mark.name for param in shared for mark in param.marks} == {"long"}
    assert sorted(each.name for each in now + later) == sorted(each.name for each in every)
    assert {each.wire for each in now} == {each.wire for each in every}
    assert len(every) / 4 <= len(now) <= len(every) / 4 + 3 * len({each.wire for each in every})
    assert [param.id for param in folded(has=has, share=4)] == [param.id for param in shared]
    name = later[0].name
    assert [param.values[0] for param in folded(share=4, recording=name) if not param.marks] == [[later[0]]]


def test_a_share_has_one_of_every_kind_and_hangs_on_the_names_alone():
    named = [(f"{kind}{number}", kind) for kind, many in {"a": 40, "b": 3, "c": 1}.items() for number in range(many)]
    chosen = spread(named, 4)
    assert {kind: sum(name.startswith(kind) for name in chosen) for kind in "abc"} == {"a": 10, "b": 1, "c": 1}
    assert spread(reversed(named), 4) == chosen
    assert spread(named, 1) == {name for name, _ in named}
    assert len(chosen - spread([*named, ("a40", "a")], 4)) <= 1


def test_every_case_gets_each_generated_value():
    seen = []

    @settings(max_examples=5, database=None)
    @given(st.integers())
    @over("name", ["a", "b"])
    def check(name, value):
        seen.append((name, value))

    check()
    assert [name for name, _ in seen] == ["a", "b"] * 5
    assert [value for _, value in seen[::2]] == [value for _, value in seen[1::2]]
