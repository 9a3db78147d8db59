"""Conversations are imported once, whatever file they are in; what fails is named, and the rest goes on."""

import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest

import palaver as p
from palaver.cli import imports
from palaver.store import Query, open_store
from palaver.store.archive import export_thread
from palaver.store.jsonl.log import JsonlLog
from palaver.store.jsonl.log_line import LogContext
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.threads import for_agent
from palaver.transcripts.file_reader import beginning, zstd
from palaver.transcripts.writer import is_record

CHAT = [p.system("be brief"), p.user("\n  Is it raining?  \nIn Husum."), p.assistant("yes"), p.user("and now?")]
HI = {"role": "user", "content": "hi"}


@pytest.fixture
def talk(tmp_path):
    """Write a conversation in the canonical form."""

    def talk_(messages=CHAT, name="talk.jsonl", **fields):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(p.dump_conversation(p.Request(messages=tuple(messages), **fields)))
        return file

    return talk_


def only(store):
    (info,) = store.threads()
    return info


def texts(store, branch="main"):
    return [entry.message.text for entry in store.path(only(store).id, branch)]


def test_a_file_is_a_thread_with_a_title_and_a_line(run, talk, kept):
    done = run("import", talk())
    short = kept(only).id[-8:]
    assert (done.code, done.err) == (0, "")
    first, second = done.out.splitlines()
    assert first.endswith(f"talk.jsonl: 4 messages, 4 new, thread {short}")
    assert second.startswith("1 file: 4 messages, 4 new, in 1 thread; ")
    assert kept(only).title == "Is it raining?"
    assert kept(texts) == [message.text for message in CHAT]


def test_a_title_is_cut_and_may_be_missing(run, talk, kept):
    run("import", talk([p.user("word " * 40)]))
    assert len(kept(only).title) == 80
    run("import", talk([p.assistant("only an answer")], "other.jsonl"))
    assert None in kept(lambda store: [info.title for info in store.threads()])


@pytest.mark.row("DAS-29")
def test_a_folder_imported_twice_adds_nothing(run, talk, saved, tmp_path, kept):
    talk(name="in/a.jsonl")
    talk([p.user("another")], "in/b.jsonl")
    saved({"model": "gpt-5", "messages": [HI] * 3}, "in/c.json")
    for name in (".hidden.json", "notes.md", "picture.png", "empty.json"):
        (tmp_path / "in" / name).write_bytes(
            {"notes.md": b"# Notes", "picture.png": b"\x89PNG\r\n\x1a\n\0"}.get(name, b"")
        )
    (tmp_path / "in" / ".git").mkdir()
    (tmp_path / "in" / ".git" / "d.json").write_text("{}")
    os.mkfifo(tmp_path / "in" / "pipe")
    done = run("import", "in")
    assert (done.code, done.err) == (0, "")
    assert [line.partition(",")[0] for line in done.out.splitlines()[:-1]] == [
        "in/a.jsonl: 4 messages",
        "in/b.jsonl: 1 message",
        "in/c.json: 3 messages",
    ]
    summary = "3 files: 8 messages, 8 new, in 3 threads; 6 skipped"
    assert done.out.splitlines()[-1].startswith(summary)
    before = kept(lambda store: list(store.threads()))
    again = run("import", "in", tmp_path / "in" / "b.jsonl", "in")
    assert (again.code, again.out.count(" 0 new")) == (0, 8)
    assert kept(lambda store: list(store.threads())) == before


def test_a_file_that_goes_on_adds_what_is_new_and_an_edited_one_is_a_branch(run, talk, kept):
    run("import", talk())
    longer = [*CHAT, p.assistant("no")]
    assert ": 5 messages, 1 new, thread " in run("import", talk(longer)).out
    assert kept(texts) == [message.text for message in longer]
    edited = [*CHAT[:2], p.assistant("perhaps")]
    line = run("import", talk(edited)).out.splitlines()[0]
    assert ": 3 messages, 1 new, thread " in line
    assert line.endswith(", branch import-2")
    assert kept(lambda store: texts(store, "import-2")) == [message.text for message in edited]
    assert kept(texts) == [message.text for message in longer]


