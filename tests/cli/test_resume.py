"""A conversation becomes a new session where a program looks for it. `tests/gateway/clients` runs the programs."""

import json
import shlex
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from palaver import assistant, tool, tool_call, transcripts, user
from palaver.cli.session_places import PROGRAMS, NewSession, find_program
from palaver.transcripts.conversation import transcript_of

ID = "0192f0c4-7777-4000-8000-00000000000c"
AT = 1767323046789
LOCAL = datetime.fromtimestamp(AT / 1000).astimezone()
CONVERSATION = [
    user("Is the harbour calm?"),
    assistant(tool_call("look", {"at": "harbour"}, id="call_1"), model="m"),
    tool("flat", tool_call_id="call_1", tool_name="look"),
    assistant("It is.", model="m"),
]
IN_FILES = [each.name for each in PROGRAMS if each.place is not None]


def place(name, folder, home="/home/me/x"):
    return find_program(name).place(Path(home), NewSession(ID, folder, AT))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's own folder without any program in it; programs are looked for in ``bin`` beside it."""
    made = tmp_path / "home"
    made.mkdir()
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setenv("USERPROFILE", str(made))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    for each in PROGRAMS:
        for variable, _ in each.variables:
            monkeypatch.delenv(variable, raising=False)
    return made


@pytest.fixture
def session(tmp_path):
    file = tmp_path / "session.jsonl"
    file.write_bytes(transcripts.get("pi").write(transcript_of(CONVERSATION)).body)
    return file


def files_in(folder):
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


# -- the rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/home/me/a_b.c", "-home-me-a-b-c"),
        ("/x/Ünï 😀", "-x--n----"),  # a character outside the first plane is two units
        (
            f"/tmp/f6x/odd/{'long' * 30}/{'Lang-ü' * 20}",
            f"-tmp-f6x-odd-{'long' * 30}-{'Lang--' * 20}"[:200] + "-o5izz7",
        ),
    ],
)
def test_claude_code_has_a_folder_for_the_hyphenated_path(folder, name):
    assert place("claude-code", folder) == (Path(f"/home/me/x/projects/{name}/{ID}.jsonl"), {})


def test_qwen_code_has_a_folder_of_chats_for_the_hyphenated_path_however_long():
    path = f"/{'a.' * 150}"
    assert place("qwen-code", path).path == Path(f"/home/me/x/projects/-{'a-' * 150}/chats/{ID}.jsonl")


def test_codex_has_a_folder_for_the_local_day():
    expected = f"/home/me/x/sessions/{LOCAL:%Y/%m/%d}/rollout-{LOCAL:%Y-%m-%dT%H-%M-%S}-{ID}.jsonl"
    assert place("codex", "/x") == (Path(expected), {})


