"""Guardrails: functions that look at what goes to a model and to a tool, and at what comes back.

Rules (docs/spec/kairo.md#2.6, KAI-20):

- A policy is a function, sync or async, of what it looks at and of the run's context: ``before_model`` gets the prompt,
  ``after_model`` the answer, ``before_tool`` the request of a call, ``after_tool`` the output, and its request as a
  third argument. It gives ``None`` (nothing to say), ``deny(reason)``, ``modify(value)`` or ``warn(text)``.
- Policies of a place are asked in order. The first ``deny`` ends it, each ``modify`` is what the next one sees.
- ``modify`` gives a prompt, an answer (or its text: reasoning and calls stay), the new arguments of a call (a mapping,
  checked like the model's own), or the new output of a tool (or what a tool may give back). The model's call stays in
  the thread as it was; what ran stands in the metadata of the result.
- A policy that raises denies, unless ``on_error="allow"``; then it is told as ``Warned``, and asked no further. A
  ``modify`` with anything else than its place takes denies always: the policy has looked, and wants it changed.
- A denied model call ends the run as ``blocked``. An answer that is denied is kept with the tag ``discarded``, is never
  sent to a model, and with ``after_model`` policies nobody is shown it: answers are withheld until they have passed. A
  denied call of a tool has an error result: before the tool, that the call was not allowed; after it, that the tool
  has run and its result was withheld.

Presets for agents that speak to people in plain text: markup is removed, and calls written as text are refused
(docs/spec/agent-swarm-kit.md#3.4, ASK-16):

- ``without_tags`` removes every pair of tags with what is between them, folds blank lines, and trims. ``text_fault``
  refuses an empty text, one with braces, and one that is a tool call in tags.
- They damage ordinary answers: code, JSON, HTML. No agent has them unless it is given them, as policies of a guardrail:
  ``Guardrail(after_model=[transforming(without_tags), validating(text_fault)])``. The transformation runs once an
  answer, and validation sees what it gave. Answers that call tools are let alone.
- Both take time in proportion to the text, whatever is in it.

A breaker: a tool that failed several times in a row is left alone for a while (docs/spec/kairo.md#2.4, #D12, KAI-18):

- An error result, an exception and a timeout count; a success begins the count anew. What the user cancelled does not
  count, nor what a guardrail denied: the tool did nothing wrong.
- After ``failures`` of them the tool is not run for ``seconds``; a call of it has an error result that says so. Then it
  is run again: when it fails once more, it is left alone again.
- It counts for one run. A call is judged when it is planned, before anybody is asked to approve it, and again when its
  turn has come, since its own batch may have opened the breaker.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import anyio
from msgspec import Struct, structs

from palaver.context.compaction import Breaker
from palaver.core import jsontext
from palaver.core.errors import MessageError, excerpt
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import AssistantPart, Text, ToolCall
from palaver.core.type_checks import check_arguments
from palaver.models.language_model import Prompt, Reply
from palaver.turn import events, tool_output
from palaver.turn.middleware import Blocked, CallModel, CallTool, Middleware, RunContext, ToolRequest
from palaver.turn.tool import AgentTool, Output, Rule

# --- guardrails -------------------------------------------------------------------------------------------------------


T = TypeVar("T")

DENIED: Final = "denied_by_guardrail"
"""The ``error_code`` of a denied call, in the metadata of its result."""
WITHHELD: Final = "withheld_by_guardrail"
"""The ``error_code`` of a call whose tool has run, but whose result was denied."""
POLICIES: Final = 64
"""The most policies of a place."""


class Verdict(Struct, frozen=True):
    """What a policy says."""

    kind: Literal["deny", "modify", "warn"]
    text: str = ""
    value: Any = None

    def __post_init__(self) -> None:
        """Refuse values of another type. Raises ``MessageError``, which names the field."""
        check_arguments("Verdict", Verdict, structs.asdict(self))


def deny(reason: str) -> Verdict:
    """Stop what the policy looks at. ``reason`` says why: in the error result of a call, else as the run's reason."""
    check_arguments("deny", deny, locals())
    return Verdict("deny", reason)


def modify(value: Any) -> Verdict:
    """Let ``value`` pass in its place: a prompt, an answer or its text, arguments, or an output, as its place takes."""
    return Verdict("modify", value=value)


def warn(text: str) -> Verdict:
    """Let it pass, and publish ``text`` as a ``Warned`` event."""
    check_arguments("warn", warn, locals())
    return Verdict("warn", text)


