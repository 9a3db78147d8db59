"""What we write is what the types of opencode's SDK say, without a key that they do not know."""

from __future__ import annotations

import json
import re

import pytest

from palaver import transcripts
from palaver.core import canonical
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record
from tests.transcripts.peers import node
from tests.transcripts.samples import FILES, FOLDER, origin

OPENCODE = transcripts.get("opencode")
ID = {
    "ses": re.compile(r"ses_[0-9a-f]{12}\w{14}"),
    "msg": re.compile(r"msg\w+"),
    "prt": re.compile(r"prt_[0-9a-f]{12}\w{14}"),
}


def written(history):
    """Every conversation of every file, written as one from elsewhere."""
    for name, path in FILES:
        for number, transcript in enumerate(transcripts.get(name).read(path.read_bytes(), origin(path))):
            messages = [without_records(entry.message) for entry in transcript.thread.path() if not is_record(entry)]
            yield f"{name}-{path.name}-{number}", OPENCODE.write(transcript_of(messages), history=history).body


@pytest.mark.parametrize("history", ["model", "user", "all"])
def test_the_types_of_the_sdk_take_what_is_written(history):
    node.needed("@opencode-ai/sdk", "typescript")
    names, bodies = zip(*written(history), strict=True)
    said = node.run("opencode.mjs", given=b"[%s]" % b",".join(bodies))
    assert {name: each for name, each in zip(names, said, strict=True) if each} == {}


def test_the_compiler_sees_what_is_wrong():
    node.needed("@opencode-ai/sdk", "typescript")
    export = json.loads((FOLDER / "opencode" / "reverted.json").read_bytes())
    wrong = json.loads((FOLDER / "opencode" / "reverted.json").read_bytes())
    wrong["messages"][0]["parts"][0]["unknown"] = 1
    del wrong["messages"][1]["info"]["parentID"]
    said = node.run("opencode.mjs", given=[export, wrong])
    assert said[0] == ""
    assert "unknown" in said[1]


@pytest.mark.parametrize("history", ["model", "all"])
def test_ids_have_their_prefixes_and_grow(history):
    for _, body in written(history):
        export = json.loads(body)
        assert ID["ses"].fullmatch(export["info"]["id"])
        times = [message["info"]["time"]["created"] for message in export["messages"]]
        assert times == sorted(times)
        parts = [part for message in export["messages"] for part in message["parts"]]
        assert all(ID["msg"].fullmatch(message["info"]["id"]) for message in export["messages"])
        assert [part["id"] for part in parts] == sorted({part["id"] for part in parts})
        assert all(ID["prt"].fullmatch(part["id"]) for part in parts)
        for message in export["messages"]:
            assert {part["messageID"] for part in message["parts"]} <= {message["info"]["id"]}
            assert {part["sessionID"] for part in message["parts"]} <= {export["info"]["id"]}


def test_opencode_imports_what_is_written_and_exports_it_as_it_was(tmp_path):
    """The program itself: every message of every file, in one conversation."""
    node.needed("opencode-ai")
    messages = [
        without_records(entry.message).replace(id=None)
        for name, path in FILES
        if path.name != "odd.json"  # 2**70, which is no number of JavaScript
        for transcript in transcripts.get(name).read(path.read_bytes(), origin(path))
        for entry in transcript.thread.path()
        if not is_record(entry)
    ]
    body = OPENCODE.write(transcript_of(messages), history="all").body
    (tmp_path / "export.json").write_bytes(body)
    (tmp_path / "project").mkdir()
    session = json.loads(body)["info"]["id"]
    node.program(tmp_path, ".bin/opencode", "import", str(tmp_path / "export.json"))
    exported = node.program(tmp_path, ".bin/opencode", "export", session)
    assert json.loads(exported)["messages"] == json.loads(body)["messages"]
    (back,) = OPENCODE.read(exported)
    found = [without_records(entry.message) for entry in back.thread.path() if not is_record(entry)]
    assert [values_of(message) for message in found] == [values_of(message) for message in messages]


def values_of(message):
    """What a message says, as values: the program writes numbers and spaces of arguments its own way."""
    said = json.loads(canonical.encode(message.replace(id=None, sent_at=None)))
    for part in said.get("content", ()):
        if part["type"] == "tool_call" and part.get("arguments_json"):
            part["arguments_json"] = json.loads(part["arguments_json"])
    return said
