"""Write streams of Messages: server-sent events whose name is the ``type`` of their data.

Blocks are sent one after another. A reasoning block starts when its first readable piece or its end arrives: only then
is it known whether it is ``thinking`` or ``redacted_thinking``.

Source: docs/spec/wires.md#4.5, #4.7; https://docs.anthropic.com/en/docs/build-with-claude/streaming.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, structs

from palaver.core import jsontext
from palaver.core.events import (
    ArgumentsDelta,
    DataDelta,
    Failed,
    ProviderEvent,
    ReasoningDelta,
    SignatureDelta,
    TextDelta,
)
from palaver.core.parts import AssistantPart, Reasoning
from palaver.stream import sse
from palaver.wires._engine.stream_encoder import Shown, StreamEncoder
from palaver.wires._engine.wire import list_zeros
from palaver.wires.anthropic_messages.encode import response
from palaver.wires.anthropic_messages.encode_parts import block
from palaver.wires.anthropic_messages.shapes import FINISHED

if TYPE_CHECKING:
    from palaver.core.events import Delta
    from palaver.core.parts import Citation
    from palaver.core.request import Response


class Encoder(StreamEncoder):
    """Writes one stream of Messages. Blocks are sent one after another."""

    SERIAL_PARTS = True
    DEFERRED = True

    _thinking: Shown | None = None
    """A reasoning of which it is not known yet whether it is readable."""
    _data: list[str]
    _start_fields: dict[str, Any]

    def begin(self, head: Response) -> None:
        """``message_start``."""
        bare = structs.replace(head.message, content=(), finish_reason="stop", finish_reason_raw=None)
        head = structs.replace(head, message=bare, alternatives=())
        message = {**response(head, self.context), FINISHED: None}
        message.setdefault("stop_sequence", None)
        message.setdefault("usage", {"input_tokens": 0, "output_tokens": 0})
        self._start_fields = message
        self._event("message_start", {"message": message})

    def open(self, shown: Shown) -> None:
        """``content_block_start``."""
        if isinstance(shown.part, Reasoning):
            self._thinking = shown
            self._data = []
        else:
            self._show(shown, block(shown.part, shown.choice, self.context))

    def _show(self, shown: Shown, written: Any) -> None:
        self._event("content_block_start", {"index": shown.number, "content_block": written})

    def grow(self, shown: Shown, event: Delta) -> None:
        """``content_block_delta``."""
        if isinstance(event, DataDelta):
            self._data.append(event.text)
            return
        self._readable()
        kind, name = _DELTAS[type(event)]
        self._grown(shown, {"type": kind, name: event.text})

    def _readable(self) -> None:
        """Begin the reasoning as readable."""
        if self._thinking is not None:
            shown, self._thinking = self._thinking, None
            bare = structs.replace(shown.part, text="", signature=None, encrypted=None)
            self._show(shown, {**block(bare, shown.choice, self.context), "signature": ""})

    def _grown(self, shown: Shown, delta: dict[str, Any]) -> None:
        self._event("content_block_delta", {"index": shown.number, "delta": delta})

    def cite(self, shown: Shown, citation: Citation) -> None:
        """``citations_delta``."""
        if citation.raw_json is not UNSET:
            self._grown(shown, {"type": "citations_delta", "citation": citation.raw_json})

    def close(self, shown: Shown, _part: AssistantPart | None, /) -> None:
        """``content_block_stop``."""
        thinking = self._thinking
        if (
            thinking is not None
            and isinstance(thinking.part, Reasoning)
            and (self._data or thinking.part.encrypted is not None)
        ):
            self._thinking = None
            data = (thinking.part.encrypted or "") + "".join(self._data)
            self._show(shown, block(structs.replace(thinking.part, encrypted=data), shown.choice, self.context))
        self._readable()
        self._event("content_block_stop", {"index": shown.number})

    def write_whole(self, shown: Shown) -> None:
        """A block that comes whole, in its start."""
        self._show(shown, block(shown.part, shown.choice, self.context))
        self._event("content_block_stop", {"index": shown.number})

    def finish_answer(self, answer: Response) -> None:
        """``message_delta`` with what is known last, then ``message_stop``."""
        if self.context.own and answer.message.usage is None:  # that of others was listed
            list_zeros(None, self.context, 0)
        bare = structs.replace(answer.message, content=())
        written = response(structs.replace(answer, message=bare), self.context)
        usage = written.pop("usage", {"output_tokens": 0})
        delta: dict[str, Any] = {FINISHED: written.pop(FINISHED, None), "stop_sequence": written.get("stop_sequence")}
        new = {key: each for key, each in written.items() if self._start_fields.get(key) != each and key != "content"}
        beside = {key: new.pop(key) for key in list(new) if key in _BESIDE}
        self._event("message_delta", {"delta": delta | new, **beside, "usage": usage})
        self._event("message_stop", {})

    def fail(self, failed: Failed) -> None:
        """``error``."""
        if failed.raw_json is not UNSET and self.context.own:
            self.write(sse.write(bytes(failed.raw_json), "error"))
        else:
            self._event("error", {"error": {"type": failed.code or "api_error", "message": failed.reason}})

    def native(self, event: ProviderEvent) -> None:
        """An event without a neutral meaning."""
        self.write(sse.write(bytes(event.data_json), sse.nameable(event.name)))

    def _event(self, kind: str, fields: dict[str, Any]) -> None:
        self.write(sse.write(jsontext.encode({"type": kind, **fields}), kind))


_BESIDE: Final = frozenset({"context_management"})
"""Fields that stand beside the ``delta`` of ``message_delta``, not in it."""
_DELTAS: Final[dict[type, tuple[str, str]]] = {
    TextDelta: ("text_delta", "text"),
    ReasoningDelta: ("thinking_delta", "thinking"),
    ArgumentsDelta: ("input_json_delta", "partial_json"),
    SignatureDelta: ("signature_delta", "signature"),
}
"""The type of a delta, and the field that holds what is new."""
