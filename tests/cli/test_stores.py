"""Threads are listed, shown, searched, forked, exported, checked and deleted from the command line."""

import io
import json
import os
import re
import subprocess
import sys
import uuid

import pytest

import palaver as p
from palaver.cli import render, stores
from palaver.store import open_store
from palaver.threads import Entry

TALK = (p.user("is it raining in Husum?"), p.assistant("it rains until six", agent="ada"), p.user("and tomorrow?"))


@pytest.fixture
def trip(kept):
    """A thread with two branches; gives its entries."""

    def begin(store):
        store.create("trip", title="Rain \x1b[2J", tags=("north", "keep"))
        entries = store.append("trip", TALK).entries
        store.fork("trip", "kiel", at=entries[1].id)
        return (*entries, *store.append("trip", [p.user("and in Kiel?")], branch="kiel").entries)

    return kept(begin)


@pytest.fixture
def coded(kept):
    """A thread whose id is a UUID; gives the id."""
    return kept(lambda store: store.append(store.create(title="coded").id, TALK) and next(store.threads()).id)


READING = [
    ("threads",),
    ("show", "trip"),
    ("show", "trip", "--branches"),
    ("search", "rain"),
    ("fork", "trip", "x"),
    ("export", "trip"),
    ("verify",),
    ("verify", "--recover", "other.db"),
    ("gc",),
    ("gc", "--older-than", "3", "--yes"),
    ("delete", "trip", "--yes"),
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_store_that_is_not_there_is_an_error_that_helps_and_is_not_begun(run, command, location):
    done = run(*command)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert str(location) in done.err
    assert not location.exists()
    other = run(*command, "--store", "elsewhere.db")
    assert (other.code, "elsewhere.db" in other.err) == (1, True)


@pytest.mark.parametrize("command", READING[:3] + READING[5:8], ids=" ".join)
def test_what_is_no_store_is_one_line(run, command, location):
    location.write_text("hello " * 1000)
    done = run(*command)
    assert done.code == 1
    assert str(location) in (done.out + done.err)


def test_a_location_is_shown_without_its_password():
    assert stores.display_name("postgresql://me:secret@db.example/x") == "postgresql://me:***@db.example/x"
    assert stores.display_name("postgresql://db.example/x") == "postgresql://db.example/x"
    assert stores.display_name("a@b.db") == "a@b.db"


# -- threads -------------------------------------------------------------------------------------------------------


def test_threads_are_listed_those_changed_last_first(run, trip, coded):
    lines = [line.split() for line in run("threads").out.splitlines() if line.strip()]
    assert [line[0] for line in lines[2:]] == [coded[-8:], "trip"]
    assert lines[3][3:] == ["4", "2", "Rain", "␛[2J", "#north", "#keep"]
    assert "coded" not in run("threads", "--tag", "keep").out
    less = run("threads", "--limit", "1")
    assert "trip" not in less.out
    assert less.err == "only the 1 thread that changed last; there are more (--limit)\n"
    assert run("threads", "--limit", "2").err == ""


def test_a_thread_without_a_title_is_listed_with_its_first_prompt(run, tmp_path):
    location = str(tmp_path / "palaver.db")
    with open_store(location) as store:
        store.open("t").append(p.user("Is there a ferry\nto Pellworm?"))
    assert "Is there a ferry to Pellworm?" in run("threads", "--store", location).out


def test_threads_as_json_are_whole(run, trip, coded):
    first, second = map(json.loads, run("threads", "--json").out.splitlines())
    assert (first["id"], first["title"], first["length"]) == (coded, "coded", 3)
    assert second["branches"] == {"main": trip[2].id, "kiel": trip[3].id}
    assert second["tags"] == ["north", "keep"]


def test_an_empty_store_is_friendly(run, kept):
    assert kept(lambda store: list(store.threads())) == []
    done = run("threads")
    assert (done.code, done.out) == (0, "")
    assert "palaver import FILE" in done.err
    assert run("threads", "--json").out == ""


def test_threads_does_not_import_wires(process, trip, location):
    code = (
        "import sys; from palaver.cli import main; main(['threads', '--json']);"
        "print([m for m in sys.modules if m.startswith('palaver.wires')])"
    )
    env = {**os.environ, "PALAVER_STORE": str(location)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"[]"


# -- show ----------------------------------------------------------------------------------------------------------


def test_only_the_end_of_a_thread_is_shown_where_asked(run, trip):
    shown = run("show", "trip", "--last", "1")
    assert "tomorrow" in shown.out
    assert "six" not in shown.out
    assert "· 1 message" in shown.out
    assert run("show", "trip", "--last", "9").out == run("show", "trip").out
    assert run("show", "trip", "--last", "0").code == 2


def test_a_thread_is_shown_by_id_beginning_or_end_at_a_branch_or_entry(run, trip, coded):
    said = [entry.message.text for entry in trip]
    for name in (coded, coded[:30], coded[-8:], coded[-4:]):
        done = run("show", name)
        assert (done.code, done.out.splitlines()[0]) == (0, f"thread {coded[-8:]} · main · 3 messages · coded")
    for place, messages in {
        "": said[:3],
        "@main": said[:3],
        "@kiel": [*said[:2], said[3]],
        f"@{trip[0].id}": said[:1],
        f"@{trip[3].id[-8:]}": [*said[:2], said[3]],
    }.items():
        done = run("show", f"trip{place}")
        assert [line[2:] for line in done.out.splitlines() if line.startswith("│")] == messages


def test_a_file_that_exists_wins(run, trip, saved, chat):
    saved(chat, "trip")
    assert run("show", "trip").out.startswith("openai_chat · request")
    assert run("show", "trip", "--branches").out.startswith("thread trip")


def test_names_with_at_signs_are_found(run, kept):
    kept(lambda store: store.append(store.create("a@b").id, TALK))
    kept(lambda store: store.fork("a@b", "c@d"))
    for name in ("a@b", "a@b@main", "a@b@c@d"):
        assert run("show", name).code == 0
    assert "no thread is named 'a@x'" in run("show", "a@x").err


@pytest.mark.parametrize(
    "name", ["", "@", "x", "tri", "trip@", "trip@no", "\x1b[2J", "\udcff", "trip@\udcff", "@" * 9000, "%"]
)
@pytest.mark.parametrize("command", ["show", "export", "delete"])
def test_a_name_that_nobody_has_is_one_line(run, trip, name, command):
    done = run(command, "--", name) if command != "delete" else run(command, "--yes", "--", name)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert len(done.err) < 400
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.err)


def test_what_several_are_like_is_refused_with_their_names(run, kept):
    ids = [f"work-{number}-done" for number in range(5)]
    for each in ids:
        kept(lambda store, each=each: store.create(each))
    assert "several threads match: " in run("show", "work-").err
    done = run("delete", "--yes", "done")
    assert (done.code, done.err.endswith(", and 2 more\n")) == (1, True)
    assert kept(lambda store: len(list(store.threads()))) == 5
    assert run("show", "work-3").code == 0


def test_the_branches_of_a_thread_are_a_tree(run, trip, kept):
    short = [stores.short(entry.id) for entry in trip]
    assert run("show", "trip", "--branches").out.splitlines() == [
        "thread trip · 4 messages · 2 branches · Rain ␛[2J",
        f"2 messages from {short[0]}, user: is it raining in Husum?",
        f"├─ main (3) · 1 message from {short[2]}, user: and tomorrow?",
        f"└─ kiel (3) · 1 message from {short[3]}, user: and in Kiel?",
    ]
    kept(lambda store: store.rewind("trip", trip[0].id))
    kept(lambda store: store.fork("trip", "empty", at=None))
    assert run("show", "trip", "--branches").out.splitlines()[1:] == [
        f"main (1) · 1 message from {short[0]}, user: is it raining in Husum?",
        f"1 message from {short[1]}, assistant: it rains until six",
        f"├─ no branch (3) · 1 message from {short[2]}, user: and tomorrow?",
        f"└─ kiel (3) · 1 message from {short[3]}, user: and in Kiel?",
        "empty is empty",
    ]


def test_a_deep_tree_is_drawn():
    def grow(store):
        store.create("deep")
        for number in range(1200):
            (entry,) = store.append("deep", [p.user(str(number))]).entries
            store.add("deep", [Entry(f"leaf {number}", entry.id, p.user("x"))])

    with open_store("memory:") as store:
        grow(store)
        lines = list(render.branches(store.load("deep")))
    assert len(lines) == 2400


# -- search --------------------------------------------------------------------------------------------------------


def test_words_are_found_with_their_place(run, trip):
    done = run("search", "rains", "SIX")
    first, second, _, last = done.out.splitlines()
    place = f"trip@{trip[1].id[-8:]}"
    assert first.startswith(f"{place} · 20")
    assert first.endswith(" · assistant · ada · Rain ␛[2J")
    assert second == "  it rains until six"
    assert last == f"palaver show {place} shows the conversation up to there"
    assert run("show", place).out.splitlines()[0].startswith(f"thread trip · {trip[1].id[-8:]} · 2 messages")


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["rain"], 0),
        (["raining"], 1),
        (["rain*"], 2),
        (['"in husum"'], 1),
        (["--role", "user"], 3),
        (["--agent", "ada"], 1),
        (["and", "--role", "user", "--thread", "trip"], 2),
        (["--tool", "f"], 0),
        (["--tag", "t"], 0),
        (["--since", "1h", "rain*"], 2),
        (["--until", "1h"], 0),
        (["--until", "2999-01-01T00:00:00Z"], 4),
        (["--since", "2999-01-01"], 0),
        (["--role", "user", "--limit", "2"], 2),
    ],
)
def test_a_search_is_narrowed(run, trip, args, found):
    done = run("search", *args, "--json")
    hits = [json.loads(line) for line in done.out.splitlines()]
    assert (done.code, len(hits)) == (0, found)
    assert all(set(hit) == {"thread", "entry", "role", "agent", "sent_at", "tags", "excerpt"} for hit in hits)
    if not found:
        assert done.err == "no message matches\n"


