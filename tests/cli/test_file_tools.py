"""The tools `files` stay in their folder."""

import os

import pytest

from palaver.agent import Agent
from palaver.cli.agent_options import file_tools
from palaver.core.factories import assistant, tool_call
from palaver.models import ScriptedModel


@pytest.fixture
def call(tmp_path):
    """Call a tool through an agent whose folder has a file, a folder, and links that lead out of it."""
    folder = tmp_path / "work"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "a.txt").write_text("hello")
    (folder / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to(tmp_path)
    (folder / "loop").symlink_to("loop")
    (folder / "new.txt").symlink_to(tmp_path / "made.txt")
    (folder / "in.txt").symlink_to("a.txt")
    os.mkfifo(folder / "pipe")

    def call_(name, **arguments):
        model = ScriptedModel([assistant(tool_calls=[tool_call(name, arguments, id="c")]), "ok"])
        run = Agent(model, tools=file_tools(folder)).sync.run("go")
        result = next(each for each in run.messages if each.role == "tool")
        return result.is_error, result.text

    return call_


def test_files_are_read_listed_and_written(call, tmp_path):
    assert call("read_file", path="a.txt") == (False, "hello")
    assert call("read_file", path="in.txt") == (False, "hello")
    assert call("read_file", path=str(tmp_path / "work/a.txt")) == (False, "hello")
    assert call("list_files", path="sub") == (False, "(empty)")
    assert call("list_files") == (False, "a.txt\nin.txt\nloop\nnew.txt\nout.txt\npipe\nsub/\nup/")
    assert call("write_file", path="sub/b.txt", content="ö") == (False, "sub/b.txt: 2 bytes written")
    assert (tmp_path / "work/sub/b.txt").read_text("utf-8") == "ö"


@pytest.mark.parametrize(
    "path", ["../secret.txt", "out.txt", "up/secret.txt", "sub/../../secret.txt", "/etc/passwd", "loop", "pipe", "\0"]
)
def test_what_lies_outside_is_not_read_and_not_written(call, tmp_path, path):
    for tool, more in (("read_file", {}), ("write_file", {"content": "x"})):
        error, text = call(tool, path=path, **more)
        assert error
        assert "secret" not in text.replace("secret.txt", "")
    assert (tmp_path / "secret.txt").read_text() == "secret"


def test_a_link_to_what_is_not_there_yet_leads_nowhere(call, tmp_path):
    assert call("write_file", path="new.txt", content="x")[0]
    assert call("write_file", path="up/made.txt", content="x")[0]
    assert not (tmp_path / "made.txt").exists()


def test_what_is_no_text_or_no_file_is_said(call, tmp_path):
    (tmp_path / "work/b").write_bytes(b"\xff")
    (tmp_path / "work/large").write_bytes(b" " * 1_000_001)
    assert call("read_file", path="b") == (True, "b: not text")
    assert call("read_file", path="large") == (True, "large: larger than 1,000,000 bytes")
    assert call("read_file", path="sub") == (True, "sub: no such file")
    assert call("list_files", path="a.txt") == (True, "a.txt: no such folder")
    assert call("write_file", path="sub", content="x") == (True, "sub: not a file")
    assert call("write_file", path="none/x", content="x") == (True, "none/x: no such file or directory")
