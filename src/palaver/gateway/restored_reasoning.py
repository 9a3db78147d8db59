"""The conversation that a client sends, with the reasoning of each model as its own wire wrote it.

Rules:

- An envelope (``proof_envelope``) is opened, and the reasoning, bound to its wire, stands in its place. The codec of
  that wire sends it; any other drops it, with a loss. Reasoning that was edited since has no proof any more.
- An answer without reasoning gets it out of a ``ReasoningMemory``: the client's wire has no field for it, or the client
  left it out, as Claude Code does with that of models which it does not know.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage
from palaver.core.parts import AssistantPart, Reasoning, Text, ToolCall
from palaver.gateway.proof_envelope import MARKER, Sealed, digest_of, unseal
from palaver.gateway.reasoning_memory import keys_of, without_space
from palaver.wires._engine import json_fields

if TYPE_CHECKING:
    from palaver.core.messages import Message
    from palaver.gateway.client_api import ReasoningForm
    from palaver.gateway.reasoning_memory import ReasoningMemory


def opened(messages: tuple[Message, ...], wire: str, form: ReasoningForm) -> tuple[Message, ...]:
    """Return the messages of a client of ``wire`` with their envelopes opened; the same object where there are none."""
    if form.alone is None and form.call_field is None:
        return messages
    found = tuple([_opened(each, wire, form) for each in messages])
    return messages if all(map(is_, found, messages)) else found


def _opened(message: Message, wire: str, form: ReasoningForm) -> Message:
    if type(message) is not AssistantMessage:  # isinstance costs three times as much
        return message
    if not any(_sealed(part, wire, form) for part in message.content):
        return message
    return message.replace(content=tuple(_Opened(wire, form).read(message.content)))


def _sealed(part: AssistantPart, wire: str, form: ReasoningForm) -> bool:
    """Whether a part holds an envelope, or what looks like one."""
    if type(part) is Reasoning:
        return (part.signature or part.encrypted or "").startswith(MARKER)
    return type(part) is ToolCall and _envelope_of(part, wire, form) is not None


def _envelope_of(part: ToolCall, wire: str, form: ReasoningForm) -> str | None:
    if form.call_field is None:
        return None
    raw = json_fields.native(part, wire).get(form.call_field)
    text = jsontext.text(raw) if raw is not None and jsontext.kind(raw) == "a string" else ""
    return text if text.startswith(MARKER) else None


class _Opened:
    """Opens the envelopes of one message."""

    def __init__(self, wire: str, form: ReasoningForm) -> None:
        self._wire, self._form = wire, form
        self._content: list[AssistantPart] = []
        self._texts = 0
        """How many parts at the end are reasoning without a proof: the pieces of a text that a proof follows."""
        self._restored = False
        """Whether reasoning before the next call is there."""
        self._proof: Sealed | None = None
        """What belongs to the next call."""

    def read(self, parts: Sequence[AssistantPart]) -> list[AssistantPart]:
        """Return the parts."""
        for part in parts:
            if isinstance(part, Reasoning):
                self._reasoning(part)
                continue
            self._texts = 0
            if isinstance(part, ToolCall):
                part = self._call(part)  # noqa: PLW2901 (the same call)
            self._content.append(part)
        return self._content

    def _reasoning(self, part: Reasoning) -> None:
        proof = part.signature or part.encrypted
        if proof is None or not proof.startswith(MARKER):
            self._content.append(part)
            self._texts = 0 if proof else self._texts + 1
            return
        sealed = unseal(proof)
        for each in sealed:
            if each.call:
                self._proof = each
            else:
                found = self._reopened(each, part.text)
                self._content.append(found)
                self._restored = self._restored or found.wire is not None
        if not sealed:
            self._content.append(trusted.Reasoning(part.text))
        self._texts = 0

    def _reopened(self, sealed: Sealed, text: str) -> Reasoning:
        if sealed.text is not None:
            return sealed.reasoning(sealed.text)
        if digest_of(text) == sealed.digest:
            return sealed.reasoning(text)
        pieces = self._content[len(self._content) - self._texts :]
        joined = "".join([each.text for each in pieces if isinstance(each, Reasoning)]) + text
        if digest_of(joined) == sealed.digest:
            del self._content[len(self._content) - self._texts :]
            return sealed.reasoning(joined)
        return trusted.Reasoning(text)

    def _call(self, part: ToolCall) -> ToolCall:
        envelope = _envelope_of(part, self._wire, self._form)
        if envelope is not None:
            fields = json_fields.native(part, self._wire)
            fields.pop(self._form.call_field or "")
            part = json_fields.with_native(part, self._wire, fields)
            for each in unseal(envelope):
                if each.call:
                    self._proof = each
                elif not self._restored and each.text is not None:
                    self._content.append(each.reasoning(each.text))
        self._restored = False
        proof, self._proof = self._proof, None
        return part if proof is None or proof.provider is None else _with_fields(part, Raw(proof.provider.encode()))


def _with_fields(part: ToolCall, stored: Raw) -> ToolCall:
    """Return a call with the fields of the wire that made it, beside those that the client sent."""
    own = {} if part.provider_json is UNSET else jsontext.fields(part.provider_json)
    return structs.replace(part, provider_json=jsontext.raw({**own, **jsontext.fields(stored)}))


# -- reasoning that does not come back ------------------------------------------------------------------------


def remembered(
    messages: tuple[Message, ...],
    wire: str,
    memory: ReasoningMemory,
    scope: str,
    restored: dict[int, tuple[Message, object, Message]],
) -> tuple[Message, ...]:
    """Return the messages of a client of ``wire`` with the reasoning that a memory has of them.

    ``restored`` keeps what was made for a conversation: the same object comes of the same message and reasoning.
    """
    if not memory:
        return messages
    found = list(messages)
    for place, (message, key) in enumerate(zip(messages, keys_of(messages, scope), strict=True)):
        if key is None or not (parts := memory.find(key)):
            continue
        before = restored.get(place)
        if before is None or before[0] is not message or before[1] is not parts:
            before = restored[place] = message, parts, _restored(message, wire, parts)
        found[place] = before[2]
    return messages if all(map(is_, found, messages)) else tuple(found)


def _restored(message: Message, wire: str, parts: Sequence[AssistantPart]) -> Message:
    """Put reasoning where it stood, between the texts and the calls of the client."""
    if not isinstance(message, AssistantMessage):
        return message
    texts = _same_texts(message.content, parts)
    if any(type(part) is Reasoning and part.wire != wire for part in message.content):
        # an envelope restored it, or it was edited
        return message.replace(content=_with_texts(message.content, texts)) if texts else message
    calls = {part.id: part for part in message.content if isinstance(part, ToolCall)}
    gone = (ToolCall, Reasoning, Text) if texts else (ToolCall, Reasoning)
    others = [part for part in message.content if not isinstance(part, gone)]
    content: list[AssistantPart] = []
    for part in parts:
        match part:
            case Reasoning():
                content.append(part)
            case ToolCall(id=call_id, provider_json=stored) if call_id in calls:
                call = calls.pop(call_id)
                content.append(_with_fields(call, stored) if isinstance(stored, Raw) else call)
            case Text():
                content += others
                content += (part,) if texts else ()
                others = []
            case _:
                pass
    return message.replace(content=(*content, *others, *calls.values()))


def _same_texts(content: Sequence[AssistantPart], parts: Sequence[AssistantPart]) -> list[AssistantPart]:
    """Return the texts that were kept with their proofs, where the client still has the same; else none."""
    kept = [part for part in parts if isinstance(part, Text)]
    if all(part.provider_json is UNSET for part in kept):
        return []
    now = "".join([part.text for part in content if isinstance(part, Text)])
    same = without_space(now) == without_space("".join([part.text for part in kept]))
    return [*kept] if same else []


def _with_texts(content: Sequence[AssistantPart], texts: list[AssistantPart]) -> tuple[AssistantPart, ...]:
    """Put texts where the first text stands, instead of all of them."""
    found: list[AssistantPart] = []
    for part in content:
        if isinstance(part, Text):
            found += texts
            texts = []
        else:
            found.append(part)
    return (*found, *texts)
