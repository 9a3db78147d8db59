"""OpenTelemetry spans of runs, by the GenAI conventions (https://opentelemetry.io/docs/specs/semconv/gen-ai/).

Rules (docs/spec/kairo.md#7, #D41, KAI-29):

- A run is a span ``invoke_agent``; its children are a span ``chat`` for each model call and ``execute_tool`` for each
  tool run. The run of a subagent is a child of its call, if the subagent has this middleware too. Spans that tools make
  themselves are children of their span.
- Keys are those of the conventions, as of version 1.41; ``palaver.…`` are ours. Tokens read from and written to a cache
  are part of the input, reasoning is part of the output.
- Content (prompts, answers, arguments, results) is not recorded, unless ``content=True``.
- A failed span has ``error.type``, the status ``ERROR``, and an ``exception`` event with its type and an excerpt of its
  text, without a stack. Retries and fallbacks are events of the span of their call.
- Put this middleware first, so that the spans include other middleware. Without an SDK, spans go nowhere.
- Answers get the metadata of the message they answer, so that both have the same session or trace id (C12).

Stability: experimental.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec import UNSET, Raw, UnsetType, structs

from palaver.context.rewrite import COMPACTION
from palaver.core.errors import MessageError, MissingPackageError, excerpt
from palaver.core.jsontext import raw, view
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import Reasoning, Text, ToolCall
from palaver.core.type_checks import check_arguments
from palaver.models.language_model import Notice, Prompt, Reply
from palaver.turn.genai_attributes import error_type, model_attributes, span_name, usage_attributes
from palaver.turn.middleware import CallModel, CallTool, Middleware, RunContext, Step, ToolRequest
from palaver.turn.tool import Output
from palaver.turn.tool_output import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.trace import Span, Tracer

    from palaver.threads.thread import Entry


# --- tracing ----------------------------------------------------------------------------------------------------------


SCOPE: Final = "palaver"
"""The name of the tracer."""
_SETTINGS: Final[Mapping[str, str]] = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "stop": "gen_ai.request.stop_sequences",
}
_FINE: Final = ("completed", "waiting")


class Tracing(Middleware):
    """Records spans. ``tracer`` is an OpenTelemetry tracer, by default that of the global provider.

    ``content`` says whether the spans have prompts, answers, arguments and results, which may be confidential.
    """

    def __init__(self, tracer: Tracer | None = None, *, content: bool = False) -> None:
        """Store the tracer. Raises ``MissingPackageError`` without the extra ``otel``."""
        check_arguments("Tracing", Tracing.__init__, locals())
        try:
            from opentelemetry import trace  # noqa: PLC0415 (an extra)
        except ImportError as error:
            raise MissingPackageError.of("Tracing needs opentelemetry-api", "otel", error) from None

        if tracer is not None and not hasattr(tracer, "start_span"):
            raise MessageError('Tracing: tracer: expected a tracer, such as TracerProvider().get_tracer("palaver")')
        self._trace = trace
        self._tracer = tracer if tracer is not None else trace.get_tracer(SCOPE)
        self._content = content

    # -- the run -----------------------------------------------------------------------------------------------------

    async def before_agent(self, context: RunContext) -> Step | None:
        """Start the span of the run."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": context.agent,
            "gen_ai.conversation.id": context.thread,
            "palaver.run.id": context.run,
            **model_attributes(context.model),
        }
        context.own[self] = self._tracer.start_span(f"invoke_agent {context.agent}", attributes=attributes)
        return None

    async def after_agent(self, context: RunContext) -> None:
        """End the span of the run."""
        span: Span | None = context.own.pop(self, None)
        run = context.ended
        if span is None or run is None:
            return
        attributes = {"palaver.run.outcome": run.outcome, "palaver.run.iterations": run.iterations}
        span.set_attributes(attributes | usage_attributes(run.usage if run.usage_by_model else None))
        if run.cost is not None:
            span.set_attribute("palaver.run.cost_usd", run.cost)
        if run.error is not None:
            self._failed(span, run.error)
        elif run.outcome not in _FINE:
            self._marked(span, run.outcome)
        span.end()

    # -- the model ---------------------------------------------------------------------------------------------------

    async def wrap_model_call(self, prompt: Prompt, context: RunContext, call: CallModel) -> Reply:
        """Record a span around a model call."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": context.thread,
            "gen_ai.agent.name": context.agent,
            **model_attributes(context.model),
        }
        for name, key in _SETTINGS.items():
            value = getattr(prompt.settings, name)
            if value is not None:
                attributes[key] = value
        if self._content:
            attributes["gen_ai.system_instructions"] = _json([_text(m.text) for m in prompt.system])
            attributes["gen_ai.input.messages"] = _json([_message_json(each) for each in prompt.messages])
        kind = self._trace.SpanKind.CLIENT
        with self._span(span_name("chat", context.model), context, attributes, kind, limit=None) as span:
            context.own[self, "chat"] = span
            try:
                reply = await call(prompt)
            finally:
                del context.own[self, "chat"]
            self._answered(span, reply, context.model)
        return reply

    def _answered(self, span: Span, reply: Reply, requested: str) -> None:
        message = reply.response.message
        if reply.model != requested:  # a fallback of a chain
            span.update_name(span_name("chat", reply.model))
            span.set_attributes(model_attributes(reply.model))
        attributes: dict[str, Any] = usage_attributes(message.usage)
        if message.model is not None:
            attributes["gen_ai.response.model"] = message.model
        if message.response_id is not None:
            attributes["gen_ai.response.id"] = message.response_id
        if message.finish_reason is not None:
            attributes["gen_ai.response.finish_reasons"] = [message.finish_reason]
        if reply.first_token_seconds is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = reply.first_token_seconds
        attributes["palaver.attempts"] = reply.attempts
        if self._content:
            answer = {**_message_json(message), "finish_reason": message.finish_reason or "stop"}
            attributes["gen_ai.output.messages"] = _json([answer])
        span.set_attributes(attributes)

    def noticed(self, notice: Notice, context: RunContext) -> None:
        """Record a retry or a fallback as an event of the current call."""
        span: Span | None = context.own.get((self, "chat"))
        if span is not None:
            attributes: dict[str, Any] = {
                "palaver.model": notice.model,
                "palaver.attempt": notice.attempt,
                "palaver.wait": notice.wait,
                "error.type": error_type(notice.error),
            }
            span.add_event(f"palaver.{notice.kind}", attributes)

    # -- tools -------------------------------------------------------------------------------------------------------

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:
        """Record a span around the run of a tool."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": request.tool.name,
            "gen_ai.tool.call.id": request.context.call.id,
            "gen_ai.tool.type": "function",
            "gen_ai.conversation.id": context.thread,
            "gen_ai.agent.name": context.agent,
        }
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = request.context.call.arguments_json
        kind = self._trace.SpanKind.INTERNAL
        name = f"execute_tool {request.tool.name}"
        with self._span(name, context, attributes, kind, limit=request.deadline) as span:
            output = await call(request)
            if self._content:
                span.set_attribute("gen_ai.tool.call.result", _texts(output))
            if output.is_error:
                code = output.metadata.get("error_code")
                self._marked(span, code if isinstance(code, str) else "tool_error")
        return output

    # -- spans -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _span(
        self, name: str, context: RunContext, attributes: Mapping[str, Any], kind: Any, *, limit: float | None
    ) -> Generator[Span]:
        """A span below that of the run, current while the block runs."""
        trace = self._trace
        parent: Span | None = context.own.get(self)
        around = None if parent is None else trace.set_span_in_context(parent)
        span = self._tracer.start_span(name, around, kind, attributes)
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield span
        except Exception as error:
            self._failed(span, error)
            raise
        except BaseException:  # cancelled, by a time limit or from outside
            late = limit is not None and anyio.current_time() >= limit
            self._marked(span, "timeout" if late else "cancelled")
            raise
        finally:
            span.end()

    def _failed(self, span: Span, error: Exception) -> None:
        text = excerpt(str(error))
        span.add_event("exception", {"exception.type": type(error).__qualname__, "exception.message": text})
        self._marked(span, error_type(error), text)

    def _marked(self, span: Span, kind: str, text: str | None = None) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, text))


