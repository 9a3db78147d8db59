"""A file that grows gives the messages that it has in the end, and at no time half a message."""

import io

import pytest

from palaver import transcripts
from palaver.store.import_files import FileImporter, _normalised
from palaver.store.memory import MemoryStore
from palaver.threads.view import RECORD
from palaver.transcripts.conversation import Joined
from palaver.transcripts.file_reader import steps_of
from palaver.transcripts.live_file import LiveFile
from tests.transcripts.samples import FILES, ids_of

AGENTS = ("claude_code", "codex", "gemini_cli", "qwen_code", "pi", "droid", "copilot_cli")
GROWING = [(name, path) for name, path in FILES if name in AGENTS and path.suffix == ".jsonl"]


def messages(steps):
    entries = [step.entry for step in steps if isinstance(step, Joined)]
    return {each.id: (each.parent, _normalised(each.message)) for each in entries if RECORD not in each.message.tags}


def live(data, **options):
    return LiveFile(io.BytesIO(data), **options)


@pytest.mark.parametrize(("name", "path"), GROWING, ids=ids_of(GROWING))
def test_every_beginning_has_only_messages_of_the_whole(name, path):
    file_format, data = transcripts.get(name), path.read_bytes()
    whole = messages(steps_of(file_format, io.BytesIO(data), str(path)))
    ends = [place + 1 for place, byte in enumerate(data) if byte == 10]
    for end in sorted({cut for each in ends for cut in (each, each - 1, each + 7)}):
        found = messages(live(data[:end]).steps(file_format, str(path)))
        assert [entry for entry, each in found.items() if whole.get(entry) != each] == []


@pytest.mark.parametrize(("name", "path"), GROWING, ids=ids_of(GROWING))
def test_a_file_that_was_read_in_pieces_is_the_file_that_was_read_once(name, path):
    file_format, data = transcripts.get(name), path.read_bytes()
    data = data[: data.rindex(b"\n") + 1]  # a torn end is not read
    with MemoryStore() as grown, MemoryStore() as once:
        importer = FileImporter(grown)
        for end in range(97, len(data), 97):
            file = live(data[:end])
            list(importer.add(file.steps(file_format, str(path)), None, str, lambda file=file: file.is_whole))
        list(importer.add(live(data, settled=True).steps(file_format, str(path))))
        list(FileImporter(once).add(steps_of(file_format, io.BytesIO(data), str(path))))
        (left,), (right,) = grown.threads(), once.threads()
        assert dict(right.branches).items() <= dict(left.branches).items()
        assert [each.id for each in grown.path(left.id)] == [each.id for each in once.path(right.id)]
        ids = [{each.id for each in store.read(left.id) if RECORD not in each.message.tags} for store in (grown, once)]
        assert ids[0] == ids[1]


def test_a_torn_line_waits_and_a_whole_one_without_a_break_does_not():
    first, second = b'{"type":"session","id":"s"}\n', b'{"type":"message","id":"a"}'
    for data, is_whole in ((first + second, True), (first + second[:-1], False), (first, True)):
        file = live(data, settled=True)
        list(file.steps(transcripts.get("pi")))
        assert file.is_whole is is_whole
