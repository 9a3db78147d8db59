"""The shapes of a Cohere stream that nearly every event has: read in one step, and nothing else fits them.

Stability: experimental.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct, UnsetType

from palaver.wires.cohere_chat.decode import Cited


class _Piece(Struct, gc=False, forbid_unknown_fields=True):
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET


class _Content(Struct, gc=False, forbid_unknown_fields=True):
    content: _Piece


class _ContentDelta(Struct, gc=False, forbid_unknown_fields=True):
    message: _Content


class ContentEvent(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="content-delta"):
    """More text, or more thinking."""

    index: int
    delta: _ContentDelta


class _Arguments(Struct, gc=False, forbid_unknown_fields=True):
    arguments: str


class _Function(Struct, gc=False, forbid_unknown_fields=True):
    function: _Arguments


class _Calls(Struct, gc=False, forbid_unknown_fields=True):
    tool_calls: _Function


class _CallDelta(Struct, gc=False, forbid_unknown_fields=True):
    message: _Calls


class CallEvent(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="tool-call-delta"):
    """More arguments of a call."""

    index: int
    delta: _CallDelta


class _Plan(Struct, gc=False, forbid_unknown_fields=True):
    tool_plan: str


class _PlanDelta(Struct, gc=False, forbid_unknown_fields=True):
    message: _Plan


class PlanEvent(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="tool-plan-delta"):
    """More of the plan."""

    delta: _PlanDelta


plain = msgspec.json.Decoder(ContentEvent | CallEvent | PlanEvent).decode
cited = msgspec.json.Decoder(Cited).decode
