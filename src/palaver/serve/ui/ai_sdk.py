"""The UI message stream of the AI SDK, version 1, as ``useChat`` and ``readUIMessageStream`` of ``ai`` 5 to 7 read it.

Rules:

- Each step of the agent is a step of the stream. Text and reasoning come as deltas; a tool call comes whole, when the
  model's answer is complete, and its result when it joins the conversation.
- A call that waits is a ``tool-approval-request`` whose id is that of the call. The client's answer comes with the next
  request, as a part in the state ``approval-responded``; its answer goes on in the same message.
- A call that only the client can answer (``client_tool``, ``ask_user``) is no approval: the client adds its output
  (``addToolOutput``) and sends the message again.
- A hand-over in a swarm is a step and a ``data-agent`` part with the name of the agent.
- An error of the run is an ``error`` part with a general text: what is wrong is for the log. A cancelled run is an
  ``abort``. ``finish`` has the usage, the model and the cost as ``messageMetadata``.
- ``GET …/ID/stream`` replays the answer that is under way from its beginning, ``DELETE …/ID`` stops it.

Sources: https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol, https://ai-sdk.dev/docs/ai-sdk-ui/chatbot-resume-streams,
and ``ui-message-chunks.ts`` of ``ai`` 7.0.173.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from palaver import transcripts
from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.serve.ui.endpoint import Chunk, TurnWriter, UiEndpoint, UiProtocol
from palaver.serve.ui.shapes import error_text, failure_of, json_of, list_of, output_of, usage_of
from palaver.serve.ui.turns import Ended, Turn, UiRequest
from palaver.turn import events
from palaver.turn.approvals import Decision, approve, reject

_SOURCE: Final = "ai_sdk"
_FORMAT: Final = "vercel_ui"
_RESPONDED: Final = "approval-responded"
_REASONS: Final = {
    "completed": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "stop": "stop",
    "tool_calls": "tool-calls",
}
_MESSAGE: Final = "The run failed."


class AiSdkEndpoint(UiEndpoint):
    """Serves an agent or a swarm to ``useChat``; the parameters are those of ``UiEndpoint``."""

    @property
    def protocol(self) -> UiProtocol:
        """The AI SDK's."""
        return PROTOCOL


def parse(body: bytes) -> UiRequest:
    """Read what ``DefaultChatTransport`` posts. Raises ``DecodeError``."""
    fields = json_of(body, _SOURCE)
    chat, messages = fields.get("id"), fields.get("messages")
    if not isinstance(chat, str) or not chat:
        raise DecodeError("expected the text of a chat's id", path="id", source=_SOURCE)
    listed = list_of(messages)
    if listed is None:
        raise DecodeError("expected a list of UI messages", path="messages", source=_SOURCE)
    last = cast("dict[str, Any]", listed[-1]) if listed and isinstance(listed[-1], dict) else {}
    goes_on = last.get("role") == "assistant"
    again = fields.get("trigger") == "regenerate-message"
    return UiRequest(
        id=chat,
        messages=_messages(listed),
        decisions=dict(_decisions(last)) if goes_on and not again else {},
        again=again,
        results=dict(_results(last)) if goes_on and not again else {},
        message_id=str(last["id"]) if goes_on and not again and isinstance(last.get("id"), str) else None,
    )


def _messages(listed: Sequence[Any]) -> tuple[Any, ...]:
    if not listed:
        return ()
    read = transcripts.get(_FORMAT).read(jsontext.encode(list(listed)))
    return tuple(message for each in read for message in each.thread.path().messages)


def _decisions(message: Mapping[str, Any]) -> Iterator[tuple[str, Decision]]:
    """The answers of the user in the last message: those that were given since the answer was written."""
    for part in list_of(message.get("parts")) or ():
        if not isinstance(part, dict):
            continue
        fields = cast("dict[str, Any]", part)
        approval: Any = fields.get("approval")
        if fields.get("state") == _RESPONDED and isinstance(approval, dict):
            said = cast("dict[str, Any]", approval)
            reason = said.get("reason")
            decision = approve() if said.get("approved") is True else reject(reason if isinstance(reason, str) else "")
            yield str(fields.get("toolCallId")), decision


