"""Outlines: a value in a form, from a model that is asked again until its answer is valid.

- Each attempt starts anew: the prompt, the system texts, the model's flags, and the messages of the history function.
  From the second attempt on, the last answer and its error follow.
- The model is asked for the form in the way of its provider. The answer is parsed, checked against the form, and passed
  to the validations in order. A validation fails by raising, by returning an error text, or by returning ``False``.
- An answer that was cut at the model's output limit is invalid, whatever came of it. It is the last attempt, since the
  next one would be cut too.
- A failure of the model is not an invalid answer: its exception is raised, as is that of the history function.
- Nothing is stored, and no session is needed. Observers change nothing.

See docs/spec/agent-swarm-kit.md#6, ASK-27.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypedDict, Unpack

from msgspec import Struct

from palaver.agent.structured import OutputError, Structured
from palaver.core.errors import SwarmError, excerpt
from palaver.core.factories import assistant, system, user
from palaver.core.messages import MESSAGE_CLASSES, Message
from palaver.core.request import OutputFormat, Request, Settings
from palaver.core.type_checks import read_arguments
from palaver.models.language_model import LanguageModel, complete
from palaver.swarm.call import called, watched
from palaver.threads.ids import uuid7
from palaver.turn.limits import CUT_ANSWER

ATTEMPTS: Final = 5
"""The default number of attempts."""
CORRECTION: Final = "Your answer cannot be used: {error}\nAnswer again, in the form that was asked for."
"""The message to the model about its invalid answer."""


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt: its ``number`` from 0, the first messages, and the form."""

    outline: str
    number: int
    messages: tuple[Message, ...]
    format: OutputFormat
    result_id: str


class Result(Struct, frozen=True):
    """The result of an outline.

    ``attempt`` is the number of the valid attempt. Without one it is their count, ``data`` is ``None``, and ``error``
    is the error of the last. ``history`` has the messages of the last attempt.
    """

    attempt: int
    data: Any
    error: str | None
    params: tuple[Any, ...]
    history: tuple[Message, ...]
    result_id: str

    @property
    def is_valid(self) -> bool:
        """Whether there was a valid answer."""
        return self.error is None


class _InvalidAnswerError(Exception):
    """An answer is invalid; the text says why."""


class OutlineChanges(TypedDict, total=False):
    """What ``Outline.replace`` changes: the arguments of ``Outline``."""

    name: str
    model: LanguageModel
    form: Any
    history: Callable[..., Any] | None
    instructions: str | Callable[..., Any]
    system: Iterable[str]
    flags: Iterable[str]
    validations: Iterable[Callable[..., Any]]
    attempts: int
    settings: Settings
    on_attempt: Callable[[Attempt], Any] | None
    on_document: Callable[[Result], Any] | None
    on_valid_document: Callable[[Result], Any] | None
    on_invalid_document: Callable[[Result], Any] | None


