"""AG-UI, version 1.0, as ``HttpAgent`` of ``@ag-ui/client`` reads it.

Rules:

- A request is a ``RunAgentInput``; its ``threadId`` names the conversation. With an agent, the front end's ``tools``
  are offered to the model: a run ends when one is called, and its result comes as a tool message of the next request.
  ``context`` is a section of the system prompt. ``state`` is ``values["state"]`` of the tools, an empty object where
  none is sent; a ``STATE_SNAPSHOT`` follows when one changed it. A swarm uses none of them, and a ``CUSTOM`` event
  named ``palaver.ignored`` says so.
- Calls that wait are the interrupts of ``RUN_FINISHED``; an interrupt's id is that of its call. ``resume`` answers
  them: ``true``, or ``{"approved": true}``, approves; ``{"arguments": {…}}`` approves with other arguments;
  ``{"answer": "…"}`` answers in the tool's place; anything else, and ``cancelled``, rejects. A page that loads the
  conversation finds the interrupts in the ``metadata`` of the last message with calls.
- A message of the user behind a tool message, or beside ``resume``, is asked when the calls have their results. The
  results that the client sent are not sent back.
- A failed run ends with ``RUN_ERROR`` and a general text: what is wrong is for the log.

Source: https://docs.ag-ui.com/concepts/events and ``@ag-ui/core`` 1.0.0.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, cast

from msgspec import Raw

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import AnyPart, Audio, File, Image, Inline, Reasoning, Text, ToolCall, Video
from palaver.core.tools import Tool
from palaver.serve.ui.client_messages import (
    Fields,
    PartReader,
    before_user,
    call_part,
    fields_of,
    file_part,
    id_of,
    inline_part,
    items_of,
    optional_text,
    parts_of,
    role_of,
    text_in,
    text_part,
    word,
)
from palaver.serve.ui.endpoint import Chunk, TurnWriter, UiEndpoint, UiProtocol
from palaver.serve.ui.history import History, url_of
from palaver.serve.ui.shapes import SOURCE, error_text, failure_of, json_of, list_of, output_of, usage_of
from palaver.serve.ui.turns import Ended, Ignored, StateChanged, Turn, UiRequest
from palaver.threads.ids import uuid7
from palaver.turn import events
from palaver.turn.approvals import ApprovalRequest, Decision, answer, approve, edit, reject

_SOURCE: Final = "ag_ui"
_VERSION: Final = "1.0"
_MESSAGE: Final = "The run failed."


class AgUiEndpoint(UiEndpoint):
    """Serves an agent or a swarm to AG-UI clients; the parameters are those of ``UiEndpoint``."""

    @property
    def protocol(self) -> UiProtocol:
        """AG-UI."""
        return PROTOCOL


class _Request(UiRequest, frozen=True, kw_only=True):
    """A request, with the ids of the protocol."""

    thread: str
    run: str


def parse(body: bytes) -> UiRequest:
    """Read a ``RunAgentInput``, the ``body``. Raises ``DecodeError``."""
    fields = json_of(body)
    thread, run = text_in(fields, "threadId"), text_in(fields, "runId")
    messages = tuple(_said(items_of(fields.get("messages"), "messages")))
    return _Request(
        id=thread,
        thread=thread,
        run=run,
        messages=messages,
        decisions=dict(_decisions(fields.get("resume"))),
        results=_results(messages),
        tools=tuple(_tools(fields.get("tools"))),
        context="\n".join(_context(fields.get("context"))),
        state=fields.get("state"),
    )


class _Answer:
    """An answer that is being read: it comes as reasoning, a text and calls, in one message or several."""

    def __init__(self) -> None:
        self.content: list[Any] = []
        self.id: str | None = None
        self.speaks = False
        """Whether there is more than reasoning."""

    def message(self) -> Iterator[Message]:
        if self.content:
            yield AssistantMessage(content=tuple(self.content), id=self.id)

    def takes(self, parts: Sequence[Any]) -> bool:
        """Whether parts go on with it: calls do, and anything does behind reasoning."""
        return not self.speaks or all(isinstance(each, ToolCall) for each in parts)

    def add(self, parts: Sequence[Any], named: str | None) -> None:
        self.content += parts
        self.id = self.id or named
        self.speaks = self.speaks or not all(isinstance(each, Reasoning) for each in parts)


def _said(listed: Sequence[object]) -> Iterator[Message]:
    """What the messages of a client say: nothing for roles that are no client's."""
    answer = _Answer()
    for place, item in enumerate(listed):
        path = f"messages[{place}]"
        fields = fields_of(item, path)
        role = role_of(fields, _KNOWN_ROLES, path)
        if role in _ANSWERS:
            parts = _ANSWERS[role](fields, path)
            if not answer.takes(parts):
                yield from answer.message()
                answer = _Answer()
            answer.add(parts, id_of(fields, path))
        elif role in _ROLES:
            yield from answer.message()
            answer = _Answer()
            yield _ROLES[role](fields, path)
    yield from answer.message()


