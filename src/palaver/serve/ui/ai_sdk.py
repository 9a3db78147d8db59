"""The UI message stream of the AI SDK, version 1, as ``useChat`` and ``readUIMessageStream`` of ``ai`` 5 to 7 read it.

Rules:

- Each step of the agent is a step of the stream. Text and reasoning come as deltas; a tool call comes whole, when the
  model's answer is complete, and its result when it joins the conversation.
- A call that waits is a ``tool-approval-request`` whose id is that of the call. The client's answer comes with the next
  request, as a part in the state ``approval-responded``; its answer goes on in the same message.
- A message of the user behind such answers is asked when the calls have their results. It has an answer of its own,
  and a stream cannot change an earlier message: a call that was approved is shown again there, with its result. What
  else became of calls of an earlier message is shown when the page loads the conversation.
- A call that only the client can answer (``client_tool``, ``ask_user``) is no approval: the client adds its output
  (``addToolOutput``) and sends the message again.
- A hand-over in a swarm is a step and a ``data-agent`` part with the name of the agent.
- An error of the run is an ``error`` part with a general text: what is wrong is for the log. A cancelled run is an
  ``abort``. ``finish`` has the usage, the model and the cost as ``messageMetadata``.
- ``GET …/ID/stream`` replays the answer that is under way from its beginning, ``DELETE …/ID`` stops it. ``GET …/ID``
  gives the messages of a stored conversation, with the same types of parts as the stream, for ``useChat``.

Sources: https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol, https://ai-sdk.dev/docs/ai-sdk-ui/chatbot-resume-streams,
and ``ui-message-chunks.ts`` of ``ai`` 7.0.173.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from palaver.core import jsontext
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import (
    AnyPart,
    Audio,
    File,
    Image,
    MalformedToolCall,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Video,
)
from palaver.serve.ui.client_messages import (
    Fields,
    PartReader,
    call_part,
    fields_of,
    file_part,
    id_of,
    items_of,
    optional_text,
    parts_of,
    reasoning_part,
    result_parts,
    role_of,
    text_in,
    text_part,
    word,
)
from palaver.serve.ui.endpoint import Chunk, TurnWriter, UiEndpoint, UiProtocol
from palaver.serve.ui.history import History, url_of, was_rejected
from palaver.serve.ui.shapes import error_text, failure_of, json_of, list_of, output_of, usage_of
from palaver.serve.ui.turns import Ended, Turn, UiRequest
from palaver.turn import events
from palaver.turn.approvals import Decision, Recorded, approve, reject

_SOURCE: Final = "ai_sdk"
_TOOL: Final = "tool-"
_DENIED: Final = "Tool call execution denied."
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
    """Read what ``DefaultChatTransport`` posts, the ``body``. Raises ``DecodeError``."""
    fields = json_of(body)
    listed = items_of(fields.get("messages"), "messages")
    last = cast("dict[str, Any]", listed[-1]) if listed and isinstance(listed[-1], dict) else {}
    goes_on = last.get("role") == "assistant"
    again = fields.get("trigger") == "regenerate-message"
    before = _answer_before_user(() if again else listed)
    decisions = dict(_decisions(before))
    return UiRequest(
        id=text_in(fields, "id"),
        messages=tuple([made for place, item in enumerate(listed) for made in _said(item, f"messages[{place}]")]),
        decisions=decisions if goes_on else {},
        earlier={} if goes_on else decisions,
        again=again,
        results=dict(_results(before)),
        message_id=id_of(last, f"messages[{len(listed) - 1}]") if goes_on and not again else None,
    )


def _answer_before_user(listed: Sequence[object]) -> Mapping[str, Any]:
    """The last answer, with nothing but messages of the user behind it; an empty object where there is none."""
    for item in reversed(listed):
        fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        if fields.get("role") != "user":
            return fields if fields.get("role") == "assistant" else {}
    return {}


def _said(item: object, path: str) -> Iterable[Message]:
    """What a UI message says: nothing for roles that are no client's."""
    fields = fields_of(item, path)
    reader = _ROLES.get(role_of(fields, _KNOWN_ROLES, path))
    return () if reader is None else reader(fields, path)


