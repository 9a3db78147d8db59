"""Items of the OpenAI Agents SDK: what they become, what is written, sessions in a database, and the traps."""

from __future__ import annotations

import json
import sqlite3

import pytest

import palaver as p
from palaver import transcripts
from palaver.core.errors import EncodeError, StoreError
from palaver.core.messages import AssistantMessage, DeveloperMessage, ToolMessage, UserMessage
from palaver.core.parts import Image, MalformedToolCall, Opaque, Reasoning, Refusal, Text, ToolCall
from palaver.core.usage import Usage
from palaver.threads import Entry
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.openai_agents import read_sqlite, write_sqlite
from tests.transcripts.samples import FOLDER

AGENTS = transcripts.get("openai_agents")
FILES = FOLDER / "openai_agents"
INPUT = (FILES / "input.json").read_bytes()
ROWS = (FILES / "rows.jsonl").read_bytes()
RUN = (FILES / "run.json").read_bytes()
INTERRUPTED = (FILES / "interrupted.json").read_bytes()

EASY = {"role": "user", "content": "Hi"}
CALL = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": '{"a": 1.0}'}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "done"}


def answer(text, **more):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": content, **more}


def listed(*items):
    return json.dumps(items).encode()


def read(data):
    (transcript,) = AGENTS.read(data)
    return transcript


def messages(data):
    return [each.message for each in read(data).thread.path() if "record" not in each.message.tags]


def edited(transcript, change):
    """The conversation with some messages changed, and their records kept."""
    made = type(transcript.thread)(transcript.thread.id)
    for entry in transcript.thread.path():
        made.add([Entry(entry.id, entry.parent, change(entry.message))], {"main": entry.id})
    return type(transcript)(made, transcript.title, transcript.metadata)


def appended(transcript, *added):
    thread = transcript.thread
    for number, message in enumerate(added):
        head = thread.branches["main"]
        thread.add([Entry(f"new-{number}", head, message)], {"main": f"new-{number}"})
    return transcript


# -- reading -----------------------------------------------------------------------------------------------------------


def test_items_that_a_model_made_in_a_row_are_one_message():
    asked, called, first, second, *_ = messages(INPUT)
    assert isinstance(asked, UserMessage)
    assert [type(part) for part in called.content] == [Reasoning, ToolCall, MalformedToolCall]
    assert called.tool_calls[0].arguments_json == '{"path": "notes.txt", "n": 1e3, "scale": 5e-06}'
    assert called.content[0].encrypted == "gAAAAABo+opaque/proof=="
    assert [first.tool_name, second.tool_call_id] == ["count_lines", "call_2"]
    assert isinstance(second.content[1], Image)


def test_another_response_is_another_message():
    told = [each for each in messages(INPUT) if isinstance(each, AssistantMessage)]
    assert [each.response_id for each in told[:3]] == ["resp_1", "resp_2", "resp_3"]
    assert told[0].model == "gpt-5"


def test_a_call_without_an_output_stays():
    assert messages(INPUT)[-1].tool_calls[0].id == "call_3"


def test_easy_messages_without_a_type_are_messages():
    assert [type(each) for each in messages(listed(EASY, {"role": "developer", "content": "x"}, answer("y")))] == [
        UserMessage,
        DeveloperMessage,
        AssistantMessage,
    ]


def test_an_item_of_an_unknown_type_is_reported_and_kept():
    data = listed(EASY, {"type": "some_new_item", "what": 2**70})
    (transcript,), drift = AGENTS.read_with_unknown(data)
    assert [(each.kind, each.name) for each in drift] == [("record", "some_new_item")]
    assert isinstance(transcript.thread.path()[-2].message.content[0], Opaque)
    assert AGENTS.write(transcript).body == data


def test_an_encrypted_row_is_no_message_and_no_drift():
    secret = b'{"__enc__": 1, "v": 1, "kid": "k", "payload": "x"}\n'
    (transcript,), drift = AGENTS.read_with_unknown(secret)
    assert drift == ()
    assert [entry.message.tags for entry in transcript.thread.entries] == [("record",)]
    assert AGENTS.write(transcript).body == secret


def test_blank_lines_do_not_end_an_answer():
    data = b"\n\n".join(json.dumps(each).encode() for each in (EASY, answer("a"), CALL))
    assert len(messages(data)) == 2
    assert AGENTS.write(read(data)).body == data


def test_a_run_says_its_input_its_items_and_what_they_cost():
    asked, called, result, said = messages(RUN)
    assert asked.text.startswith("Count the lines")
    assert called.usage is not None
    assert (called.usage.input, called.usage.cache_read, called.usage.output, called.usage.reasoning) == (
        40,
        60,
        10,
        20,
    )
    assert [called.response_id, said.response_id] == ["resp_1", "resp_2"]
    assert [called.agent, result.tool_name, said.text] == ["Counter", "count", "Three."]
    session = session_of(read(RUN).metadata)
    assert (session.format, session.agent) == ("1.17", "Counter")


