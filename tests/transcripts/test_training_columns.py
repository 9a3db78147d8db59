"""Training data of LLaMA-Factory: ShareGPT and Alpaca records with one answer or two, and columns beside.

Source: docs/spec/dialects.md#4.
"""

# pyright: basic

from __future__ import annotations

import pytest

import palaver as p
from palaver import transcripts
from palaver.core import jsontext
from palaver.threads.thread import Entry, Thread
from palaver.transcripts.conversation import Transcript

CHAT = transcripts.get("openai_messages")
LANGCHAIN = transcripts.get("langchain")
HUMAN = {"from": "human", "value": "q"}
PAIR = {"chosen": {"from": "gpt", "value": "good"}, "rejected": {"from": "gpt", "value": "bad"}}
PREFERENCES = {
    "sharegpt": {"conversations": [HUMAN], **PAIR},
    "sharegpt-texts": {"conversations": [HUMAN], "chosen": "good", "rejected": "bad"},
    "sharegpt-lists": {"conversations": [HUMAN], "chosen": [PAIR["chosen"]], "rejected": [PAIR["rejected"]]},
    "messages": {
        "messages": [{"role": "user", "content": "q"}],
        "chosen": {"role": "assistant", "content": "good"},
        "rejected": {"role": "assistant", "content": "bad"},
    },
    "alpaca": {"instruction": "q", "input": "", "chosen": "good", "rejected": "bad"},
}
every_pair = pytest.mark.parametrize("record", PREFERENCES.values(), ids=PREFERENCES)


def read(*records):
    return CHAT.read(b"".join(jsontext.encode(each) + b"\n" for each in records))


def texts(transcript, branch="main"):
    return [(each.role, each.text) for each in transcript.thread.path(branch).messages]


@pytest.mark.finding("S-03")
@every_pair
def test_both_answers_are_read_the_rejected_one_as_a_branch(record):
    (transcript,) = read(record)
    assert texts(transcript) == [("user", "q"), ("assistant", "good")]
    assert texts(transcript, "branch-1") == [("user", "q"), ("assistant", "bad")]
    assert CHAT.detect(jsontext.encode(record)).confidence >= 0.8


@pytest.mark.finding("S-03")
@every_pair
@pytest.mark.parametrize("edited", ["q", "good", "bad"])
def test_an_edited_answer_is_written_where_it_stood(record, edited):
    (transcript,) = read(record)
    (place,) = [at for at, entry in enumerate(transcript.thread.entries) if entry.message.text == edited]
    thread = Thread(transcript.thread.id)
    for at, entry in enumerate(transcript.thread.entries):
        message = entry.message.replace(content=(p.Text("other"),)) if at == place else entry.message
        thread.add([Entry(entry.id, entry.parent, message)])
    thread.add((), transcript.thread.branches)
    written = CHAT.write(Transcript(thread, None, transcript.metadata))
    assert written.body == jsontext.encode(record).replace(b'"%b"' % edited.encode(), b'"other"') + b"\n"
    assert written.losses == ()


@pytest.mark.finding("S-03")
def test_alpaca_columns_are_a_conversation():
    record = {"instruction": "Translate", "input": "hello", "output": "hallo", "system": "S", "history": [["a", "b"]]}
    (transcript,) = read(record)
    expected = [
        ("system", "S"),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "Translate\nhello"),
        ("assistant", "hallo"),
    ]
    assert texts(transcript) == expected
    assert LANGCHAIN.write(transcript).losses == ()
    head = transcript.thread.path()[-1].id
    transcript.thread.add([Entry("u", head, p.user("Again")), Entry("a", "u", p.assistant("ok"))], {"main": "a"})
    (again,) = CHAT.read(CHAT.write(transcript).body)
    assert texts(again) == [*expected, ("user", "Again"), ("assistant", "ok")]


@pytest.mark.finding("S-03")
@pytest.mark.parametrize(
    ("record", "columns"),
    [
        ({"messages": [{"role": "user", "content": "q"}], "label": True, "id": "1"}, "label, id"),
        ({"conversations": [HUMAN], "tools": '[{"name": "x"}]', "images": ["a.png"]}, "tools, images"),
        ({"conversations": [HUMAN], "system": "S", "kto_tag": True, "videos": ["a.mp4"]}, "kto_tag, videos"),
        ({"instruction": "q", "output": "a", "kto_tag": False, "tools": "[]", "audios": []}, "kto_tag, tools"),
        ({"prompt": "q", "chosen": "a", "rejected": "b", "score": 1}, "score"),
        ({"prompt": "q", "completion": "a", "label": False, "note": None}, "label"),
        (
            {"input": {"messages": [{"role": "user", "content": "q"}], "tools": [{}]}, "preferred_output": "a"},
            "input.tools",
        ),
    ],
)
def test_columns_that_are_in_no_message_are_on_the_receipt_of_another_format(record, columns):
    (transcript,) = read(record)
    losses = {loss.what: loss.why for loss in LANGCHAIN.write(transcript).losses}
    assert losses["columns"] == f"{columns}: beside the messages of the record, in none of them"
    assert CHAT.write(transcript).losses == ()
    assert CHAT.write(transcript).body == jsontext.encode(record) + b"\n"


@pytest.mark.finding("S-03")
def test_a_record_with_a_label_is_training_data_and_no_request():
    record = {"messages": [{"role": "user", "content": "q"}]}
    assert CHAT.detect(jsontext.encode(record)).confidence < 0.7
    assert CHAT.detect(jsontext.encode({**record, "label": True})).confidence >= 0.7