def test_a_search_says_when_there_is_more(run, trip):
    assert run("search", "--role", "user", "--limit", "3").err == ""
    less = run("search", "--role", "user", "--limit", "2")
    assert (less.err, less.out.count("trip@")) == ("only the newest 2 messages; there are more (--limit)\n", 3)


@pytest.mark.parametrize(
    ("args", "code", "cause"),
    [
        ([], 2, "nothing to search for: give WORDS or an option"),
        (["..."], 1, "there is no word in the query '...'"),
        (["x", "--since", "soon"], 2, "'soon' is not a time such as 2026-11-20"),
        (["x", "--since", "0001-01-01T00:00:00+23:59"], 0, "no message matches"),
        (["x", "--role", "king"], 2, "Invalid value for '--role'"),
        (["x", "--limit", "0"], 2, "Invalid value for '-n' / '--limit'"),
        (["x", "--thread", "none"], 1, "no thread is named 'none'"),
    ],
)
def test_a_search_that_cannot_be_is_one_line(run, trip, args, code, cause):
    done = run("search", *args)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert cause in done.err


def test_the_words_are_marked_on_a_terminal(process, kept, tmp_path):
    kept(lambda store: store.append(store.create("x").id, [p.user("Été: rain_fall, rainy 会話する")]))
    mark = "\x1b[1;33m"
    for words, marked in {"ete": ["Été"], "rain*": ["rain", "rainy"], "会話": ["会", "話"], "fall": ["fall"]}.items():
        out = process("search", words, FORCE_COLOR="1", TERM="xterm").out
        found = "".join(re.findall(re.escape(mark) + "(.*?)\x1b", out))
        assert found == "".join(marked)


