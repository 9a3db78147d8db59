"""``palaver verify --transcripts`` checks every file of a folder, and names what is wrong."""

import json
import shutil

import pytest
from msgspec import structs

from palaver import transcripts
from palaver.cli import transcript_check
from palaver.cli.transcript_check import FormatRow
from palaver.core.usage import Usage
from palaver.transcripts.counts import Counts
from tests.corpus import CORPUS
from tests.transcripts.samples import FILES, FOLDER

pytestmark = pytest.mark.finding("F-71")

PI = FOLDER / "pi" / "branches.jsonl"


@pytest.fixture
def folder(tmp_path):
    """A folder with a transcript, a hidden one, a file that is none, and a folder of one."""
    place = tmp_path / "sessions"
    (place / "deep").mkdir(parents=True)
    (place / ".hidden").mkdir()
    for name in ("a.jsonl", "deep/b.jsonl", ".hidden/c.jsonl"):
        shutil.copy(PI, place / name)
    (place / "notes.txt").write_text("nothing of that kind")
    return place


def found_in(run, *places, code=0):
    done = run("verify", *(part for place in places for part in ("--transcripts", place)), "--json")
    assert done.code == code, done
    return done.json


def rows_of(found):
    return {row["format"]: row for row in found["formats"]}


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(FOLDER, id="samples"),
        pytest.param(
            CORPUS / "sessions",
            id="corpus",
            marks=pytest.mark.skipif(not (CORPUS / "sessions").is_dir(), reason="the recorded corpus is absent"),
        ),
    ],
)
def test_recognition_bytes_conversions_and_counts_hold_everywhere(run, place):
    found = found_in(run, place)
    assert found["listed"] == []
    for name, row in rows_of(found).items():
        assert row["recognised"] == row["files"] > 0
        assert row["confidence"] > 0.5
        assert row["converted"] == row["conversions"] == 2 * row["files"]
        promised = transcripts.get(name).fidelity == "bytes"
        assert row["same_bytes"] == (row["files"] if promised else None)


def test_every_format_that_has_samples_has_a_row(run):
    assert {name for name, _ in FILES} == set(rows_of(found_in(run, FOLDER)))


def test_usage_and_counts_are_sums(run, folder):
    (one,) = found_in(run, PI)["formats"]
    (two,) = found_in(run, folder)["formats"]
    assert one["messages"] > 0
    assert one["output"] > 0
    for name in ("files", "messages", "calls", "results", "images", "texts", "input", "output", "cache_read"):
        assert two[name] == (None if one[name] is None else 2 * one[name])


def test_hidden_folders_are_left_out_unless_they_are_named(run, folder):
    found = found_in(run, folder)
    assert (rows_of(found)["pi"]["files"], found["other"], found["skipped"]) == (2, 1, 1)
    assert rows_of(found_in(run, folder / ".hidden"))["pi"]["files"] == 1


def test_a_folder_is_a_table_and_a_line(run, folder):
    done = run("verify", "--transcripts", folder)
    assert done.code == 0
    (row,) = [line.split() for line in done.out.splitlines() if line.strip().startswith("pi ")]
    assert row[:7] == ["pi", "2", "2", "2", "4", "of", "4"]
    assert done.out.splitlines()[-1] == "2 transcripts in 1 format, 1 other, 1 skipped (hidden, or no file); no fault"


def test_a_file_in_which_nothing_can_be_read_is_a_fault(run, folder):
    bad = {"messages": [{"role": "user", "content": [{"type": "text", "value": "hello"}]}]}
    (folder / "broken.jsonl").write_text(f"{json.dumps(bad)}\n" * 3)
    found = found_in(run, folder, code=1)
    (fault,) = found["listed"]
    assert fault["file"].endswith("broken.jsonl")
    assert fault["format"] == "openai_messages"
    assert fault["reason"].startswith("cannot be read: no message of it can be read: line 1")
    assert {name: (row["files"], row["faults"]) for name, row in rows_of(found).items()} == {
        "openai_messages": (1, 1),
        "pi": (2, 0),
    }
    assert rows_of(found)["openai_messages"]["same_bytes"] == 0
    assert "broken.jsonl (openai_messages): cannot be read" in run("verify", "--transcripts", folder).out


