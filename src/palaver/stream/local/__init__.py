"""Calls and reasoning that local models write as text.

``get(name)`` gives a parser, ``names()`` lists the formats, ``read(name, text)`` reads a whole answer::

    >>> from palaver.stream import local
    >>> local.read("hermes", '<think>Hm.</think><tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>')
    (Reasoning('Hm.'), ToolCall('call_0', 'f', '{"a": 1}'))

Rules of every format:

- Text is verbatim. It is not delayed by more than the length of a tag, but where a call has no tag (``llama_json``,
  ``llama_pythonic``). Only text that is blank as a whole and stands beside a tag is dropped.
- A call keeps the model's own argument text where that is JSON; elsewhere the arguments are written as JSON.
- Text in a block that should hold a call, and holds none, is a ``MalformedToolCall`` with its raw text. The calls
  before it stay. Only tags and separators are dropped.
- Any cut of the text gives the same parts. Time is linear in its length. Nothing is raised, whatever the text.
- Ids are ``call_0``, ``call_1`` and so on, unless the format has its own.

Stability: experimental.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from palaver.core.errors import UnknownNameError
from palaver.core.tools import Tool
from palaver.stream.assembler import Assembler
from palaver.stream.local import formats, gemma, llama, qwen
from palaver.stream.local.format import REASONING, THINK, Format, Pair, split_thinking
from palaver.stream.local.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from palaver.core.parts import AssistantPart
    from palaver.core.tools import AnyTool

__all__ = [
    "FORMATS",
    "REASONING",
    "Format",
    "Pair",
    "Parser",
    "gemma",
    "get",
    "names",
    "parts",
    "read",
    "split_thinking",
]

FORMATS: Final[dict[str, Format]] = {
    "hermes": formats.HERMES,  # Hermes 2 Pro to 4, Qwen2.5, Qwen3, QwQ
    "qwen3_coder": qwen.FORMAT,
    "qwen3_5": qwen.PREFILLED,  # Qwen3.5 and Qwen3.6
    "lfm2": formats.LFM2,
    "gemma3": gemma.GEMMA3,
    "gemma4": gemma.GEMMA4,
    "llama_json": llama.JSON,  # Llama 3.1 to 3.3
    "llama_pythonic": llama.PYTHONIC,  # Llama 3.2 to 4
    "mistral": formats.MISTRAL,
    "deepseek_v3": formats.DEEPSEEK_V3,  # and R1
    "deepseek_v31": formats.DEEPSEEK_V31,
    "harmony": formats.HARMONY,  # gpt-oss
    "codebuff": formats.CODEBUFF,
    "text": Format(reasoning=THINK),  # no calls
}


def names() -> tuple[str, ...]:
    """Names of all formats."""
    return tuple(FORMATS)


def get(
    name: str,
    *,
    reasoning: str | tuple[str, str] | None = None,
    start_in_think: bool | None = None,
    id_of: Callable[[int], str] = "call_{}".format,
    tools: Iterable[AnyTool] = (),
) -> Parser:
    """A parser for one answer.

    ``reasoning`` is the pair of tags around it, or the name of one (``"think"``, ``"bracket"``, ``"channel"``, or
    ``"none"``); ``start_in_think`` says that the prompt ended with the opening
    one. Left out, they are the format's own.
    ``id_of`` makes the id of the n-th call, from 0. ``tools`` give types to formats that have none (Qwen's tags).

    Raises ``UnknownNameError`` listing those that exist, and ``MessageError`` for tags that cannot be told apart.
    """
    if name not in FORMATS:
        raise UnknownNameError(f"no format {name!r}; there are {', '.join(FORMATS)}")
    chosen = FORMATS[name]
    if isinstance(reasoning, str):
        if reasoning not in REASONING:
            raise UnknownNameError(f"no reasoning tags {reasoning!r}; there are {', '.join(REASONING)}")
        chosen = replace(chosen, reasoning=REASONING[reasoning])
    elif reasoning is not None:
        chosen = replace(chosen, reasoning=Pair(*reasoning))
    if start_in_think is not None:
        chosen = replace(chosen, prefilled=start_in_think)
    schemas = {tool.name: tool.parameters for tool in tools if isinstance(tool, Tool)}
    return Parser(chosen, id_of, schemas)


class Options(TypedDict, total=False):
    """The options of ``get``."""

    reasoning: str | tuple[str, str] | None
    start_in_think: bool | None
    id_of: Callable[[int], str]
    tools: Iterable[AnyTool]


def read(name: str, text: str, **options: Unpack[Options]) -> tuple[AssistantPart, ...]:
    """The parts of a whole answer. Takes the options of ``get``, and raises what it raises."""
    return parts(get(name, **options), text)


def parts(parser: Parser, text: str) -> tuple[AssistantPart, ...]:
    """The parts of a whole answer, read by a parser that has read nothing yet."""
    assembler = Assembler()
    assembler.extend(parser.feed(text))
    assembler.extend(parser.finish())
    return assembler.content()
