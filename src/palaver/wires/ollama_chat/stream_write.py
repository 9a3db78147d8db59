"""Write streams of Ollama: lines of JSON.

Each delta is one line, and each call a line of its own. A last line holds what the answer has beside its parts. Several
texts become one, with a blank line between them.

Source: docs/spec/wires.md#8, #1.3; ollama/ollama ``api/types.go``, ``server/routes.go``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, structs

from palaver.core import jsontext
from palaver.core.events import Failed, ProviderEvent, ReasoningDelta, TextDelta
from palaver.core.parts import AssistantPart, Image, Inline, MalformedToolCall, Reasoning, Text, ToolCall
from palaver.stream import ndjson
from palaver.wires._engine.json_fields import native
from palaver.wires._engine.metadata import iso
from palaver.wires._engine.stream_encoder import Shown, StreamEncoder
from palaver.wires.ollama_chat import encode
from palaver.wires.ollama_chat.shapes import WIRE

if TYPE_CHECKING:
    from palaver.core.events import Delta
    from palaver.core.parts import Citation
    from palaver.core.request import Response


class Encoder(StreamEncoder):
    """Writes one stream of Ollama."""

    WHOLE_CALLS = True

    _texts = 0
    _thoughts = 0

    def begin(self, head: Response) -> None:
        """Nothing is written before the first part; every line names model and time."""
        model, time = head.message.model, native(head, WIRE).get("created_at")
        made = encode.NO_TIME if head.message.sent_at is None else iso(head.message.sent_at)
        self._around: dict[str, Any] = {} if self.context.own else {"model": "", "created_at": made}
        if model is not None:
            self._around["model"] = model
        if time is not None and self.context.own:
            self._around["created_at"] = time
        self._message: dict[str, Any] = {"role": encode.role(head.message)}
        if not self.context.own:  # clients read it in every line
            self._message["content"] = ""

    def open(self, shown: Shown) -> None:
        """Part a further text from the one before; the first needs no beginning."""
        if isinstance(shown.part, Reasoning):
            if self._thoughts:
                self._emit({"thinking": _BETWEEN})
            self._thoughts += 1
        else:
            if self._texts:
                self._emit({"content": _BETWEEN})
            self._texts += 1

    def grow(self, shown: Shown, event: Delta) -> None:  # noqa: ARG002 (lines do not name parts)
        """Write a delta as a line."""
        if isinstance(event, ReasoningDelta):
            self._emit({"thinking": event.text})
        elif isinstance(event, TextDelta):
            self._emit({"content": event.text})
        else:
            self.context.lose("dropped", "signature", "the wire has no proofs")

    def cite(self, shown: Shown, citation: Citation) -> None:  # noqa: ARG002 (never written)
        """Write nothing: this wire has no citations."""
        self.context.lose("dropped", "citations", "the wire has none")

    def close(self, shown: Shown, _part: AssistantPart | None, /) -> None:
        """Write a text that stayed empty; nothing else marks the end of one."""
        if isinstance(shown.part, Text) and not shown.grown:
            self._emit({"content": ""})

    def write_whole(self, shown: Shown) -> None:
        """Write a call, or an image, in a line of its own."""
        part = shown.part
        if isinstance(part, (ToolCall, MalformedToolCall)):
            self._emit({"tool_calls": [encode.call(part, self.context)]})
        elif isinstance(part, Image) and isinstance(part.source, Inline):
            self._emit({"images": [part.source.data]})
        else:
            self.context.lose("dropped", type(part).__name__, "an answer here cannot hold it")

    def finish_answer(self, answer: Response) -> None:
        """Write the last line: the answer without its parts."""
        message = structs.replace(answer.message, content=())
        body = encode.response(structs.replace(answer, message=message, alternatives=()), self.context)
        self._line(body)

    def fail(self, failed: Failed) -> None:
        """Write the error, the provider's own where it came from here."""
        raw = failed.raw_json
        if self.context.own and failed.kind == "provider" and isinstance(raw, Raw) and "error" in jsontext.fields(raw):
            self.write(_flat(raw))
        else:
            self._line({"error": failed.reason})

    def native(self, event: ProviderEvent) -> None:
        """Write an unknown line unchanged."""
        self.write(_flat(event.data_json))

    def _must_fit(self, part: AssistantPart) -> bool:  # noqa: ARG002 (all parts alike)
        """Decide that a call of this wire's own goes back as it came, also when it did not parse."""
        return not self.context.own

    def _emit(self, fields: dict[str, Any]) -> None:
        self._line({**self._around, "message": {**self._message, **fields}, "done": False})

    def _line(self, fields: dict[str, Any]) -> None:
        self.write(_flat(jsontext.encode(fields)))


_BETWEEN: Final = "\n\n"


def _flat(data: bytes | Raw) -> bytes:
    """Make a line. Outside of strings, where a line break is escaped, JSON takes a space for one.

    The official client takes U+0085, U+2028 and U+2029 for line ends too; the server escapes the last two, as here.
    """
    line = bytes(data)
    if not line.isascii():
        for end, escaped in _LINE_ENDS:
            line = line.replace(end, escaped)
    return ndjson.write(line.replace(b"\r", b" ").replace(b"\n", b" "))


_LINE_ENDS: Final = tuple((chr(code).encode(), f"\\u{code:04x}".encode()) for code in (0x85, 0x2028, 0x2029))
