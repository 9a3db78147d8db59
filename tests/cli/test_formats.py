"""Sessions of agents, from the files that they leave."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import transcripts
from tests.transcripts.samples import FOLDER

SESSION = FOLDER / "pi" / "branches.jsonl"
THREAD = "0192f0c4-0000-7000-8000-000000000001"


def test_the_formats_are_listed(run):
    done = run("formats")
    assert done.code == 0
    for name in transcripts.names():
        assert name in done.out
    one = run("formats", "pi")
    assert "keeps: branches" in one.out
    assert "loses: system prompts" in one.out


def test_an_unknown_format_is_one_line(run):
    done = run("formats", "piano")
    assert (done.code, done.out) == (2, "")
    assert "no transcript format 'piano'; there are" in done.err


def test_a_session_is_shown_with_what_a_compaction_hides(run):
    done = run("show", SESSION)
    assert (done.code, done.err) == (0, "")
    assert "pi · " in done.out
    assert "Reading notes · also: branch-1" in done.out
    assert "What is in notes.txt?" in done.out


def test_a_session_that_nobody_edited_is_the_same_file(run, tmp_path):
    assert run("convert", SESSION, "--to", "pi", "-o", "out.jsonl").code == 0
    assert (tmp_path / "out.jsonl").read_bytes() == SESSION.read_bytes()


def test_a_session_becomes_a_request_of_what_its_model_sees(run, tmp_path):
    done = run("convert", SESSION, "--to", "anthropic_messages", "-o", "out.json")
    assert done.code == 0
    assert "a field of" not in done.err
    body = json.loads((tmp_path / "out.json").read_text())
    assert body["model"] == "claude-sonnet-4-5"
    assert body["messages"][0]["content"][0]["text"] == "The user asked for notes.txt."
    assert "notes.txt?" not in json.dumps(body)


def test_a_request_becomes_a_session(run, tmp_path):
    (tmp_path / "talk.jsonl").write_bytes(p.dump_conversation(p.Request(messages=(p.user("hi"), p.assistant("ho")))))
    done = run("convert", "talk.jsonl", "--to", "pi", "-o", "out.jsonl")
    assert (done.code, done.out) == (0, "")
    assert "palaver → pi: 1 file, nothing lost" in done.err
    (transcript,) = transcripts.get("pi").read((tmp_path / "out.jsonl").read_bytes())
    assert [message.text for message in transcript.thread.path().messages if message.text] == ["hi", "ho"]


def test_losses_can_be_refused(run, tmp_path):
    (tmp_path / "talk.jsonl").write_bytes(p.dump_conversation(p.Request(messages=(p.system("be brief"), p.user("hi")))))
    done = run("convert", "talk.jsonl", "--to", "pi", "-o", "out.jsonl", "--losses", "raise")
    assert done.code == 1
    assert "nothing was written" in done.err
    assert not (tmp_path / "out.jsonl").exists()


def test_a_session_goes_through_the_store_and_comes_back(run, tmp_path):
    done = run("import", SESSION)
    assert (done.code, done.err) == (0, "")
    assert "branches.jsonl: " in done.out
    assert THREAD[-8:] in done.out
    again = run("import", SESSION)
    assert " 0 new" in again.out
    assert run("export", THREAD, "--as", "pi", "-o", "out.jsonl").code == 0
    assert (tmp_path / "out.jsonl").read_bytes() == SESSION.read_bytes()


def test_standard_input_is_recognised_too(process):
    done = process("import", "-", data=SESSION.read_bytes())
    assert done.code == 0
    assert THREAD[-8:] in done.out
    shown = process("show", "-", data=SESSION.read_bytes())
    assert "Reading notes" in shown.out


def test_what_is_unknown_is_kept_and_said(run, tmp_path):
    data = SESSION.read_bytes() + b'\n{"type":"dream","id":"d1","parentId":null}\n{"torn'
    (tmp_path / "odd.jsonl").write_bytes(data)
    done = run("import", "odd.jsonl")
    assert done.code == 0
    assert "odd.jsonl: line 12: unknown record dream; kept" in done.err
    assert "odd.jsonl: line 13: torn; kept" in done.err
    run("export", THREAD, "--as", "pi", "-o", "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == data


def test_a_mixed_folder_is_walked(run, tmp_path):
    folder = tmp_path / "all" / "deep"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(SESSION.read_bytes())
    (tmp_path / "all" / "b.jsonl").write_bytes(p.dump_conversation(p.Request(messages=(p.user("hi"),))))
    (tmp_path / "all" / "c.md").write_text("# no conversation")
    done = run("import", tmp_path / "all")
    assert done.code == 0
    assert "2 files: " in done.out
    assert "in 2 threads" in done.out
    assert "1 skipped" in done.out


@pytest.mark.parametrize("args", [("--from", "pi"), ()])
def test_a_session_may_be_named(run, args):
    assert run("show", SESSION, *args).code == 0


def test_a_name_of_neither_wire_nor_format_is_refused(run):
    for done in (run("convert", SESSION, "--to", "nothing"), run("export", THREAD, "--as", "nothing")):
        assert done.code == 2
        assert "no wire or transcript format is named 'nothing'" in done.err
