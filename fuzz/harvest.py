"""A plugin of pytest that keeps every stream and text that the tests read, as seeds. See README.md beside this file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaver import wires
from palaver.stream import argument_repair, event_stream, local
from palaver.stream.local.parser import Parser
from palaver.wires._engine.stream_decoder import StreamDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(os.environ.get("PALAVER_SEEDS", "build/fuzz-streams"))
LONGEST = 4000
_NUMBERS = {name: number for number, name in enumerate([*wires.names(), *local.names(), "repair"])}
_gathered: dict[int, tuple[Any, str, list[Any]]] = {}


def pytest_configure() -> None:
    """Listen to what is read."""
    _listen(StreamDecoder, lambda decoder: decoder.origin.partition(":")[0])
    _listen(Parser, _format_of)
    _listen_to_repair()


def _format_of(parser: Parser) -> str:
    found = parser._format  # noqa: SLF001 (a plugin listens inside)
    return next((name for name, each in local.FORMATS.items() if each is found), "text")


def _listen(kind: type, name_of: Callable[[Any], str]) -> None:
    feed = kind.feed

    def heard(self: Any, piece: Any, /) -> Any:
        _gathered.setdefault(id(self), (self, name_of(self), []))[2].append(piece)
        return feed(self, piece)

    kind.feed = heard


def _listen_to_repair() -> None:
    check = argument_repair._checked  # noqa: SLF001 (a plugin listens inside)

    def heard(text: str) -> str:
        keep("repair", text.encode(errors="replace"))
        return check(text)

    argument_repair._checked = heard  # noqa: SLF001 (a plugin listens inside)


def pytest_runtest_teardown() -> None:
    """Keep what one test read."""
    for _, name, pieces in _gathered.values():
        data = b"".join([each.encode(errors="replace") if isinstance(each, str) else bytes(each) for each in pieces])
        keep(name, lines(data) if name == "bedrock_converse" else data)
    _gathered.clear()


def lines(data: bytes) -> bytes:
    """The frames of an event stream as the fuzzer takes them: a name and its data in a line."""
    reader = event_stream.EventStreamReader()
    sign = {"event": "", "exception": "!", "error": "?"}
    frames = reader.feed(data)
    return b"\n".join([f"{sign[frame.kind]}{frame.name} ".encode() + frame.data for frame in frames])


def keep(name: str, data: bytes) -> None:
    """Write one seed."""
    if len(data) <= LONGEST and name in _NUMBERS:
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        found = hashlib.sha256(data).hexdigest()[:12]
        (folder / found).write_bytes(bytes([_NUMBERS[name], 3]) + data)
