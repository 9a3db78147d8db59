"""The formats of text tool calls that need little code of their own.

Each format is data for ``parser``: its blocks, its tags around reasoning, and the readers of its blocks. ``gemma``,
``llama`` and ``qwen`` have modules of their own.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from palaver.core import jsontext, trusted
from palaver.core.parts import Reasoning, Text, ToolCall
from palaver.stream.local import json_calls, pythonic
from palaver.stream.local.format import REASONING, THINK, Block, Format, Head
from palaver.stream.local.pythonic import quoted

if TYPE_CHECKING:
    from palaver.stream.local.format import Read, Schemas


# -- Hermes ----------------------------------------------------------------------------------------


_HERMES_OPENS: Final = "<tool_call>"

HERMES: Final = Format(
    blocks=(
        Block(_HERMES_OPENS, ends=("</tool_call>",), yields_to=(_HERMES_OPENS,), read=json_calls.read, strings=True),
    ),
    reasoning=THINK,
)
"""Hermes, Qwen2.5, Qwen3 and QwQ: a JSON object between tags.

::

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

A call whose closing tag the model forgot ends where the next one opens, or with the answer. A
tag inside a JSON string is text.

Sources: NousResearch/Hermes-Function-Calling; the chat templates of NousResearch/Hermes-3-Llama-3.1-8B and
Qwen/Qwen3-8B.
"""


# -- LFM2 ------------------------------------------------------------------------------------------


LFM2: Final = Format(
    blocks=(Block("<|tool_call_start|>", ends=("<|tool_call_end|>",), read=pythonic.read),),
    reasoning=THINK,
    calls_in_reasoning=True,
)
"""LFM2: calls written like Python, between tags.

::

    <|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>

Calls are looked for before reasoning is: a call inside ``<think>`` is a call, and reasoning goes on behind it; what
stands inside a call is never reasoning.

Sources: the model card and chat template of LiquidAI/LFM2-1.2B-Tool; rules of DeepAgents for Swift.
"""


# -- Mistral ---------------------------------------------------------------------------------------


_MISTRAL_HEAD: Final = re.compile(r"\s*+([^\s\[\]{}]++)\s*+(?:\[CALL_ID\]\s*+([^\s\[\]{}]++)\s*+)?")
_MISTRAL_NAMED: Final = re.compile(r"\s*+([^\s\[\]{}\"]++)\s*+(?=\{)")


def _mistral_head(text: str) -> tuple[ToolCall, ...]:
    """The call that a name and perhaps an id announce."""
    match = _MISTRAL_HEAD.fullmatch(text)
    return (trusted.ToolCall(match[2] or "", match[1]),) if match else ()


def _read_mistral(text: str, schemas: Schemas) -> Read:
    """Read a block without ``[ARGS]``."""
    named = _MISTRAL_NAMED.match(text)
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


_MISTRAL_OPENS: Final = "[TOOL_CALLS]"

MISTRAL: Final = Format(
    blocks=(
        Block(_MISTRAL_OPENS, yields_to=(_MISTRAL_OPENS,), read=_read_mistral, head=Head("[ARGS]", _mistral_head)),
    ),
    reasoning=REASONING["bracket"],
)
"""Mistral: calls behind ``[TOOL_CALLS]``, up to the next one or the end of the answer.

::

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "a1b2c3d4e"}]
    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[CALL_ID]a1b2c3d4e[ARGS]{}
    [TOOL_CALLS]get_weather{"city": "Paris"}

The first is that of tokenizers up to v7, the others of v11 and later. Arguments behind ``[ARGS]`` are given as they
arrive. Reasoning of Magistral stands between ``[THINK]`` and ``[/THINK]``.

