"""Events of OpenHands: event files, downloaded trajectories, and outputs of evaluations (``history``). Only read.

Read, of the first generation: an action of the agent is a call, with its ``thought`` as text before it; ``message``,
``system`` and a ``finish`` without a call are texts. An observation is the result of its ``cause``. Ids and arguments
of calls are those in ``tool_call_metadata``, with the model, the usage and the reasoning of ``model_response``;
without it, a call has an id by its event. Of the second generation (``kind``): ``MessageEvent``, ``ActionEvent`` and
so on. Actions of one response that follow each other are one answer. Older outputs have pairs of an action and an
observation.

A list is one conversation, and so is a folder of event files; each line with a ``history`` is one of its own. Events
that no model sees (states, recalls, condensations) keep their place as records.

Not written: the program keeps a conversation in several files of its own.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import MessageError, PalaverError
from palaver.core.messages import AssistantMessage, Message
from palaver.core.parts import AnyPart, Image, Reasoning
from palaver.transcripts import documents
from palaver.transcripts.calls import answered
from palaver.transcripts.chat_list import SIGNED, WIRE
from palaver.transcripts.conversation import Conversation, Session, derived_id
from palaver.transcripts.detection import Detection, Head, word
from palaver.transcripts.fields import either, flag, inner, kind_of, listed, read_time, split, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.original_bytes import keep
from palaver.transcripts.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.transcripts.conversation import Step
    from palaver.transcripts.format import Origin
    from palaver.transcripts.unknown_fields import Watch

NAME: Final = "openhands"

_SOURCES: Final = frozenset(("agent", "user", "environment", "hook"))
_LISTS: Final = ("history", "trajectory")
_SILENT_ACTIONS: Final = frozenset(
    ("change_agent_state", "null", "recall", "condensation", "condensation_request", "loop_recovery", "start", "push")
)
_SILENT_OBSERVATIONS: Final = frozenset(("agent_state_changed", "null", "recall", "condense", "loop_detection"))
_SILENT_KINDS: Final = frozenset(
    (
        "ConversationStateUpdateEvent",
        "Condensation",
        "CondensationRequest",
        "CondensationSummaryEvent",
        "PauseEvent",
        "TokenEvent",
        "LLMCompletionLogEvent",
        "InterruptEvent",
    )
)
_ASIDE: Final = frozenset(
    ("thought", "blocking", "is_input", "hidden", "confirmation_state", "security_risk", "is_confirmed", "agent")
)
"""Arguments of an action that no model wrote, or that are its text."""


def detect(head: Head) -> Detection | None:
    """Return an event, in a file, a list, a line or under ``history``; or an evaluation whose history comes later."""
    fields = head.fields or head.first
    metadata = fields.get("metadata")
    evaluated = isinstance(metadata, dict) and {"agent_class", "llm_config"} <= cast("dict[str, Any]", metadata).keys()
    found = [*head.items[:4], fields, *(each for key in _LISTS for each in _events(fields.get(key)))]
    if any(map(_is_event, found)):
        return Detection(0.95)
    return Detection(0.9) if evaluated and "instance_id" in fields else None


def _events(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the first events of a list, which may be pairs."""
    items = cast("list[object]", value)[:4] if isinstance(value, list) else ()
    for item in items:
        pair: Sequence[object] = cast("list[object]", item) if isinstance(item, list) else (item,)
        yield from (cast("dict[str, Any]", each) for each in pair if isinstance(each, dict))


def _is_event(event: Mapping[str, Any]) -> bool:
    if word(event, "source") not in _SOURCES:
        return False
    if "kind" in event:
        return "timestamp" in event and word(event, "kind").endswith(("Event", "Condensation"))
    acts = isinstance(event.get("action"), str) and isinstance(event.get("args"), dict)
    return acts or (isinstance(event.get("observation"), str) and isinstance(event.get("content"), str))


