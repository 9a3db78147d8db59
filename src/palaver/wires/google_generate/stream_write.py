"""The stream of Gemini, written: each event is a whole answer that holds what is new (docs/spec/wires.md#5.3).

- Every event names the model and the id of the answer, as Gemini's do. Text is sent in pieces, calls are sent whole.
- A text or thought that has fields of its own, such as a signature, is one event: pieces of it would be parts.
- A signature that comes behind the pieces of a thought stands on an empty thought behind them, as Gemini signs texts.
- The last event holds the finish reasons, usage and every other field of the answer; without a part, it holds an
  empty text, as Gemini's does. It is what ``encode`` writes of the answer without its parts.
- A failure is an object ``{"error": …}``. A stream of Gemini's own fails as it did.

Several texts that adjoin become one for whoever reads the stream; an empty one disappears.

Source: docs/spec/wires.md#5.3 to #5.5; https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext
from palaver.core.events import ReasoningDelta, SignatureDelta, TextDelta
from palaver.core.parts import Reasoning
from palaver.stream import sse
from palaver.wires._engine.json_fields import native
from palaver.wires._engine.stream_encoder import Shown, StreamEncoder
from palaver.wires.google_generate.encode import response
from palaver.wires.google_generate.parts import write_part
from palaver.wires.google_generate.shapes import WIRE

if TYPE_CHECKING:
    from palaver.core.events import Delta, Failed, ProviderEvent
    from palaver.core.messages import AssistantMessage
    from palaver.core.parts import AssistantPart, Citation
    from palaver.core.request import Response

_IN_EVERY_EVENT: Final = frozenset({"modelVersion", "responseId"})
_STATUS: Final = re.compile(r"[A-Z]+(_[A-Z]+)*")
_INTERNAL: Final = 500


class Encoder(StreamEncoder):
    """Writes one stream of Gemini. Parts are sent one after another."""

    SERIAL_PARTS = True
    CHOICES = True
    WHOLE_CALLS = True
    DEFERRED = True

    _around: dict[str, Any]
    _candidates: list[dict[str, Any]]
    _pieces: list[str]

    def begin(self, head: Response) -> None:
        """Nothing is written yet; every event will name the answer."""
        found = response(_bare(head), self.context)
        self._around = {key: each for key, each in found.items() if key in _IN_EVERY_EVENT}
        self._candidates = _candidates(found)

    def open(self, shown: Shown) -> None:  # noqa: ARG002 (the shape of the hook)
        """Nothing is written before the first text."""
        self._pieces = []

    def grow(self, shown: Shown, event: Delta) -> None:
        """A piece of text, or the signature of a thought."""
        part = shown.part
        match event:
            case SignatureDelta(text=text) if isinstance(part, Reasoning):
                shown.part = structs.replace(part, signature=(part.signature or "") + text)
            case TextDelta() | ReasoningDelta() if _stands_alone(part):
                self._pieces.append(event.text)
            case TextDelta() | ReasoningDelta() if event.text:
                self._emit(shown.choice, structs.replace(part, text=event.text))
            case _:
                pass

    def close(self, shown: Shown, _part: AssistantPart | None, /) -> None:
        """A part that is one event, now that it is known."""
        if _stands_alone(shown.part):
            self._emit(shown.choice, structs.replace(shown.part, text="".join(self._pieces)))

    def write_whole(self, shown: Shown) -> None:
        """A part that is one event."""
        self._emit(shown.choice, shown.part)

    def cite(self, shown: Shown, citation: Citation) -> None:  # noqa: ARG002 (the shape of the hook)
        """Citations of this wire stand among the fields of the message."""
        self.context.lose("dropped", "citations", "the wire cites beside the text; the text stays")

    def finish_answer(self, answer: Response) -> None:
        """The last event: what ``encode`` writes of the answer without its parts."""
        body = response(_bare(answer, ended=True), self.context)
        for candidate in _candidates(body):
            content = _content(candidate)
            if content.get("parts") == []:
                content["parts"] = [{"text": ""}]
            if not self.context.own:
                candidate.setdefault("finishReason", "STOP")  # without a word, a stream broke off
        self._event(body)

    def fail(self, failed: Failed) -> None:
        """``{"error": …}``."""
        own = _own_error(failed) if self.context.own else None
        self._event({"error": _error(failed) if own is None else own})

    def native(self, event: ProviderEvent) -> None:
        """An event without a part of the answer; one that was also read as part of it is not written twice."""
        if not event.name:
            self._event(event.data_json)

    def _emit(self, choice: int, part: AssistantPart) -> None:
        begun = self._candidates[choice] if choice < len(self._candidates) else {}
        content = {"parts": [write_part(part, native(part, WIRE))]}
        role = _content(begun, _MODEL).get("role")
        candidate: dict[str, Any] = {"content": content if role is None else {**content, "role": role}}
        if choice or "index" in begun or not self.context.own:
            candidate["index"] = begun.get("index", choice)
        self._event({"candidates": [candidate], **self._around})

    def _event(self, body: object) -> None:
        self.write(sse.write(jsontext.encode(body)).replace(b"\n", b"\r\n"))


_MODEL: Final[dict[str, Any]] = {"role": "model"}


def _candidates(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The candidates of a body that was written; none may be kept as text."""
    found = body.get("candidates")
    return [] if found is None or isinstance(found, Raw) else found


def _content(candidate: dict[str, Any], otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    """The content of a candidate that was written; it may be missing, or kept as text."""
    found = candidate.get("content", otherwise)
    return {} if found is None or isinstance(found, Raw) else found


def _stands_alone(part: AssistantPart) -> bool:
    """Whether a part must be one event. One whose signature came after its pieces has a further event for it."""
    return (isinstance(part, Reasoning) and part.signature is not None) or bool(native(part, WIRE))


def _bare(answer: Response, *, ended: bool = False) -> Response:
    """An answer without its parts, and before its end without finish reason and usage."""

    def bare(message: AssistantMessage) -> AssistantMessage:
        if ended:
            return structs.replace(message, content=())
        return structs.replace(message, content=(), usage=None, finish_reason=None, finish_reason_raw=UNSET)

    return structs.replace(answer, message=bare(answer.message), alternatives=tuple(map(bare, answer.alternatives)))


def _own_error(failed: Failed) -> Raw | None:
    """The error as Gemini sent it, alone or in a list."""
    if failed.raw_json is UNSET:
        return None
    bodies = jsontext.items(failed.raw_json) if jsontext.kind(failed.raw_json) == "an array" else [failed.raw_json]
    for body in bodies:
        if jsontext.kind(body) == "an object" and "error" in (fields := jsontext.fields(body)):
            return fields["error"]
    return None


def _error(failed: Failed) -> dict[str, Any]:
    code = failed.code or ""
    return {
        "code": int(code) if code.isascii() and code.isdecimal() and len(code) == 3 else _INTERNAL,  # noqa: PLR2004 (HTTP)
        "message": failed.reason,
        "status": code if _STATUS.fullmatch(code) else "INTERNAL",
    }
