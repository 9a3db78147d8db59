"""An export of opencode whose progress line went into the same file."""

# pyright: basic

from __future__ import annotations

import pytest

from palaver import transcripts
from tests.transcripts.samples import FOLDER

pytestmark = pytest.mark.finding("F-76")

OPENCODE = transcripts.get("opencode")


@pytest.mark.parametrize(
    "line", ["Exporting session: ses_1\n", "Exporting session: latest", "Exporting session: ses_1\r\n"]
)
@pytest.mark.parametrize("name", ["export.json", "version2.json"])
def test_an_export_is_read_behind_its_progress_line(line, name):
    whole = (FOLDER / "opencode" / name).read_bytes()
    data = line.encode() + whole
    (found,) = transcripts.detect(data, "session.json")
    assert found.file_format == "opencode"
    ((given,), (read,)) = (OPENCODE.read(whole), OPENCODE.read(data))
    assert [entry.message.text for entry in read.thread.path()] == [entry.message.text for entry in given.thread.path()]
    assert read.title == given.title
    assert OPENCODE.write(read).body == data
    first = next(entry for entry in read.thread.path() if entry.message.text)
    assert transcripts.get("atif").write(read).body == transcripts.get("atif").write(given).body
    assert first.message.text