Judged: TypeAlias = Verdict | None
ModelPolicy: TypeAlias = "Callable[[Prompt, RunContext], Judged | Awaitable[Judged]]"
AnswerPolicy: TypeAlias = "Callable[[AssistantMessage, RunContext], Judged | Awaitable[Judged]]"
CallPolicy: TypeAlias = "Callable[[ToolRequest, RunContext], Judged | Awaitable[Judged]]"
OutputPolicy: TypeAlias = "Callable[[Output, RunContext, ToolRequest], Judged | Awaitable[Judged]]"


class _DeniedError(Exception):
    """A policy denied."""


class Guardrail(Middleware):
    """Policies at four places."""

    def __init__(
        self,
        *,
        before_model: ModelPolicy | Sequence[ModelPolicy] = (),
        after_model: AnswerPolicy | Sequence[AnswerPolicy] = (),
        before_tool: CallPolicy | Sequence[CallPolicy] = (),
        after_tool: OutputPolicy | Sequence[OutputPolicy] = (),
        on_error: Literal["deny", "allow"] = "deny",
        name: str = "Guardrail",
    ) -> None:
        """Keep the policies, one or several at a place.

        ``before_model`` policies get the prompt, ``after_model`` the answer, ``before_tool`` the request of a call, and
        ``after_tool`` the output of a tool and its request; each gets the run's context too. ``on_error`` is for a
        policy that raises: ``"deny"`` stops what it looked at, ``"allow"`` lets it pass and publishes ``Warned``.
        ``name`` begins the texts of such errors and of warnings. Raises ``MessageError`` for more than 64 policies at
        one place, and for a policy that is not a function.
        """
        check_arguments("Guardrail", Guardrail.__init__, locals())
        self._before_model = _policies(before_model, f"{name}: before_model")
        self._after_model = _policies(after_model, f"{name}: after_model")
        self._before_tool = _policies(before_tool, f"{name}: before_tool")
        self._after_tool = _policies(after_tool, f"{name}: after_tool")
        self._on_error, self._name = on_error, name

    @property
    def name(self) -> str:
        """The name it was given."""
        return self._name

    @property
    def withholds(self) -> bool:
        """An answer that may be denied is shown when it has passed."""
        return bool(self._after_model)

    async def wrap_model_call(self, prompt: Prompt, context: RunContext, call: CallModel) -> Reply:
        """Look at the prompt, and at the answer."""
        try:
            prompt = await self._passed(self._before_model, prompt, context, _prompt)
        except _DeniedError as denied:
            raise Blocked(str(denied)) from None
        reply = await call(prompt)
        if not self._after_model:
            return reply
        message = reply.response.message
        try:
            passed = await self._passed(self._after_model, message, context, _answer)
        except _DeniedError as denied:
            raise Blocked(str(denied), message=message) from None
        if passed is message:
            return reply
        return structs.replace(reply, response=reply.response.replace(message=passed))

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:
        """Look at the arguments, and at the output."""
        arguments: Mapping[str, Any] | None = None
        try:
            for policy in self._before_tool:
                said = await self._asked(policy, context, request, context)
                if said is not None:
                    arguments = self._modified(context, _arguments, request.arguments, said.value)
                    request = _with_arguments(request, arguments)
        except _DeniedError as denied:
            return _denied(request, denied)
        try:
            output = await call(request)
        except Exception as error:
            if not self._after_tool:
                raise
            output = tool_output.error_output(error)  # what it says may be what a policy looks for
        try:
            output = await self._passed_output(output, context, request)
        except _DeniedError as denied:
            return _denied(request, denied)
        if arguments is not None:
            noted = {**output.metadata, "guardrail": {"arguments": dict(arguments)}}
            output = structs.replace(output, metadata=noted)
        return output

    async def _passed_output(self, output: Output, context: RunContext, request: ToolRequest) -> Output:
        for policy in self._after_tool:
            said = await self._asked(policy, context, output, context, request)
            if said is not None:
                output = self._modified(context, _output, output, said.value)
        return output

    async def _passed(
        self, policies: Sequence[Callable[..., Any]], value: T, context: RunContext, take: Callable[[T, Any], T]
    ) -> T:
        for policy in policies:
            said = await self._asked(policy, context, value, context)
            value = value if said is None else self._modified(context, take, value, said.value)
        return value

    def _modified(self, context: RunContext, take: Callable[[T, Any], T], before: T, value: Any) -> T:
        """What stands in place of ``before``. Raises ``_DeniedError`` for what has no place there."""
        try:
            return take(before, value)
        except MessageError as error:
            text = f"{self.name}: {error}"
            _tell(context, text, error)
            raise _DeniedError(text) from error

    async def _asked(self, policy: Callable[..., Any], context: RunContext, *given: Any) -> Verdict | None:
        """What a policy wants changed. Raises ``_DeniedError``."""
        try:
            given_back: Any = policy(*given)
            said = _checked(await given_back if isawaitable(given_back) else given_back)
        except Exception as error:
            text = f"{self.name}: a policy failed: {excerpt(f'{type(error).__name__}: {error}')}"
            _tell(context, text, error)
            if self._on_error == "allow":
                return None
            raise _DeniedError(text) from error
        if said is not None and said.kind == "deny":
            raise _DeniedError(said.text)
        if said is not None and said.kind == "warn":
            _tell(context, f"{self.name}: {said.text}")
            return None
        return said