# -- fork, export, delete ------------------------------------------------------------------------------------------


def test_a_branch_begins_where_it_is_told(run, trip, kept):
    for place, length in {"trip": 3, "trip@kiel": 3, f"trip@{trip[0].id[-8:]}": 1}.items():
        name = f"from {length} {place}"
        behind = "1 message" if length == 1 else "3 messages"
        assert run("fork", place, name).out == f"thread trip: branch {name} starts after {behind}\n"
        assert kept(lambda store, name=name: len(store.path("trip", name))) == length
    taken = run("fork", "trip", "kiel")
    assert (taken.code, taken.err.count("\n")) == (1, 1)
    assert run("fork", "trip", "").code == 1


def test_a_thread_goes_out_and_comes_back_the_same(run, trip, kept, tmp_path):
    whole = run("export", "trip", "-o", "trip.jsonl")
    assert (whole.out, whole.err) == ("", "thread trip: 4 messages, 2 branches\n")
    assert run("export", "trip").out == (tmp_path / "trip.jsonl").read_text()
    run("export", "trip", "-o", "trip.zst")
    assert (tmp_path / "trip.zst").read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    for name in ("trip.jsonl", "trip.zst"):
        assert run("import", name, "--into", f"{name}.db").code == 0
        with open_store(f"{name}.db") as store:
            assert tuple(store.read("trip")) == trip
    assert run("export", "trip@kiel").err == "thread trip: 3 messages, 1 branch\n"
    refused = run("export", f"trip@{trip[0].id}", "-o", "no.jsonl")
    assert (refused.code, (tmp_path / "no.jsonl").exists()) == (1, False)
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".")) == []


