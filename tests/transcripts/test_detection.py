"""``detect`` and every recogniser, over JSON that has the formats' own keys and values of any type."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from palaver import transcripts
from palaver.core.errors import MessageError, PalaverError
from palaver.transcripts.conversation import session_of
from tests.generated import examples
from tests.transcripts.samples import FOLDER

pytestmark = pytest.mark.finding("F-102")

NAMES = transcripts.names()
KEYS = """
type role content messages message kind id parentId uuid sessionId session_id timestamp payload parts info
data version schema_version steps source eval header items events event model name title conversations from
value tool_calls tool_use_id call_id method params update sessionUpdate threadId runId history contents text
usage response body custom_id prompt completion chosen rejected preferred_output input output attributes
resourceSpans spans scopeSpans trace_id agent mode payload palaver sum spec lc kwargs generated_items
original_input $schemaVersion chatHistory sessionState mainAgentState messageHistory projectHash startTime
lastUpdated cwd gitBranch subtype direction msg agentName toolCalls metadata tags role_name
""".split()  # noqa: SIM905 (as a list it fills the page)
WORDS = """
user assistant system tool human gpt message session function_call session_meta response_item event_msg
RUN_STARTED session/update ai model main header constructor text summary queue-operation
""".split()  # noqa: SIM905 (as a list it fills the page)
WORD = st.sampled_from(WORDS)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**70),
    st.floats(allow_nan=False),
    st.sampled_from(WORDS),
    st.text(max_size=4),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6), st.just([]), st.just({})
    ),
    max_leaves=24,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)
FILES = st.one_of(
    st.one_of(OBJECTS, st.lists(OBJECTS, max_size=3)).map(lambda value: json.dumps(value).encode()),
    st.lists(OBJECTS, min_size=1, max_size=4).map(
        lambda rows: b"".join(json.dumps(each).encode() + b"\n" for each in rows)
    ),
)
ODD = [[], {}, None, 7, 1.5, True, "", ["a"], {"a": []}]


@example(b'{"type":["object","null"]}')
@example(b'[{"type":["a"]}]')
@example(b'[{"role":[]}]')
@example(b'{"role":{},"content":"x"}')
@settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(FILES)
def test_recognition_never_raises(data):
    transcripts.detect(data, "x.json")


@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_any_type_under_any_key_is_recognised_or_passed_over(key):
    """Each key alone, and beside the others that a recogniser asks for first."""
    beside = {"role": "user", "content": "x", "type": "message", "id": "a", "timestamp": "2026-01-02T03:04:05Z"}
    for odd in ODD:
        for each in ({key: odd}, {**beside, key: odd}, {"messages": [{**beside, key: odd}]}, {"message": {key: odd}}):
            for data in (each, [each]):
                transcripts.detect(json.dumps(data).encode(), "x.json")
                transcripts.detect(json.dumps(data).encode() + b"\n{}\n", "x.jsonl")


@pytest.mark.parametrize("name", [name for name in NAMES if transcripts.get(name).record_reader is not None])
@pytest.mark.parametrize("odd", ["[]", "{}", "7", '["a"]', "null"])
def test_a_value_of_any_type_is_read_or_one_error(name, odd):
    for key in ("role", "type", "content", "id", "kind"):
        row = f'{{"role":"user","type":"message","content":"x","{key}":{odd}}}'
        texts = [
            row,
            f"[{row}]",
            f"{row}\n{row}\n",
            f'{{"messages":[{row}]}}',
            f'{{"type":"message","message":{row}}}\n',
        ]
        texts.append(f'[{{"role":"user","content":[{row}]}}]')
        for text in texts:
            try:
                transcripts.get(name).read(text.encode())
            except PalaverError:
                continue


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(FILES, st.sampled_from([name for name in NAMES if transcripts.get(name).record_reader is not None]))
def test_any_json_is_read_or_one_error(data, name):
    try:
        transcripts.get(name).read(data)
    except PalaverError:
        return


@pytest.mark.finding("F-76")
@pytest.mark.parametrize("column", [{}, {"id": 7}, {"score": 0.5, "source": "web"}])
def test_a_list_of_conversations_is_one_whatever_columns_stand_beside(column):
    record = {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}], **column}
    data = json.dumps([record, record]).encode()
    (found,) = transcripts.detect(data)
    assert (found.file_format, found.confidence) == ("openai_messages", 0.7)
    file_format = transcripts.get(found.file_format)
    sessions = file_format.read(data)
    assert [[entry.message.text for entry in each.thread.entries if entry.message.text] for each in sessions] == [
        ["hello", "hi"]
    ] * 2
    assert file_format.write_many(sessions).body == data


@pytest.mark.finding("F-76")
def test_a_pi_session_whose_header_is_gone_is_read():
    whole = (FOLDER / "pi" / "branches.jsonl").read_bytes()
    data = whole.partition(b"\n")[2]
    (found,) = transcripts.detect(data, "x.jsonl")
    assert found.file_format == "pi"
    file_format = transcripts.get("pi")
    ((given,), (left,)) = (file_format.read(whole), file_format.read(data))
    assert session_of(left.metadata).id is None
    assert file_format.write(left).body == data
    texts = [entry.message.text for entry in left.thread.path() if entry.message.text]
    assert texts == [entry.message.text for entry in given.thread.path() if entry.message.text]


@pytest.mark.parametrize("data", ["session.jsonl", Path("session.jsonl"), None])
def test_what_is_not_bytes_is_refused_by_name(data):
    with pytest.raises(MessageError, match="data: expected bytes, got"):
        transcripts.get("claude_code").read(data)
    with pytest.raises(MessageError, match="data: expected bytes, got"):
        transcripts.detect(data)
    with pytest.raises(MessageError, match="transcript: expected Transcript, got"):
        transcripts.get("vercel_ui").write(data)
