"""The Agent SDK of Claude Code reads what we write, and we read what it writes; so does a reader by others."""

from __future__ import annotations

import json
from itertools import count

import pytest

sdk = pytest.importorskip("claude_agent_sdk", reason="the producer's package")

from claude_agent_sdk.testing import run_session_store_conformance  # noqa: E402

from palaver import transcripts  # noqa: E402
from palaver.core.messages import AssistantMessage, ToolMessage  # noqa: E402
from palaver.store.memory import MemoryStore  # noqa: E402
from palaver.store.sqlite import SQLiteStore  # noqa: E402
from palaver.threads import for_model  # noqa: E402
from palaver.transcripts.claude_code.session_store import SessionStore, SummingSessionStore  # noqa: E402
from palaver.transcripts.claude_code.shapes import file_name  # noqa: E402
from palaver.transcripts.conversation import session_of  # noqa: E402
from palaver.transcripts.extension_slot import without_records  # noqa: E402
from palaver.transcripts.writer import is_record  # noqa: E402
from tests.transcripts.samples import FILES, IDS, origin  # noqa: E402

FORMAT = transcripts.get("claude_code")
KINDS = {"user", "assistant", "progress", "system", "attachment"}
REQUIRED = {
    "user": {"message"},
    "assistant": {"message", "requestId"},
    "system": {"subtype"},
    "attachment": {"attachment"},
}
CHAIN = {
    "uuid",
    "parentUuid",
    "isSidechain",
    "userType",
    "cwd",
    "sessionId",
    "version",
    "gitBranch",
    "timestamp",
    "type",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The folder of a project in a configuration of its own."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    folder = tmp_path / "projects" / sdk.project_key_for_directory("/w")
    folder.mkdir(parents=True)
    return folder


def stripped(transcript):
    """A conversation without its records, so that all of it is written anew."""
    thread = type(transcript.thread)(transcript.thread.id)
    for entry in transcript.thread.entries:
        thread.add([type(entry)(entry.id, entry.parent, without_records(entry.message))])
    thread.add((), transcript.thread.branches)
    return type(transcript)(thread, transcript.title, transcript.metadata)


def placed(folder, transcript, **options):
    """Write a conversation where the program looks for it; give its records and the id of its session."""
    written = FORMAT.write(transcript, **options)
    path = folder / file_name(transcript)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written.body)
    return [json.loads(line) for line in written.body.split(b"\n") if line.strip()], path.name[:-6]