def _user(fields: Fields, path: str) -> Message:
    return UserMessage(content=_content(fields, _PARTS, path), id=id_of(fields, path))


def _tool(fields: Fields, path: str) -> Message:
    failed = optional_text(fields, "error", path)
    content = _content(fields, _RESULT_PARTS, path)
    if failed:  # a client that has nothing else to say sends an empty content
        said = "".join([each.text for each in content])
        content = (Text(f"{said}\n{failed}" if said else failed),)
    call = text_in(fields, "toolCallId", path)
    return ToolMessage(content=content, id=id_of(fields, path), tool_call_id=call, is_error=failed is not None)


def _content(fields: Fields, readers: Mapping[str, PartReader], path: str) -> tuple[Any, ...]:
    """The parts of ``content``: a text, or parts."""
    content = fields.get("content")
    if isinstance(content, str):
        return (Text(content),)
    return () if content is None else parts_of(content, readers, f"{path}.content")


def _assistant(fields: Fields, path: str) -> list[Any]:
    text = optional_text(fields, "content", path)
    return [*((Text(text),) if text else ()), *_calls(list_of(fields.get("toolCalls")) or (), f"{path}.toolCalls")]


def _reasoning(fields: Fields, path: str) -> list[Any]:
    return [Reasoning(text_in(fields, "content", path))]


def _calls(listed: Sequence[object], path: str) -> Iterator[ToolCall]:
    for place, item in enumerate(listed):
        fields = fields_of(item, f"{path}[{place}]")
        function = fields_of(fields.get("function"), f"{path}[{place}].function")
        text = word(function, "arguments").strip() or "{}"
        given: Any = None if jsontext.unreadable(Raw(text.encode()), jsontext.DEEPEST) else jsontext.value(text)
        call = call_part(word(fields, "id"), word(function, "name"), given)
        if call is not None:
            yield call


def _medium(part: Fields, path: str) -> Any:
    source = fields_of(part.get("source"), f"{path}.source")
    stored, media_type = text_in(source, "value", f"{path}.source"), optional_text(source, "mimeType", f"{path}.source")
    more = part.get("metadata")
    name = word(cast("Fields", more), "filename") or None if isinstance(more, dict) else None
    if source.get("type") == "data":
        return inline_part(stored, media_type, name, f"{path}.source.value", kind=word(part, "type"))
    if source.get("type") == "url":
        return file_part(stored, media_type, name, f"{path}.source.value", kind=word(part, "type"))
    raise DecodeError("expected data or url", path=f"{path}.source.type", source=SOURCE)


def _binary(part: Fields, path: str) -> Any:
    """A file as versions before 1.0 send it."""
    media_type, name = optional_text(part, "mimeType", path), optional_text(part, "filename", path)
    if part.get("data") is not None:
        return inline_part(text_in(part, "data", path), media_type, name, f"{path}.data")
    return file_part(text_in(part, "url", path), media_type, name, f"{path}.url")


_RESULT_PARTS: Final[Mapping[str, PartReader]] = {"text": text_part}
_PARTS: Final[Mapping[str, PartReader]] = {
    "text": text_part,
    "image": _medium,
    "audio": _medium,
    "video": _medium,
    "document": _medium,
    "binary": _binary,
}
_ROLES: Final[Mapping[str, Callable[[Fields, str], Message]]] = {"user": _user, "tool": _tool}
_ANSWERS: Final[Mapping[str, Callable[[Fields, str], list[Any]]]] = {"assistant": _assistant, "reasoning": _reasoning}
_KNOWN_ROLES: Final = frozenset((*_ROLES, *_ANSWERS, "activity", "developer", "system"))


def _results(messages: Sequence[Message]) -> dict[str, Decision]:
    """The results of calls behind everything but what the user said since: those that the front end ran among them."""
    ran = takewhile(lambda each: isinstance(each, ToolMessage), reversed(before_user(messages)))
    return {
        each.tool_call_id: Decision(kind="answer", text=each.text, is_error=each.is_error)
        for each in ran
        if isinstance(each, ToolMessage) and each.tool_call_id
    }


