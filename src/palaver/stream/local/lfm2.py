"""LFM2: calls written like Python, between tags.

::

    <|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>

Calls are looked for before reasoning is: a call inside ``<think>`` is a call, and reasoning goes on behind it; what
stands inside a call is never reasoning.

Sources: the model card and chat template of LiquidAI/LFM2-1.2B-Tool; rules of DeepAgents for Swift.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.stream.local import pythonic
from palaver.stream.local.format import Block, Format
from palaver.stream.local.thinking import THINK

FORMAT: Final = Format(
    blocks=(Block("<|tool_call_start|>", ends=("<|tool_call_end|>",), read=pythonic.read),),
    reasoning=THINK,
    calls_in_reasoning=True,
)
