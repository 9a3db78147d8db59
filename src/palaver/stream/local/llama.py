"""Llama 3.1 to 4: calls as JSON or like Python, mostly without any tag.

::

    {"name": "get_weather", "parameters": {"city": "Paris"}}
    <|python_tag|>brave_search.call(query="weather in Paris")
    [get_weather(city="Paris"), get_time()]
    <|python_start|>[get_weather(city="Paris")]<|python_end|>

Rules:

- Without a tag a call is one only at the beginning of the answer, behind reasoning and other calls. These are the only
  formats in which text waits: an answer that begins with ``{`` waits until that object ends, or is no JSON any more;
  one that begins with ``[`` and a name and ``(`` waits for its end.
- A JSON object is a call when it has a name and ``parameters`` or ``arguments``. Objects may be separated by ``;``.
  What follows is text.
- An answer that begins with ``[`` holds calls when its first one can be read; the rest is then malformed.
- ``name.call(…)`` is Meta's spelling of a built-in tool: the name goes without ``.call``. Code behind
  ``<|python_tag|>`` that is no call is malformed.

Sources: llama-models, ``llama3_1/prompt_format.md``, ``llama3_2/text_prompt_format.md``, ``llama4/prompt_format.md``;
vLLM, "Tool Calling" (llama3_json, pythonic, llama4_pythonic).

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import structs

from palaver.core.parts import ToolCall
from palaver.stream.local import json_calls, pythonic
from palaver.stream.local.format import Bare, Block, Format, Read, Schemas
from palaver.stream.partial_json import PartialJSON

_MAY_BE_CALLS: Final = re.compile(r"\[\s*+(?:[\w.-]++\s*+(?:\(.*)?)?", re.DOTALL)
_LOOK: Final = 256


def read_tagged(text: str, schemas: Schemas) -> Read:
    """Read what stands behind ``<|python_tag|>``: JSON, else Python."""
    if text.lstrip().startswith(("{", "[{")):
        return json_calls.read(text, schemas)
    return [
        structs.replace(part, name=part.name.removesuffix(".call")) if isinstance(part, ToolCall) else part
        for part in pythonic.read(text, schemas)
    ]


class JSONProbe:
    """Reads one JSON object at the beginning of an answer."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._json = PartialJSON()

    def feed(self, text: str, /) -> int | None:
        """Read on, up to the end of the object or to what is no JSON."""
        before = self._json.offset
        self._json.feed(text)
        if self._json.error is None and not self._json.complete:
            self._pieces.append(text)
            return None
        mine = text[: max(0, self._json.offset - before)].rstrip()
        self._pieces.append(mine)
        return len(mine)

    def finish(self) -> Read | None:
        """The call, where the object is one."""
        text = "".join(self._pieces)
        try:
            call, end = json_calls.read_object(text)
        except json_calls.NotJSON:
            return None
        return [call] if end == len(text) and isinstance(call, ToolCall) and call.arguments_json else None


class PythonicProbe:
    """Reads an answer that may be a list of calls as a whole."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._head = ""

    def feed(self, text: str, /) -> int | None:
        """Gather everything, unless it does not begin like a call."""
        self._pieces.append(text)
        if len(self._head) < _LOOK:
            self._head += text[: _LOOK - len(self._head)]
            if not _MAY_BE_CALLS.fullmatch(self._head):
                self._pieces.clear()
                return 0
        return None

    def finish(self) -> Read | None:
        """The calls, where the first one can be read."""
        found = pythonic.read("".join(self._pieces), {})
        return found if found and isinstance(found[0], ToolCall) else None


_END: Final = ("<|eom_id|>", "<|eot_id|>")
_TAGGED: Final = Block("<|python_tag|>", ends=_END, yields_to=("<|python_tag|>",), read=read_tagged)

JSON: Final = Format(blocks=(_TAGGED,), bare=Bare("{", JSONProbe))
PYTHONIC: Final = Format(
    blocks=(_TAGGED, Block("<|python_start|>", ends=("<|python_end|>",), read=pythonic.read)),
    bare=Bare("[", PythonicProbe),
)
