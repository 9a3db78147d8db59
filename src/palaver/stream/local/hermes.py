"""Hermes, Qwen2.5, Qwen3 and QwQ: a JSON object between tags.

::

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

A call whose closing tag the model forgot ends where the next one opens, or with the answer. A
tag inside a JSON string is text.

Sources: NousResearch/Hermes-Function-Calling; the chat templates of NousResearch/Hermes-3-Llama-3.1-8B and
Qwen/Qwen3-8B.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.stream.local import json_calls
from palaver.stream.local.format import Block, Format
from palaver.stream.local.thinking import THINK

_OPENS: Final = "<tool_call>"

FORMAT: Final = Format(
    blocks=(Block(_OPENS, ends=("</tool_call>",), yields_to=(_OPENS,), read=json_calls.read, strings=True),),
    reasoning=THINK,
)
