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

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from palaver.core import trusted
from palaver.stream.local.format import Block, Format
from palaver.stream.local.json_calls import NO_NAME, NotJSON, members_of, string, unread
from palaver.stream.local.pythonic import quoted
from palaver.stream.local.thinking import THINK

if TYPE_CHECKING:
    from palaver.stream.local.format import Read, Schemas

_OPENS: Final = "<codebuff_tool_call>"
_NAME: Final = "cb_tool_name"
_END: Final = "cb_easp"


def _read(text: str, _schemas: Schemas) -> Read:
    said = text.strip()
    if not said:
        return []
    whole = said[:-1] + "}" if said.endswith(",") else said
    try:
        members, end = members_of(whole)
    except NotJSON as error:
        return [unread(said, said, str(error), key=_NAME)]
    if end != len(whole):
        return [unread(said, said, "text behind the object", key=_NAME)]
    name = string(members.pop(_NAME, None))
    if not name:
        return [trusted.MalformedToolCall(said, NO_NAME)]
    members.pop(_END, None)
    arguments = ", ".join(f"{quoted(key)}: {value}" for key, value in members.items())
    return [trusted.ToolCall("", name, f"{{{arguments}}}")]


FORMAT: Final = Format(
    blocks=(Block(_OPENS, ends=("</codebuff_tool_call>",), yields_to=(_OPENS,), read=_read, strings=True),),
    reasoning=THINK,
)