def test_a_place_goes_out_for_a_wire_with_its_receipt(run, trip):
    done = run("export", f"trip@{trip[1].id}", "--as", "ollama_chat", "--model", "m")
    assert done.json == {
        "model": "m",
        "messages": [{"role": "user", "content": TALK[0].text}, {"role": "assistant", "content": TALK[1].text}],
    }
    assert done.err.startswith(f"trip@{trip[1].id[-8:]} → ollama_chat: a request of 2 messages")
    assert run("export", "trip", "--as", "klingon").code == 2
    assert [m.text for m in p.load_conversation(run("export", "trip@kiel", "--as", "palaver").out).messages] == [
        TALK[0].text,
        TALK[1].text,
        "and in Kiel?",
    ]


def test_a_loss_can_be_refused(run, kept):
    message = p.user(p.Image.from_url("https://x.example/a.png"))
    kept(lambda store: store.append(store.create("x").id, [message]))
    assert run("export", "x", "--as", "ollama_chat", "--losses", "raise", "-o", "x.json").code == 1
    assert run("export", "x", "--as", "ollama_chat").err.splitlines()[4].split()[:2] == ["dropped", "image"]


def test_media_of_the_store_go_out_as_bytes(run, kept):
    def put(store):
        blob = store.put_blob(b"\x89PNG\r\n\x1a\n")
        lost = p.Blob("sha256:" + "0" * 64)
        entry = Entry(str(uuid.uuid4()), None, p.user(p.Image(blob, "image/png"), p.Image(lost)))
        store.add("x", [entry], branches={"main": entry.id}, absent=[lost.hash])

    kept(put)
    first, second = p.load_conversation(run("export", "x", "--as", "palaver").out).messages[0].content
    assert first == p.Image.from_bytes(b"\x89PNG\r\n\x1a\n")
    assert second.source == p.Blob("sha256:" + "0" * 64)


def test_a_thread_is_deleted_only_when_that_is_meant(run, trip, kept, monkeypatch):
    asked = run("delete", "trip")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, code in {False: 1, True: 0}.items():
        monkeypatch.setattr("click.confirm", lambda *_, answer=answer, **__: answer)
        assert run("delete", "trip").code == code
        assert bool(kept(lambda store: list(store.threads()))) is not answer
    assert run("search", "rain*").err == "no message matches\n"


# -- verify, gc ----------------------------------------------------------------------------------------------------


