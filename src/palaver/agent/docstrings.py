"""What a docstring says of a function and of its parameters.

Rules:

- The description is everything before the first section.
- Parameters are read from sections in the manner of Google (``Args:``), NumPy (``Parameters`` underlined) and
  Sphinx (``:param name:``). What a section says beyond its parameters is left out.
- Pure, and never an error: a docstring that is written in another way has a description and no parameters.

Stability: experimental.
"""

from __future__ import annotations

import inspect
import re
from typing import Final, NamedTuple

_GOOGLE: Final = re.compile(
    r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Returns?|Yields?|Raises"
    r"|Examples?|Notes?|Warnings?|See Also|Attributes|References|Todo)\s*:\s*"
)
_PARAMETERS: Final = frozenset(
    ("args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters")
)
_FIELD: Final = re.compile(r":(?P<kind>\w+)(?:\s+(?P<what>[^:]*))?:\s*(?P<text>.*)")
_PARAM_KINDS: Final = frozenset(("param", "parameter", "arg", "argument", "key", "keyword"))
_ENTRY: Final = re.compile(r"\*{0,2}(?P<name>\w++)\s*+(?:\([^)]*\))?\s*+:\s*+(?P<text>.*)")
_NUMPY_ENTRY: Final = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")


class Described(NamedTuple):
    """The description of a function, and those of its parameters by name."""

    description: str | None
    parameters: dict[str, str]


def described(docstring: str | None) -> Described:
    """Read a docstring."""
    lines = inspect.cleandoc(docstring or "").split("\n")
    end = next((index for index in range(len(lines)) if _opens(lines, index)), len(lines))
    parameters: dict[str, str] = {}
    index = end
    while index < len(lines):
        stop = next((after for after in range(index + 1, len(lines)) if _opens(lines, after)), len(lines))
        parameters |= _section(lines[index:stop])
        index = stop
    return Described("\n".join(lines[:end]).strip() or None, parameters)


def _opens(lines: list[str], index: int) -> bool:
    """Whether a section begins at a line."""
    line = lines[index]
    return bool(_GOOGLE.fullmatch(line) or _FIELD.fullmatch(line) or _underlined(lines, index))


def _underlined(lines: list[str], index: int) -> bool:
    under = lines[index + 1] if index + 1 < len(lines) else ""
    return len(under) > 2 and not under.strip("-") and bool(lines[index].strip())  # noqa: PLR2004 (a rule has three)


def _section(lines: list[str]) -> dict[str, str]:
    field = _FIELD.fullmatch(lines[0])
    if field:
        if field["kind"] not in _PARAM_KINDS or not field["what"]:
            return {}
        return {field["what"].split()[-1].lstrip("*"): _joined([field["text"], *lines[1:]])}
    if lines[0].strip(" :").lower() not in _PARAMETERS:
        return {}
    numpy = _underlined(lines, 0)
    body = inspect.cleandoc("\n".join(["", *lines[2 if numpy else 1 :]])).split("\n")
    return _entries(body, _NUMPY_ENTRY if numpy else _ENTRY)


def _entries(body: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Entries that begin at the margin; what is indented belongs to the one above."""
    found: dict[str, str] = {}
    starts = [index for index, line in enumerate(body) if line and not line[0].isspace()]
    for start, stop in zip(starts, [*starts[1:], len(body)], strict=True):
        entry = pattern.fullmatch(body[start])
        if entry is None:
            continue
        groups = entry.groupdict()
        text = _joined([groups.get("text") or "", *body[start + 1 : stop]])
        for name in (groups.get("name") or groups.get("names") or "").split(","):
            found[name.strip(" *")] = text
    return {name: text for name, text in found.items() if text}


def _joined(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
