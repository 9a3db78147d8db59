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

Stability: experimental.
"""  # noqa: RUF002 (the format's own characters)

from __future__ import annotations

import re
from typing import Final

from palaver.core import jsontext, trusted
from palaver.core.parts import ToolCall
from palaver.stream.local.format import Block, Format, Head, Read, Schemas
from palaver.stream.local.thinking import THINK


def _tag(name: str) -> str:
    return f"<\uff5c{name.replace(' ', chr(0x2581))}\uff5c>"


_OPENS: Final = _tag("tool call begin")
_ENDS: Final = _tag("tool call end")
_SEPARATOR: Final = _tag("tool sep")
_AROUND: Final = (_tag("tool calls begin"), _tag("tool calls end"))

_FENCE: Final = re.compile(r"```(?:json)?(.*)```", re.DOTALL)


def read_fenced(text: str, _schemas: Schemas) -> Read:
    """Read a call whose arguments stand in a fence, or behind its name."""
    kind, separator, rest = text.partition(_SEPARATOR)
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


def head(text: str) -> tuple[ToolCall, ...]:
    """The call that a name announces."""
    name = text.strip()
    return (trusted.ToolCall("", name),) if name and not name.startswith("{") else ()


def read_unnamed(text: str, _schemas: Schemas) -> Read:
    """A block in which the name or the arguments are missing."""
    return [trusted.MalformedToolCall(text.strip(), "a call without a name or arguments")] if text.strip() else []


V3: Final = Format(
    blocks=(Block(_OPENS, ends=(_ENDS, _AROUND[1]), yields_to=(_OPENS,), read=read_fenced),),
    reasoning=THINK,
    marks=_AROUND,
)
V31: Final = Format(
    blocks=(
        Block(
            _OPENS,
            ends=(_ENDS, _AROUND[1]),
            yields_to=(_OPENS,),
            read=read_unnamed,
            head=Head(_SEPARATOR, head),
        ),
    ),
    reasoning=THINK,
    marks=_AROUND,
)