def test_a_run_of_a_version_to_come_is_read_and_reported():
    (transcript,), drift = AGENTS.read_with_unknown(INTERRUPTED)
    assert [(each.kind, each.name) for each in drift] == [("version", "9.3")]
    assert [each.message.role for each in transcript.thread.path()] == ["user", "assistant", "user", "assistant"]


# -- writing -----------------------------------------------------------------------------------------------------------


def test_an_edited_text_keeps_what_stands_around_it():
    changed = edited(
        read(INPUT), lambda each: each.replace(content=(Text("More."),)) if each.text == "Go on." else each
    )
    assert AGENTS.write(changed).body == INPUT.replace(b"Go on.", b"More.")


def test_an_edited_answer_keeps_its_id_and_what_else_it_has():
    data = listed(EASY, answer("a", provider_data={"model": "m", "response_id": "r"}))
    changed = edited(
        read(data),
        lambda each: (
            each.replace(content=(Text("b", provider_json=each.content[0].provider_json),))
            if each.text == "a"
            else each
        ),
    )
    assert json.loads(AGENTS.write(changed).body) == [
        EASY,
        answer("b", provider_data={"model": "m", "response_id": "r"}),
    ]


def test_what_is_new_stands_behind_what_was_there():
    written = json.loads(AGENTS.write(appended(read(listed(EASY)), p.assistant("Hello"))).body)
    assert written[0] == EASY
    assert written[1]["content"][0]["text"] == "Hello"
    lines = AGENTS.write(appended(read(json.dumps(EASY).encode() + b"\n"), p.assistant("Hello"))).body.splitlines()
    assert json.loads(lines[1])["id"] == "__fake_id__"


def test_a_run_takes_what_is_new_into_its_record():
    transcript = appended(read(RUN), p.assistant("And four."))
    written = json.loads(AGENTS.write(transcript).body)
    before = json.loads(RUN)
    assert written["generated_items"][:-1] == before["generated_items"]
    last = written["generated_items"][-1]
    assert (last["type"], last["agent"]) == ("message_output_item", {"name": "Counter"})
    assert {key: value for key, value in written.items() if key != "generated_items"} == {
        key: value for key, value in before.items() if key != "generated_items"
    }


def test_the_answer_of_a_run_can_be_edited():
    def change(message):
        if message.text != "Three.":
            return message
        return message.replace(content=(message.content[0].replace(text="Four."),))

    assert json.loads(AGENTS.write(edited(read(RUN), change)).body) == json.loads(
        b'"text": "Four."'.join(RUN.rsplit(b'"text": "Three."', 1))
    ) | {"model_responses": json.loads(RUN)["model_responses"]}


def test_a_status_of_null_goes_when_an_item_is_written():
    transcript = transcript_of([without_records(each) for each in messages(listed(EASY, {**CALL, "status": None}))])
    written = json.loads(AGENTS.write(transcript).body)
    assert "status" not in written[1]
    assert written[1]["id"] == "fc"


def test_what_an_item_cannot_say_is_carried_and_comes_back():
    usage = Usage(input=3, output=4)
    told = [
        p.system("s"),
        p.user("u"),
        AssistantMessage(content=(Text("a"), ToolCall("c", "f", '{"a":1e3}')), model="m", usage=usage),
        ToolMessage(content=(Text("r"),), tool_call_id="c", tool_name="f", is_error=True),
        AssistantMessage(content=(Text("b"), Refusal("no")), finish_reason="refusal"),
        AssistantMessage(content=(MalformedToolCall("{", "bad", "f", "c2"),)),
    ]
    written = AGENTS.write(transcript_of(told))
    back = [without_records(each).replace(id=None) for each in messages(written.body)]
    assert back == told
    items = json.loads(written.body)
    assert "provider_data" not in items[0]
    assert "provider_data" not in items[1]
    assert {"converted"} <= {loss.kind for loss in written.losses}


def test_answers_in_a_row_stay_apart():
    first = AssistantMessage(content=(Text("a"), ToolCall("c", "f")))
    second = AssistantMessage(content=(Reasoning("hm", None, "proof", "openai_responses"), Text("b")))
    for told in ([first, second], [p.assistant("a"), p.assistant("b"), first], [second, second]):
        back = messages(AGENTS.write(transcript_of(told)).body)
        assert [without_records(each).replace(id=None) for each in back] == told
    plain = AGENTS.write(transcript_of([first, second]), carry=False)
    assert "answers in a row" in [loss.what for loss in plain.losses]