class TestGeminiProject:
    FILE = f"chats/session-{datetime.fromtimestamp(AT / 1000, UTC):%Y-%m-%dT%H-%M}-{ID[:8]}.jsonl"

    def mark(self, base, name, folder):
        (base / name).mkdir(parents=True)
        (base / name / ".project_root").write_text(folder, "utf-8")

    def test_a_new_project_is_named_after_the_folder_and_marked(self, tmp_path):
        path, beside = place("gemini-cli", "/x/My_Project..1-", tmp_path)
        assert path == tmp_path / "tmp" / "my-project-1" / self.FILE
        assert beside == {"../.project_root": b"/x/My_Project..1-"}

    def test_a_folder_without_letters_is_a_project(self, tmp_path):
        assert place("gemini-cli", "/", tmp_path).path == tmp_path / "tmp" / "project" / self.FILE

    def test_a_project_that_is_listed_keeps_its_name(self, tmp_path):
        (tmp_path / "projects.json").write_text(json.dumps({"projects": {"/x/one": "uno"}}), "utf-8")
        self.mark(tmp_path / "tmp", "uno", "/x/one")
        assert place("gemini-cli", "/x/one", tmp_path) == (tmp_path / "tmp" / "uno" / self.FILE, {})

    @pytest.mark.parametrize("text", ["{", "[]", '{"projects": []}', '{"projects": {"/x/one": "../two"}}'])
    def test_a_list_that_cannot_be_read_is_passed_over(self, tmp_path, text):
        (tmp_path / "projects.json").write_text(text, "utf-8")
        assert place("gemini-cli", "/x/one", tmp_path).path == tmp_path / "tmp" / "one" / self.FILE

    def test_a_listed_name_that_another_folder_has_is_not_used(self, tmp_path):
        (tmp_path / "projects.json").write_text(json.dumps({"projects": {"/x/one": "uno"}}), "utf-8")
        self.mark(tmp_path / "history", "uno", "/y/one")
        assert place("gemini-cli", "/x/one", tmp_path).path == tmp_path / "tmp" / "one" / self.FILE

    @pytest.mark.parametrize(("base", "new"), [("tmp", {}), ("history", {"../.project_root": b"/x/one"})])
    def test_a_marked_project_is_found(self, tmp_path, base, new):
        self.mark(tmp_path / base, "uno", "/x/one\n")
        assert place("gemini-cli", "/x/one", tmp_path) == (tmp_path / "tmp" / "uno" / self.FILE, new)

    def test_the_next_free_name_is_taken(self, tmp_path):
        (tmp_path / "projects.json").write_text(json.dumps({"projects": {"/y/one": "one"}}), "utf-8")
        self.mark(tmp_path / "tmp", "one-1", "/z/one")
        assert place("gemini-cli", "/x/one", tmp_path).path == tmp_path / "tmp" / "one-2" / self.FILE

    def test_the_folder_of_an_older_version_is_used(self, tmp_path):
        hashed = sha256(b"/x/one").hexdigest()
        (tmp_path / "tmp" / hashed).mkdir(parents=True)
        assert place("gemini-cli", "/x/one", tmp_path) == (tmp_path / "tmp" / hashed / self.FILE, {})


