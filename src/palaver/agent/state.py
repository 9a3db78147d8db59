"""Where a run is, and how the results of its open calls join the thread.

Rules:

- Results stand in the order of the calls. They are appended as soon as those of all calls before them are there, so
  that a crash loses as little as it can.
- What came of an answer that broke off is kept together with a result for each call in it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from palaver.agent import notes
from palaver.agent.calls import PlannedCall, client_calls, result
from palaver.agent.limits import Limits, Outcome, Spent
from palaver.agent.loops import Watch
from palaver.agent.protocol import Append, Command
from palaver.agent.repetition import Repetition
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.threads.view import DISCARDED

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
    held: tuple[Message, ...] = ()
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