def test_damaged_messages_of_a_thread_are_reported_by_what_reads_them(run, trip, location, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    location.write_bytes(location.read_bytes().replace(b"it rains until six", b"it snows until six"))
    for command in (("show", "trip"), ("show", "trip", "--branches"), ("run", "go on", "-m", "demo", "-t", "trip")):
        done = run(*command)
        assert done.err.count("palaver: thread trip: 1 message cannot be read") == 1
        assert "see palaver verify" in done.err
    assert "cannot be read" not in run("show", "trip", "--last", "1").err


def test_a_sound_store_is_verified(run, trip):
    done = run("verify")
    assert (done.code, done.out.startswith("1 thread, 4 messages, 0 blobs, ")) == (0, True)
    assert done.out.endswith(": no damage\n")
    assert run("verify", "--json").json["damage"] == []


def test_damage_is_listed_and_what_is_sound_is_saved(run, trip, location):
    data = location.read_bytes()
    assert data.count(b"it rains until six") >= 1
    location.write_bytes(data.replace(b"it rains until six", b"it snows until six"))
    done = run("verify")
    assert done.code == 1
    assert "altered" in done.out
    assert done.out.splitlines()[-1].endswith(" damaged")
    assert run("verify", "--json").json["damage"][0]["kind"] == "altered"
    assert run("export", "trip", "-o", "out/trip.jsonl").code == 1
    torn = run("export", "trip", "-o", "trip.jsonl")
    assert torn.code == 1
    assert "1 message cannot be read; the file has the stored bytes" in torn.err
    assert "it snows until six" in (location.parent / "trip.jsonl").read_text()
    saved = run("verify", "--recover", "saved.db")
    assert saved.code == 1
    assert "saved into saved.db: 1 thread, 3 messages" in saved.out
    assert run("verify", "--store", "saved.db").code == 0
    assert run("verify", "--recover", location).code == 2
    assert run("verify", "--recover", "x.db", "--store", "memory:").code == 1


def test_old_threads_go_only_when_that_is_meant(run, trip, coded, kept):
    nothing = run("gc")
    assert (nothing.code, nothing.out.startswith("removed 0 messages, 0 blobs;")) == (0, True)
    print_events = run("gc", "--older-than", "0", "--spare-tag", "keep")
    assert (print_events.code, print_events.err) == (0, "1 thread would be deleted (--yes)\n")
    assert print_events.out.startswith(coded[-8:])
    assert run("gc", "--older-than", "0", "--keep", "1").out.startswith("trip")
    assert run("gc", "--older-than", "1", "--yes").out.startswith("0 threads deleted\n")
    assert kept(lambda store: len(list(store.threads()))) == 2
    gone = run("gc", "--older-than", "0", "--yes", "--spare-tag", "keep", "--spare-tag", "x")
    assert gone.out.splitlines()[1] == "1 thread deleted"
    assert kept(lambda store: [info.id for info in store.threads()]) == ["trip"]
    run("delete", "trip", "--yes")
    assert run("gc").out.startswith("removed 4 messages")
    assert (run("gc", "--yes").code, run("gc", "--keep", "3").code, run("gc", "--older-than", "nan").code) == (2, 2, 1)


# -- other stores, the real process --------------------------------------------------------------------------------


@pytest.mark.server
def test_the_store_may_be_a_postgresql_database(run, saved, chat):
    psycopg = pytest.importorskip("psycopg")
    server = os.environ.get("PALAVER_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
    name = f"test_{uuid.uuid4().hex}"
    try:
        link = psycopg.connect(server, autocommit=True, connect_timeout=30)
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL: {str(error).splitlines()[0]}")
    with link:
        link.execute(f"create database {name}")
        try:
            where = f"{server.rpartition('/')[0]}/{name}"
            assert run("import", saved(chat), "--into", where).code == 0
            assert " 0 new" in run("import", saved(chat), "--into", where).out
            (info,) = map(json.loads, run("threads", "--json", "--store", where).out.splitlines())
            assert "│ yes" in run("show", info["id"][-8:], "--store", where).out
            assert run("fork", info["id"], "b", "--store", where).code == 0
            assert run("search", "yes", "--store", where).code == 0
            assert run("export", f"{info['id']}@b", "--store", where).code == 0
            assert run("verify", "--store", where).code == 0
            assert run("show", "no thread\udcff", "--store", where).code == 1
            assert run("delete", info["id"], "--yes", "--store", where).code == 0
            assert run("gc", "--store", where).out.startswith("removed 3 messages")
        finally:
            link.execute(f"drop database {name} with (force)")


def test_the_environment_and_the_option_name_the_store(process, saved, chat, tmp_path):
    body = saved(chat)
    assert process("import", body, PALAVER_STORE="env.db").out.endswith("env.db\n")
    assert process("import", body, "--into", "here.db", PALAVER_STORE="env.db").out.endswith("here.db\n")
    home = {"PALAVER_STORE": "", "XDG_DATA_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)}
    assert process("import", body, **home).out.strip().endswith("palaver.db")
    assert (tmp_path / "here.db").exists()
    assert process("threads", "--json", **home).out.count("\n") == 1


def test_nothing_is_said_when_the_reader_of_a_store_goes_away(kept, location):
    kept(lambda store: store.append(store.create("x").id, [p.user("word " * 100)] * 3_000))
    for command in ("show x --full", "export x", "search word --limit 3000 --json"):
        shell = f"{sys.executable} -m palaver {command} | head -1; exit ${{PIPESTATUS[0]}}"
        env = {**os.environ, "PALAVER_STORE": str(location)}
        done = subprocess.run(["bash", "-c", shell], capture_output=True, check=False, env=env)
        assert (done.returncode, done.stderr) == (141, b"")