Sources: mistral-common, the instruct tokenizers v3, v7, v11 and v13; the chat templates of
mistralai/Mistral-7B-Instruct-v0.3 and mistralai/Devstral-Small-2-24B-Instruct-2512; vLLM, "Tool Calling" (mistral).
"""


# -- DeepSeek --------------------------------------------------------------------------------------


def _deepseek_tag(name: str) -> str:
    return f"<\uff5c{name.replace(' ', chr(0x2581))}\uff5c>"


_CALL_BEGIN: Final = _deepseek_tag("tool call begin")
_CALL_END: Final = _deepseek_tag("tool call end")
_CALL_SEPARATOR: Final = _deepseek_tag("tool sep")
_CALLS: Final = (_deepseek_tag("tool calls begin"), _deepseek_tag("tool calls end"))

_FENCE: Final = re.compile(r"```(?:json)?(.*)```", re.DOTALL)


def _read_fenced(text: str, _schemas: Schemas) -> Read:
    """Read a call whose arguments stand in a fence, or behind its name."""
    kind, separator, rest = text.partition(_CALL_SEPARATOR)
    if not separator:
        kind, rest = "", kind
    name, _, rest = rest.strip().partition("\n")
    name = name.strip()
    rest = rest.strip()
    fenced = _FENCE.fullmatch(rest)
    arguments = fenced[1].strip() if fenced else rest
    if not name:
        return [trusted.MalformedToolCall(text.strip(), "a call without a name")] if text.strip() else []
    if kind.strip() not in {"", "function"} or (arguments and not jsontext.is_json(arguments)):
        return [trusted.MalformedToolCall(text.strip(), "the arguments are not JSON", name)]
    return [trusted.ToolCall("", name, arguments)]


def _deepseek_head(text: str) -> tuple[ToolCall, ...]:
    """The call that a name announces."""
    name = text.strip()
    return (trusted.ToolCall("", name),) if name and not name.startswith("{") else ()


def _read_unnamed(text: str, _schemas: Schemas) -> Read:
    """A block in which the name or the arguments are missing."""
    return [trusted.MalformedToolCall(text.strip(), "a call without a name or arguments")] if text.strip() else []


DEEPSEEK_V3: Final = Format(
    blocks=(Block(_CALL_BEGIN, ends=(_CALL_END, _CALLS[1]), yields_to=(_CALL_BEGIN,), read=_read_fenced),),
    reasoning=THINK,
    marks=_CALLS,
)
DEEPSEEK_V31: Final = Format(
    blocks=(
        Block(
            _CALL_BEGIN,
            ends=(_CALL_END, _CALLS[1]),
            yields_to=(_CALL_BEGIN,),
            read=_read_unnamed,
            head=Head(_CALL_SEPARATOR, _deepseek_head),
        ),
    ),
    reasoning=THINK,
    marks=_CALLS,
)
"""DeepSeek V3, R1 and V3.1: calls between tags, all of them between two more.

V3 and R1, with the arguments in a fence::

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Paris"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

V3.1, whose arguments are given as they arrive, inside the same outer tags::

    <｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜>

The bars are U+FF5C and the low lines U+2581. The templates of R1 and of V3.1 in thinking mode end the prompt with
``<think>``: ask for ``start_in_think`` there.

Sources: the chat templates of deepseek-ai/DeepSeek-V3-0324, DeepSeek-R1-0528 and DeepSeek-V3.1.
"""  # noqa: RUF001 (the format's own characters)


# -- Harmony ---------------------------------------------------------------------------------------


_RECIPIENT: Final = re.compile(r"(?:^|[\s>])to=([^\s<]+)")
_HEADER_TAGS: Final = re.compile(r"<\|(?:start|channel|constrain)\|>")
_HEADER_WORDS: Final = frozenset({"assistant", "analysis", "commentary", "final", "json", "code"})
_FREE_TEXT: Final = frozenset({"python"})


def _harmony_head(text: str) -> tuple[Text | Reasoning | ToolCall, ...]:
    """The part that a header announces, behind the header itself when it holds words of its own."""
    recipient = _RECIPIENT.search(text)
    name = recipient[1].removeprefix("functions.") if recipient else ""
    words = _HEADER_TAGS.sub(" ", _RECIPIENT.sub(" ", text, count=1)).split()
    if name and name != "assistant":
        part: Text | Reasoning | ToolCall = trusted.ToolCall("", name, custom=name in _FREE_TEXT)
    else:
        part = trusted.Reasoning() if "analysis" in words else trusted.Text("")
    return (part,) if _HEADER_WORDS.issuperset(words) else (trusted.Text(text), part)


_START: Final = "<|start|>"
_CHANNELS: Final = "<|channel|>"
_HARMONY_ENDS: Final = ("<|end|>", "<|call|>", "<|return|>")
_HARMONY_HEAD: Final = Head("<|message|>", _harmony_head, yields_to=(_CHANNELS,))

HARMONY: Final = Format(
    blocks=tuple(
        [Block(tag, ends=_HARMONY_ENDS, yields_to=(_START,), head=_HARMONY_HEAD) for tag in (_START, _CHANNELS)]
    ),
    marks=_HARMONY_ENDS,
)
"""Harmony, the format of gpt-oss: messages in channels.

