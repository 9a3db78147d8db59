"""Names of tools: what may be one, and which tool a name means.

Rules (docs/spec/deepagents-swift.md#7.3, #7.4; docs/spec/wires.md#1.5):

- A name that an application gives is legal on every wire: a letter or ``_``, then up to 63 letters, digits, ``_``
  and ``-``.
- Models misspell names. A name means the tool of that name; else the one tool whose normalised name is the same. Where
  several are, it means none: nothing is guessed.
- The normalised form has ASCII letters lower-cased, digits and ``_`` kept, and ``_`` for everything else; it is never
  empty.
- A toolbox does not change: its definitions are one tuple, the same object each turn, so that what a wire has made of
  them can be kept.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, final

from palaver.agent.tool import AgentTool
from palaver.core.errors import MessageError, excerpt
from palaver.core.tools import Tool

_LEGAL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_OTHER: Final = re.compile(r"[^a-z0-9_]")
_LOWER: Final = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})


def legal(name: str) -> str:
    """Give ``name`` back, where every wire takes it. Raises ``MessageError`` where one does not."""
    if not _LEGAL.fullmatch(name):
        msg = (
            f"{excerpt(name, 40)!r} is no name for a tool: a name is a letter or “_”, and up to 63 letters, digits, "
            "“_” and “-” behind it"
        )
        raise MessageError(msg)
    return name


def normalized(name: str) -> str:
    """``Read-File`` and ``read file`` are ``read_file``."""
    return _OTHER.sub("_", name.translate(_LOWER)) or "_"


def unknown_tool(name: str, names: Iterable[str]) -> str:
    """What a model is told that calls a tool that is not there (DAS-24)."""
    available = ", ".join(names)
    return f"Unknown tool {excerpt(name)!r}. Available tools: {available or 'none'}."


def check_names(field: str, names: Iterable[str], known: Iterable[str], kind: str) -> None:
    """Raise ``MessageError`` for a name that is none of those that are known."""
    available = sorted(known)
    if isinstance(names, str):
        raise MessageError(f"{field}: {excerpt(repr(names))} is a text; give a list of names")
    for name in names:
        if name not in available:
            listed = ", ".join(available) or "none"
            raise MessageError(f"{field}: there is no {kind} {excerpt(repr(name))}; there is: {listed}")


@final
class Toolbox:
    """The tools of an agent, in order, each once. Raises ``MessageError`` when two have one name."""

    __slots__ = ("_alike", "_by_name", "definitions", "tools")

    def __init__(self, tools: Iterable[AgentTool] = ()) -> None:
        """Take the tools."""
        self.tools = tuple({id(tool): tool for tool in tools}.values())
        self.definitions: tuple[Tool, ...] = tuple(tool.definition for tool in self.tools)
        self._by_name: dict[str, AgentTool] = {}
        self._alike: dict[str, AgentTool | None] = {}
        for tool in self.tools:
            if tool.name in self._by_name:
                raise MessageError(f"two tools are called {tool.name!r}{_whence(self._by_name[tool.name], tool)}")
            self._by_name[tool.name] = tool
            key = normalized(tool.name)
            self._alike[key] = None if key in self._alike else tool

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._by_name)

    def find(self, name: str) -> AgentTool | None:
        """The tool that ``name`` means: of that name, else the only one spelled alike; ``None`` where there is none."""
        return self._by_name.get(name) or self._alike.get(normalized(name))

    def unknown(self, name: str) -> str:
        """What a model is told when ``find`` gave nothing."""
        return unknown_tool(name, self._by_name)

    def __iter__(self) -> Iterator[AgentTool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._by_name)})"


def _whence(*tools: AgentTool) -> str:
    scopes = [tool.scope for tool in tools]
    if scopes == [None, None]:
        return ""
    return f" (from {' and '.join(scope or 'the application' for scope in scopes)})"
