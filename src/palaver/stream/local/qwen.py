"""Qwen3-Coder, Qwen3.5 and Qwen3.6: a call as tags.

::

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Rules:

- A value loses one line break at each end, which the template puts there, and is taken as it stands: nothing is
  escaped in this format.
- The format has no types. Where the tool is known, its schema decides: a string stays text; anything else is JSON
  where the text is JSON (``True``, ``False`` and ``None`` are read too), else text. Where it is not known, text that is
  JSON of any type but a string is that value.
- Models forget tags. ``<function=`` opens a call without ``<tool_call>``. A value without ``</parameter>`` ends where
  the next tag of a parameter or ``</function>`` stands. A call without ``</function>`` is malformed.
- ``<function=f>{"a": 1}</function>``, the tag style of Llama 3.1, is read too.
- Reasoning: the template of Qwen3.5 ends the prompt with ``<think>``, that of Qwen3-Coder does not.

Sources: the chat templates of Qwen/Qwen3-Coder-30B-A3B-Instruct and Qwen/Qwen3.5-4B; vLLM, "Tool Calling" (qwen3_coder,
qwen3_xml); ollama/ollama#17914, #18530, #16686 (forgotten tags).

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from palaver.core import jsontext, trusted
from palaver.stream.local.format import THINK, Block, Format, Read, Schemas
from palaver.stream.local.pythonic import quoted

_FUNCTION: Final = re.compile(r"\s*+<function=([^>\n]++)>")
_PARAMETER: Final = re.compile(r"\s*+<parameter=([^>\n]++)>")
_VALUE_ENDS: Final = re.compile(r"</parameter>|(?=<parameter=|</function>)")
_ENDS: Final = re.compile(r"\s*+</function>")
_SPACE: Final = re.compile(r"\s*+")
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}


class _NotACall(Exception):  # noqa: N818 (never leaves this module)
    """The text does not follow the format."""


def read(text: str, schemas: Schemas) -> Read:
    """Read a block of calls."""
    found: Read = []
    at = _after_space(text, 0)
    while at < len(text):
        opening = _FUNCTION.match(text, at)
        name = opening[1].strip().strip("\"'") if opening else ""
        if opening is None or not name:
            found.append(trusted.MalformedToolCall(text[at:].strip(), "expected <function=name>"))
            break
        try:
            arguments, end = _arguments(text, opening.end(), _types(schemas.get(name)))
        except _NotACall as error:
            found.append(trusted.MalformedToolCall(text[at:].strip(), str(error), name))
            break
        found.append(trusted.ToolCall("", name, arguments))
        at = _after_space(text, end)
    return found


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _arguments(text: str, at: int, types: Mapping[str, frozenset[str]]) -> tuple[str, int]:
    """The arguments as JSON text, and where the call ends."""
    members: list[str] = []
    while not (ending := _ENDS.match(text, at)):
        opening = _PARAMETER.match(text, at)
        if opening is None:
            if members or not (whole := _whole(text, at)):
                raise _NotACall("expected <parameter=name> or </function>")
            return whole
        closing = _VALUE_ENDS.search(text, opening.end())
        if closing is None:
            raise _NotACall("a parameter does not end")
        key = opening[1].strip()
        value = text[opening.end() : closing.start()].removeprefix("\n").removesuffix("\n")
        members.append(f"{quoted(key)}: {_typed(value, types.get(key))}")
        at = closing.end()
    return "{" + ", ".join(members) + "}", ending.end()


def _whole(text: str, at: int) -> tuple[str, int] | None:
    """The arguments as one JSON object between the tags."""
    end = text.find("</function>", at)
    arguments = text[at:end].strip()
    if end < 0 or not arguments.startswith("{") or not jsontext.is_json(arguments):
        return None
    return arguments, end + len("</function>")


def _typed(value: str, types: frozenset[str] | None) -> str:
    if types == _STRING:
        return quoted(value)
    stripped = value.strip()
    word = _PYTHON.get(stripped, stripped) if types else stripped
    if (word.startswith('"') and not types) or not jsontext.is_json(word):
        return quoted(value)
    if types and "string" in types and not types & _KINDS.get(word[0], _NUMBERS):
        return quoted(value)
    return word


_STRING: Final = frozenset({"string"})
_NUMBERS: Final = frozenset({"integer", "number"})
_KINDS: Final = {
    "{": frozenset({"object"}),
    "[": frozenset({"array"}),
    "t": frozenset({"boolean"}),
    "f": frozenset({"boolean"}),
    "n": frozenset({"null"}),
    '"': frozenset({"string"}),
}


def _types(schema: Any) -> dict[str, frozenset[str]]:
    """The types that a schema names for each argument; nothing for the others."""
    properties = _get(schema, "properties")
    if not isinstance(properties, Mapping):
        return {}
    found = {key: frozenset(_named(each)) for key, each in cast("Mapping[str, Any]", properties).items()}
    return {key: types for key, types in found.items() if types}


def _named(schema: Any) -> Iterable[str]:
    named = _get(schema, "type")
    if isinstance(named, str):
        yield named
    elif isinstance(named, (list, tuple)):
        yield from (each for each in cast("list[Any]", named) if isinstance(each, str))
    for key in ("anyOf", "oneOf"):
        branches = _get(schema, key)
        if isinstance(branches, (list, tuple)):
            for branch in cast("list[Any]", branches):
                kind = _get(branch, "type")
                if isinstance(kind, str):
                    yield kind


def _get(schema: Any, key: str) -> Any:
    return cast("Mapping[str, Any]", schema).get(key) if isinstance(schema, Mapping) else None


_WRAPPED: Final = "<tool_call>"
_BARE: Final = "<function="
_CLOSED: Final = "</tool_call>"

FORMAT: Final = Format(
    blocks=(
        Block(_WRAPPED, ends=(_CLOSED,), yields_to=(_WRAPPED,), read=read),
        Block(_BARE, ends=(_CLOSED,), yields_to=(_WRAPPED,), read=read, keeps=True),
    ),
    reasoning=THINK,
)
PREFILLED: Final = Format(blocks=FORMAT.blocks, reasoning=THINK, prefilled=True)