def test_a_call_that_could_not_be_read_stays_with_the_others():
    told = [
        AssistantMessage(content=(ToolCall("c", "f"), MalformedToolCall("{", "bad", "f", "c2"), ToolCall("d", "f"))),
        AssistantMessage(content=(MalformedToolCall("{", "bad", "f", "c3"), MalformedToolCall("[", "bad", "f", "c4"))),
        ToolMessage(content=(Text("r"),), tool_call_id="c", tool_name="f"),
        ToolMessage(content=(Text("of nothing"),)),
    ]
    written = AGENTS.write(transcript_of(told))
    items = json.loads(written.body)
    assert [each.get("call_id") for each in items] == ["c", "d", None, None, "c", None]
    assert items[2]["role"] == "assistant"
    assert [without_records(each).replace(id=None) for each in messages(written.body)] == told


def test_reasoning_never_carries_anything():
    told = AssistantMessage(content=(Reasoning("hm", None, "proof", "openai_responses"), Text("a")), model="m")
    reasoning, said = json.loads(AGENTS.write(transcript_of([told])).body)
    assert "provider_data" not in reasoning
    assert "palaver" in said["provider_data"]
    alone = AGENTS.write(transcript_of([told.replace(content=told.content[:1])]))
    assert any(loss.kind == "dropped" for loss in alone.losses)


def test_nothing_is_carried_where_that_is_asked():
    told = AssistantMessage(content=(Text("a"),), model="m", usage=Usage(input=1))
    written = AGENTS.write(transcript_of([told]), carry=False)
    assert "provider_data" not in json.loads(written.body)[0]
    assert [(loss.kind, loss.what) for loss in written.losses] == [("dropped", "usage and model")]


def test_reasoning_of_others_is_lost_and_said():
    told = AssistantMessage(content=(Reasoning("hm", "sig", None, "anthropic_messages"), Text("a")))
    written = AGENTS.write(transcript_of([told]))
    assert any("reasoning" in loss.what for loss in written.losses)
    assert without_records(messages(written.body)[0]).replace(id=None) == told


# -- detection ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "confidence"),
    [
        (RUN, 1.0),
        (INTERRUPTED, 1.0),
        (listed(answer("x")), 0.5),
        (listed(EASY, answer("x")), 0.6),
        (json.dumps(CALL).encode() + b"\n" + json.dumps(OUTPUT).encode(), 0.7),
        (listed(EASY), None),
        (b"[]", None),
        (b'{"type":"response_item","timestamp":"t","payload":{"type":"message","role":"user","content":[]}}\n', None),
        (b'{"model":"gpt-5","input":[{"role":"user","content":"x"}]}', None),
    ],
)
def test_what_it_takes_for_its_own(data, confidence):
    found = AGENTS.detect(data)
    assert (None if found is None else found.confidence) == confidence


# -- databases ---------------------------------------------------------------------------------------------------------


def advanced(path):
    """A database with two branches, that of ``AdvancedSQLiteSession``."""
    write_sqlite(path, [])
    with sqlite3.connect(path) as file:
        file.execute("INSERT INTO agent_sessions VALUES ('s', '2026-01-02 03:04:05', '2026-01-02 03:04:05')")
        items = [
            EASY,
            answer("a"),
            CALL,
            OUTPUT,
            answer("b"),
            EASY,
            answer("c"),
            {"role": "user", "content": "B"},
            answer("d"),
        ]
        rows = [("s", json.dumps(each), f"2026-01-02 03:04:{at:02}") for at, each in enumerate(items, 5)]
        file.executemany("INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)", rows)
        file.execute(
            "CREATE TABLE message_structure (id INTEGER PRIMARY KEY, session_id, message_id, branch_id, message_type,"
            " sequence_number, user_turn_number, branch_turn_number, tool_name, created_at)"
        )
        main = [("main", row, row, 1 if row <= 5 else 2) for row in range(1, 8)]
        other = [("other", row, 7 + row, 1) for row in range(1, 6)] + [("other", 8, 13, 2), ("other", 9, 14, 2)]
        file.executemany(
            "INSERT INTO message_structure (session_id, branch_id, message_id, sequence_number, user_turn_number)"
            " VALUES ('s', ?, ?, ?, ?)",
            main + other,
        )
        file.execute(
            "CREATE TABLE turn_usage (id INTEGER PRIMARY KEY, session_id, branch_id, user_turn_number, requests,"
            " input_tokens, output_tokens, total_tokens, input_tokens_details, output_tokens_details)"
        )
        file.execute(
            "INSERT INTO turn_usage VALUES (1, 's', 'main', 1, 2, 10, 4, 14, '{\"cached_tokens\": 6}',"
            " '{\"reasoning_tokens\": 1}')"
        )
    file.close()
    return path