@pytest.mark.parametrize(
    ("name", "variables", "expected"),
    [
        ("claude-code", {}, "home/.claude"),
        ("claude-code", {"CLAUDE_CONFIG_DIR": ""}, "home/.claude"),
        ("claude-code", {"CLAUDE_CONFIG_DIR": "own"}, "own"),
        ("codex", {"CODEX_HOME": "own"}, "own"),
        ("gemini-cli", {"GEMINI_CLI_HOME": "own"}, "own/.gemini"),
        ("qwen-code", {"QWEN_HOME": "own"}, "own"),
        ("qwen-code", {"QWEN_HOME": "own", "QWEN_RUNTIME_DIR": "~/run"}, "home/run"),
    ],
)
def test_the_data_are_where_the_variables_of_the_program_say(home, name, variables, expected):
    assert find_program(name).data_folder(variables) == home.parent / expected


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IN_FILES)
def test_the_session_is_a_new_one_of_this_folder(run, tmp_path, home, session, name):
    done = run("resume", session, "--in", name)
    program = find_program(name)
    named = shlex.split(done.out)[-1]
    assert (done.code, shlex.split(done.out)) == (0, program.resume_command(named))
    (file,) = [each for each in files_in(home) if each.suffix == ".jsonl"]
    assert done.err.splitlines()[-1] == str(file)
    assert file.is_relative_to(home / program.home)
    (read,) = transcripts.get(program.file_format).read(file.read_bytes())
    assert [each.message.text for each in read.thread.path() if each.message.text] == [
        *("Is the harbour calm?", "flat", "It is.")
    ]
    assert read.metadata["session"]["id"] == named
    assert read.metadata["session"].get("cwd", str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize("name", IN_FILES)
def test_resuming_again_leaves_the_first_session_as_it_is(run, home, session, name):
    assert run("resume", session, "--in", name).code == 0
    first = files_in(home)
    assert run("resume", session, "--in", name).code == 0
    second = files_in(home)
    assert len(second) == len(first) + 1
    assert {each: second[each] for each in first} == first


@pytest.mark.parametrize("name", IN_FILES)
def test_a_session_of_the_program_itself_becomes_another_one(run, tmp_path, home, name):
    program = find_program(name)
    first = tmp_path / "own.jsonl"
    first.write_bytes(transcripts.get(program.file_format).write(transcript_of(CONVERSATION)).body)
    (was,) = transcripts.get(program.file_format).read(first.read_bytes())
    done = run("resume", first, "--in", name)
    assert done.code == 0
    (file,) = [each for each in files_in(home) if each.suffix == ".jsonl"]
    assert was.metadata["session"]["id"].encode() not in file.read_bytes()


def test_a_file_that_exists_is_never_overwritten(run, tmp_path, home, session, monkeypatch):
    monkeypatch.setattr("palaver.cli.session_places.uuid4", lambda: ID)
    assert run("resume", session, "--in", "claude-code").code == 0
    before = files_in(home)
    done = run("resume", session, "--in", "claude-code")
    assert done.code == 1
    assert "there is such a file already" in done.err
    assert files_in(home) == before


@pytest.mark.parametrize("name", [each.name for each in PROGRAMS])
def test_a_dry_run_writes_nothing(run, home, session, name):
    done = run("resume", session, "--in", name, "--dry-run")
    assert done.code == 0
    assert "would be" in done.err
    assert list(home.iterdir()) == []


def test_losses_can_be_refused(run, home, tmp_path):
    file = tmp_path / "session.jsonl"
    spoken = transcript_of(CONVERSATION, title="A title that Codex has no place for")
    file.write_bytes(transcripts.get("pi").write(spoken).body)
    done = run("resume", file, "--in", "codex", "--losses", "raise")
    assert (done.code, done.out) == (1, "")
    assert "nothing was written" in done.err
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("name", IN_FILES)
def test_a_call_without_a_result_gets_one(run, home, tmp_path, name):
    file = tmp_path / "session.jsonl"
    file.write_bytes(transcripts.get("pi").write(transcript_of(CONVERSATION[:2])).body)
    done = run("resume", file, "--in", name, "--losses", "json")
    (written,) = [each for each in files_in(home) if each.suffix == ".jsonl"]
    assert b"No result: the tool call was not executed." in written.read_bytes()
    assert "had no result; a fixed one was added" in done.err


def test_only_the_branch_at_the_position_goes_on_and_others_are_on_the_receipt(run, home):
    sample = Path(__file__).parents[1] / "transcripts/files/claude_code/session.jsonl"
    done = run("resume", sample, "--in", "claude-code", "--losses", "json")
    (file,) = [each for each in files_in(home) if each.suffix == ".jsonl"]
    (read,) = transcripts.get("claude_code").read(file.read_bytes())
    (was,) = transcripts.get("claude_code").read(sample.read_bytes())
    assert len(was.thread.leaves) > 1
    assert [each.message.text for each in read.thread.path() if each.message.text] == [
        each.message.text for each in was.thread.path() if each.message.text
    ]
    assert set(read.thread.branches) == {"main"}
    assert "branch branch-1" in done.err


def test_the_records_of_the_program_that_are_no_messages_are_on_the_receipt(run, home):
    sample = Path(__file__).parents[1] / "transcripts/files/claude_code/session.jsonl"
    done = run("resume", sample, "--in", "claude-code", "--losses", "json")
    (lost,) = [each for each in json.loads(done.err[: done.err.rindex("]") + 1]) if each["what"] == "records"]
    assert "of claude_code that are no messages" in lost["why"]


def test_a_position_of_a_stored_thread_is_resumed(run, home, session, kept):
    run("import", session)
    thread = json.loads(run("threads", "--json").out.splitlines()[0])["id"]
    entry = kept(lambda store: next(each.id for each in store.path(thread, "main") if each.message.text == "flat"))
    done = run("resume", f"{thread}@{entry}", "--in", "codex")
    assert done.code == 0, done.err
    (file,) = files_in(home).values()
    assert b"flat" in file
    assert b"It is." not in file


def test_opencode_that_is_missing_is_named(run, home, session):
    done = run("resume", session, "--in", "opencode")
    assert done.code == 1
    assert "opencode is not installed" in done.err
    assert done.out == ""


@pytest.mark.parametrize("code", [0, 1])
def test_opencode_imports_the_session_itself(run, tmp_path, home, session, code):
    program = tmp_path / "bin" / "opencode"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n/bin/cp "$2" "{tmp_path}/imported.json"\necho no room >&2\nexit {code}\n', "utf-8")
    program.chmod(0o755)
    done = run("resume", session, "--in", "opencode")
    imported = json.loads((tmp_path / "imported.json").read_bytes())
    assert done.code == code
    assert ("did not import the session: no room" in done.err) is (code == 1)
    assert done.out == (f"opencode --session {imported['info']['id']}\n" if code == 0 else "")
    assert imported["info"]["directory"] == str(tmp_path)