class _Events:
    """Reads the events of one conversation."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._calls: dict[str, tuple[str, str]] = {}  # the id and the name of the call of an event
        self._counted: set[str] = set()

    def message(self, event: Fields, line: int | None) -> Message | None:
        """Return the message of an event; ``None`` for one that is not seen by a model."""
        try:
            found = self._second(event, line) if "kind" in event else self._first(event, line)
        except PalaverError as error:
            self._watch.note("unread", str(error), line)
            return None
        at = read_time(value(event, "timestamp"))
        return found if found is None or at is None else structs.replace(found, sent_at=at)

    # -- first generation ------------------------------------------------------------------------------------------

    def _first(self, event: Fields, line: int | None) -> Message | None:
        action, observation = string(event, "action"), string(event, "observation")
        if action is not None:
            return None if action in _SILENT_ACTIONS else self._action(action, event, line)
        if observation is not None:
            return None if observation in _SILENT_OBSERVATIONS else self._observation(observation, event)
        self._watch.note("unread", f"an event with {', '.join(event) or 'nothing'}", line)
        return None

    def _action(self, action: str, event: Fields, line: int | None) -> Message | None:
        args, source = inner(event, "args"), string(event, "source")
        if action == "system":
            return trusted.SystemMessage(content=(trusted.Text(string(args, "content") or ""),))
        if action == "message":
            content = (*_text(string(args, "content")), *_images(args))
            if source == "user":
                return trusted.UserMessage(content=content)
            texts = tuple([part for part in content if not isinstance(part, Image)])
            return self._answer(event, texts)
        if source not in {"agent", None}:
            self._watch.note("unread", f"{action} of {source}", line)
            return None
        called = inner(event, "tool_call_metadata")
        if action == "finish" and not called:
            return self._answer(event, _text(string(args, "thought") or string(args, "final_thought")))
        number = bytes(event.get("id", b"")).decode()
        call, name = string(called, "tool_call_id") or f"event-{number}", string(called, "function_name") or action
        self._calls[number] = (call, name)
        arguments = _arguments(called, call) or jsontext.encode(
            {key: raw for key, raw in args.items() if key not in _ASIDE or (action == "think" and key == "thought")}
        )
        thought = None if action == "think" and not called else string(args, "thought")
        return self._answer(event, (*_text(thought), trusted.ToolCall(call, name, bytes(arguments).decode())))

    def _answer(self, event: Fields, content: tuple[Any, ...]) -> AssistantMessage:
        """Return an answer, with the data of its response, which are counted once."""
        response = inner(inner(event, "tool_call_metadata"), "model_response")
        message = trusted.AssistantMessage(content=content)
        if "choices" not in response:
            return answered(message, response_id=string(response, "id"), model=string(response, "model"))
        for choice in map(split, listed(response, "choices")):
            string(inner(choice, "message"), "reasoning_content")  # the wire skips one of another type
        whole = wires.get(WIRE).decode_response(jsontext.encode(response)).message
        known = whole.response_id in self._counted
        self._counted.add(whole.response_id or "")
        thoughts = () if known else tuple([part for part in whole.content if isinstance(part, Reasoning)])
        message = structs.replace(message, content=(*thoughts, *content))
        usage = None if known else whole.usage
        return answered(message, response_id=whole.response_id, model=whole.model, usage=usage)

    def _observation(self, observation: str, event: Fields) -> Message:
        called, extras = inner(event, "tool_call_metadata"), inner(event, "extras")
        call, name = self._calls.get(bytes(event.get("cause", b"")).decode(), (None, None))
        call, name = string(called, "tool_call_id") or call, string(called, "function_name") or name
        content = (*_text(string(event, "content") or ""), *_images(extras))
        if call is None:
            return trusted.UserMessage(content=content)
        failed = observation == "error" or flag(extras, "error")
        return trusted.ToolMessage(content=content, tool_call_id=call, tool_name=name, is_error=failed)

    # -- second generation -----------------------------------------------------------------------------------------

    def _second(self, event: Fields, line: int | None) -> Message | None:
        kind = string(event, "kind") or ""
        match kind:
            case "SystemPromptEvent":
                return trusted.SystemMessage(content=_text(string(inner(event, "system_prompt"), "text")))
            case "MessageEvent":
                return self._said(inner(event, "llm_message"), event)
            case "ActionEvent":
                return self._called(event)
            case "ObservationEvent":
                return self._result(event, _observed(inner(event, "observation")))
            case "UserRejectObservation":
                return self._result(event, _text(string(event, "rejection_reason")), failed=True)
            case "AgentErrorEvent":
                return self._result(event, _text(string(event, "error")), failed=True)
            case _:
                if kind not in _SILENT_KINDS:
                    self._watch.note("record", kind, line)
                return None

    def _said(self, message: Fields, event: Fields) -> Message:
        content = _parts(message)
        if string(message, "role") != "assistant":
            return trusted.UserMessage(content=content)
        texts = tuple([part for part in content if not isinstance(part, Image)])
        answer = trusted.AssistantMessage(content=(*_thoughts(message), *texts))
        return answered(answer, response_id=string(event, "llm_response_id"))

    def _called(self, event: Fields) -> Message:
        call = inner(event, "tool_call")
        function = inner(call, "function") or call
        named = string(event, "tool_call_id") or string(call, "id") or ""
        name = string(event, "tool_name") or string(function, "name") or ""
        given = function.get("arguments")
        if given is None:
            action = {key: raw for key, raw in inner(event, "action").items() if key != "kind"}
            arguments = jsontext.encode(action).decode()
        else:
            is_text = either(given, "arguments", "a string", "an object") == "a string"
            arguments = jsontext.text(given) if is_text else bytes(given).decode()
        part: Any = trusted.ToolCall(named, name, arguments)
        if not jsontext.is_json(arguments):
            part = trusted.MalformedToolCall(arguments, "the arguments are not JSON", name, named)
        said = tuple([part for raw in listed(event, "thought") for part in _text(string(split(raw), "text"))])
        answer = trusted.AssistantMessage(content=(*_thoughts(event), *said, part))
        return answered(answer, response_id=string(event, "llm_response_id"))

    def _result(self, event: Fields, content: tuple[AnyPart, ...], *, failed: bool = False) -> Message:
        failed = failed or flag(inner(event, "observation"), "is_error")
        call, name = string(event, "tool_call_id"), string(event, "tool_name")
        return trusted.ToolMessage(content=cast("Any", content), tool_call_id=call, tool_name=name, is_error=failed)


def _arguments(called: Fields, named: str) -> bytes | None:
    """Return the arguments of a call as the model wrote them."""
    for choice in map(split, listed(inner(called, "model_response"), "choices")):
        for call in map(split, listed(inner(choice, "message"), "tool_calls")):
            text = string(inner(call, "function"), "arguments")
            if string(call, "id") == named and text is not None and jsontext.is_json(text):
                return text.encode("utf-8", "surrogatepass")
    return None


def _text(text: str | None) -> tuple[Any, ...]:
    return (trusted.Text(text),) if text else ()


def _images(fields: Fields) -> tuple[Any, ...]:
    return tuple(
        [_image(raw) for raw in listed(fields, "image_urls") if either(raw, "image_urls", "a string") != "null"]
    )


def _image(raw: Raw) -> AnyPart:
    try:
        return Image.from_url(jsontext.text(raw))
    except MessageError:
        return trusted.Text(jsontext.text(raw))


def _parts(fields: Fields) -> tuple[Any, ...]:
    """Return the parts of a message: a text, or a list of texts and images."""
    if kind_of(fields, "content") == "a string":
        return _text(string(fields, "content"))
    blocks = list(map(split, listed(fields, "content")))
    return tuple([part for block in blocks for part in (*_text(string(block, "text")), *_images(block))])


def _observed(observation: Fields) -> tuple[Any, ...]:
    """Return what a tool gave: its content, or all of it as JSON."""
    return _parts(observation) if "content" in observation else (trusted.Json(jsontext.raw(observation)),)


def _thoughts(fields: Fields) -> tuple[Any, ...]:
    blocks = [block for block in map(split, listed(fields, "thinking_blocks")) if string(block, "thinking") is not None]
    if blocks:
        found = ((string(block, "thinking") or "", string(block, "signature")) for block in blocks)
        return tuple([trusted.Reasoning(text, signature, wire=SIGNED) for text, signature in found])
    text = string(fields, "reasoning_content")
    return (trusted.Reasoning(text),) if text else ()


class RecordReader:
    """Reads one file."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the first record."""
        self._origin = origin
        self._watch = watch
        self._stream: Conversation | None = None
        self._events = _Events(watch)
        self._waiting: tuple[AssistantMessage, list[Record]] | None = None
        self._session = Session(file_format=NAME)

    def record(self, record: Record) -> Iterator[Step]:
        """Read a line, or a document."""
        fields = record.fields
        line = record.line if b"\n" not in record.raw.strip() else None
        key = next((key for key in _LISTS if fields is not None and kind_of(fields, key) == "an array"), None)
        if fields is not None and key is not None:
            yield from self._whole(record, fields, key, line)
            return
        cut = documents.cut(record.raw) if fields is None and record.flaw is None else None
        if cut is None or cut.tail is None:
            yield from self._event(record, line)
            return
        yield from self._aside(cut.head)
        for item in cut.items:
            yield from self._event(item, None)
        yield from self._aside(cut.tail)

    def end(self) -> Iterator[Step]:
        """End the conversation of events."""
        yield from self._flush()
        if self._stream is not None:
            yield self._stream.ended(metadata=self._session.metadata())

    def _conversation(self, raw: bytes) -> Iterator[Step]:
        if self._stream is None:
            self._stream = Conversation(NAME, derived_id(NAME, self._origin.name, len(raw), raw))
            yield self._stream.began()

    def _aside(self, record: Record) -> Iterator[Step]:
        yield from self._flush()
        yield from self._conversation(record.raw)
        if self._stream is not None:
            yield from self._stream.record(record)

    def _event(self, record: Record, line: int | None) -> Iterator[Step]:
        """Yield the steps of an event of a list; answers wait for the other calls of their response."""
        if record.fields is None and record.flaw is None:
            self._watch.note("unread", "an event that is no object", line)
        message = None if record.fields is None else self._events.message(record.fields, line)
        if message is None:
            yield from self._aside(record)
            return
        yield from self._conversation(record.raw)
        if isinstance(message, AssistantMessage):
            if self._waiting is not None and _is_same(self._waiting[0], message):
                before, records = self._waiting
                self._waiting = (_merged(before, message), [*records, record])
                return
            yield from self._flush()
            self._waiting = (message, [record])
            return
        yield from self._flush()
        if self._stream is not None:
            yield from self._stream.join([message], [record])

    def _flush(self) -> Iterator[Step]:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and self._stream is not None:
            yield from self._stream.join([waiting[0]], waiting[1])

    def _whole(self, record: Record, fields: Fields, key: str, line: int | None) -> Iterator[Step]:
        """Yield the steps of an output of an evaluation: a conversation of its own."""
        messages: list[Message] = []
        events = _Events(self._watch)
        for raw in _flat(listed(fields, key)):
            message = events.message(split(raw), line)
            last = messages[-1] if messages else None
            if message is None:
                continue
            if isinstance(last, AssistantMessage) and isinstance(message, AssistantMessage) and _is_same(last, message):
                messages[-1] = _merged(last, message)
            else:
                messages.append(message)
        conversation = Conversation(NAME, derived_id(NAME, self._origin.name, record.at, len(record.raw), record.raw))
        yield conversation.began()
        if messages:
            yield from conversation.join(keep(NAME, messages, [record]))
        else:
            yield from conversation.record(record)
        yield conversation.ended(metadata=_session(fields).metadata())


def _flat(items: Sequence[Raw]) -> Iterator[Raw]:
    """Yield events, also those of pairs."""
    for raw in items:
        if either(raw, "history", "an array", "an object") == "an array":
            yield from jsontext.items(raw)
        else:
            yield raw


def _is_same(one: AssistantMessage, other: AssistantMessage) -> bool:
    return one.response_id is not None and one.response_id == other.response_id


def _merged(one: AssistantMessage, other: AssistantMessage) -> AssistantMessage:
    return structs.replace(one, content=(*one.content, *other.content))


def _session(fields: Fields) -> Session:
    metadata = inner(fields, "metadata")
    return Session(
        file_format=NAME,
        id=string(fields, "instance_id"),
        agent=string(metadata, "agent_class"),
        model=string(inner(metadata, "llm_config"), "model"),
    )


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="OpenHands events",
    fidelity="read",
    layout="either",
    detector=detect,
    record_reader=RecordReader,
    record_writer=None,
    many=True,
    message_files=True,
    extension=".json",
    keeps=("calls and results", "reasoning, usage and model of each answer", "times", "images", "failed results"),
    loses=("what a condensation hid", "recalled knowledge", "screenshots"),
)
