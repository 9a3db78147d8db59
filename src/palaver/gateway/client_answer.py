"""The answer of a model as a client of another wire gets it, before the codec of that wire writes it.

Rules:

- Reasoning of the model becomes reasoning of the client's wire, and never text. Its proof goes along in an envelope
  (``proof_envelope``), where the wire has a field for proofs; ``conversation`` opens it when it comes back.
- The proof stands behind the text, so that no word waits for it. Reasoning without a text is an envelope alone; a wire
  without proofs gets none.
- A tool call that has a proof of its own gets an envelope before it, or in its own field where the wire has one. There
  it also proves the reasoning before it, since clients of such a wire send back their calls, but not always their
  thoughts.
- An answer has an id of its own where the wire has one (``ClientApi.answer_id``): not every model's server gives ids,
  some give the same again, and clients take two answers with one id for one.
- ``single``: the client allows one call an answer, and the model's wire cannot say so. Further calls are left out.
- Where the client's wire has the time of an answer, one whose model names none has ``time``.
- An answer that failed and holds nothing but reasoning is an error, which the client sees and may repeat: most wires
  have no other word for it.
- A text that stays empty is left out where the answer holds anything else: some servers end each answer with one.
- ``echo``: the fields of the request that an answer of the client's wire repeats.
- ``usage``: a stream tells usage. Chat Completions does so only where the client asks for it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, structs

from palaver import wires
from palaver.core import trusted
from palaver.core.errors import ProviderError
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    Event,
    Finish,
    PartEnd,
    PartStart,
    ReasoningDelta,
    SignatureDelta,
    Start,
    TextDelta,
    Update,
    UsageUpdate,
)
from palaver.core.jsontext import paired
from palaver.core.parts import MalformedToolCall, Reasoning, Text, ToolCall
from palaver.core.request import Loss, Response
from palaver.gateway.proof_envelope import Sealed, of_call, of_reasoning, seal
from palaver.wires._engine import json_fields, metadata

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.core.jsontext import Fields
    from palaver.core.messages import AssistantMessage
    from palaver.core.parts import AssistantPart
    from palaver.gateway.client_api import ReasoningForm
    from palaver.gateway.client_calls import ClientCalls

_ENVELOPES: Final = 1_000_000
"""The number of the first part that is made here; no answer has so many parts."""


class ClientAnswer:
    """Changes one answer, whole (``response``) or as it comes (``feed``)."""

    def __init__(
        self,
        *,
        wire: str,
        form: ReasoningForm,
        model_wire: str,
        model_form: ReasoningForm,
        calls: ClientCalls,
        single: bool = False,
        answer_id: str | None = None,
        time: int | None = None,
        usage: bool = True,
        echo: Mapping[str, Raw] | None = None,
    ) -> None:
        """Keep the two wires, and how each holds reasoning. ``answer_id`` is the id that the client gets.

        ``time`` is in Unix milliseconds.
        """
        self._answer_id, self._begun = answer_id, answer_id is None
        self._time = time if wires.get(wire).capabilities.has_time else None
        self._usage, self._echo = usage, echo or {}
        self._wire, self._form = wire, form
        self._model_wire, self._call_field = model_wire, model_form.call_field
        self._unproven = model_form.proof is None
        """Whether the model's reasoning has no proof that could come late: it ends where anything else begins."""
        self.calls, self._single = calls, single
        self._bare = trusted.Reasoning(
            wire=wire, provider_json=json_fields.provider(wire, {}, _words(form.provider.get(f"@{wire}", {})))
        )
        self._unsaid: dict[int, list[Sealed]] = {}
        """Of each choice: reasoning that the next call proves."""
        self._open: dict[int, _OpenReasoning] = {}
        self._called: set[int] = set()
        self._left_out: set[int] = set()
        self._proven: dict[int, ToolCall] = {}
        """Calls that hold an envelope."""
        self._made = 0
        self._losses: dict[Loss, None] = {}
        self._blank: dict[int, PartStart] = {}
        """Texts that are empty so far."""
        self._left_empty: dict[int, PartStart] = {}
        """Of each choice: a text that stayed empty."""
        self._texts: dict[int, PartStart] = {}
        """Texts that are open, as the client got them."""
        self._cut: dict[int, int] = {}
        """Texts that were ended where a call began, and their choices."""
        self._shown: set[int] = set()
        """The choices that hold anything but reasoning and empty texts."""
        self._actions: dict[type, Callable[[Any], Sequence[Event]]] = {
            Start: self._set_id,
            Update: self._set_id,
            PartStart: self._start,
            TextDelta: self._tell,
            CitationDelta: self._tell,
            ReasoningDelta: self._reason,
            SignatureDelta: self._prove,
            DataDelta: self._prove,
            ArgumentsDelta: self._argue,
            PartEnd: self._end,
            Finish: self._finish,
        }
        if not single:
            del self._actions[ArgumentsDelta]
        if not usage:
            self._actions[UsageUpdate] = lambda _: ()

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What was left out."""
        return tuple(self._losses)

    # -- whole -------------------------------------------------------------------------------------

    def response(self, response: Response) -> Response:
        """Return a whole answer. Raises ``ProviderError`` for one that failed and holds nothing."""
        message = response.message
        if message.finish_reason == "error" and _is_thought([part for part in message.content if not _is_empty(part)]):
            raise _failure(self._model_wire, message.finish_reason_raw)
        others = tuple([self._message(each, choice) for choice, each in enumerate(response.alternatives, 1)])
        changed = structs.replace(
            response, message=self._message(response.message, 0), alternatives=others, original=None
        )
        return self._identified(changed)

    def _identified(self, response: Response) -> Response:
        """Return an answer with its own id, a time, and what it repeats of the request."""
        if self._echo:
            stored = json_fields.native(response, self._wire)
            response = json_fields.with_native(response, self._wire, {**stored, **self._echo})
        timed = response if self._time is None else metadata.with_time(response)
        message = timed.message
        if self._time is not None and message.sent_at is None:
            message = message.replace(sent_at=self._time)
        if self._answer_id is not None:
            message = message.replace(response_id=self._answer_id)
        return structs.replace(response, message=message)

    def _message(self, message: AssistantMessage, choice: int) -> AssistantMessage:
        content: list[AssistantPart] = []
        for part in message.content:
            content += self._parts(part, choice)
        told = [part for part in content if not _is_empty(part)]
        return message.replace(content=tuple(content if _is_thought(told) else told))

    def _parts(self, part: AssistantPart, choice: int) -> Iterable[AssistantPart]:
        match part:
            case Reasoning():
                changed = self._reasoning(part, choice)
                return () if changed is None else (changed,)
            case ToolCall():
                return () if self._is_left_out(part, choice) else self._call(part, choice)
            case MalformedToolCall():
                return (self.calls.malformed(part),)
            case _:
                return (part,)

    def _reasoning(self, part: Reasoning, choice: int) -> Reasoning | None:
        proof, text = self._proof(part, choice)
        if proof is None:
            return structs.replace(self._bare, text=text) if text else None
        return structs.replace(self._bare, text=text, **{proof[0]: proof[1]})

    def _proof(self, part: Reasoning, choice: int) -> tuple[tuple[str, str] | None, str]:
        """Return the field and the envelope that prove reasoning (``None``: the wire has none), and its text."""
        text = paired(part.text)
        part = part if text == part.text else structs.replace(part, text=text)
        if self._form.call_field is not None:
            self._unsaid.setdefault(choice, []).append(of_reasoning(part, self._model_wire, with_text=True))
        field = self._form.proof if text else self._form.alone
        if field is None:
            return None, text
        return (field, seal([of_reasoning(part, self._model_wire, with_text=False)])), text

    # -- calls -------------------------------------------------------------------------------------

    def _is_left_out(self, part: ToolCall, choice: int) -> bool:
        if not self._single or part.provider_executed:
            return False
        if choice not in self._called:
            self._called.add(choice)
            return False
        loss = Loss("dropped", "tool call", "the client allows one call an answer", choice, whole="response")
        self._losses[loss] = None
        return True

    def _call(self, part: ToolCall, choice: int) -> tuple[AssistantPart, ...]:
        """Return a call with what proves it, and the reasoning before it."""
        sealed, made = self._unsaid.pop(choice, []), part
        part = self.calls.call(part)  # before its fields go: they tell whether the id was made
        if self._call_field is not None and self._call_field in json_fields.native(made, self._model_wire):
            sealed = [*sealed, of_call(made, self._model_wire)]
            part = json_fields.without(part, self._model_wire)
        if not sealed:
            return (part,)
        if self._form.call_field is not None:
            return (json_fields.with_native(part, self._wire, {self._form.call_field: seal(sealed)}),)
        if self._form.alone is None:
            return (part,)
        return (structs.replace(self._bare, **{self._form.alone: seal(sealed)}), part)

    # -- as it comes -------------------------------------------------------------------------------

    def feed(self, event: Event) -> Sequence[Event]:
        """Return what the client gets for an event. Raises ``ProviderError`` as ``response`` does."""
        if not self._begun:
            return self._begin(event)
        action = self._actions.get(type(event))
        return (event,) if action is None else action(event)

    def _begin(self, event: Event) -> Sequence[Event]:
        """Begin with the id of the answer."""
        self._begun = True
        if isinstance(event, Start):
            return self.feed(event)
        return [*self._set_id(Start(Response(trusted.AssistantMessage()))), *self.feed(event)]

    def _set_id(self, event: Start | Update) -> Sequence[Event]:
        response = self._identified(event.response)
        if not self._usage and response.message.usage is not None:
            response = structs.replace(response, message=response.message.replace(usage=None))
        return (structs.replace(event, response=response),)

    def _start(self, event: PartStart) -> Sequence[Event]:
        part, index = event.part, event.index
        if type(part) is Reasoning:
            pending = self._open[index] = _OpenReasoning(event)
            begun: list[Event] = []
            if self._form.alone is not None or part.text:
                begun = pending.begin(self._bare)
            return [*begun, ReasoningDelta(index, part.text)] if part.text else begun
        if not _is_empty(part):
            self._shown.add(event.choice)
        if self._unproven and self._open:
            return [*self._close_all(), *self._start_other(event, part, index)]
        return self._start_other(event, part, index)

    def _start_other(self, event: PartStart, part: AssistantPart, index: int) -> Sequence[Event]:
        match part:
            case ToolCall():
                if self._is_left_out(part, event.choice):
                    self._left_out.add(index)
                    return ()
                return self._start_call(event, part)
            case MalformedToolCall():
                return (structs.replace(event, part=self.calls.malformed(part)),)
            case _ if _is_empty(part):
                self._blank[index] = event
                return ()
            case Text():
                self._texts[index] = event
                return (event,)
            case _:
                return (event,)

    def _tell(self, event: TextDelta | CitationDelta) -> Sequence[Event]:
        index = event.index
        if isinstance(event, TextDelta) and not event.text and (index in self._blank or index in self._cut):
            return ()
        begun: list[Event] = []
        if index in self._blank:
            begun.append(self._show(index))
        elif index in self._cut:
            number, self._made = _ENVELOPES + self._made, self._made + 1
            self._texts[index] = PartStart(number, trusted.Text(""), self._cut.pop(index))
            begun.append(self._texts[index])
        start = self._texts.get(index)
        return [*begun, event if start is None or start.index == index else structs.replace(event, index=start.index)]

    def _show(self, index: int) -> PartStart:
        start = self._texts[index] = self._blank.pop(index)
        self._shown.add(start.choice)
        return start

    def _cut_texts(self, choice: int) -> list[Event]:
        """End the texts before a call: clients put what they get in the order in which it ends."""
        ended = {index: start for index, start in self._texts.items() if start.choice == choice}
        for index in ended:
            del self._texts[index]
            self._cut[index] = choice
        return [PartEnd(start.index) for start in ended.values()]

    def _end_text(self, event: PartEnd) -> Sequence[Event]:
        """End a text that got no delta."""
        if isinstance(event.part, Text) and event.part.text:
            return (self._show(event.index), TextDelta(event.index, event.part.text), event)
        start = self._blank.pop(event.index)
        self._left_empty.setdefault(start.choice, start)
        return ()

    def _start_call(self, event: PartStart, part: ToolCall) -> Sequence[Event]:
        *before, call = self._call(part, event.choice)
        events = self._cut_texts(event.choice)
        for each in before:
            number, self._made = _ENVELOPES + self._made, self._made + 1
            events += [structs.replace(event, index=number, part=each), PartEnd(number)]
        if self._form.call_field is not None and isinstance(call, ToolCall):
            self._proven[event.index] = call
        return [*events, structs.replace(event, part=call)]

    def _reason(self, event: ReasoningDelta) -> Sequence[Event]:
        pending = self._open.get(event.index)
        if pending is None:
            return self._reason_again(event)
        pending.pieces.append(event.text)
        index = pending.start.index
        event = event if index == event.index else structs.replace(event, index=index)
        if pending.begun:
            return (event,)
        return [*pending.begin(self._bare), event] if event.text else ()

    def _reason_again(self, event: ReasoningDelta) -> Sequence[Event]:
        """Begin another part: the one of this reasoning has ended, where something else began."""
        number, self._made = _ENVELOPES + self._made, self._made + 1
        pending = self._open[event.index] = _OpenReasoning(PartStart(number, trusted.Reasoning(wire=self._model_wire)))
        pending.pieces.append(event.text)
        return [*pending.begin(self._bare), structs.replace(event, index=number)]

    def _prove(self, event: SignatureDelta | DataDelta) -> Sequence[Event]:
        pending = self._open.get(event.index)
        if pending is None:
            return (event,)
        proof = pending.signature if isinstance(event, SignatureDelta) else pending.encrypted
        proof.append(event.text)
        return ()

    def _argue(self, event: ArgumentsDelta) -> Sequence[Event]:
        return () if event.index in self._left_out else (event,)

    def _end(self, event: PartEnd) -> Sequence[Event]:
        if event.index in self._blank:
            return self._end_text(event)
        pending = self._open.pop(event.index, None)
        if pending is not None:
            last = event.part if pending.start.index == event.index else None  # another part holds what came before
            return self._close(pending, last)
        if event.index in self._left_out or self._cut.pop(event.index, None) is not None:
            return ()
        start = self._texts.pop(event.index, None)
        if start is not None and start.index != event.index:
            return (PartEnd(start.index),)  # another part holds what came before
        match event.part:
            case ToolCall() as call:
                return (structs.replace(event, part=self._last_word(event.index, call)),)
            case MalformedToolCall() as call:
                return (structs.replace(event, part=self.calls.malformed(call)),)
            case Reasoning():  # it is closed already
                return ()
            case _:
                return (event,)

    def _last_word(self, index: int, part: ToolCall) -> ToolCall:
        """Return the provider's last word on a call, with what its start was given."""
        part = self.calls.call(part)
        part = json_fields.without(part, self._model_wire) if self._call_field else part
        begun = self._proven.get(index)
        return (
            part if begun is None else json_fields.with_native(part, self._wire, json_fields.native(begun, self._wire))
        )

    def _finish(self, event: Finish) -> Sequence[Event]:
        if event.reason == "error" and event.choice not in self._shown:
            raise _failure(self._model_wire, event.raw)
        closed = self._close_all()
        empty = self._left_empty.pop(event.choice, None)
        if empty is not None and event.choice not in self._shown:
            closed += [empty, PartEnd(empty.index)]
        return [*closed, event] if closed else (event,)

    def _close_all(self) -> list[Event]:
        pending, self._open = self._open, {}
        return [each for found in pending.values() for each in self._close(found, None)]

    def _close(self, pending: _OpenReasoning, last: AssistantPart | None) -> Sequence[Event]:
        """End reasoning, with its proof."""
        index = pending.start.index
        whole = pending.whole()
        original = structs.replace(last, text=whole.text or last.text) if isinstance(last, Reasoning) else whole
        proof, text = self._proof(original, pending.start.choice)
        events: list[Event] = []
        if not pending.begun and (text or proof is not None):
            events += pending.begin(self._bare)
        if text and not whole.text:
            events.append(ReasoningDelta(index, text))
        if proof is not None:
            delta = SignatureDelta if proof[0] == "signature" else DataDelta
            events.append(delta(index, proof[1]))
        return [*events, PartEnd(index)] if pending.begun else events