def test_a_torn_line_is_counted_and_written_as_it_was(run, tmp_path):
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(PI.read_bytes() + b'{"type":"message","id":"ffff')
    (row,) = found_in(run, torn)["formats"]
    (whole,) = found_in(run, PI)["formats"]
    assert (row["unread"], row["same_bytes"]) == (whole["unread"] + 1, 1)


def test_a_file_of_two_formats_is_a_fault_that_names_both(run, folder, monkeypatch):
    either = [transcripts.Detected("pi", None, 0.7), transcripts.Detected("codex", None, 0.7)]
    monkeypatch.setattr(transcripts, "detect", lambda *_: either)
    found = found_in(run, PI, code=1)
    assert found["listed"][0]["reason"] == "not recognised: this may be pi (0.7) or codex (0.7)"
    assert (found["formats"][0]["files"], found["formats"][0]["recognised"]) == (1, 0)


def altered(name, **changes):
    """Return a transcript format whose results are changed by functions of the written file."""
    real = transcripts.get(name)

    class Altered:
        def __getattr__(self, attribute):
            return getattr(real, attribute)

        def write(self, *args, **options):
            return changes["write"](real.write(*args, **options))

        def write_many(self, *args, **options):
            return changes["write_many"](real.write_many(*args, **options))

    return Altered()


def without_last_line(written):
    lines = written.body.splitlines(keepends=True)
    return structs.replace(written, chunks=tuple(lines[:-1]), losses=())


def raises(_written):
    raise KeyError("x")


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("pi", {"write_many": without_last_line}, "not the same bytes: "),
        ("pi", {"write_many": raises}, "cannot be written unedited: KeyError: 'x'; this is a bug in palaver"),
        ("openai_messages", {"write": without_last_line}, "to openai_messages: not on the receipt: messages "),
        ("codex", {"write": raises}, "to codex: KeyError: 'x'; this is a bug in palaver"),
    ],
)
def test_what_a_format_does_wrong_is_a_fault(run, monkeypatch, name, changes, reason):
    wrong, real = altered(name, **changes), transcripts.get
    monkeypatch.setattr(transcripts, "get", lambda each: wrong if each == name else real(each))
    found = found_in(run, PI, code=1)
    (fault,) = found["listed"]
    assert fault["reason"].startswith(reason)
    assert fault["format"] == "pi"


def test_many_faults_are_counted_and_the_first_are_listed(run, tmp_path, monkeypatch):
    monkeypatch.setattr(transcript_check, "_MAX_FAULTS", 2)
    bad = {"messages": [{"role": "user", "content": [{"type": "text", "value": "hello"}]}]}
    for number in range(60):
        (tmp_path / f"bad-{number:02}.jsonl").write_text(f"{json.dumps(bad)}\n" * 2)
    found = found_in(run, tmp_path, code=1)
    assert (found["faults"], len(found["listed"])) == (60, 2)


def test_a_folder_without_transcripts_is_no_fault(run, tmp_path):
    (tmp_path / "empty").mkdir()
    done = run("verify", "--transcripts", tmp_path / "empty")
    assert (done.code, done.out) == (0, "0 transcripts in 0 formats; no fault\n")


@pytest.mark.parametrize("other", [("--recover", "x.db"), ("--store", "x.db")])
def test_a_folder_and_a_store_are_not_checked_at_once(run, folder, other):
    assert run("verify", "--transcripts", folder, *other).code == 2


def test_csv_has_a_line_a_format(run, folder):
    names, row = run("verify", "--transcripts", folder, "--csv").out.splitlines()
    assert dict(zip(names.split(","), row.split(","), strict=True))["conversions"] == "4"


def test_rows_of_a_format_add_up():
    one = FormatRow("pi", files=1, confidence=0.9, counts=Counts(messages=2), usage=Usage(input=3))
    two = FormatRow("pi", files=1, confidence=0.7, same_bytes=1, counts=Counts(messages=1), usage=Usage(input=4))
    both = one + two
    assert (both.files, both.confidence, both.same_bytes) == (2, 0.7, 1)
    assert (both.counts.messages, both.usage.input) == (3, 7)
