"""The table of signatures against the recognisers: it never leaves out a format that would have claimed a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from palaver import transcripts
from palaver.transcripts.ag_ui.shapes import EVENTS
from palaver.transcripts.claude_code.shapes import KEYS as CLAUDE_KEYS, SESSION
from palaver.transcripts.codex.shapes import ITEMS, TYPES as CODEX_TYPES
from palaver.transcripts.detection import MARGIN, Detected, Head, candidates, features
from palaver.transcripts.langchain.shapes import CLASSES
from palaver.transcripts.openai_agents.shapes import TYPES as ITEM_TYPES
from palaver.transcripts.otel_genai.shapes import PARTS
from tests.generated import examples
from tests.transcripts.samples import FILES, IDS
from tests.transcripts.test_detection import FILES as RECORDS

NAMES = transcripts.names()
ROLLOUT = "rollout-2026-01-02T03-04-05-0199a213-81c0-7800-8aa1-bbab2a035a53.jsonl"
SAMPLES = [pytest.param(path, id=each) for (_, path), each in zip(FILES, IDS, strict=True)]


def ask_every_format(head: Head) -> list[Detected]:
    """Detection without the table: all that claim a file, the surest first."""
    answers = [(each, transcripts.get(each).detector(head)) for each in NAMES]
    found = [Detected(each, seen.version, seen.confidence) for each, seen in answers if seen is not None]
    return sorted(found, key=lambda each: -each.confidence)


def assert_the_same(data: bytes, name: str = "x.json") -> None:
    head = Head(data, name)
    found = ask_every_format(head)
    assert {each.file_format for each in found} <= set(candidates(head, NAMES)), features(head)
    surest = [each for each in found if each.confidence >= found[0].confidence - MARGIN]
    assert list(transcripts.detect(data, name)) == surest


@pytest.mark.parametrize("path", SAMPLES)
def test_detection_of_a_sample_equals_asking_every_format(path):
    data = path.read_bytes()
    assert_the_same(data, path.name)
    for size in (1, 40, 400, len(data) // 2, len(data) - 2):
        assert_the_same(data[:size], path.name)
        assert_the_same(data[size:], path.name)
    lines = data.split(b"\n")
    for line in lines[:40]:
        assert_the_same(line, path.name)
        assert_the_same(b"[" + line.rstrip(b", \r") + b"]", path.name)
        assert_the_same(b"\n\n" + line + b",\n" + line, path.name)


@pytest.mark.skipif("PALAVER_CORPUS" not in os.environ, reason="needs the corpus")
def test_detection_of_the_corpus_equals_asking_every_format():
    for path in sorted(Path(os.environ["PALAVER_CORPUS"]).rglob("*.json*")):
        with path.open("rb") as file:
            data = file.read(1 << 16)
        assert_the_same(data, path.name)


PARTS_OF_FORMATS = {
    *EVENTS, *CLAUDE_KEYS, *SESSION, *ITEMS, *CODEX_TYPES, *CLASSES, *CLASSES.values(), *ITEM_TYPES, *PARTS,
    *(f"{each}Chunk" for each in CLASSES.values()),
    "session", "message", "gemini", "eval", "constructor", "MESSAGES_SNAPSHOT", "tool-invocation", "tool-result",
    "session/update", "uri", "x",
}  # fmt: skip
ROLES = "user assistant system developer tool function human ai reasoning activity rescue data model".split()  # noqa: SIM905
OWN = """
agentName mode toolCalls toolName toolCallId metadata contents sentAt tags timeToLive timestamp uuid parentUuid
sessionId leafUuid messageId isSidechain payload instructions id parentId cwd harness schema_version steps step_id
source conversations from value custom_id body preferred_output input instruction output chosen rejected prompt
completion
messages parts toolInvocations createdAt lc kwargs data content type role additional_kwargs response_metadata
gen_ai.input.messages attributes events resourceSpans info location $set $rewindTo projectHash systemPayload message
eval plan samples version status task model threadId runId protocolVersion encryptedValue subagentRunId activityType
sessionUpdate update params jsonrpc method __enc__ $schemaVersion generated_items original_input call_id name summary
result response server_tool_call server_tool_call_response file_id uri values channel_values sessionState state text url
tool_calls tool_call_id reasoning images systemPayload
""".split()  # noqa: SIM905
WORDS = st.sampled_from(sorted(PARTS_OF_FORMATS))
LEAVES = st.one_of(WORDS, st.sampled_from(ROLES), st.sampled_from([None, 1, True, "ses_1", "ATIF-v1.4"]))
INNER = st.recursive(
    LEAVES,
    lambda each: st.lists(each, max_size=2) | st.dictionaries(st.sampled_from(OWN), each, max_size=5),
    max_leaves=12,
)


@st.composite
def records(draw: st.DrawFn) -> dict[str, object]:
    """Make an object with keys and words that formats tell themselves by."""
    record = draw(st.dictionaries(st.sampled_from(OWN), INNER, max_size=6))
    if draw(st.booleans()):
        record["type"] = draw(WORDS)
    if draw(st.booleans()):
        record["role"] = draw(st.sampled_from(ROLES))
    return record


ROWS = st.lists(records(), min_size=1, max_size=3)
MADE = st.one_of(
    RECORDS,
    ROWS.map(lambda rows: json.dumps(rows).encode()),
    ROWS.map(lambda rows: json.dumps({"messages": rows}).encode()),
    ROWS.map(lambda rows: json.dumps(rows[0], indent=1).encode()),
    ROWS.map(lambda rows: json.dumps([rows]).encode() + b"\n" + json.dumps(rows).encode()),
    ROWS.map(lambda rows: b"data: " + json.dumps(rows[0]).encode() + b"\n\n"),
    ROWS.map(lambda rows: b"\n".join(json.dumps(each).encode() for each in rows)),
)


@settings(deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
@given(MADE, st.sampled_from(["x.json", "x.jsonl", ROLLOUT, "log.eval"]), st.integers(0, 12))
def test_detection_of_made_records_equals_asking_every_format(data, name, cut):
    assert_the_same(data, name)
    assert_the_same(data[: len(data) - cut], name)


TYPES = sorted(PARTS_OF_FORMATS)


@pytest.mark.parametrize("every_role", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("word", TYPES)
def test_every_word_of_a_format_is_in_the_table(word, every_role):
    """A record of each type alone, and with all keys that a format may ask for beside it.

    One role stands in each record; words that follow each other have different ones.
    """
    for few in (
        {},
        {"content": "x"},
        {"data": {"content": "x"}},
        {"sessionId": "x"},
        {"uri": "x"},
        {"example": 1, "content": "x"},
    ):
        assert_the_same(json.dumps([{"type": word, **few}]).encode())
        assert_the_same(json.dumps({"type": word, **few}).encode(), ROLLOUT)
    every = dict.fromkeys(OWN, "x") | {"type": word}
    for key in ("content", "parts", "messages", "steps", "contents"):
        assert_the_same(json.dumps([every | {key: [{"type": word, "content": "x"}]}]).encode())
    for turn, gone in enumerate(("role", "payload", "uuid", "lc", "timestamp", "content", "parts"), TYPES.index(word)):
        left = {key: value for key, value in every.items() if key != gone}
        for role in ROLES if every_role else (ROLES[turn % len(ROLES)],):
            assert_the_same(json.dumps([left | {"role": role}]).encode())
        assert_the_same(json.dumps(left).encode() + b"\n" + json.dumps(left).encode(), ROLLOUT)


COUNT = """
import sys
from palaver import transcripts
data = sys.stdin.buffer.read()
found = transcripts.detect(data, sys.argv[1])
formats = {name.split(".")[2] for name in sys.modules if name.startswith("palaver.transcripts.")}
print(*sorted(formats & {*map(str.strip, sys.argv[2].split(","))}))
"""
CHAT = json.dumps(
    {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "When?"}]},
            {"role": "assistant", "content": "At 18:42."},
        ],
        "tools": [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}],
    }
)


def imported(data: bytes, name: str) -> set[str]:
    packages = {transcripts._FORMATS[each].split(".")[2] for each in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", COUNT, name, ",".join(packages)], input=data, capture_output=True, check=True
    )
    return set(done.stdout.decode().split())


def test_detection_of_a_chat_request_imports_one_format():
    assert imported(CHAT.encode(), "chat.json") == {"openai_messages"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.share(3)
def test_detection_imports_few_formats(name):
    paths = [path for each, path in FILES if each == name]
    if paths:
        assert len(imported(paths[0].read_bytes(), paths[0].name)) <= 5