def test_the_request_is_kept_and_follows_the_conversation(run, talk, kept):
    tool = p.Tool.of("weather", parameters={"a": 1.0})
    settings = p.Settings(temperature=5e-06)
    request = p.Request(messages=tuple(CHAT), model="m1", tools=(tool,), settings=settings)
    run("import", talk(model="m1", tools=(tool,), settings=settings))
    (info,) = kept(lambda store: list(store.threads()))
    back = p.load_conversation(run("export", info.id, "--as", "palaver").out)
    stamped = [message.replace(id=None, sent_at=None) for message in back.messages]
    assert back.replace(messages=stamped) == request.replace()
    run("import", talk([*CHAT, p.assistant("no")], model="m2"))
    assert p.load_conversation(run("export", info.id, "--as", "palaver").out).model == "m2"
    assert {"model": "m2"}.items() <= kept(only).metadata["request"].items()


def test_a_response_is_a_thread_for_each_of_its_choices(run, saved, kept):
    choices = [
        {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": c}}
        for i, c in enumerate("ab")
    ]
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "gpt-5", "choices": choices}
    done = run("import", saved(body), "--from", "openai_chat")
    assert "1 file: 2 messages, 2 new, in 2 threads" in done.out
    assert {hit.entry.message.text for hit in kept(lambda store: store.search(Query()))} == {"a", "b"}


def test_what_fails_is_named_and_the_rest_goes_on(run, talk, saved, tmp_path, kept):
    saved({"a": 1}, "bad.json")
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "x"}]}
    saved({"model": "m", "messages": [HI, thought]}, "open.json")
    saved({"palaver": 1}, "none.json")
    torn = 'data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[]}\n\n'
    saved(torn, "torn.sse")
    done = run("import", "bad.json", "open.json", "none.json", "torn.sse", "absent", talk())
    assert done.code == 1
    lines = done.err.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["bad.json", "open.json", "none.json", "torn.sse", "absent"]
    assert "this request may be openai_chat or cohere_chat; choose one with --from" in lines[1]
    assert "there are no messages in it" in lines[2]
    assert "the stream broke off" in lines[3]
    assert lines[4] == "palaver: absent: no such file or directory"
    assert "6 files: 4 messages, 4 new, in 1 thread; 5 failed" in done.out
    assert kept(texts) == [message.text for message in CHAT]
    assert run("import", "open.json", "--from", "openai_chat").code == 0


def test_a_store_is_created_when_the_first_file_can_be_read(run, talk, saved, location):
    saved({"a": 1}, "bad.json")
    done = run("import", "absent", "bad.json", saved("{", "torn.json"))
    assert (done.code, "3 failed" in done.out, location.exists()) == (1, True, False)
    assert run("import", "absent", talk()).code == 1
    assert location.exists()
    assert run("import", talk(), "--into", "no/such/folder/x.db").code == 1


def test_a_wire_that_nobody_knows_is_wrong_usage(run, talk, location):
    assert run("import", talk(), "--from", "klingon").code == 2
    assert run("import").code == 2
    assert run("import", talk(), "--into", "").code == 2
    assert not location.exists()


def test_a_thread_file_keeps_its_id_and_its_branches(run, tmp_path, kept):
    source = MemoryStore()
    source.create("trip", title="To Rome")
    entries = source.append("trip", CHAT).entries
    source.fork("trip", "what if", at=entries[1].id)
    with (tmp_path / "trip.jsonl").open("wb") as file:
        export_thread(source, "trip", file)
    with (tmp_path / "trip.zst").open("wb") as file:
        export_thread(source, "trip", file)
    done = run("import", "trip.jsonl", "trip.zst")
    assert [line.partition(" ")[2] for line in done.out.splitlines()[:2]] == [
        "4 messages, 4 new, thread trip",
        "4 messages, 0 new, thread trip",
    ]
    assert kept(lambda store: store.read("trip")) == source.read("trip")
    assert kept(only).branches == source.info("trip").branches
    kept(lambda store: store.append("trip", [p.user("more")]))
    run("import", "trip.jsonl")
    assert kept(only).length == 5
    data = (tmp_path / "trip.jsonl").read_bytes()
    (tmp_path / "trip.jsonl").write_bytes(data[:-40])
    assert run("import", "trip.jsonl").err.startswith("palaver: trip.jsonl: line ")


def test_what_a_thread_file_brought_is_known_at_once(run, talk, kept):
    file, other = talk(), talk([p.user("another")], "other.jsonl")
    run("import", file)
    run("export", kept(only).id, "-o", "thread.zst")
    done = run("import", other, "thread.zst", file, "--into", "second.db")
    assert [line.split(", ")[1] for line in done.out.splitlines()[:3]] == ["1 new", "4 new", "0 new"]