def _results(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The outputs and errors of calls in the last message, as texts: those that the client added among them."""
    for part in list_of(message.get("parts")) or ():
        fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        call, state = fields.get("toolCallId"), fields.get("state")
        if not isinstance(call, str):
            continue
        if state == "output-error":
            yield call, f"Error: {fields.get('errorText')}"
        elif state == "output-available":
            found = fields.get("output")
            yield call, found if isinstance(found, str) else jsontext.encode(found).decode()


class _Writer(TurnWriter):
    """Writes one answer."""

    def __init__(self, request: UiRequest) -> None:
        self._id = request.message_id
        self._rejected = {call for call, each in request.decisions.items() if each.kind == "reject"}
        self._started = self._step = False
        self._agent: str | None = None
        self._open: tuple[str, str] | None = None
        self._parts = 0

    def write(self, event: Turn) -> Iterator[Chunk]:
        match event:
            case events.RunStarted():
                yield from self._start(event.run)
            case events.IterationStarted():
                yield from self._end_step()
                self._step = True
                yield {"type": "start-step"}
                if self._agent not in {None, event.agent}:
                    yield {"type": "data-agent", "data": {"name": event.agent}}
                self._agent = event.agent
            case events.TextDelta():
                yield from self._delta("text", event.text)
            case events.ReasoningDelta():
                yield from self._delta("reasoning", event.text)
            case events.MessageAdded(message=AssistantMessage() as message):
                yield from self._close()
                for part in message.content:
                    if isinstance(part, ToolCall | MalformedToolCall):
                        yield from _call(part)
            case events.MessageAdded(message=ToolMessage() as message):
                yield from self._result(message)
            case events.ToolProgress():
                yield {
                    "type": "data-progress",
                    "data": {"toolCallId": event.call.id, "value": event.value},
                    "transient": True,
                }
            case Ended():
                yield from self._finish(event)
            case _:
                pass

    def _start(self, run: str) -> Iterator[Chunk]:
        self._started = True
        yield {"type": "start", "messageId": self._id or run}

    def _delta(self, kind: str, text: str) -> Iterator[Chunk]:
        if self._open is None or self._open[0] != kind:
            yield from self._close()
            self._parts += 1
            self._open = (kind, f"{kind}-{self._parts}")
            yield {"type": f"{kind}-start", "id": self._open[1]}
        yield {"type": f"{kind}-delta", "id": self._open[1], "delta": text}

    def _close(self) -> Iterator[Chunk]:
        if self._open is not None:
            yield {"type": f"{self._open[0]}-end", "id": self._open[1]}
            self._open = None

    def _end_step(self) -> Iterator[Chunk]:
        yield from self._close()
        if self._step:
            yield {"type": "finish-step"}
        self._step = False

    def _result(self, message: ToolMessage) -> Iterator[Chunk]:
        call = message.tool_call_id
        if call is None:
            return
        if call in self._rejected:
            yield {"type": "tool-output-denied", "toolCallId": call}
        elif message.is_error:
            yield {"type": "tool-output-error", "toolCallId": call, "errorText": failure_of(message), "dynamic": True}
        else:
            yield {
                "type": "tool-output-available",
                "toolCallId": call,
                "output": output_of(message),
                "dynamic": True,
            }

    def _finish(self, ended: Ended) -> Iterator[Chunk]:
        if not self._started:
            yield from self._start("")
        yield from self._close()
        for each in ended.pending:
            if each.choices == ("answer",):
                continue  # the client adds the output
            request: Chunk = {"type": "tool-approval-request", "approvalId": each.call.id, "toolCallId": each.call.id}
            yield request | ({"reason": each.reason} if each.reason else {})
        yield from self._end_step()
        if ended.outcome == "cancelled":
            yield {"type": "abort"}
            return
        if ended.error is not None or ended.outcome == "failed":
            yield {"type": "error", "errorText": error_text(ended.error, _MESSAGE)}
        reason = "error" if ended.outcome == "failed" else _REASONS.get(ended.finish_reason or ended.outcome, "other")
        if ended.outcome == "waiting":
            reason = "tool-calls"
        yield {"type": "finish", "finishReason": reason, "messageMetadata": usage_of(ended)}


def _call(part: ToolCall | MalformedToolCall) -> Iterator[Chunk]:
    named: Chunk = {"toolCallId": part.id or "", "toolName": part.name or "", "dynamic": True}
    if isinstance(part, MalformedToolCall):
        yield {"type": "tool-input-error", **named, "input": part.raw, "errorText": part.reason}
        return
    ran = {"providerExecuted": True} if part.provider_executed else {}
    try:
        given: Any = part.arguments
    except ValueError:
        given = part.arguments_json
    yield {"type": "tool-input-available", **named, "input": given, **ran}


PROTOCOL: Final = UiProtocol(
    name=_SOURCE,
    parse=parse,
    writer=_Writer,
    headers={"x-vercel-ai-ui-message-stream": "v1"},
    end=b"data: [DONE]\n\n",
)