class Outline:
    """A form, and how a model is asked for it. ``outline.replace(attempts=2)`` returns an edited copy."""

    def __init__(
        self,
        name: str,
        model: LanguageModel,
        form: Any,
        *,
        history: Callable[..., Any] | None = None,
        instructions: str | Callable[..., Any] = "",
        system: Iterable[str] = (),
        flags: Iterable[str] = (),
        validations: Iterable[Callable[..., Any]] = (),
        attempts: int = ATTEMPTS,
        settings: Settings = Settings(),  # noqa: B008 (frozen)
        on_attempt: Callable[[Attempt], Any] | None = None,
        on_document: Callable[[Result], Any] | None = None,
        on_valid_document: Callable[[Result], Any] | None = None,
        on_invalid_document: Callable[[Result], Any] | None = None,
    ) -> None:
        """Set up an outline.

        ``name`` is that of the outline; ``model`` is asked, with ``settings``, at most ``attempts`` times. ``form`` is
        a type or a JSON Schema, as for ``palaver.agent.Agent(output=…)``. ``history`` gets an ``Attempt`` and the
        parameters, and returns messages or user texts; without it the parameters are the texts. ``instructions`` are
        the system prompt, a text or a function of the parameters; the texts of ``system`` and ``flags`` stand behind
        it. ``validations`` get the data and the parameters. ``on_attempt`` gets each ``Attempt``, and ``on_document``
        the ``Result``, as do ``on_valid_document`` and ``on_invalid_document`` if the answer is valid, or not. Raises
        ``SwarmError`` without a name or attempts and for arguments of the wrong type, and ``MessageError`` for a form
        that cannot be described.
        """
        given = {key: value for key, value in locals().items() if key != "self"}
        read_once = ("system", "flags", "validations")
        self._arguments = read_arguments(f"the outline {name!r}", Outline.__init__, given, read_once, SwarmError)
        if not name:
            raise SwarmError("an outline needs a name")
        if attempts < 1:
            raise SwarmError(f"the outline {name!r} needs at least one attempt")
        self.name, self.model, self.attempts = name, model, attempts
        self.form = Structured(form, model.capabilities)
        self._settings = self.form.asked(settings)
        self._instructions, self._history = instructions, history
        self._system: tuple[str, ...] = (*self._arguments["system"], *self._arguments["flags"])
        self._validations: tuple[Callable[..., Any], ...] = self._arguments["validations"]
        self._on_attempt, self._on_document = on_attempt, on_document
        self._on_valid, self._on_invalid = on_valid_document, on_invalid_document

    def replace(self, **changes: Unpack[OutlineChanges]) -> Outline:
        """Return a copy edited by ``changes``. Raises as the constructor does."""
        given: dict[str, Any] = {**self._arguments, **changes}
        return Outline(**given)

    async def run(self, *params: Any) -> Result:
        """Ask until the answer is valid or the attempts are used up. Raises what the model raises.

        ``params`` go to the functions of the outline. Without ``history`` they are the user messages.
        """
        result_id = uuid7()
        correction: tuple[Message, ...] = ()
        history: tuple[Message, ...] = ()
        error: str | None = None
        for number in range(self.attempts):
            history = (*await self._messages(number, result_id, params), *correction)
            answer = (await complete(self.model, Request(history, settings=self._settings))).response.message
            if answer.finish_reason == "length":
                error = f"{CUT_ANSWER}: {excerpt(answer.text)}"
                return await self._finish(Result(number + 1, None, error, params, history, result_id))
            try:
                data = await self._validated(answer.text, params)
            except _InvalidAnswerError as complaint:
                error = str(complaint)
                previous = (assistant(answer.text),) if answer.text.strip() else ()
                correction = (*previous, user(CORRECTION.format(error=error)))
            else:
                return await self._finish(Result(number, data, None, params, history, result_id))
        return await self._finish(Result(self.attempts, None, error, params, history, result_id))

    async def _messages(self, number: int, result_id: str, params: tuple[Any, ...]) -> tuple[Message, ...]:
        """Return the messages of an attempt, without corrections."""
        instructions = (
            self._instructions
            if isinstance(self._instructions, str)
            else str(await called(self._instructions, *params))
        )
        start = tuple([system(text) for text in (instructions, *self._system) if text])
        attempt = Attempt(
            outline=self.name, number=number, messages=start, format=self.form.format, result_id=result_id
        )
        await watched("on_attempt", self._on_attempt, attempt)
        given: Iterable[Any] = params if self._history is None else await called(self._history, attempt, *params)
        if isinstance(given, (str, *MESSAGE_CLASSES)):
            given = (given,)
        return (*start, *[each if isinstance(each, MESSAGE_CLASSES) else user(str(each)) for each in given])

    async def _validated(self, text: str, params: Sequence[Any]) -> Any:
        """Return the value of an answer. Raises ``_InvalidAnswerError``."""
        try:
            data = self.form.read(text)
        except OutputError as error:
            raise _InvalidAnswerError(str(error)) from None
        for validate in self._validations:
            try:
                complaint = await called(validate, data, *params)
            except Exception as error:  # noqa: BLE001 (any error of a validation makes the answer invalid)
                raise _InvalidAnswerError(str(error) or type(error).__name__) from None
            if complaint is False or (isinstance(complaint, str) and complaint):
                raise _InvalidAnswerError(
                    complaint or f"{getattr(validate, '__name__', 'a validation')} returned False"
                )
        return data

    async def _finish(self, result: Result) -> Result:
        await watched("on_document", self._on_document, result)
        if result.is_valid:
            await watched("on_valid_document", self._on_valid, result)
        else:
            await watched("on_invalid_document", self._on_invalid, result)
        return result