def test_a_log_keeps_its_threads_and_what_was_appended_since_stays(run, tmp_path, kept):
    with JsonlLog(tmp_path / "log") as log:
        for message in CHAT:
            log.append(message, LogContext(thread="work"))
    done = run("import", "log")
    assert ": 4 messages, 4 new, thread work" in done.out
    assert kept(texts) == [message.text for message in CHAT]
    kept(lambda store: store.append("work", [p.user("more")]))
    assert run("import", "log").out.startswith("log/")
    assert len(kept(texts)) == 5
    (file,) = (tmp_path / "log").iterdir()
    file.write_bytes(file.read_bytes().replace(b"yes", b"no!"))
    damaged = run("import", file, "--into", "other.db")
    assert (damaged.code, "altered" in damaged.err) == (0, True)


def test_what_a_file_says_cannot_steer_the_terminal(run, talk, tmp_path):
    name = "\x1b[2J\n\u202etalk.jsonl"
    talk([p.user("\x1b]0;owned\x07 \u202e")], name)
    done = run("import", name, tmp_path / "\x1b[2Jnone")
    drawn = done.out + done.err + run("threads").out + run("search", "owned").out + run("threads", "--json").out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", drawn)
    assert done.out.count("\n") == 2


def test_what_the_terminal_cannot_write_is_replaced_but_not_in_json(real_process, talk):
    talk([p.user("żłw")], "żłw.jsonl")
    plain = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    assert real_process("import", "żłw.jsonl", **plain).out.startswith("??w.jsonl: 1 message")
    assert real_process("threads", **plain).code == 0
    assert json.loads(real_process("threads", "--json", **plain).out)["title"] == "żłw"


