"""Gemma 3: Python in a fence. Gemma 4: a notation of its own. And the schemas that Gemma's templates can read.

::

    ```tool_code
    get_weather(city="Paris")
    ```

    <|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3,units:[<|"|>C<|"|>]}<tool_call|>

Rules of Gemma 3: one call a line, or a list of them; ``print(…)`` around a call is taken off. Gemma 3 also answers with
bare calls when the prompt says so: read these by ``llama_json`` or ``llama_pythonic``.

Rules of Gemma 4:

- Strings stand between ``<|"|>``, keys stand bare, everything else is as in JSON. Models also quote like JSON or
  Python, and quote keys; both are read.
- The same token is a quotation mark inside a string. So a string ends at the first token behind which its object or
  array can go on: the closing bracket, a comma (in an object: a comma and a key). Models forget the token that opens a
  string; the one that ends it tells.
- Reasoning stands between ``<|channel>thought`` and ``<channel|>``.
- A call that does not parse is malformed with everything behind it in its block. Values nested deeper than 64 do not
  parse.

Sources: ai.google.dev, "Gemma 4 Prompt Formatting", "Function calling with Gemma"; vLLM, ``gemma4`` parser
documentation; vllm-project/vllm#48678, #51284, sgl-project/sglang#39240 (what models write).

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from palaver.core import trusted
from palaver.stream.local import pythonic
from palaver.stream.local.format import REASONING, Block, Format, Read, Schemas
from palaver.stream.local.pythonic import NotPythonic, after, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

# -- Gemma 3 ---------------------------------------------------------------------------------------

_PRINT: Final = re.compile(r"^[ \t]*+print\((.*)\)[ \t]*+$", re.MULTILINE)


def read_code(text: str, schemas: Schemas) -> Read:
    """Read the calls in a fence."""
    return pythonic.read(_PRINT.sub(r"\1", text), schemas)


_FENCE: Final = "```"


# -- Gemma 4 ---------------------------------------------------------------------------------------

_CALL: Final = re.compile(r"\s*+call:\s*+([^\s{}<>]++)\s*+(?=\{)")
_MARK: Final = '<|"|>'
_IN_OBJECT: Final = re.compile(r'<\|"\|>(?=\s*+(?:\}|,\s*+(?:[\w.$-]++|"[\w.$-]++"|<\|"\|>[\w.$-]++<\|"\|>)\s*+:))')
_IN_ARRAY: Final = re.compile(r'<\|"\|>(?=\s*+[\],])')
_UNOPENED: Final = re.compile(r"([^<:\"'\[{\s][^<:]*+)" + _IN_OBJECT.pattern)
_KEY: Final = re.compile(r"[^\s:,{}\[\]<>\"']++")
_SPACE: Final = re.compile(r"\s*+")


class _Notation(pythonic.Reader):
    """The arguments of one call."""

    ends = _IN_OBJECT

    def string(self) -> str:
        """A string between tokens, or quoted in the ordinary way."""
        if not self.text.startswith(_MARK, self.at):
            return super().string()
        start = self.at + len(_MARK)
        match = self.ends.search(self.text, start)
        if match is None:
            raise NotPythonic("a string does not end")
        self.at = match.end()
        return self.text[start : match.start()].replace(_MARK, '"')

    def quote(self) -> bool:
        """Whether a string begins here."""
        return super().quote() or self.text.startswith(_MARK, self.at)

    def key(self) -> str:
        """A key, which is bare, or a string that a colon follows."""
        if self.skip() and self.text.startswith(_MARK, self.at):
            start = self.at + len(_MARK)
            end = self.text.find(_MARK, start)
            self.at = end + len(_MARK) if end >= 0 else self.at
            return self.text[start:end]
        return self.string() if self.quote() else self.word(_KEY, "a key")

    def element(self, depth: int) -> None:
        """One value of an array."""
        self.ends = _IN_ARRAY
        self.value(depth)

    def pair(self, depth: int) -> None:
        """One member of an object."""
        key = self.key()
        self.need(":")
        self.written.append(quoted(key) + ": ")
        self.skip()
        if unopened := _UNOPENED.match(self.text, self.at):
            self.at = unopened.end()
            self.written.append(quoted(unopened[1]))
        else:
            self.ends = _IN_OBJECT
            self.value(depth, may_be_empty=True)


def read_notation(text: str, _schemas: Schemas) -> Read:
    """Read a block of calls."""
    found: Read = []
    at = 0
    while (at := after(_SPACE, text, at)) < len(text):
        opening = _CALL.match(text, at)
        if opening is None:
            found.append(trusted.MalformedToolCall(text[at:].strip(), "expected call:name{"))
            break
        try:
            reader = _Notation(text, opening.end())
            reader.run(reader.value, 0)
        except NotPythonic as error:
            found.append(trusted.MalformedToolCall(text[at:].strip(), str(error), opening[1]))
            break
        found.append(trusted.ToolCall("", opening[1], "".join(reader.written)))
        at = reader.at
    return found


# -- schemas ---------------------------------------------------------------------------------------

_FROM_BRANCH: Final = ("properties", "items", "enum", "required")


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a schema in which every node has one type, a string: Gemma's templates fail without it.

    A node is the schema itself, each of its properties, its items and its additional properties, and theirs. The type
    is, in this order: the one that stands there; the first of a union that is not ``null``; that of the first branch
    of ``anyOf`` or ``oneOf`` that has one, with its properties, items, enum and required members, and the branches go;
    ``object`` where there are properties; ``array`` where there are items; else ``string``. A node that is no object,
    such as ``true``, becomes a string. Everything else is kept.
    """
    root = _typed(schema)
    nodes = [root]
    while nodes:
        node = nodes.pop()
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            node["properties"] = plain = {
                key: _typed(each) for key, each in cast("Mapping[str, Any]", properties).items()
            }
            nodes.extend(plain.values())
        for key in ("items", "additionalProperties"):
            if key in node and not isinstance(node[key], bool):
                node[key] = _typed(node[key])
                nodes.append(node[key])
    return root


def _typed(schema: Any) -> dict[str, Any]:
    node: dict[str, Any] = dict(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else {}
    kind = _first_type(node)
    for key in ("anyOf", "oneOf"):
        if kind is not None:
            break
        for branch in _branches(node.get(key)):
            kind = _first_type(branch)
            if kind is not None and kind != "null":
                node |= {each: branch[each] for each in _FROM_BRANCH if each in branch}
                del node[key]
                break
            kind = None
    node["type"] = kind or ("object" if "properties" in node else "array" if "items" in node else "string")
    return node


def _first_type(node: Mapping[str, Any]) -> str | None:
    kind = node.get("type")
    if isinstance(kind, (list, tuple)):
        return next((each for each in cast("list[Any]", kind) if isinstance(each, str) and each != "null"), None)
    return kind if isinstance(kind, str) and kind else None


def _branches(union: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(union, (list, tuple)):
        yield from (each for each in cast("list[Any]", union) if isinstance(each, Mapping))


# -- the formats -----------------------------------------------------------------------------------

GEMMA3: Final = Format(blocks=(Block("```tool_code", ends=(_FENCE,), read=read_code),), schema=plain_schema)
GEMMA4: Final = Format(
    blocks=(Block("<|tool_call>", ends=("<tool_call|>",), yields_to=("<|tool_call>",), read=read_notation),),
    reasoning=REASONING["channel"],
    schema=plain_schema,
)
