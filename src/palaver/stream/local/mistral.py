"""Mistral: calls behind ``[TOOL_CALLS]``, up to the next one or the end of the answer.

::

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "a1b2c3d4e"}]
    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[CALL_ID]a1b2c3d4e[ARGS]{}
    [TOOL_CALLS]get_weather{"city": "Paris"}

The first is that of tokenizers up to v7, the others of v11 and later. Arguments behind ``[ARGS]`` are given as they
arrive. Reasoning of Magistral stands between ``[THINK]`` and ``[/THINK]``.

Sources: mistral-common, the instruct tokenizers v3, v7, v11 and v13; the chat templates of
mistralai/Mistral-7B-Instruct-v0.3 and mistralai/Devstral-Small-2-24B-Instruct-2512; vLLM, "Tool Calling" (mistral).

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

from palaver.core import trusted
from palaver.core.parts import ToolCall
from palaver.stream.local import json_calls
from palaver.stream.local.format import Block, Format, Head, Read, Schemas
from palaver.stream.local.thinking import REASONING

_HEAD: Final = re.compile(r"\s*+([^\s\[\]{}]++)\s*+(?:\[CALL_ID\]\s*+([^\s\[\]{}]++)\s*+)?")
_NAMED: Final = re.compile(r"\s*+([^\s\[\]{}\"]++)\s*+(?=\{)")


def head(text: str) -> tuple[ToolCall, ...]:
    """The call that a name and perhaps an id announce."""
    match = _HEAD.fullmatch(text)
    return (trusted.ToolCall(match[2] or "", match[1]),) if match else ()


def read(text: str, schemas: Schemas) -> Read:
    """Read a block without ``[ARGS]``."""
    named = _NAMED.match(text)
    if named is None:
        return json_calls.read(text, schemas)
    try:
        end = json_calls.end_of_value(text, named.end())
    except json_calls.NotJSON as error:
        return [trusted.MalformedToolCall(text.strip(), str(error), named[1])]
    found: Read = [trusted.ToolCall("", named[1], text[named.end() : end])]
    if rest := text[end:].strip():
        found.append(trusted.MalformedToolCall(rest, "text behind a call"))
    return found


_OPENS: Final = "[TOOL_CALLS]"

FORMAT: Final = Format(
    blocks=(Block(_OPENS, yields_to=(_OPENS,), read=read, head=Head("[ARGS]", head)),),
    reasoning=REASONING["bracket"],
)