def _policies(given: object, where: str) -> tuple[Callable[..., Any], ...]:
    """The policies of a place. Raises ``MessageError``."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        given = (given,)
    policies = tuple(cast("Sequence[object]", given))
    for each in policies:
        if not callable(each):
            raise MessageError(f"{where}: {excerpt(repr(each))} is not a function")
    if len(policies) > POLICIES:
        raise MessageError(f"{where}: {len(policies)} policies for one hook; the limit is {POLICIES}")
    return cast("tuple[Callable[..., Any], ...]", policies)


def _checked(said: object) -> Verdict | None:
    if said is None:
        return None
    if isinstance(said, Verdict):
        return said
    raise MessageError(f"a policy returns None, deny, modify or warn, not {type(said).__name__}")


def _tell(context: RunContext, text: str, error: Exception | None = None) -> None:
    context.emit(events.Warned(agent=context.agent, run=context.run, text=text, error=error))


def _with_arguments(request: ToolRequest, arguments: Mapping[str, Any]) -> ToolRequest:
    """The request with other arguments. Raises ``MessageError`` when they do not fit, which the model is told."""
    text = bytes(jsontext.checked(dict(arguments), "arguments")).decode()
    call = structs.replace(request.context.call, arguments_json=text)
    context = structs.replace(request.context, call=call)
    return structs.replace(request, arguments=request.tool.check(call), context=context)


# -- what modify may give ----------------------------------------------------------------------------------------------


def _prompt(before: Prompt, value: Any) -> Prompt:  # noqa: ARG001 (the same for each place)
    if isinstance(value, Prompt):
        return value
    raise MessageError(f"modify in before_model takes a Prompt (prompt.replace(…)), not {type(value).__name__}")


def _answer(before: AssistantMessage, value: Any) -> AssistantMessage:
    if isinstance(value, AssistantMessage):
        return value
    if not isinstance(value, str | Text):
        kind = type(value).__name__
        raise MessageError(f"modify in after_model takes a string or an answer (message.replace(…)), not {kind}")
    text = value if isinstance(value, Text) else Text(value)
    content: list[AssistantPart] = []
    for part in before.content:
        if not isinstance(part, Text):
            content.append(part)
        elif text not in content:  # at the place of the first text
            content.append(text)
    if text not in content:
        content.append(text)
    return before.replace(content=content)


def _arguments(before: Any, value: Any) -> Mapping[str, Any]:  # noqa: ARG001 (the same for each place)
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    raise MessageError(f"modify in before_tool takes the arguments as a mapping, not {type(value).__name__}")


def _output(before: Output, value: Any) -> Output:
    """An output with other content, that failed where the first did."""
    made = tool_output.output_of(value)
    if isinstance(value, Output):
        return made
    if made.is_error and not (isinstance(value, ToolMessage) and value.is_error):
        text = "".join([part.text for part in made.content if isinstance(part, Text)])
        raise MessageError(f"modify in after_tool takes what a tool may return. {text}")
    return structs.replace(made, is_error=before.is_error or made.is_error, metadata=before.metadata)


def _denied(request: ToolRequest, denied: _DeniedError) -> Output:
    """The error result of a denied call. It says whether the tool has run: a model must not repeat what took effect."""
    name = request.tool.name
    if not request.state.started:
        text = f"The {name} call was not allowed: {denied}"
        return Output(content=(Text(text),), is_error=True, metadata={"error_code": DENIED})
    ended = "has run" if request.state.finished else "was started and failed"
    text = f"The {name} call {ended}, and may have taken effect. Its result was withheld: {denied}"
    return Output(content=(Text(text),), is_error=True, metadata={"error_code": WITHHELD})


# --- plain answers ----------------------------------------------------------------------------------------------------


EMPTY: Final = "Empty output"
TOOL_SYNTAX: Final = "Tool call in text output"

_BLANK: Final = re.compile(r"\n\s*\n")
_CALL: Final = re.compile(r"<(tool_call|toolcall|tool)[\s/>]")


def without_tags(text: str) -> str:
    """Return ``text`` without pairs of tags and their content; blank lines are folded, and the ends trimmed."""
    kept: list[str] = []
    place = 0
    while (opening := _tag(text, place, "<")) is not None:
        closing = _tag(text, opening[1], "</")
        if closing is None:
            break
        kept.append(text[place : opening[0]])
        place = closing[1]
    kept.append(text[place:])
    return _BLANK.sub("\n", "".join(kept)).strip()


def text_fault(text: str) -> str | None:
    """Return what is wrong with ``text``, an answer; ``None`` when nothing is."""
    text = text.strip()
    if not text:
        return EMPTY
    called = _CALL.match(text)
    if "{" in text or "}" in text or (called and text.endswith((f"</{called[1]}>", "/>"))):
        return TOOL_SYNTAX
    return None


def transforming(transform: Callable[[str], str]) -> AnswerPolicy:
    """Return a policy that replaces the text of an answer with what ``transform`` returns for it."""

    def policy(message: AssistantMessage, context: RunContext) -> Verdict | None:  # noqa: ARG001 (a policy)
        if message.tool_calls:
            return None
        others = [part for part in message.content if not isinstance(part, Text)]
        return modify(message.replace(content=(*others, Text(transform(message.text)))))

    return policy


def validating(fault: Callable[[str], str | None]) -> AnswerPolicy:
    """Return a policy that denies an answer when ``fault`` finds something wrong with its text.

    ``fault`` returns what is wrong, and ``None`` when nothing is.
    """

    def policy(message: AssistantMessage, context: RunContext) -> Verdict | None:  # noqa: ARG001 (a policy)
        found = None if message.tool_calls else fault(message.text)
        return None if found is None else deny(found)

    return policy


def _tag(text: str, place: int, opening: str) -> tuple[int, int] | None:
    """The next tag: where it begins, and where it is over. At least one letter stands in it."""
    while (begin := text.find(opening, place)) >= 0:
        inside = begin + len(opening)
        end = text.find(">", inside)
        if end < 0:
            return None
        if end > inside:
            return begin, end + 1
        place = begin + 1
    return None


# --- tool breaker -----------------------------------------------------------------------------------------------------


FAILURES: Final = 3
SECONDS: Final = 60.0
OPEN: Final = "tool_breaker_open"
"""The ``error_code`` of a call that was not run, in the metadata of its result."""


class ToolBreaker(Middleware):
    """Leaves tools alone that fail. ``polling`` names tools whose failures do not matter."""

    def __init__(self, failures: int = FAILURES, seconds: float = SECONDS, *, polling: Sequence[str] = ()) -> None:
        """Set after how many ``failures`` in a row a tool is not run, and for how many ``seconds``.

        Raises ``MessageError`` for fewer than 1 failure, and for negative seconds.
        """
        check_arguments("ToolBreaker", ToolBreaker.__init__, locals())
        self._closed, self._polling = Breaker(max_failures=failures, seconds=seconds), frozenset(polling)

    async def rule(self, call: ToolCall, tool: AgentTool, context: RunContext) -> Rule | None:  # noqa: ARG002 (a hook)
        """Deny a call of a tool that is left alone."""
        return Rule(judgement="deny", text=_told(tool)) if self._open(tool, context) else None

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:
        """Count how calls end."""
        tool = request.tool
        if tool.name in self._polling:
            return await call(request)
        if self._open(tool, context):
            return Output(content=(Text(_told(tool)),), is_error=True, metadata={"error_code": OPEN})
        try:
            output = await call(request)
        except Exception:
            self._failed(tool, context)
            raise
        except BaseException:  # cancelled: by the tool's own time limit, or by somebody
            if anyio.current_time() >= request.deadline:
                self._failed(tool, context)
            raise
        if not output.is_error:
            self._known(context)[tool.name] = self._closed
        elif output.metadata.get("error_code") not in (DENIED, WITHHELD):
            self._failed(tool, context)
        return output

    def _known(self, context: RunContext) -> dict[str, Breaker]:
        known: dict[str, Breaker] = context.own.setdefault(self, {})
        return known

    def _open(self, tool: AgentTool, context: RunContext) -> bool:
        return not self._known(context).get(tool.name, self._closed).allows(anyio.current_time())

    def _failed(self, tool: AgentTool, context: RunContext) -> None:
        known = self._known(context)
        known[tool.name] = known.get(tool.name, self._closed).failed(anyio.current_time())


def _told(tool: AgentTool) -> str:
    return f"The {tool.name} tool failed several times in a row and is not run for now. Go on without it."