def _is_empty(part: AssistantPart) -> bool:
    return type(part) is Text and not part.text and not part.citations


def _is_thought(parts: Sequence[AssistantPart]) -> bool:
    """Whether an answer holds nothing but reasoning."""
    return all(isinstance(part, Reasoning) for part in parts)


def _failure(wire: str, raw: object) -> ProviderError:
    error = ProviderError(wire, "the answer holds nothing", code=raw if isinstance(raw, str) else None)
    error.retryable = True
    return error


class _OpenReasoning:
    """Reasoning that is arriving."""

    __slots__ = ("begun", "encrypted", "pieces", "signature", "start")

    def __init__(self, start: PartStart) -> None:
        self.start = start
        self.begun = False
        self.pieces: list[str] = []
        self.signature: list[str] = []
        self.encrypted: list[str] = []

    def begin(self, bare: Reasoning) -> list[Event]:
        """Begin it for the client."""
        self.begun = True
        return [structs.replace(self.start, part=bare)]

    def whole(self) -> Reasoning:
        """Return what came of it, as the model's wire has it."""
        part = self.start.part
        assert isinstance(part, Reasoning)  # noqa: S101 (only such parts are opened)
        signature, encrypted = "".join(self.signature), "".join(self.encrypted)
        return structs.replace(
            part,
            text=paired(part.text + "".join(self.pieces)),
            signature=(part.signature or "") + signature if signature else part.signature,
            encrypted=(part.encrypted or "") + encrypted if encrypted else part.encrypted,
        )


def _words(noted: Mapping[str, str]) -> Fields:
    return {key: json_fields.word(text) for key, text in noted.items()}