::

    <|channel|>analysis<|message|>They ask for the weather.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{"city":"Paris"}<|call|>
    <|start|>assistant<|channel|>final<|message|>It rains.<|return|>

Rules:

- A recipient makes a message a call, in whatever channel and part of the header it stands; ``functions.`` is not part
  of the name. ``to=assistant`` is the answer of a tool, and text here.
- ``analysis`` is reasoning. ``final``, ``commentary`` (a preamble, meant to be seen) and channels that the format does
  not know are text.
- The built-in ``python`` tool takes code, not JSON: a free-text call.
- Models write headers that are none. One that does not reach ``<|message|>`` within 1,024 characters, or before
  another message, is text; one with words that the format does not know is text, and announces what it does. Text
  outside any message is text.

Source: openai/harmony, ``docs/format.md``; headers gone wrong: openai/harmony#56, #114, ggml-org/llama.cpp#27720.
"""


# -- Codebuff --------------------------------------------------------------------------------------


_CODEBUFF_OPENS: Final = "<codebuff_tool_call>"
_CODEBUFF_NAME: Final = "cb_tool_name"
_CODEBUFF_END: Final = "cb_easp"


def _read_codebuff(text: str, _schemas: Schemas) -> Read:
    stripped = text.strip()
    if not stripped:
        return []
    whole = stripped[:-1] + "}" if stripped.endswith(",") else stripped
    try:
        members, end = json_calls.members_of(whole)
    except json_calls.NotJSON as error:
        return [json_calls.unread(stripped, stripped, str(error), key=_CODEBUFF_NAME)]
    if end != len(whole):
        return [json_calls.unread(stripped, stripped, "text behind the object", key=_CODEBUFF_NAME)]
    name = json_calls.string(members.pop(_CODEBUFF_NAME, None))
    if not name:
        return [trusted.MalformedToolCall(stripped, json_calls.NO_NAME)]
    members.pop(_CODEBUFF_END, None)
    arguments = ", ".join(f"{quoted(key)}: {value}" for key, value in members.items())
    return [trusted.ToolCall("", name, f"{{{arguments}}}")]


CODEBUFF: Final = Format(
    blocks=(
        Block(
            _CODEBUFF_OPENS,
            ends=("</codebuff_tool_call>",),
            yields_to=(_CODEBUFF_OPENS,),
            read=_read_codebuff,
            strings=True,
        ),
    ),
    reasoning=THINK,
)
"""Codebuff's calls in text: a JSON object between tags, which holds the name of the tool among the arguments.

::

    <codebuff_tool_call>
    {
      "cb_tool_name": "read_files",
      "paths": ["src/main.py"],
      "cb_easp": true
    }
    </codebuff_tool_call>

``"cb_easp"`` ends a call, and is a stop sequence: where the provider stops at it, it and the rest do not come, and the
text of the call ends with a comma. Such a call is whole. Neither key is an argument, and neither is ever given out.

Source: docs/spec/codebuff.md#3; row CBF-16.
"""