def _tools(listed: object) -> Iterator[Tool]:
    for index, entry in enumerate(list_of(listed) or ()):
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        name, about, schema = fields.get("name"), fields.get("description"), fields.get("parameters")
        path = f"tools[{index}]"
        if not isinstance(name, str) or not name or not isinstance(about, str | None):
            raise DecodeError("expected a name and a description", path=path, source=SOURCE)
        if not isinstance(schema, Mapping | None):
            raise DecodeError("expected a JSON Schema", path=f"{path}.parameters", source=SOURCE)
        yield Tool.of(name, about, dict(cast("Mapping[str, Any]", schema)) if schema else {"type": "object"})


def _context(listed: object) -> Iterator[str]:
    for index, entry in enumerate(list_of(listed) or ()):
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        if not isinstance(fields.get("value"), str):
            raise DecodeError("expected a text", path=f"context[{index}].value", source=SOURCE)
        about = fields.get("description")
        yield f"{about}: {fields['value']}" if isinstance(about, str) and about else fields["value"]


def _decisions(resume: object) -> Iterator[tuple[str, Decision]]:
    for index, entry in enumerate(list_of(resume) or ()):
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        if not isinstance(fields.get("interruptId"), str):
            raise DecodeError("expected a text", path=f"resume[{index}].interruptId", source=SOURCE)
        yield fields["interruptId"], _decision(fields.get("status"), fields.get("payload"))


def _decision(status: object, payload: object) -> Decision:
    said: Mapping[str, Any] = cast("Mapping[str, Any]", payload) if isinstance(payload, Mapping) else {}
    if status == "resolved":
        if isinstance(said.get("arguments"), Mapping):
            return edit(said["arguments"])
        if isinstance(said.get("answer"), str):
            return answer(said["answer"])
        if payload is True or said.get("approved") is True:
            return approve()
    reason = said.get("reason")
    return reject(reason if isinstance(reason, str) else "")


class _Writer(TurnWriter):
    """Writes one answer."""

    def __init__(self, request: UiRequest) -> None:
        asked = cast("_Request", request)
        self._ids: Chunk = {"threadId": asked.thread, "runId": asked.run}
        self._client_tools = {each.name for each in asked.tools}
        self._results = asked.results
        self._sent_by_client: set[str] = set()
        self._open: tuple[str, str] | None = None
        self._message = ""
        self._step = ""
        self._started = False

    def write(self, event: Turn) -> Iterator[Chunk]:
        match event:
            case events.RunStarted():
                yield from self._start()
            case events.IterationStarted():
                yield from self._end_step()
                self._step = f"{event.agent} {event.number}"
                yield {"type": "STEP_STARTED", "stepName": self._step}
            case events.TextDelta():
                yield from self._begin("text")
                yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message, "delta": event.text}
            case events.ReasoningDelta():
                yield from self._begin("reasoning")
                yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._message, "delta": event.text}
            case events.MessageAdded(message=AssistantMessage() as message):
                yield from self._close()
                for call in message.tool_calls:
                    yield from self._call(call)
            case events.ApprovalGiven():
                if self._results.get(event.call.id) == event.decision:
                    self._sent_by_client.add(event.call.id)
            case events.MessageAdded(message=ToolMessage() as message) if message.tool_call_id is not None:
                if message.tool_call_id in self._sent_by_client:
                    return
                yield {
                    "type": "TOOL_CALL_RESULT",
                    "messageId": message.id or uuid7(),
                    "toolCallId": message.tool_call_id,
                    "content": _text_of(message),
                    "role": "tool",
                }
            case events.ToolProgress():
                value = {"toolCallId": event.call.id, "value": event.value}
                yield {"type": "CUSTOM", "name": "palaver.progress", "value": value}
            case StateChanged():
                yield {"type": "STATE_SNAPSHOT", "snapshot": event.state}
            case Ignored():
                yield {"type": "CUSTOM", "name": "palaver.ignored", "value": list(event.fields)}
            case Ended():
                yield from self._finish(event)
            case _:
                pass

    def _start(self) -> Iterator[Chunk]:
        self._started = True
        yield {"type": "RUN_STARTED", **self._ids, "protocolVersion": _VERSION}

    def _begin(self, kind: str) -> Iterator[Chunk]:
        if self._open is not None and self._open[0] == kind:
            return
        yield from self._close()
        self._message = uuid7()
        self._open = (kind, self._message)
        if kind == "reasoning":
            yield {"type": "REASONING_START", "messageId": self._message}
            yield {"type": "REASONING_MESSAGE_START", "messageId": self._message, "role": "reasoning"}
        else:
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._message, "role": "assistant"}

    def _close(self) -> Iterator[Chunk]:
        if self._open is None:
            return
        kind, message = self._open
        self._open = None
        if kind == "reasoning":
            yield {"type": "REASONING_MESSAGE_END", "messageId": message}
            yield {"type": "REASONING_END", "messageId": message}
        else:
            yield {"type": "TEXT_MESSAGE_END", "messageId": message}

    def _call(self, call: ToolCall) -> Iterator[Chunk]:
        parent = {"parentMessageId": self._message} if self._message else {}
        yield {"type": "TOOL_CALL_START", "toolCallId": call.id, "toolCallName": call.name, **parent}
        if call.arguments_json:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": call.arguments_json}
        yield {"type": "TOOL_CALL_END", "toolCallId": call.id}

    def _end_step(self) -> Iterator[Chunk]:
        yield from self._close()
        self._message = ""
        if self._step:
            yield {"type": "STEP_FINISHED", "stepName": self._step}
        self._step = ""

    def _finish(self, ended: Ended) -> Iterator[Chunk]:
        if not self._started:
            yield from self._start()
        yield from self._end_step()
        if ended.outcome == "failed":
            yield {"type": "RUN_ERROR", "message": error_text(ended.error, _MESSAGE)}
            return
        outcome: Chunk = {"type": "cancelled" if ended.outcome == "cancelled" else "success"}
        asked = [each for each in ended.pending if each.tool not in self._client_tools]
        if asked:
            outcome = {"type": "interrupt", "interrupts": [_interrupt(each) for each in asked]}
        yield {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, "result": usage_of(ended)}