def _user(fields: Fields, path: str) -> Iterator[Message]:
    content = parts_of(fields.get("parts"), _USER_PARTS, f"{path}.parts")
    yield UserMessage(content=content, id=id_of(fields, path))


def _file(part: Fields, path: str) -> Any:
    url, media_type = text_in(part, "url", path), optional_text(part, "mediaType", path)
    return file_part(url, media_type, optional_text(part, "filename", path), f"{path}.url")


def _steps(fields: Fields, path: str) -> Iterator[Message]:
    """The steps of an answer, each with its results."""
    content: list[Any] = []
    results: list[ToolMessage] = []
    for place, item in enumerate(items_of(fields.get("parts"), f"{path}.parts")):
        where = f"{path}.parts[{place}]"
        part = fields_of(item, where)
        kind = word(part, "type")
        if kind == "step-start":
            yield from _step(content, results)
            content, results = [], []
        elif kind == "dynamic-tool" or kind.startswith(_TOOL):
            name = word(part, "toolName") if kind == "dynamic-tool" else kind.removeprefix(_TOOL)
            call = call_part(word(part, "toolCallId"), name, part.get("input"))
            if call is not None and part.get("providerExecuted") is not True:
                content.append(call)
                results += _result(part, call, where)
        elif kind in _ANSWER_PARTS:
            content.append(_ANSWER_PARTS[kind](part, where))
    yield from _step(content, results)


def _step(content: Sequence[Any], results: Sequence[ToolMessage]) -> Iterator[Message]:
    if content:
        yield AssistantMessage(content=tuple(content))
        yield from results


def _result(part: Fields, call: ToolCall, path: str) -> Iterator[ToolMessage]:
    """The result of a call, where the client has one."""
    state = word(part, "state")
    if state == "output-available" and part.get("preliminary") is not True:
        content = result_parts(part.get("output"), f"{path}.output")
        yield ToolMessage(content=content, tool_call_id=call.id, tool_name=call.name)
    elif state in {"output-error", "output-denied"}:
        text = word(part, "errorText") or _DENIED
        yield ToolMessage(content=(Text(text),), tool_call_id=call.id, tool_name=call.name, is_error=True)


_USER_PARTS: Final[Mapping[str, PartReader]] = {"text": text_part, "file": _file}
_ANSWER_PARTS: Final[Mapping[str, PartReader]] = {"text": text_part, "reasoning": reasoning_part}
"""What is read beside calls and their results."""
_ROLES: Final[Mapping[str, Callable[[Fields, str], Iterable[Message]]]] = {"user": _user, "assistant": _steps}
_KNOWN_ROLES: Final = frozenset((*_ROLES, "system"))


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


def _results(message: Mapping[str, Any]) -> Iterator[tuple[str, Decision]]:
    """The outputs and errors of calls in the last message: those that the client added among them."""
    for part in list_of(message.get("parts")) or ():
        fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        call, state = fields.get("toolCallId"), fields.get("state")
        if not isinstance(call, str):
            continue
        if state == "output-error":
            yield call, Decision(kind="answer", text=word(fields, "errorText"), is_error=True)
        elif state == "output-available":
            found = fields.get("output")
            text = found if isinstance(found, str) else jsontext.encode(found).decode()
            yield call, Decision(kind="answer", text=text, is_json=not isinstance(found, str))


class _Writer(TurnWriter):
    """Writes one answer."""

    def __init__(self, request: UiRequest) -> None:
        self._id = request.message_id
        decisions = {**request.earlier, **request.decisions}
        self._rejected = {call for call, each in decisions.items() if each.kind == "reject"}
        self._is_new = bool(request.messages) and isinstance(request.messages[-1], UserMessage)
        """Whether the answer is a message of its own, so that the page knows no calls but those written here."""
        self._written: set[str] = set()
        self._approved: dict[str, ToolCall] = {}
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
                        self._written.add(part.id or "")
                        yield from _call(part)
            case events.ApprovalGiven() if event.decision.kind in {"approve", "edit"}:
                self._approved[event.call.id] = event.call
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
        if self._is_new and call not in self._written:
            if call not in self._approved:
                return
            yield from _call(self._approved[call])
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


