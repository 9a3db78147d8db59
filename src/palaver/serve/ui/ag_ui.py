"""AG-UI, version 1.0, as ``HttpAgent`` of ``@ag-ui/client`` reads it.

Rules:

- A request is a ``RunAgentInput``; its ``threadId`` names the conversation. With an agent, the front end's ``tools``
  are offered to the model: a run ends when one is called, and its result comes as a tool message of the next request.
  ``context`` is a section of the system prompt. ``state`` is ``values["state"]`` of the tools; a ``STATE_SNAPSHOT``
  follows when one changed it. A swarm uses none of them, and a ``CUSTOM`` event named ``palaver.ignored`` says so.
- Calls that wait are the interrupts of ``RUN_FINISHED``; an interrupt's id is that of its call. ``resume`` answers
  them: ``true``, or ``{"approved": true}``, approves; ``{"arguments": {…}}`` approves with other arguments;
  ``{"answer": "…"}`` answers in the tool's place; anything else, and ``cancelled``, rejects.
- A failed run ends with ``RUN_ERROR`` and a general text: what is wrong is for the log.

Source: https://docs.ag-ui.com/concepts/events and ``@ag-ui/core`` 1.0.0.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, cast

from palaver import transcripts
from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.parts import ToolCall
from palaver.core.tools import Tool
from palaver.serve.ui.endpoint import Chunk, TurnWriter, UiEndpoint, UiProtocol
from palaver.serve.ui.shapes import error_text, failure_of, json_of, list_of, output_of, usage_of
from palaver.serve.ui.turns import Ended, Ignored, StateChanged, Turn, UiRequest
from palaver.threads.ids import uuid7
from palaver.turn import events
from palaver.turn.approvals import Decision, answer, approve, edit, reject

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
    """Read a ``RunAgentInput``. Raises ``DecodeError``."""
    fields = json_of(body, _SOURCE)
    for name in ("threadId", "runId"):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise DecodeError("expected a text", path=name, source=_SOURCE)
    if list_of(fields.get("messages")) is None:
        raise DecodeError("expected a list of messages", path="messages", source=_SOURCE)
    messages: tuple[Any, ...] = ()
    if fields["messages"]:
        read = transcripts.get(_SOURCE).read(jsontext.encode(fields["messages"]))
        messages = tuple(message for each in read for message in each.thread.path().messages)
    return _Request(
        id=fields["threadId"],
        thread=fields["threadId"],
        run=fields["runId"],
        messages=messages,
        decisions=dict(_decisions(fields.get("resume"))),
        results=_results(messages),
        tools=tuple(_tools(fields.get("tools"))),
        context="\n".join(_context(fields.get("context"))),
        state=fields.get("state") or None,
    )


def _results(messages: Sequence[Message]) -> dict[str, str]:
    """The results of calls behind everything else: those that the front end ran among them."""
    ran = takewhile(lambda each: isinstance(each, ToolMessage), reversed(messages))
    return {each.tool_call_id: each.text for each in ran if isinstance(each, ToolMessage) and each.tool_call_id}


def _tools(listed: object) -> Iterator[Tool]:
    for index, entry in enumerate(list_of(listed) or ()):
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        name, about, schema = fields.get("name"), fields.get("description"), fields.get("parameters")
        path = f"tools[{index}]"
        if not isinstance(name, str) or not name or not isinstance(about, str | None):
            raise DecodeError("expected a name and a description", path=path, source=_SOURCE)
        if not isinstance(schema, Mapping | None):
            raise DecodeError("expected a JSON Schema", path=f"{path}.parameters", source=_SOURCE)
        yield Tool.of(name, about, dict(cast("Mapping[str, Any]", schema)) if schema else {"type": "object"})


def _context(listed: object) -> Iterator[str]:
    for index, entry in enumerate(list_of(listed) or ()):
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        if not isinstance(fields.get("value"), str):
            raise DecodeError("expected a text", path=f"context[{index}].value", source=_SOURCE)
        about = fields.get("description")
        yield f"{about}: {fields['value']}" if isinstance(about, str) and about else fields["value"]


def _decisions(resume: object) -> Iterator[tuple[str, Decision]]:
    for index, entry in enumerate(list_of(resume) or ()):
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        if not isinstance(fields.get("interruptId"), str):
            raise DecodeError("expected a text", path=f"resume[{index}].interruptId", source=_SOURCE)
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
            case events.MessageAdded(message=ToolMessage() as message) if message.tool_call_id is not None:
                value = failure_of(message) if message.is_error else output_of(message)
                yield {
                    "type": "TOOL_CALL_RESULT",
                    "messageId": message.id or uuid7(),
                    "toolCallId": message.tool_call_id,
                    "content": value if isinstance(value, str) else jsontext.encode(value).decode(),
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
            outcome = {
                "type": "interrupt",
                "interrupts": [
                    {
                        "id": each.call.id,
                        "reason": "tool_call",
                        "message": each.reason or f"Run {each.tool}?",
                        "toolCallId": each.call.id,
                    }
                    for each in asked
                ],
            }
        yield {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, "result": usage_of(ended)}


PROTOCOL: Final = UiProtocol(name=_SOURCE, parse=parse, writer=_Writer)