def blocks_of(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def ids_of(blocks):
    return [
        block.get("id") or block.get("tool_use_id") for block in blocks if block["type"] in {"tool_use", "tool_result"}
    ]


def foreign():
    """Every conversation of every format's files."""
    for (name, path), label in zip(FILES, IDS, strict=True):
        for number, transcript in enumerate(transcripts.get(name).read(path.read_bytes(), origin(path))):
            yield pytest.param(transcript, id=f"{label}-{number}")


FOREIGN = list(foreign())


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("transcript", FOREIGN)
def test_the_sdk_reads_every_conversation_from_elsewhere(transcript, carry, project):
    anew = stripped(transcript)
    if session_of(anew.metadata).agent is not None and session_of(anew.metadata).file_format == "claude_code":
        pytest.skip("a sub-agent's file is no session")
    records, session = placed(project, anew, carry=carry)
    chain = [each for each in records if "uuid" in each]
    for each in chain:
        assert each.keys() >= CHAIN | REQUIRED[each["type"]]
        assert each["type"] in KINDS
        assert each["sessionId"] == session
    assert len({each["uuid"] for each in chain}) == len(chain)
    read = sdk.get_session_messages(session)
    path = [entry.message for entry in anew.thread.path() if not is_record(entry)]
    sent = [m for m in for_model(anew.thread.path()) if isinstance(m, AssistantMessage | ToolMessage)]
    made = [each for each in read if each.type == "assistant"]
    assert len({each.message["id"] for each in made}) >= len([m for m in sent if isinstance(m, AssistantMessage)])
    uses, results = (
        [ids_of(blocks_of(each.message)) for each in read if each.type == kind] for kind in ("assistant", "user")
    )
    used = [name for names in uses for name in names]
    assert {name for names in results for name in names} <= set(used)
    assert len(set(used)) == len(used)
    assert bool(read) == any(m.role in {"user", "assistant", "tool"} and _visible(m) for m in path)


def _visible(message):
    """Whether the SDK gives a message: it leaves out notices."""
    hidden = message.role == "user" and not message.is_summary and (message.source or message.mode == "tool")
    return not hidden and "discarded" not in message.tags


@pytest.mark.parametrize("transcript", FOREIGN)
def test_the_sdk_lists_what_we_write_with_its_title(transcript, project):
    anew = type(transcript)(stripped(transcript).thread, "A title of ours", transcript.metadata)
    if session_of(anew.metadata).agent is not None and session_of(anew.metadata).file_format == "claude_code":
        pytest.skip("a sub-agent's file is no session")
    _, session = placed(project, anew)
    (info,) = sdk.list_sessions()
    assert (info.session_id, info.summary, info.custom_title) == (session, "A title of ours", "A title of ours")


def test_the_sdk_reads_a_session_as_we_do(project):
    """Same blocks in the same order, without what only one of us shows: notices, what a compaction hides."""
    path = next(path for name, path in FILES if name == "claude_code" and path.name == "session.jsonl")
    (transcript,) = FORMAT.read(path.read_bytes(), origin(path))
    (project / file_name(transcript)).write_bytes(path.read_bytes())
    read = sdk.get_session_messages(session_of(transcript.metadata).id)
    texts = [block["text"] for each in read for block in blocks_of(each.message) if block["type"] == "text"]
    ours = [each.text for each in for_model(transcript.thread.path()) if each.source != "meta"]
    assert texts == ours


def test_the_sdk_puts_parallel_results_where_we_do(project):
    from tests.transcripts.test_claude_code import ID, answer, attachment, call, file, result, user

    records = (
        user(1, None, "go"),
        answer(2, 1, "m", call("a")),
        result(3, 2, "a", "A"),
        attachment(4, 3, "hook_success", content=""),
        answer(5, 2, "m", call("b"), stop="tool_use"),
        result(6, 5, "b", "B"),
    )
    for last in (3, 4, 6):
        data = file(*records, answer(7, last, "n", "done", stop="end_turn"))
        (project / f"{ID}.jsonl").write_bytes(data)
        read = [ids_of(blocks_of(each.message)) for each in sdk.get_session_messages(ID)]
        (transcript,) = FORMAT.read(data)
        seen = for_model(transcript.thread.path())
        assert sorted(name for names in read for name in names) == ["a", "a", "b", "b"]
        assert [each.tool_call_id for each in seen if isinstance(each, ToolMessage)] == ["a", "b"]
        assert len(seen) == 5


def test_the_sdk_reads_a_sub_agents_file(project):
    path = next(path for name, path in FILES if name == "claude_code" and path.parent.name == "subagent")
    (transcript,) = FORMAT.read(path.read_bytes(), origin(path))
    session = session_of(transcript.metadata)
    (project / f"{session.id}.jsonl").write_bytes(b"{}\n")
    _, _ = placed(project, stripped(transcript))
    assert sdk.list_subagents(session.id) == ["b7"]
    read = sdk.get_subagent_messages(session.id, "b7")
    assert [block["text"] for each in read for block in blocks_of(each.message)] == [
        "Find the parser.",
        "It is in src.",
    ]


def test_we_read_a_fork_of_the_sdk(project):
    """It gives every record a new id, and a title of its own."""
    path = next(path for name, path in FILES if name == "claude_code" and path.name == "session.jsonl")
    (transcript,) = FORMAT.read(path.read_bytes(), origin(path))
    _, session = placed(project, transcript)
    forked = sdk.fork_session(session, title="Forked")
    data = (project / f"{forked.session_id}.jsonl").read_bytes()
    (again,), drift = FORMAT.read_with_unknown(data)
    assert FORMAT.write(again).body == data
    assert drift == ()
    assert again.title == "Forked"
    assert [m.text for m in for_model(again.thread.path())] == [m.text for m in for_model(transcript.thread.path())]
    assert session_of(again.metadata).more["forkedFrom"]["sessionId"] == session


def test_what_the_sdk_adds_to_a_session_of_ours_is_read(project):
    from tests.transcripts.test_claude_code import TALK, transcript_of

    _, session = placed(project, transcript_of(TALK))
    sdk.rename_session(session, "Renamed")
    sdk.tag_session(session, "work")
    data = (project / f"{session}.jsonl").read_bytes()
    (again,), drift = FORMAT.read_with_unknown(data)
    assert (again.title, session_of(again.metadata).more["tag"]) == ("Renamed", "work")
    assert [each for each in drift if each.kind != "key"] == []
    assert FORMAT.write(again).body == data


@pytest.mark.parametrize("transcript", FOREIGN)
def test_a_reader_by_others_takes_every_record(transcript):
    factory = pytest.importorskip("claude_code_log.factories.transcript_factory", reason="a reader by others")
    written = FORMAT.write(stripped(transcript))
    for line in written.body.splitlines():
        record = json.loads(line)
        if "uuid" in record:  # a title that a person gave is no record that it knows
            assert factory.create_transcript_entry(record).uuid == record["uuid"]


# -- a store of ours as the SDK's --------------------------------------------------------------------------------------


def stores(folder):
    """New adapters, each over a store of its own."""
    number = count()
    return lambda: SummingSessionStore(SQLiteStore(folder / f"{next(number)}.db"), sdk.fold_session_summary)


@pytest.mark.anyio
async def test_it_passes_the_sdks_own_suite(tmp_path):
    await run_session_store_conformance(stores(tmp_path))
    await run_session_store_conformance(lambda: SessionStore(MemoryStore()))


@pytest.mark.anyio
async def test_a_session_is_imported_resumed_and_told(tmp_path, project):
    path = next(path for name, path in FILES if name == "claude_code" and path.name == "session.jsonl")
    (transcript,) = FORMAT.read(path.read_bytes(), origin(path))
    _, session = placed(project, transcript)
    sub = next(path for name, path in FILES if name == "claude_code" and path.parent.name == "subagent")
    folder = project / session / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-b7.jsonl").write_bytes(sub.read_bytes())
    (folder / "agent-b7.meta.json").write_bytes((sub.parent / "agent-b7.meta.json").read_bytes())
    store = stores(tmp_path)()
    for _ in range(2):  # twice: what is there is passed over
        await sdk.import_session_to_store(session, store, batch_size=3)
    key = {"project_key": project.name, "session_id": session}
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    loaded = await store.load(key)
    assert loaded[: len(lines)] == lines
    assert [each for each in loaded[len(lines) :] if "uuid" in each] == []
    told = await store.conversation(key)
    assert [m.text for m in for_model(told.thread.path())] == [m.text for m in for_model(transcript.thread.path())]
    (info,) = await sdk.list_sessions_from_store(store, directory="/w")
    assert info.session_id == session
    read = await sdk.get_session_messages_from_store(store, session, directory="/w")
    assert [each.uuid for each in read] == [each.uuid for each in sdk.get_session_messages(session)]
    assert await sdk.list_subagents_from_store(store, session, directory="/w") == ["b7"]
    agent = session_of((await store.conversation({**key, "subpath": "subagents/agent-b7"})).metadata)
    assert (agent.agent, agent.call, agent.parent) == ("b7", "toolu_task", session)
    await store.delete(key)
    assert await store.load(key) is None
    assert await store.list_subkeys(key) == []


@pytest.mark.anyio
async def test_odd_entries_come_back_as_they_were():
    store = SessionStore(MemoryStore())
    key = {"project_key": "p", "session_id": "s"}
    entries = [
        {"type": "x", "uuid": "1", "text": "\ud83d cut \u2028 \x00", "numbers": [5e-06, 2.0, 2**70, -0.0]},
        {"type": "x", "image": "A" * 5000, "again": "A" * 5000, "empty": {}, "none": None},
    ]
    await store.append(key, entries)
    assert await store.load(key) == entries


@pytest.mark.anyio
async def test_two_processes_write_one_session(tmp_path):
    """Two adapters with a connection each: what one wrote meanwhile is behind it, and nothing twice."""
    one, two = (SessionStore(SQLiteStore(tmp_path / "shared.db")) for _ in range(2))
    key = {"project_key": "p", "session_id": "s"}
    await one.append(key, [{"type": "x", "uuid": "1"}])
    await two.append(key, [{"type": "x", "uuid": "1"}, {"type": "x", "uuid": "2"}])
    await one.append(key, [{"type": "x", "uuid": "2"}, {"type": "x", "uuid": "3"}, {"type": "x"}])
    assert [each.get("uuid") for each in await two.load(key)] == ["1", "2", "3", None]


@pytest.fixture
def anyio_backend():
    return "asyncio"