def test_a_session_comes_back_from_a_database(tmp_path):
    path = tmp_path / "sessions.db"
    told = [p.user("Hi"), AssistantMessage(content=(Text("a"),), model="m", usage=Usage(input=1)), p.user("Bye")]
    losses = write_sqlite(path, [transcript_of(told), read(INPUT)])
    assert [loss.what for loss in losses] == ["usage and model"]
    first, second = read_sqlite(path)
    assert [without_records(each.message).replace(id=None, sent_at=None) for each in first.thread.path()] == told
    assert [json.loads(row) for row in AGENTS.write(second).body.splitlines()] == [
        each for each in json.loads(INPUT) if isinstance(each, dict)
    ]


def test_branches_share_what_stands_before_them_and_turns_have_their_usage(tmp_path):
    (transcript,) = read_sqlite(advanced(tmp_path / "s.db"))
    assert set(transcript.thread.branches) == {"main", "other"}
    main = [each.message for each in transcript.thread.path()]
    other = [each.message for each in transcript.thread.path("other")]
    assert [each.text for each in main] == ["Hi", "a", "done", "b", "Hi", "c"]
    assert [each.text for each in other] == ["Hi", "a", "done", "b", "B", "d"]
    assert [each.id for each in main[:4]] == [each.id for each in other[:4]]
    assert main[1].usage is None
    assert main[3].usage is not None
    assert (main[3].usage.input, main[3].usage.cache_read, main[3].usage.output, main[3].usage.reasoning) == (
        4,
        6,
        3,
        1,
    )
    assert main[3].usage.raw["requests"] == 2
    session = session_of(transcript.metadata)
    assert (session.id, session.started_at) == ("s", main[0].sent_at)


def test_the_main_branch_of_many_is_a_session(tmp_path):
    read_back = read_sqlite(advanced(tmp_path / "s.db"))
    write_sqlite(tmp_path / "t.db", read_back)
    (again,) = read_sqlite(tmp_path / "t.db")
    assert [each.message.text for each in again.thread.path()] == ["Hi", "a", "done", "b", "Hi", "c"]


def test_rows_that_hold_no_item_stay(tmp_path):
    path = tmp_path / "s.db"
    write_sqlite(path, [transcript_of([p.user("Hi")])])
    with sqlite3.connect(path) as file:
        (name,) = file.execute("SELECT session_id FROM agent_sessions").fetchone()
        rows = ["no item", '{"__enc__": 1, "v": 1, "kid": "k", "payload": "x"}', "5"]
        file.executemany(
            f"INSERT INTO agent_messages (session_id, message_data) VALUES ('{name}', ?)", [(r,) for r in rows]
        )
    file.close()
    (transcript,) = read_sqlite(path)
    assert AGENTS.write(transcript).body.splitlines()[1:] == [row.encode() for row in rows]
    assert [each.text for each in messages(AGENTS.write(transcript).body)] == ["Hi"]


def test_a_run_is_written_as_rows(tmp_path):
    write_sqlite(tmp_path / "s.db", [read(RUN)])
    (transcript,) = read_sqlite(tmp_path / "s.db")
    assert [each.message.role for each in transcript.thread.path()] == ["user", "assistant", "tool", "assistant"]


def test_a_session_that_is_there_is_left_alone(tmp_path):
    path = tmp_path / "s.db"
    write_sqlite(path, [transcript_of([p.user("Hi")])])
    with pytest.raises(EncodeError, match="already"):
        write_sqlite(path, [transcript_of([p.user("Ho")]), transcript_of([p.user("Hi")])])
    assert len(read_sqlite(path)) == 1


def test_what_is_no_database_is_said(tmp_path):
    (tmp_path / "s.db").write_bytes(b"no database, but long enough to look like one" * 10)
    for name in ("s.db", "none.db"):
        with pytest.raises(StoreError, match=name):
            read_sqlite(tmp_path / name)
    assert not (tmp_path / "none.db").exists()


def test_odd_rows_and_tables_of_other_versions_are_read(tmp_path):
    path = tmp_path / "s.db"
    write_sqlite(path, [])
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE message_structure (id, session_id)")
        file.execute("CREATE TABLE turn_usage (id, session_id)")
        file.execute("INSERT INTO turn_usage VALUES (1, 'gone')")
        odd = [b"\xff", b'{"role": "user", "content": "\xff"}', b'{"role": "user", "content": "Hi"}']
        rows = "INSERT INTO agent_messages (session_id, message_data) VALUES ('gone', CAST(? AS TEXT))"
        file.executemany(rows, [(each,) for each in odd])
    file.close()
    (transcript,) = read_sqlite(path)
    assert session_of(transcript.metadata).id == "gone"
    assert [each.message.text for each in transcript.thread.path()] == ["", "", "Hi"]
    assert AGENTS.write(transcript).body.splitlines() == odd
