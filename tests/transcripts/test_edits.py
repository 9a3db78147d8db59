"""Edit anything, in every transcript format: the edit is what is read again, or it stands on the receipt."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec import UNSET, structs

import palaver as p
from palaver import transcripts
from palaver.core import canonical, jsontext
from palaver.core.errors import EncodeError
from palaver.core.messages import BOOKKEEPING, AssistantMessage, FlushMarker, RescueMarker, ToolMessage
from palaver.core.parts import Image, Json, Reasoning, Text, ToolCall, Url
from palaver.core.usage import Usage
from palaver.store.sqlite import SQLiteStore
from palaver.threads.thread import Entry, Thread
from palaver.transcripts import documents, original_bytes
from palaver.transcripts.conversation import COMPACTION, Transcript
from palaver.transcripts.edits import LEAST_TEXT
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record
from tests.corpus import CORPUS
from tests.generated import examples
from tests.transcripts.samples import FILES, opening, origin

SESSIONS = [
    (folder.name, path)
    for folder in sorted((CORPUS / "sessions").glob("*"))
    for path in sorted(folder.rglob("*"))
    if path.is_file() and path.suffix in {".json", ".jsonl", ".txt"}
]
EVERY = [(name, path) for name, path in (*FILES, *SESSIONS) if transcripts.get(name).record_writer is not None]
MISSING = pytest.mark.skip(reason="the sessions of the corpus are absent; PALAVER_CORPUS names its folder")
REAL = [pytest.param(name, path, id=f"{name}/{path.name}") for name, path in SESSIONS] or [
    pytest.param(None, None, id="no-corpus", marks=MISSING)
]
NAMES = sorted({name for name, _ in EVERY})

each_format = pytest.mark.parametrize("name", NAMES)
a_few = settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))


# -- edits -------------------------------------------------------------------------------------------------------------


def changed_part(message, kind, change):
    """The message with the first part of a kind changed; ``None`` without one."""
    for place, part in enumerate(message.content):
        if isinstance(part, kind) and (new := change(part)) is not None:
            return message.replace(content=(*message.content[:place], new, *message.content[place + 1 :]))
    return None


def of_call(**changes):
    def change(call):
        return None if call.provider_executed or call.custom else call.replace(**changes)

    return lambda message, _: changed_part(message, ToolCall, change)


def of_answer(field, value):
    def change(message, _):
        return message.replace(**{field: value(message)}) if isinstance(message, AssistantMessage) else None

    return change


def one_more(usage):
    return structs.replace(usage or Usage(), output=((usage or Usage()).output or 0) + 5)


def unless_marker(change):
    return lambda message, text: None if isinstance(message, (FlushMarker, RescueMarker)) else change(message, text)


EDITS = {
    "text": lambda message, text: changed_part(message, Text, lambda part: part.replace(text=text)),
    "reasoning": lambda message, text: changed_part(
        message, Reasoning, lambda part: part.replace(text=text) if part.text else None
    ),
    "json": lambda message, text: changed_part(
        message, Json, lambda part: structs.replace(part, value_json=jsontext.raw({"edited": [text]}))
    ),
    "arguments": of_call(arguments_json='{"edited":[1,null]}'),
    "name": of_call(name="edited_name"),
    "add": unless_marker(lambda message, text: message.replace(content=(*message.content, Text(text)))),
    "remove last": lambda message, _: message.replace(content=message.content[:-1]) if message.content[1:] else None,
    "remove first": lambda message, _: message.replace(content=message.content[1:]) if message.content[1:] else None,
    "is_error": lambda message, _: (
        message.replace(is_error=not message.is_error) if isinstance(message, ToolMessage) else None
    ),
    "finish_reason": of_answer(
        "finish_reason", lambda message: "length" if message.finish_reason != "length" else "stop"
    ),
    "model": of_answer("model", lambda _: "edited-model"),
    "usage": of_answer("usage", lambda _: Usage(input=7, output=5)),
    "counter": of_answer("usage", lambda message: one_more(message.usage)),
    "metadata": lambda message, text: message.replace(metadata={"edited": [text]}),
    "sent_at": lambda message, _: message.replace(sent_at=(message.sent_at or 1_767_323_045_000) + 61_001),
    "tags": lambda message, _: message.replace(tags=(*message.tags, "edited")),
}
FIELDS = {
    "finish_reason": ("finish reason", "finish reason raw"),
    "counter": ("usage",),
    "sent_at": ("sent at",),
    "is_error": ("is error", "tool"),
}
"""The names of what an edit changes, as receipts have them, where they are not that of the edit."""
OF_CONTENT = frozenset(("text", "reasoning", "json", "arguments", "name", "add", "remove last", "remove first"))
VALUES = {
    "finish_reason": "finish_reason",
    "model": "model",
    "usage": "usage",
    "counter": "usage",
    "sent_at": "sent_at",
}


@cache
def read(name, path):
    return transcripts.get(name).read(path.read_bytes(), origin(path))


def spoken(sessions):
    return [entry for each in sessions for entry in each.thread.entries if not is_record(entry)]


def rebuilt(transcript, change):
    thread = Thread(transcript.thread.id)
    entries = [Entry(each.id, each.parent, change(each)) for each in transcript.thread.entries]
    thread.add(entries, dict(transcript.thread.branches))
    return Transcript(thread, transcript.title, transcript.metadata, transcript.unread)


def through_json(message):
    return p.loads(p.dumps(message))


def through_store(sessions):
    with TemporaryDirectory() as folder, SQLiteStore(Path(folder) / "threads.db") as store:
        for each in sessions:
            store.add(each.thread.id, each.thread.entries, branches=each.thread.branches)
        return [Transcript(store.load(each.thread.id), each.title, each.metadata, each.unread) for each in sessions]


def bare(message):
    """What a message says: without ids, and without what only a transcript format keeps of its parts."""
    plain = structs.replace(without_records(message), id=None)
    return structs.replace(plain, content=tuple(map(bare_part, message.content)))


def bare_part(part):
    stored = {name: each for name, each in part.provider.items() if not name.startswith(BOOKKEEPING)}
    if len(stored) == len(part.provider):
        return part
    return part.replace(provider=stored) if stored else structs.replace(part, provider_json=UNSET)


def values(message):
    """What a message says, as bytes; how a wire found it written does not count."""
    told = jsontext.value(canonical.encode(bare(message)))
    for each in (told, *told.get("content", ())):
        kept = {
            wire: {key: one for key, one in stored.items() if not key.startswith("@@")}
            for wire, stored in each.pop("provider", {}).items()
        }
        each["provider"] = {wire: stored for wire, stored in kept.items() if stored}
    return jsontext.normal(jsontext.encode(told))


def named(losses):
    """All that losses name."""
    return {name.strip() for loss in losses for name in loss.what.replace("_", " ").replace(" and ", ",").split(",")}


# -- what has to hold --------------------------------------------------------------------------------------------------


def check(name, path, kind, place, *, text="An edited text.", way="as it is"):
    """Edit message ``place`` of a file, write it, read it again. False where there is no such edit."""
    file_format, sessions = transcripts.get(name), read(name, path)
    entries = spoken(sessions)
    entry = entries[place % len(entries)]
    new = EDITS[kind](entry.message, text)
    if new is None:
        return False
    owner = next(
        number for number, each in enumerate(sessions) if entry.id in each.thread and entry in each.thread.entries
    )
    given = [
        rebuilt(each, lambda one: new if one.id == entry.id else one.message) if number == owner else each
        for number, each in enumerate(sessions)
    ]
    if way == "json":
        given = [rebuilt(each, lambda one: through_json(one.message)) for each in given]
    elif way == "store":
        given = through_store(given)
    try:
        written = file_format.write_many(given)
    except EncodeError:
        return True  # what is not written anew at all is refused
    check_other_records(name, sessions, entry, written)
    again = spoken(file_format.read(written.body, origin(path)))
    check_others(entry, entries, again, written)
    check_edit(kind, entry, new, found_again(entry, new, entries, again), written)
    return True


def check_other_records(name, sessions, entry, written):
    """Records of other messages are in the file byte for byte, in their order. What frames a document has sums.

    A list that tells the edited message again has the others as they were.
    """
    for each in sessions:
        place = 0
        for number, raw in sorted(records_of_others(name, each, entry)):
            found = written.body.find(raw.strip(b" ,\t\r\n"), place)
            if found < 0 and (told := list_of(raw)) is not None and any(item["id"] == entry.id for item in told):
                after = [list_of(line) for line in written.body[place:].splitlines()]
                assert [item for item in told if of_another(item, entry)] in [
                    [item for item in list_ if of_another(item, entry)] for list_ in after if list_ is not None
                ]
                continue
            assert found >= 0, (number, raw)
            place = found


def list_of(raw):
    """The list of messages that an event of AG-UI holds."""
    if not raw.strip().startswith(b'{"type"'):
        return None
    event = json.loads(raw)
    return event.get("messages", event.get("input", {}).get("messages"))


def of_another(item, entry):
    """Whether an item is of another message; reasoning has an id of its own and belongs to the answer behind it."""
    own = item["id"] == entry.id or item["id"].startswith(f"{entry.id}-")
    return not (own or (item["role"] == "reasoning" and entry.message.role == "assistant"))


def records_of_others(name, transcript, edited):
    entries = list(transcript.thread.entries)
    leads = [number for number, each in enumerate(entries) if original_bytes.leads(each.message, name)]
    for start in leads:
        first = original_bytes.numbers_of(entries[start].message, name)[0]
        group = [entries[start], *(each for each in entries if original_bytes.follows(each.message, name) == first)]
        if edited in group:
            continue
        for piece in original_bytes.records_of(name, [each.message for each in group]) or ():
            if piece.at not in {0, documents.TAIL} or b"\n" not in piece.raw.strip():
                if piece.at == documents.TAIL or (piece.at == 0 and not jsontext.is_json(piece.raw.strip())):
                    continue
                yield piece.at, piece.raw


def check_others(entry, entries, again, written):
    """No other message is lost, unless the receipt says so."""
    receipt = named(written.losses)
    if "edit" not in receipt and entry.message.role not in receipt:
        others = Counter(others_say(each.message) for each in entries if each is not entry)
        lost = others - Counter(others_say(each.message) for each in again)
        assert receipt or not lost.keys() - {b""}


def found_again(entry, new, entries, again):
    """The message with its id, or in its place: a record that repeats another may have taken the id."""
    by_id = {each.id: each.message for each in again}
    place = entries.index(entry)
    found = [by_id.get(entry.id), again[place].message if len(again) == len(entries) else None]
    known = [each for each in found if each is not None]
    return next((each for each in known if values(each) == values(new)), next(iter(known), None))


def check_edit(kind, entry, new, found, written):
    """What is read is the edit, or the receipt names it; it is not what was there before."""
    old, receipt = entry.message, named(written.losses)
    if found is not None and values(found) == values(new):
        return
    wanted = {"edit", old.role, *FIELDS.get(kind, (kind,)), "provider"}
    if kind in OF_CONTENT:
        parts = {str(type(part).__struct_config__.tag) for part in (*old.content, *new.content)}
        wanted = {"edit", old.role, "content", *(each.replace("_", " ") for each in parts)}
    assert receipt & wanted or any(loss.part is not None for loss in written.losses), (kind, receipt, found, new)
    if "edit" in receipt or old.source == COMPACTION or type(found) is not type(new):
        return  # other records of the file repeat the message, and the receipt says so
    if kind == "add" and new.content[-1] == Text(""):
        return  # a format that joins texts shows no empty one, and the receipt says so
    if kind in OF_CONTENT and values(old) != values(new):
        assert bare(found).content != bare(old).content, (kind, found)
    elif kind in VALUES and (before := getattr(old, VALUES[kind])) is not None:
        assert getattr(found, VALUES[kind]) != before, (kind, found, written.losses)


def others_say(message):
    """What a message says, but for what a result has from its call and a copy from what was copied."""
    plain = bare(message)
    if plain.source == COMPACTION:
        return b""
    return values(structs.replace(plain, tool_name=None) if isinstance(plain, ToolMessage) else plain)


# -- edits -------------------------------------------------------------------------------------------------------------


@pytest.mark.law(2)
@each_format
@pytest.mark.hypothesis
def test_an_edit_is_what_is_read_again_or_on_the_receipt(name):
    files = [path for each, path in FILES if each == name and spoken(read(each, path))]

    @a_few
    @given(
        path=st.sampled_from(files),
        kind=st.sampled_from(sorted(EDITS)),
        place=st.integers(0, 40),
        text=st.sampled_from(["An edited text.", "", 'a\nb \u2028 \\ " é 😀', "x" * 100]),
        way=st.sampled_from(["as it is"] * 5 + ["json"] * 2 + ["store"]),
    )
    def edited(path, kind, place, text, way):
        check(name, path, kind, place, text=text, way=way)

    edited()


@pytest.mark.law(2)
@pytest.mark.parametrize("lines", [150, pytest.param(None, marks=pytest.mark.long)])
@pytest.mark.parametrize(("name", "path"), REAL)
def test_edits_of_the_sessions_of_real_programs(name, path, lines, tmp_path):
    beginning = tmp_path / path.name
    beginning.write_bytes(opening(path, lines))
    chance, path = random.Random(name), beginning
    for kind, way in (("text", "json"), *((kind, "as it is") for kind in chance.sample(sorted(EDITS), 3))):
        check(name, path, kind, chance.randrange(1000), way=way)


@pytest.mark.law(2)
@pytest.mark.long
@each_format
def test_every_edit_of_every_message(name):
    for path in [path for each, path in FILES if each == name]:
        for place, kind in itertools.product(range(len(spoken(read(name, path)))), EDITS):
            check(name, path, kind, place)


@pytest.mark.law(2)
@each_format
def test_a_time_given_by_a_thread_is_no_edit(name):
    """Threads stamp what is appended to them: the file stays as it is, and the receipt names the times."""
    file_format = transcripts.get(name)
    for path in [path for each, path in FILES if each == name]:
        sessions = read(name, path)
        untimed = [each for each in spoken(sessions) if each.message.sent_at is None]
        if len(untimed) < len(spoken(sessions)) or not untimed:
            continue
        stamped = [
            rebuilt(each, lambda one: one.message if is_record(one) else one.message.replace(sent_at=1_767_323_045_000))
            for each in sessions
        ]
        written = file_format.write_many(stamped)
        assert written.body == file_format.write_many(sessions).body
        assert {loss.what for loss in written.losses} == {"sent at"}


def test_a_slot_says_what_the_lines_around_a_record_do_not():
    """A model that a line before the answer names, and its cost in a line behind it, are edited in the answer."""
    path = next(path for name, path in FILES if name == "codex" and path.name == "everything.jsonl")
    file_format = transcripts.get("codex")
    (transcript,) = read("codex", path)
    entry = next(each for each in spoken([transcript]) if getattr(each.message, "usage", None))
    new = entry.message.replace(model="another", usage=None)
    written = file_format.write(rebuilt(transcript, lambda one: new if one.id == entry.id else one.message))
    (again,) = file_format.read(written.body)
    assert values(again.thread.entry(entry.id).message) == values(new)
    without = file_format.write(
        rebuilt(transcript, lambda one: new if one.id == entry.id else one.message), carry=False
    )
    assert {"model", "usage"} <= named(without.losses)


def test_an_edited_image_of_a_column_is_not_that_of_the_column():
    path = next(path for name, path in FILES if name == "openai_messages" and path.name == "images.jsonl")
    first, *_ = read("openai_messages", path)
    other = Image(Url("https://example.org/other.png"), media_type="image/png")

    def change(entry):
        content = [
            part.replace(source=other.source) if isinstance(part, Image) else part for part in entry.message.content
        ]
        return entry.message.replace(content=content) if content else entry.message

    written = transcripts.get("openai_messages").write(rebuilt(first, change))
    again, *_ = transcripts.get("openai_messages").read(written.body)
    assert [image.source for entry in spoken([again]) for image in getattr(entry.message, "images", ())] == [
        other.source
    ]


# -- what was there before ---------------------------------------------------------------------------------------------


def all_strings(data):
    """Every text of a file: its lines, its JSON strings, and those of JSON that strings hold."""
    found, waiting = [], [data.decode("utf-8", "replace")]
    while waiting:
        text = waiting.pop()
        found.append(text)
        if '"' in text:
            for match in re.finditer(r'"((?:[^"\\]|\\.)+)"', text):
                try:
                    waiting.append(json.loads(match[0], strict=False))
                except ValueError:
                    continue
    return found


def redacted(transcript, old):
    """The transcript with a text replaced wherever a message says it."""

    def change(entry):
        if is_record(entry):
            return entry.message
        parts = [
            part.replace(text="ZZ") if isinstance(part, Text) and part.text == old else part
            for part in entry.message.content
        ]
        return entry.message if tuple(parts) == entry.message.content else entry.message.replace(content=parts)

    return rebuilt(transcript, change)


@pytest.mark.law(2)
@each_format
def test_a_redacted_text_is_gone_or_on_the_receipt(name):
    file_format = transcripts.get(name)
    for path in [path for each, path in FILES if each == name]:
        sessions = read(name, path)
        texts = {part.text for entry in spoken(sessions) for part in entry.message.content if isinstance(part, Text)}
        for old in sorted(text for text in texts if len(text) >= LEAST_TEXT):
            edited = [redacted(each, old) for each in sessions]
            try:
                written = file_format.write_many(edited)
            except EncodeError:
                continue  # what is not written anew at all is refused
            others = [bare(entry.message) for entry in spoken(edited)]
            if any(old in text for text in all_strings(b"[%s]" % b",".join(map(canonical.encode, others)))):
                continue  # a message still says it, as a part of another text
            if any(old in text for text in all_strings(written.body)):
                assert "edit" in named(written.losses), (path, old, written.losses)


@pytest.mark.parametrize(
    ("name", "file", "old"),
    [
        ("inspect", "log.json", "When is low tide at the north gauge"),
        ("acp", "full.jsonl", "I will read it."),
    ],
)
def test_an_old_text_in_records_of_other_kinds_is_on_the_receipt(name, file, old):
    """An attachment, and a history that is told again."""
    (transcript, *_) = read(name, next(path for each, path in FILES if each == name and path.name == file))
    texts = [part.text for entry in spoken([transcript]) for part in entry.message.content if isinstance(part, Text)]
    written = transcripts.get(name).write(redacted(transcript, next(text for text in texts if old in text)))
    assert old.encode() in written.body
    (loss,) = [loss for loss in written.losses if loss.what == "edit"]
    assert loss.kind == "approximated"
    assert "still have the old text" in loss.why


# -- without the bytes -------------------------------------------------------------------------------------------------


@pytest.mark.law(2)
@pytest.mark.parametrize(("name", "path"), EVERY, ids=[f"{name}-{path.name}" for name, path in EVERY])
def test_without_its_bytes_a_file_says_the_same(name, path):
    """What the messages say is enough to write a file that says it again; what it cannot say is on the receipt."""
    file_format = transcripts.get(name)
    if file_format.record_reader is None:
        return
    for transcript in read(name, path):
        plain = rebuilt(transcript, lambda entry: original_bytes.bare(entry.message, name))
        mine = [entry for entry in plain.thread.path() if not is_record(entry)]
        if not mine:
            continue
        written = file_format.write(plain, history=None if file_format.tree else "all")
        (back,) = file_format.read(written.body, origin(path))
        theirs = spoken([back]) if file_format.tree else [e for e in back.thread.path() if not is_record(e)]
        mine = spoken([plain]) if file_format.tree else mine
        check_said(mine, theirs, written)


def check_said(mine, theirs, written):
    """Each message is said again, but for what the receipt names of it, or of all."""
    everywhere = named([loss for loss in written.losses if loss.message is None])
    left = list(theirs)
    for number, entry in enumerate(mine):
        names = named([loss for loss in written.losses if loss.message == number])
        wanted = values(entry.message)
        found = next((each for each in left if values(fit(each.message, entry.message, everywhere)) == wanted), None)
        if found is None:
            assert names, (entry.message, written.losses)
        else:
            left.remove(found)
    assert len(left) <= len([loss for loss in written.losses if loss.message is not None])


def fit(read_again, message, lost):
    """What was read, without what its format gives a message that has none, and with what the receipt names of all."""
    if type(read_again) is not type(message):
        return read_again
    given = {field.name: getattr(message, field.name) for field in structs.fields(message) if plainly(field) in lost}
    if message.sent_at is None:
        given["sent_at"] = None  # every record of the format has a time
    if getattr(message, "tool_name", None) is not None and read_again.tool_name is None:
        given["tool_name"] = message.tool_name  # its call says it
    return structs.replace(read_again, **given)


def plainly(field):
    return field.name.removesuffix("_json").replace("_", " ")
