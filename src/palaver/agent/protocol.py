"""What the machine of a run and its driver say to each other: events go in, commands come out.

Rules:

- Commands are carried out in order by the driver, each with at most the events that its docstring names.
- Both are values; no event knows what it will mean, and no command how it is carried out.

Where a run is, and how the results of its open calls join the thread:

- Results stand in the order of the calls. They are appended as soon as those of all calls before them are there, so
  that a crash loses as little as it can.
- What came of an answer that broke off is kept together with a result for each call in it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct, structs

from palaver.agent.loops import Repetition, Watch
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.pairs import client_calls
from palaver.threads.view import DISCARDED
from palaver.turn import notes
from palaver.turn.calls import Answered, Blocked, Decided, ModelFailed, Planned, PlannedCall, Ran, TurnEvent, result
from palaver.turn.limits import Limits, Outcome, Spent
from palaver.turn.middleware import Jump

# -- events ----------------------------------------------------------------------------------------------------------


class Begun(TurnEvent, frozen=True):
    """A run begins. ``closing`` answers calls that an earlier run left open; ``messages`` are the input."""

    at: float
    messages: tuple[Message, ...] = ()
    closing: tuple[ToolMessage, ...] = ()


class Resumed(TurnEvent, frozen=True):
    """A run goes on where another stopped.

    ``message`` is the one whose calls are open, where there is one; ``answered`` its results so far, by place.
    ``begun`` says that calls may have been run already; ``last`` is the answer that the thread ends in, where nothing
    is open. ``held`` was said while calls were open, and waits for its place behind their results.
    """

    at: float
    message: AssistantMessage | None = None
    answered: tuple[ToolMessage | None, ...] = ()
    may_have_run: bool = False
    last: AssistantMessage | None = None
    deferred: tuple[Message, ...] = ()


class Prepared(TurnEvent, frozen=True):
    """Middleware had its say before the model is called."""

    inject: tuple[Message, ...] = ()
    jump: Jump | None = None


class Reviewed(TurnEvent, frozen=True):
    """Middleware had its say after the model was called."""

    inject: tuple[Message, ...] = ()
    jump: Jump | None = None


class OutputRead(TurnEvent, frozen=True):
    """The answer has the form that was asked for."""

    value: Any = None


class OutputRefused(TurnEvent, frozen=True):
    """The answer has not the form that was asked for; ``error`` is for the model."""

    error: str


class Steered(TurnEvent, frozen=True):
    """Somebody said something while the run was under way."""

    messages: tuple[Message, ...]


class Interrupted(TurnEvent, frozen=True):
    """The run was cancelled, or its time is over. ``partial`` is what came of the answer under way."""

    outcome: Literal["cancelled", "timed_out"] = "cancelled"
    reason: str = ""
    partial: AssistantMessage | None = None


class Crashed(TurnEvent, frozen=True):
    """Something of ours failed: a hook, a store, a tool's machinery."""

    error: Exception
    partial: AssistantMessage | None = None


Event: TypeAlias = (
    Begun
    | Resumed
    | Prepared
    | Answered
    | ModelFailed
    | Reviewed
    | OutputRead
    | OutputRefused
    | Planned
    | Decided
    | Ran
    | Steered
    | Blocked
    | Interrupted
    | Crashed
)
EVENTS: Final[tuple[type[Event], ...]] = get_args(Event)


# -- commands --------------------------------------------------------------------------------------------------------


class _Command(Struct, frozen=True, gc=False):
    """Base of what is to be done."""


class Append(_Command, frozen=True):
    """Let messages join the thread, and keep them. Gives no event."""

    messages: tuple[Message, ...]


class Prepare(_Command, frozen=True):
    """Let middleware have its say before the model. Gives ``Prepared`` or ``Blocked``."""


class CallModel(_Command, frozen=True):
    """Ask the model; ``final`` without tools. Gives ``Answered``, ``ModelFailed`` or ``Blocked``."""

    final: bool = False


class Review(_Command, frozen=True):
    """Let middleware have its say about an answer. Gives ``Reviewed`` or ``Blocked``."""

    message: AssistantMessage


class ReadOutput(_Command, frozen=True):
    """Read the answer in the form that was asked for. Gives ``OutputRead`` or ``OutputRefused``."""

    message: AssistantMessage


class Plan(_Command, frozen=True):
    """Find tool, validity and permission of calls. ``begun``: they may have run. Gives ``Planned``."""

    message: AssistantMessage
    indexes: tuple[int, ...]
    may_have_run: bool = False