# -- values ------------------------------------------------------------------------------------------------------------


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _message_json(message: Message) -> dict[str, Any]:
    """A message in the form of the conventions. Media are named, not included."""
    if isinstance(message, ToolMessage):
        response = {"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}
        return {"role": "tool", "parts": [response]}
    role = "assistant" if isinstance(message, AssistantMessage) else message.role
    return {"role": role, "parts": [_part(part) for part in message.content]}


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, Text):
        return _text(part.text)
    if isinstance(part, Reasoning):
        return {"type": "reasoning", "content": part.text}
    if isinstance(part, ToolCall):
        return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments_json}
    return {"type": type(part).__name__.lower()}


def _texts(output: Output) -> str:
    return "\n".join([text for part in output.content if (text := text_of(part)) is not None])


# --- correlation ------------------------------------------------------------------------------------------------------


class Correlation:
    """The metadata of the last message from outside the run. Messages of a runtime (with a ``source``) do not count."""

    def __init__(self, path: Sequence[Entry]) -> None:
        """Start behind a conversation; costs the messages after the last user message."""
        self._metadata: Raw | UnsetType = UNSET
        for index in range(len(path) - 1, -1, -1):
            message = path[index].message
            if _is_from_user(message):
                self._metadata = _own(message)
                break

    def joining(self, message: Message) -> Message:
        """Return a message as it joins the conversation. An answer's own metadata override inherited ones."""
        if _is_from_user(message):
            self._metadata = _own(message)
        elif isinstance(message, AssistantMessage) and self._metadata is not UNSET:
            if message.metadata_json is UNSET:
                return structs.replace(message, metadata_json=self._metadata)
            return message.replace(metadata={**view(self._metadata), **message.metadata})
        return message


def _own(message: Message) -> Raw | UnsetType:
    """The metadata of a message without the mark that compaction shortened it."""
    if message.metadata_json is UNSET or COMPACTION not in message.metadata:
        return message.metadata_json
    return raw({key: value for key, value in message.metadata.items() if key != COMPACTION})


def _is_from_user(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.source is None and message.mode != "tool"