def _interrupt(request: ApprovalRequest) -> Chunk:
    call = request.call.id
    return {
        "id": call,
        "reason": "tool_call",
        "message": request.reason or f"Run {request.tool}?",
        "toolCallId": call,
    }


def history(found: History) -> list[Chunk]:
    """Write the conversation ``found`` as messages of AG-UI, which ``HttpAgent.setMessages`` takes.

    The message with the calls that wait has their interrupts as metadata.
    """
    made = [made for each in found.messages for made in _written(each.message)]
    asking = next((each for each in reversed(made) if "toolCalls" in each), None)
    if asking is not None and found.waiting:
        asking["metadata"] = {"interrupts": [_interrupt(each) for each in found.waiting]}
    return made


def _written(message: Message) -> Iterator[Chunk]:
    match message:
        case AssistantMessage():
            if message.reasoning:
                yield {"id": f"{message.id}-reasoning", "role": "reasoning", "content": message.reasoning}
            text = {"content": message.text} if message.text else {}
            calls = [_function(each) for each in message.tool_calls]
            if text or calls:
                yield {"id": message.id, "role": "assistant", **text, **({"toolCalls": calls} if calls else {})}
        case ToolMessage() if message.tool_call_id is not None:
            yield {"id": message.id, "role": "tool", "toolCallId": message.tool_call_id, "content": _text_of(message)}
        case UserMessage():
            content = [made for part in message.content for made in _part(part)]
            plain = all(each["type"] == "text" for each in content)
            if content:
                yield {"id": message.id, "role": "user", "content": message.text if plain else content}
        case _:
            pass


def _part(part: AnyPart) -> Iterator[Chunk]:
    url = url_of(part)
    if isinstance(part, Text):
        yield {"type": "text", "text": part.text}
    elif isinstance(part, Image | Audio | Video | File) and url is not None:
        kind = type(part).__name__.lower().replace("file", "document")
        source = {"type": "url", "value": url}
        if isinstance(part.source, Inline):
            source = {"type": "data", "value": part.source.data}
        mime = {} if part.media_type is None else {"mimeType": part.media_type}
        yield {"type": kind, "source": {**source, **mime}}


def _function(call: ToolCall) -> Chunk:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_json}}


def _text_of(message: ToolMessage) -> str:
    """The result of a call as a text."""
    value = failure_of(message) if message.is_error else output_of(message)
    return value if isinstance(value, str) else jsontext.encode(value).decode()


_LIST: Final = {"type": "array", "items": {"type": "object"}}

PROTOCOL: Final = UiProtocol(
    name=_SOURCE,
    parse=parse,
    writer=_Writer,
    history=history,
    about="Answer an AG-UI client: its events",
    body={
        "type": "object",
        "description": "RunAgentInput of AG-UI",
        "properties": {
            "threadId": {"type": "string"},
            "runId": {"type": "string"},
            "messages": _LIST,
            "tools": _LIST,
            "context": _LIST,
            "state": {},
            "resume": _LIST,
        },
        "required": ["threadId", "runId", "messages"],
    },
)