class Ask(_Command, frozen=True):
    """Have calls decided, as far as somebody is there to decide. Gives ``Decided``."""

    calls: tuple[PlannedCall, ...]


class Run(_Command, frozen=True):
    """Run calls at the same time. Gives ``Ran`` for each."""

    calls: tuple[PlannedCall, ...]


class Warn(_Command, frozen=True):
    """Tell whoever watches. Gives no event."""

    text: str


class Finish(_Command, frozen=True):
    """The run is over. Gives no event."""

    outcome: Outcome
    error: Exception | None = None
    reason: str = ""


Command: TypeAlias = Append | Prepare | CallModel | Review | ReadOutput | Plan | Ask | Run | Warn | Finish


# --- state ------------------------------------------------------------------------------------------------------------


Phase: TypeAlias = Literal["idle", "prepare", "model", "review", "output", "plan", "approval", "tools", "done"]


class State(Struct, frozen=True, kw_only=True, gc=False):
    """Where a run is. ``limits`` and ``reads_output`` do not change; the rest does."""

    limits: Limits = Limits()
    reads_output: bool = False
    has_tools: bool = False
    """Whether the model is offered tools, which the last call allowed withholds from it."""
    polling: frozenset[str] = frozenset()
    """Tools that may be called again and again with the same arguments."""
    phase: Phase = "idle"
    began: float = 0.0
    now: float = 0.0
    iteration: int = 0
    """Calls of the model so far."""
    spent: Spent = Spent()
    recoveries: int = 0
    output_attempts: int = 0
    final: Outcome | None = None
    """Why the call under way is the last, where it is."""
    message: AssistantMessage | None = None
    """The answer whose calls are open, or that may be the last."""
    planned: tuple[PlannedCall, ...] = ()
    results: tuple[ToolMessage | None, ...] = ()
    kept: int = 0
    """How many of the results are in the thread."""
    stages: tuple[tuple[PlannedCall, ...], ...] = ()
    running: frozenset[int] = frozenset()
    """Which calls are running now."""
    deferred: tuple[Message, ...] = ()
    """Notes and words for the place behind the last result."""
    steered: tuple[Message, ...] = ()
    repetition: Repetition = Repetition()
    watch: Watch = Watch()
    output: Any = None
    outcome: Outcome | None = None


def filled(state: State, known: Iterable[tuple[int, ToolMessage]]) -> tuple[ToolMessage | None, ...]:
    """The results with some more, each at the place of its call."""
    results = list(state.results)
    for index, message in known:
        results[index] = message
    return tuple(results)


def keep_results(state: State) -> tuple[State, tuple[Command, ...]]:
    """Append the results that nothing stands before any more."""
    end = state.kept
    while end < len(state.results) and state.results[end] is not None:
        end += 1
    ready = [each for each in state.results[state.kept : end] if each is not None]
    return (structs.replace(state, kept=end), (Append(tuple(ready)),)) if ready else (state, ())


def answer_open(state: State, text: str) -> tuple[State, tuple[Command, ...]]:
    """Answer every open call with a fixed text, and append what is not in the thread yet.

    Of a call that is running nobody knows whether it took effect, and its result says so.
    """
    if state.message is None or state.kept == len(state.results):
        return state, ()
    calls = client_calls(state.message)
    results = [
        result(PlannedCall(index, calls[index]), _why(state, index, text), is_error=True) if each is None else each
        for index, each in enumerate(state.results)
    ]
    return keep_results(structs.replace(state, results=tuple(results), stages=(), running=frozenset()))


def _why(state: State, index: int, text: str) -> str:
    return notes.MAY_HAVE_RUN if index in state.running else text


def keep_partial(state: State, partial: AssistantMessage | None) -> tuple[State, tuple[Command, ...]]:
    """Keep what came of an answer, and answer the calls in it; at once, so that nobody finds them open."""
    if partial is None or not partial.content:
        return state, ()
    if partial.finish_reason != "error":
        partial = partial.replace(finish_reason="error")
    if DISCARDED in partial.tags:  # no model is sent it, so nothing answers its calls
        return state, (Append((partial,)),)
    calls = client_calls(partial)
    answers = [result(PlannedCall(*each), notes.NOT_RUN_INTERRUPTED, is_error=True) for each in enumerate(calls)]
    state = structs.replace(state, message=partial, results=tuple(answers), kept=len(answers))
    return state, (Append((partial, *answers)),)
