"""Outlines: a value in a form, made by a model that is asked again until it is right.

Rules (docs/spec/agent-swarm-kit.md#6, ASK-27):

- Each attempt begins anew: the prompt, the system texts, the model's flags, and what the history function gives for
  the attempt. From the second on, what the model said and what was wrong with it follow, so that it can do better.
- The model is asked for the form as its provider takes it. What it says is read, checked against the form, and given to
  the validations, in order. A validation says what is wrong by raising, or by giving it as a text.
- A model that fails is no wrong answer: what it raises is raised, and so is what the history function raises.
- Nothing is kept, and no session is needed. Observers only look on.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypedDict, Unpack

from msgspec import Struct

from palaver.agent.structured import OutputError, Structured
from palaver.core.errors import SwarmError
from palaver.core.factories import assistant, system, user
from palaver.core.messages import MESSAGE_CLASSES, Message
from palaver.core.request import OutputFormat, Request, Settings
from palaver.core.type_checks import check_arguments
from palaver.models.language_model import LanguageModel, complete
from palaver.swarm.call_context import called, watched
from palaver.threads.ids import uuid7

ATTEMPTS: Final = 5
"""How often a model is asked, where nothing else is said."""
WRONG: Final = "Your answer cannot be used: {error}\nAnswer again, in the form that was asked for."
"""What the model is told of its last answer."""


class Attempt(Struct, frozen=True, kw_only=True):
    """One time that a model is asked: ``number`` from 0, what it is told so far, and the form."""

    outline: str
    number: int
    messages: tuple[Message, ...]
    format: OutputFormat
    result_id: str


class Result(Struct, frozen=True):
    """What came of an outline.

    ``attempt`` is the number of the one that was right, and else how many there were; ``data`` then is ``None``, and
    ``error`` what was wrong with the last. ``history`` is what the model was told last.
    """

    attempt: int
    data: Any
    error: str | None
    params: tuple[Any, ...]
    history: tuple[Message, ...]
    result_id: str

    @property
    def is_valid(self) -> bool:
        """Whether there was an answer that is right."""
        return self.error is None


class _WrongError(Exception):
    """What is wrong with an answer."""


class OutlineChanges(TypedDict, total=False):
    """What ``Outline.replace`` changes: the arguments of ``Outline``."""

    name: str
    model: LanguageModel
    form: Any
    history: Callable[..., Any] | None
    prompt: str | Callable[..., Any]
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
    """A form, and how a model is asked for it. Changing one is a copy: ``outline.replace(attempts=2)``."""

    def __init__(
        self,
        name: str,
        model: LanguageModel,
        form: Any,
        *,
        history: Callable[..., Any] | None = None,
        prompt: str | Callable[..., Any] = "",
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
        """Describe an outline.

        ``form`` is a type or a JSON Schema, as for ``palaver.agent.Agent(output=…)``. ``history`` gets an ``Attempt``
        and the parameters, and gives messages or texts of the user; without it the parameters are the texts. A
        ``prompt`` may be a function of the parameters. ``validations`` get the data and the parameters. Raises
        ``SwarmError`` without a name or attempts and for arguments of the wrong type, and ``MessageError`` for a form
        that cannot be described.
        """
        self._given: dict[str, Any] = {key: value for key, value in locals().items() if key != "self"}
        whose = f"the outline {name!r}"
        check_arguments(whose, Outline.__init__, self._given, SwarmError)
        for each in ("system", "flags", "validations"):
            self._given[each] = tuple(self._given[each])  # what can be read only once is read here
        check_arguments(whose, Outline.__init__, self._given, SwarmError)
        if not name:
            raise SwarmError("an outline needs a name")
        if attempts < 1:
            raise SwarmError(f"the outline {name!r} needs at least one attempt")
        self.name, self.model, self.attempts = name, model, attempts
        self.form = Structured(form, model.capabilities)
        self._settings = self.form.asked(settings)
        self._prompt, self._history = prompt, history
        self._system: tuple[str, ...] = (*self._given["system"], *self._given["flags"])
        self._validations: tuple[Callable[..., Any], ...] = self._given["validations"]
        self._on_attempt, self._on_document = on_attempt, on_document
        self._on_valid, self._on_invalid = on_valid_document, on_invalid_document

    def replace(self, **changes: Unpack[OutlineChanges]) -> Outline:
        """Give an edited copy. Raises as the constructor does."""
        given: dict[str, Any] = {**self._given, **changes}
        return Outline(**given)

    async def run(self, *params: Any) -> Result:
        """Ask until the answer is right, or there were enough attempts. Raises what the model raises."""
        result_id = uuid7()
        correction: tuple[Message, ...] = ()
        history: tuple[Message, ...] = ()
        error: str | None = None
        for number in range(self.attempts):
            history = (*await self._begun(number, result_id, params), *correction)
            answer = (await complete(self.model, Request(history, settings=self._settings))).response.message
            try:
                data = await self._checked(answer.text, params)
            except _WrongError as wrong:
                error = str(wrong)
                said = (assistant(answer.text),) if answer.text.strip() else ()
                correction = (*said, user(WRONG.format(error=error)))
            else:
                return await self._done(Result(number, data, None, params, history, result_id))
        return await self._done(Result(self.attempts, None, error, params, history, result_id))

    async def _begun(self, number: int, result_id: str, params: tuple[Any, ...]) -> tuple[Message, ...]:
        """What the model is told in an attempt, before anything was wrong."""
        prompt = self._prompt if isinstance(self._prompt, str) else str(await called(self._prompt, *params))
        told = tuple([system(text) for text in (prompt, *self._system) if text])
        attempt = Attempt(outline=self.name, number=number, messages=told, format=self.form.format, result_id=result_id)
        await watched("on_attempt", self._on_attempt, attempt)
        given: Iterable[Any] = params if self._history is None else await called(self._history, attempt, *params)
        if isinstance(given, (str, *MESSAGE_CLASSES)):
            given = (given,)
        return (*told, *[each if isinstance(each, MESSAGE_CLASSES) else user(str(each)) for each in given])

    async def _checked(self, text: str, params: Sequence[Any]) -> Any:
        """The value of an answer. Raises ``_WrongError``."""
        try:
            data = self.form.read(text)
        except OutputError as error:
            raise _WrongError(str(error)) from None
        for validate in self._validations:
            try:
                wrong = await called(validate, data, *params)
            except Exception as error:  # noqa: BLE001 (whatever it is, it says what is wrong)
                raise _WrongError(str(error) or type(error).__name__) from None
            if wrong is False or (isinstance(wrong, str) and wrong):
                raise _WrongError(wrong or f"{getattr(validate, '__name__', 'a validation')} says no")
        return data

    async def _done(self, result: Result) -> Result:
        await watched("on_document", self._on_document, result)
        if result.is_valid:
            await watched("on_valid_document", self._on_valid, result)
        else:
            await watched("on_invalid_document", self._on_invalid, result)
        return result
