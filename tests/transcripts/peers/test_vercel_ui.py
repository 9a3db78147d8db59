"""The AI SDK takes what we write: every version validates it, converts it, and gives it to a model."""

from __future__ import annotations

import json

import pytest

from palaver import transcripts
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record
from tests.transcripts.peers import node
from tests.transcripts.samples import FILES, FOLDER, origin

PACKAGES = ("ai5", "ai6", "ai7")
VERCEL = transcripts.get("vercel_ui")


def written(history):
    """Every conversation of every file, from whatever format, as UI messages; those that say nothing are left out."""
    for name, path in FILES:
        if name == "vercel_ui":
            continue
        for number, transcript in enumerate(transcripts.get(name).read(path.read_bytes(), origin(path))):
            body = VERCEL.write(transcript, history=history).body
            if json.loads(body):
                yield f"{name}-{path.name}-{number}", body


@pytest.mark.parametrize("history", ["model", "user", "all"])
@pytest.mark.parametrize("package", PACKAGES)
def test_the_sdk_takes_what_is_written_from_every_format(package, history):
    node.needed(package)
    names, bodies = zip(*written(history), strict=True)
    results = node.run("vercel_ui.mjs", package, given=b"[%s]" % b",".join(bodies))
    failed = {name: result["error"] for name, result in zip(names, results, strict=True) if result["error"]}
    assert failed == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_sdk_takes_what_is_written_from_edited_and_foreign_messages(package):
    """Our own files, read, stripped of their records, and written anew."""
    node.needed(package)
    names, bodies = [], []
    for path in sorted((FOLDER / "vercel_ui").iterdir()):
        (transcript,) = VERCEL.read(path.read_bytes())
        copy = VERCEL.write(anew(transcript)).body
        if package != "ai7" and path.name == "version7.json":
            continue
        names.append(path.name)
        bodies.append(copy)
    results = node.run("vercel_ui.mjs", package, given=b"[%s]" % b",".join(bodies))
    assert {name: each["error"] for name, each in zip(names, results, strict=True) if each["error"]} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_model_is_given_the_same_from_the_file_and_from_what_we_write_anew(package):
    node.needed(package)
    bodies = []
    for name in ("chat.json", "providers.json"):
        data = (FOLDER / "vercel_ui" / name).read_bytes()
        (transcript,) = VERCEL.read(data)
        found = json.loads(data)
        bodies += [
            json.dumps(found if isinstance(found, list) else found["messages"]).encode(),
            VERCEL.write(anew(transcript)).body,
        ]
    results = node.run("vercel_ui.mjs", package, given=b"[%s]" % b",".join(bodies))
    assert [result["error"] for result in results] == [None] * 4
    for one, other in (results[:2], results[2:])[package == "ai5" :]:  # version 5 sends no denials; ours are results
        assert [said(message) for message in one["prompt"]] == [said(message) for message in other["prompt"]]


def anew(transcript):
    """The same conversation as if it came from elsewhere: without its records."""
    messages = [without_records(entry.message) for entry in transcript.thread.path() if not is_record(entry)]
    return transcript_of(messages)


def said(message):
    """What a message of a prompt says: without provider data, which we join for items of OpenAI."""
    content = message["content"]
    if isinstance(content, str):
        return message["role"], content
    held = [{key: each for key, each in part.items() if key != "providerOptions"} for part in content]
    return message["role"], [part for part in held if part["type"] != "reasoning"]
