"""The tools ``files``: read, list and write files of one folder.

Rules:

- A path means a place in the folder; what lies outside, also by way of a link, does not exist for the tools. Links are
  resolved before that is judged.
- Only plain files are read and written, text of at most a million bytes; a file is written whole or not at all.
- Reading is a read. Writing is a write: whoever runs the agent decides whether it is asked for.

Stability: experimental.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from palaver.agent.functions import function_tool
from palaver.agent.tool import AgentTool
from palaver.cli import files
from palaver.core.errors import ToolError

_LARGEST: Final = 1_000_000
_LISTED: Final = 500


def file_tools(folder: Path | None = None) -> tuple[AgentTool, ...]:
    """``read_file``, ``list_files`` and ``write_file`` for a folder, the one that one is in by default."""
    root = (folder or Path.cwd()).resolve()

    def read_file(path: Annotated[str, "The file, seen from the working folder."]) -> str:
        """Read a text file."""
        place = _inside(root, path)
        if not place.is_file():
            raise ToolError(f"{path}: no such file")
        try:
            if place.stat().st_size > _LARGEST:
                raise ToolError(f"{path}: larger than {_LARGEST:,} bytes")
            return place.read_bytes().decode()
        except UnicodeDecodeError:
            raise ToolError(f"{path}: not text") from None
        except OSError as error:
            raise _refused(path, error) from None

    def list_files(path: Annotated[str, "The folder, seen from the working folder."] = ".") -> str:
        """List the files and folders in a folder; folders end in a slash."""
        place = _inside(root, path)
        if not place.is_dir():
            raise ToolError(f"{path}: no such folder")
        try:
            names = sorted(f"{each.name}/" if each.is_dir() else each.name for each in place.iterdir())
        except OSError as error:
            raise _refused(path, error) from None
        more = [f"… and {len(names) - _LISTED:,} more"] if len(names) > _LISTED else []
        return "\n".join(names[:_LISTED] + more) or "(empty)"

    def write_file(
        path: Annotated[str, "The file, seen from the working folder."],
        content: Annotated[str, "All that the file is to hold."],
    ) -> str:
        """Write a text file, in place of what it held before. Its folder must exist."""
        place = _inside(root, path)
        if place.exists() and not place.is_file():
            raise ToolError(f"{path}: not a file")
        try:
            data = content.encode()
            files.write(str(place), data)
        except UnicodeEncodeError:
            raise ToolError(f"{path}: the content holds half a character") from None
        except OSError as error:
            raise _refused(path, error) from None
        return f"{path}: {len(data):,} bytes written"

    return (
        function_tool(read_file, effect="read"),
        function_tool(list_files, effect="read"),
        function_tool(write_file, repeatable=True),
    )


def _inside(root: Path, path: str) -> Path:
    try:
        place = (root / path).resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle, a name that cannot be
        raise ToolError(f"{path!r}: no such place") from None
    if not place.is_relative_to(root):
        raise ToolError(f"{path}: outside of the working folder")
    return place


def _refused(path: str, error: OSError) -> ToolError:
    return ToolError(f"{path}: {(error.strerror or type(error).__name__).lower()}")