def test_an_import_ends_when_nobody_reads_its_lines(process, talk, kept, tmp_path, location):
    for number in range(50):
        talk([p.user(str(number))], f"in/{number}.jsonl")
    shell = f"{sys.executable} -m palaver import in | true; exit ${{PIPESTATUS[0]}}"
    env = {**os.environ, "PALAVER_STORE": str(location)}
    done = subprocess.run(["bash", "-c", shell], capture_output=True, check=False, env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (141, b"")
    assert "50 files: 50 messages" in process("import", "in").out


def test_an_unreadable_folder_is_named(run, tmp_path, monkeypatch, talk):
    talk(name="in/a.jsonl")

    def walk(top, onerror):
        onerror(PermissionError(13, "Permission denied", f"{top}/secret"))
        yield top, [], ["a.jsonl"]

    monkeypatch.setattr(os, "walk", walk)
    done = run("import", "in")
    assert (done.code, done.err) == (1, "palaver: in/secret: permission denied\n")
    assert "4 new" in done.out


# -- the real process ----------------------------------------------------------------------------------------------


def test_standard_input_is_imported_too(process, talk, kept):
    body = talk().read_bytes()
    assert process("import", "-", data=body).out.startswith("standard input: 4 messages, 4 new, thread ")
    assert process("import", "-", data=body).out.startswith("standard input: 4 messages, 0 new, thread ")
    file = io.BytesIO()
    kept(lambda store: export_thread(store, only(store).id, file))
    done = process("import", "-", "--into", "copy.db", data=file.getvalue())
    assert done.out.startswith("standard input: 4 messages, 4 new, thread ")


def test_ctrl_c_leaves_what_was_imported_and_the_next_call_goes_on(tmp_path, kept, run):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(300):
        body = p.dump_conversation(p.Request(messages=(p.user(f"number {number}"), p.assistant("ok"))))
        (folder / f"{number:03}.jsonl").write_bytes(body)
    process = subprocess.Popen(
        [sys.executable, "-m", "palaver", "import", "in"],
        cwd=tmp_path,
        env={**os.environ, "PALAVER_STORE": str(tmp_path / "palaver.db"), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
    )
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.startswith(b"stopped; ")
    assert b"import again to continue" in err
    said = 20 + out.count(b"\n")
    there = kept(lambda store: [info.length for info in store.threads()])
    assert said <= len(there) < 300
    assert there.count(2) >= said
    assert run("import", "in").code == 0
    assert kept(lambda store: [info.length for info in store.threads()]) == [2] * 300
    assert " 0 new, in 300 threads" in run("import", "in").out


@pytest.mark.recorded("openai_chat", "anthropic_messages", share=8)
def test_every_recording_can_be_imported_and_exported_to_its_wire(run, exchange, tmp_path, monkeypatch):
    location = tmp_path / f"{exchange.file.stem}.db"
    monkeypatch.setenv("PALAVER_STORE", str(location))
    done = run("import", exchange.file, "--from", exchange.wire)
    if done.code:
        assert "the stream" in done.err or "error" in done.err
        return
    with open_store(location) as store:
        threads = list(store.threads())
    for info in threads:
        exported = run("export", info.id, "--as", exchange.wire, "--losses", "json")
        assert exported.code == 0
        json.loads(exported.out)


@pytest.mark.finding("F-102")
def test_ordinary_json_that_is_no_conversation_does_not_stop_a_folder(run, talk, saved, tmp_path, kept):
    (tmp_path / "in").mkdir()
    saved({"$schema": "x", "type": ["object", "null"]}, "in/a.json")
    saved([{"role": {"name": "admin"}, "email": "a@b"}], "in/b.json")
    (tmp_path / "in" / "z.jsonl").write_bytes(talk().read_bytes())
    done = run("import", "in")
    assert done.code == 1
    assert len(done.err.splitlines()) == 2
    assert kept(texts) == [message.text for message in CHAT]


@pytest.mark.finding("F-102")
def test_a_fault_of_ours_in_one_file_does_not_stop_a_folder(run, talk, saved, kept, monkeypatch):
    def failing(name):
        if name == "bad.json":
            raise TypeError("unhashable type")
        return beginning(name)

    monkeypatch.setattr(imports, "beginning", failing)
    saved({"a": 1}, "bad.json")
    done = run("import", "bad.json", talk())
    assert done.code == 1
    assert "bad.json: cannot be read: TypeError: unhashable type" in done.err
    assert kept(texts) == [message.text for message in CHAT]


@pytest.mark.finding("F-104")
def test_a_file_that_unpacks_to_far_more_than_its_size_does_not_stop_a_folder(run, talk, tmp_path, kept):
    pack = zstd.ZstdCompressor()
    head = b'{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s","timestamp":"2024-01-01T00:00:00Z","message":"'
    pieces = [pack.compress(head), *(pack.compress(b"a" * (1 << 20)) for _ in range(80)), pack.flush()]
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(pieces))
    done = run("import", "a.jsonl.zst", talk())
    assert done.code == 1
    assert "a.jsonl.zst: its first" in done.err
    assert kept(texts) == [message.text for message in CHAT]


def swarm_message(role, content, mode="tool"):
    return {"role": role, "agentName": "triage", "mode": mode, "content": content}


def said(path):
    return [entry.message.text for entry in path if not is_record(entry)]


def write_history(folder, messages):
    folder.mkdir(parents=True, exist_ok=True)
    for number, message in enumerate(messages, 1):
        (folder / f"{number}.json").write_text(json.dumps(message))


@pytest.mark.finding("F-48")
def test_a_folder_with_a_file_for_each_message_is_one_thread(run, tmp_path, kept):
    says = [
        swarm_message("user" if n % 2 else "assistant", f"message {n}", "user" if n % 2 else "tool")
        for n in range(1, 17)
    ]
    write_history(tmp_path / "history" / "ann", says)
    write_history(tmp_path / "history" / "bob", says[:3])
    done = run("import", tmp_path / "history")
    assert (done.code, done.err) == (0, "")
    assert "19 files: 19 messages, 19 new, in 2 threads" in done.out
    found = kept(lambda store: [said(store.path(info.id)) for info in store.threads()])
    expected = [[f"message {n}" for n in range(1, 17)], [f"message {n}" for n in range(1, 4)]]
    assert sorted(found, key=len, reverse=True) == expected
    write_history(tmp_path / "history" / "bob", [*says[:3], swarm_message("assistant", "more")])
    again = run("import", tmp_path / "history")
    assert "20 files: 20 messages, 1 new, in 2 threads" in again.out


@pytest.mark.finding("F-48")
def test_a_file_that_is_no_message_does_not_close_the_rest_of_its_folder(run, tmp_path, kept):
    write_history(
        tmp_path / "history" / "ann", [swarm_message("user", "one", "user"), {}, swarm_message("user", "three", "user")]
    )
    (tmp_path / "history" / "ann" / "2.json").write_text('{"role": "user", ')
    done = run("import", tmp_path / "history")
    assert done.code == 1
    assert "2.json: not a message; the rest of the folder is read" in done.err
    assert kept(lambda store: said(store.path(only(store).id))) == ["one", "three"]


@pytest.mark.finding("F-48")
def test_a_rescue_of_the_original_hides_all_that_stands_before_it(run, tmp_path, kept):
    says = [
        swarm_message("user", "one", "user"),
        swarm_message("resque", "Empty output"),
        swarm_message("user", "go on"),
    ]
    write_history(tmp_path / "history" / "ann", says)
    run("import", tmp_path / "history")
    path = kept(lambda store: store.path(only(store).id))
    assert [entry.message.scope for entry in path if entry.message.role == "rescue"] == ["thread"]
    assert [message.text for message in for_agent(path, "triage")] == ["go on"]


# -- search, dates -----------------------------------------------------------------------------------------------------

SESSION = """{"type":"session","version":3,"id":"%s","timestamp":"2024-05-01T10:00:00.000Z","cwd":"/w"}
{"type":"message","id":"a1","parentId":null,"timestamp":"2024-05-01T10:00:01.000Z","message":%s}
{"type":"message","id":"a2","parentId":"a1","timestamp":"2024-05-01T10:00:09.000Z","message":%s}
"""


@pytest.fixture
def session(tmp_path):
    """Write a session of an agent, of May 2024."""

    def session_(number=0):
        begun = 1_714_557_601_000 + number * 86_400_000
        said = {"role": "user", "content": f"ebb {number}", "timestamp": begun}
        answer = {"role": "assistant", "content": [{"type": "text", "text": "At 19:04."}], "timestamp": begun + 8000}
        answer |= {"api": "x", "provider": "y", "model": "m", "stopReason": "stop"}
        name = f"0192f0c4-0000-7000-8000-{number:012}"
        file = tmp_path / f"session-{number}.jsonl"
        file.write_text(SESSION % (name, json.dumps(said), json.dumps(answer)))
        return file

    return session_


@pytest.mark.finding("F-78")
@pytest.mark.parametrize("least", [1, 3, 10_000])
def test_an_import_leaves_nothing_to_index(run, session, monkeypatch, tmp_path, least):
    monkeypatch.setattr(imports, "_INDEX_AFTER", least)
    took = []
    index = SQLiteStore.index
    monkeypatch.setattr(SQLiteStore, "index", lambda self, **_: took.append(index(self)) or took[-1])
    done = run("import", *[session(number) for number in range(3)])
    assert done.code == 0, done.err
    assert sum(took) >= 6
    assert len(took) == {1: 4, 3: 2, 10_000: 1}[least] - (least == 1)
    took.clear()
    with open_store(str(tmp_path / "palaver.db")) as store:
        assert len(store.search(Query(text="ebb"))) == 3
    assert took == [0]


@pytest.mark.finding("F-07")
def test_an_imported_session_has_the_dates_of_its_conversation(run, session):
    run("import", session(1))
    run("import", session(0))
    lines = [json.loads(line) for line in run("threads", "--json").out.splitlines()]
    begun = 1_714_557_601_000
    assert [(each["created_at"], each["updated_at"]) for each in lines] == [
        (begun - 1000, begun + day + 8000) for day in (86_400_000, 0)
    ]
    assert "2024-05-0" in run("threads").out


@pytest.mark.finding("S-02")
@pytest.mark.parametrize("harm", ["edited", "cut", "damaged", "marked"])
def test_a_copy_of_a_session_takes_nothing_from_the_branches_of_the_original(run, tmp_path, kept, harm):
    def turn(id, parent, kind, says):
        fields = {"parentUuid": parent, "uuid": id, "type": kind, "message": {"role": kind, "content": says}}
        return {**fields, "sessionId": "s1", "isSidechain": False, "cwd": "/p", "version": "2.0.14"}

    turns = [turn("a1", None, "user", "question"), turn("a2", "a1", "user", "left"), turn("a3", "a1", "user", "right")]
    data = "".join(json.dumps(each) + "\n" for each in turns).encode()
    copies = {
        "edited": data.replace(b"question", b"QUESTION"),
        "cut": data[:-60],
        "damaged": data.replace(b"question", b"que\xffstion"),
        "marked": b"\xef\xbb\xbf" + data,
    }
    (tmp_path / "good.jsonl").write_bytes(data)
    (tmp_path / "copy.jsonl").write_bytes(copies[harm])
    run("import", "good.jsonl")
    before = kept(only).branches
    assert set(before) == {"main", "branch-1"}
    first = run("import", "copy.jsonl").out.splitlines()[0]
    assert before.items() <= kept(only).branches.items()
    assert ("branch" in first) == (harm != "marked")
    assert all(name in first for name in kept(only).branches if name.startswith("import-"))
    assert run("export", kept(only).id, "--as", "claude_code").out.encode() == data
    after = kept(only).branches
    (tmp_path / "again.jsonl").write_bytes(data)
    assert "3 messages, 0 new" in run("import", "again.jsonl").out
    assert kept(only).branches == after
    found = run("search", "question", "--json").out.splitlines()
    assert len(found) == (2 if harm == "edited" else 1)