def history(found: History) -> list[Chunk]:
    """Write the conversation ``found`` as UI messages: a run is one message, as the stream makes it."""
    made: list[Chunk] = []
    calls: dict[str, Chunk] = {}
    decided: dict[str, Decision] = {}
    for each in found.messages:
        message = each.message
        if isinstance(message, ToolMessage):
            call = message.tool_call_id or ""
            part, decision = calls.pop(call, {}), decided.pop(call, None)
            if decision is None:
                part.pop("approval", None)
            part |= _state(message, decision)
            continue
        parts = [part for each in message.content for part in _shown(each)]
        if isinstance(message, AssistantMessage):
            if not made or made[-1]["role"] != "assistant":
                made.append({"id": message.id, "role": "assistant", "parts": []})
            calls |= {part["toolCallId"]: part for part in parts if part.get("state") == "input-available"}
            decided |= each.recorded.decided
            for call in each.recorded.requests.keys() & calls.keys():
                calls[call] |= _asked(each.recorded, call)
            made[-1]["parts"] += [{"type": "step-start"}, *parts]
        elif parts:
            made.append({"id": message.id, "role": "user", "parts": parts})
    return made


def _asked(recorded: Recorded, call: str) -> Chunk:
    """The state of a call that needs a decision, or had one, and has no result yet: other calls may wait."""
    decision = recorded.decided.get(call)
    if call in recorded.pending:
        client_runs = recorded.requests[call].choices == ("answer",)
        return {} if client_runs else {"state": "approval-requested", "approval": {"id": call}}
    if decision is None:
        return {}
    if decision.kind == "answer" and decision.is_error:
        return {"state": "output-error", "errorText": decision.text}
    if decision.kind == "answer":
        return {
            "state": "output-available",
            "output": jsontext.value(decision.text) if decision.is_json else decision.text,
        }
    return {"state": _RESPONDED, "approval": _approval(call, decision)}


def _approval(call: str, decision: Decision) -> Chunk:
    """What the user decided."""
    if decision.kind != "reject":
        return {"id": call, "approved": True}
    return {"id": call, "approved": False, **({"reason": decision.text} if decision.text else {})}


def _shown(part: AnyPart) -> Iterator[Chunk]:
    """The parts of a message that a page shows for one of ours."""
    url = url_of(part)
    match part:
        case Text() | Refusal():
            yield {"type": "text", "text": part.text, "state": "done"}
        case Reasoning() if part.text:
            yield {"type": "reasoning", "text": part.text, "state": "done"}
        case ToolCall() | MalformedToolCall():
            (chunk,) = _call(part)
            del chunk["dynamic"]
            failed = chunk.pop("type") == "tool-input-error"
            yield {"type": "dynamic-tool", "state": "output-error" if failed else "input-available", **chunk}
        case Image() | Audio() | Video() | File() if url is not None:
            named = {"filename": part.name} if isinstance(part, File) and part.name else {}
            yield {"type": "file", "mediaType": part.media_type or "application/octet-stream", "url": url, **named}
        case _:
            pass


def _state(message: ToolMessage, decision: Decision | None) -> Chunk:
    """The state of a call that has its result."""
    if was_rejected(message):
        return {"state": "output-denied", "approval": _approval(message.tool_call_id or "", decision or reject())}
    if message.is_error:
        return {"state": "output-error", "errorText": failure_of(message)}
    return {"state": "output-available", "output": output_of(message)}


PROTOCOL: Final = UiProtocol(
    name=_SOURCE,
    parse=parse,
    writer=_Writer,
    history=history,
    about="Answer useChat of the AI SDK: a UI message stream",
    body={
        "type": "object",
        "description": "What DefaultChatTransport of the AI SDK posts",
        "properties": {
            "id": {"type": "string"},
            "messages": {"type": "array", "items": {"type": "object"}},
            "trigger": {"enum": ["submit-message", "regenerate-message"]},
            "messageId": {"type": ["string", "null"]},
        },
        "required": ["id", "messages"],
    },
    headers={"x-vercel-ai-ui-message-stream": "v1"},
    end=b"data: [DONE]\n\n",
)
