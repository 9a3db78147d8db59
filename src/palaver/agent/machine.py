"""The agent machine: a state and an event in, a state and commands out. No I/O, no clock, no randomness.

Rules:

- A run is a row of steps. A step is one call of the model and the tools that it calls: ``prepare`` (what middleware
  wants done before) → ``model`` → ``review`` (after) → ``plan`` (which tools, are they allowed) → ``approval`` →
  ``tools`` → the next step. An answer without calls ends the run, by way of ``output`` where a form was asked for.
- ``TABLE`` says what every event means in every phase. What can mean nothing there (a result that comes after the
  run was cancelled) changes nothing. ``Steered``, ``Blocked``, ``Interrupted`` and ``Crashed`` mean something anywhere.
- Whatever happens, the messages that were appended are a thread that every wire accepts (law 7): calls and results
  adjoin, results stand in the order of the calls, notes stand behind the last result.
- Reads run together, then writes one by one, in the model's order (KAI-15). Nothing of a batch runs before all that
  must be approved has been decided.
- Every call of the model counts (KAI-12). The last that the limit allows is made without tools; a budget of
  tokens, money, time or context ends the run between two steps (KAI-13).
- An answer that was cut at the output limit is never read as output, even where what came of it fits the form
  (``12`` of ``1200``), and it is not asked for again, since the next one would be cut too: the outcome is ``length``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, get_args

from msgspec import structs

from palaver.agent import loops
from palaver.agent.loops import Thresholds
from palaver.agent.protocol import (
    EVENTS,
    Append,
    Ask,
    Begun,
    CallModel,
    Command,
    Crashed,
    Event,
    Finish,
    Interrupted,
    OutputRead,
    OutputRefused,
    Phase,
    Plan,
    Prepare,
    Prepared,
    ReadOutput,
    Resumed,
    Review,
    Reviewed,
    Run,
    State,
    Steered,
    Warn,
    answer_open,
    filled,
    keep_partial,
    keep_results,
)
from palaver.core.messages import AssistantMessage, Message, RescueMarker, UserMessage
from palaver.core.pairs import client_calls
from palaver.core.parts import Opaque, Reasoning, Refusal, Text
from palaver.threads.view import DISCARDED
from palaver.turn import notes
from palaver.turn.calls import Answered, Blocked, Decided, ModelFailed, Planned, PlannedCall, Ran, result_without_run
from palaver.turn.limits import CUT_ANSWER, Outcome
from palaver.turn.notes import deferred_record

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)

Step: TypeAlias = tuple[State, tuple[Command, ...]]

_THRESHOLDS: Final = Thresholds(calls=(50, 0))
"""To call one tool often is worth a warning, and no reason to stop: a hundred files may have to be read."""


def step(state: State, event: Event) -> Step:
    """What an event means in a state: the next state, and what is to be done."""
    return TABLE[state.phase, type(event)](state, event)


# -- beginning -------------------------------------------------------------------------------------------------------


def _begun(state: State, event: Begun) -> Step:
    started = structs.replace(state, began=event.at, now=event.at)
    return _next(started, *_append(*event.closing, *event.messages))


def _resumed(state: State, event: Resumed) -> Step:
    started = structs.replace(state, began=event.at, now=event.at, message=event.last, deferred=event.deferred)
    if event.message is None:
        return _next(started) if event.last is None else _last_again(started, event.last)
    if event.message.malformed_tool_calls:
        started = structs.replace(
            started, deferred=(notes.malformed(event.message.malformed_tool_calls), *started.deferred)
        )
    results = event.answered
    kept = next((place for place, each in enumerate(results) if each is None), len(results))
    open_calls = tuple([place for place, each in enumerate(results) if each is None])
    started = structs.replace(started, phase="plan", message=event.message, results=results, kept=kept)
    return started, (Plan(event.message, open_calls, event.may_have_run),)


def _last_again(state: State, message: AssistantMessage) -> Step:
    """Go on where a thread ends in an answer: one that is whole is the last."""
    if message.malformed_tool_calls:
        return _next(structs.replace(state, deferred=(notes.malformed(message.malformed_tool_calls), *state.deferred)))
    if message.finish_reason == "error":
        return _next(structs.replace(state, deferred=(notes.go_on(), *state.deferred)))
    return _last(state)


# -- the model -------------------------------------------------------------------------------------------------------


def _next(state: State, *before: Command) -> Step:
    """Begin a step, unless a budget is used up."""
    appended = _append(*state.deferred, *state.steered)
    over = state.limits.over(state.spent, state.now - state.began)
    final = state.final
    if final is None and over is None and state.iteration + 1 >= state.limits.iterations:
        final = "max_iterations"
    state = structs.replace(
        state,
        phase="prepare",
        final=final,
        recoveries=0 if state.steered else state.recoveries,
        deferred=(),
        steered=(),
        message=None,
        planned=(),
        results=(),
        kept=0,
        stages=(),
    )
    if over is not None:
        reason = state.limits.describe(over, state.spent, state.now - state.began)
        return _finished(state, over, *before, *appended, reason=reason)
    return state, (*before, *appended, Prepare())


def _prepared(state: State, event: Prepared) -> Step:
    appended = _append(*event.inject)
    if event.jump == "end":
        return _finished(state, "completed", *appended)
    called = structs.replace(state, phase="model", iteration=state.iteration + 1)
    return called, (*appended, CallModel(state.final is not None))


def _answered(state: State, event: Answered) -> Step:
    spent = state.spent.plus(event.tokens, event.cost, event.context)
    calls = client_calls(event.message)
    state = structs.replace(
        state,
        phase="review",
        spent=spent,
        now=event.at,
        message=event.message,
        results=(None,) * len(calls),
        kept=0,
    )
    return state, (Append((event.message,)), Review(event.message))


def _reviewed(state: State, event: Reviewed) -> Step:
    message = state.message
    assert message is not None  # noqa: S101 (there is one in this phase)
    if event.inject:
        state = structs.replace(state, deferred=(*state.deferred, *event.inject))
    if event.jump == "end":
        return _closed(state, notes.NOT_RUN_SKIPPED, "completed")
    if state.final is not None:
        return _closed(state, notes.NOT_RUN_LIMIT, state.final) if state.results else _last(state)
    if event.jump == "model":
        state, answers = answer_open(state, notes.NOT_RUN_SKIPPED)
        return _next(state, *answers)
    if message.malformed_tool_calls:
        state = structs.replace(state, deferred=(notes.malformed(message.malformed_tool_calls), *state.deferred))
        if not state.results:
            state, verdict = _repeated(state, ())
            state = structs.replace(state, final="no_progress" if verdict == "final" else None)
            return _next(state)
    if state.results:
        return structs.replace(state, phase="plan"), (Plan(message, tuple(range(len(state.results)))),)
    return _last(state)


def _last(state: State) -> Step:
    """An answer without calls: the last, unless something is to be said to it."""
    message = state.message
    assert message is not None  # noqa: S101 (there is one in this phase)
    if state.deferred or state.steered or (message.finish_reason == "pause" and state.final is None):
        return _next(state) if state.final is None else _complete(state)
    if state.final is None and _says_nothing(message):
        return _recover(state, notes.go_on(), "the model gave no answer")
    if message.finish_reason == "content_filter":
        return _finished(state, "blocked", reason="the provider's content filter")
    if message.finish_reason == "error":
        raw = message.finish_reason_raw
        reason = f"the provider says that its answer failed{f': {raw}' if isinstance(raw, str) else ''}"
        return _recover(state, notes.provider_failed(reason), reason)
    if message.finish_reason == "length" and state.reads_output and state.output is None:
        return _finished(state, "length", reason=CUT_ANSWER)
    if message.finish_reason == "length" and state.limits.continue_cut and state.final is None:
        return _recover(state, notes.go_on(), "the answer reached the model's output limit")
    return _complete(state)


def _complete(state: State) -> Step:
    message = state.message
    if message is not None and state.final is None and _refuses(message):
        said = "".join([part.text for part in message.content if isinstance(part, Refusal)]) or message.text
        return _finished(state, "refused", reason=said or "the model refused")
    if state.reads_output and message is not None and state.output is None:
        return structs.replace(state, phase="output"), (ReadOutput(message),)
    if message is not None and state.final is None and message.finish_reason == "length":
        return _finished(state, "length", reason=CUT_ANSWER)
    return _finished(state, _outcome(state))


def _refuses(message: AssistantMessage) -> bool:
    """Whether an answer is a refusal: the provider says so, or there is nothing else in it."""
    if message.finish_reason == "refusal":
        return True
    said = [part for part in message.content if not isinstance(part, Reasoning | Opaque)]
    said = [part for part in said if not (isinstance(part, Text) and not part.text.strip())]
    return bool(said) and all(isinstance(part, Refusal) for part in said)


def _outcome(state: State) -> Outcome:
    """How a run ends with this answer. A whole one of a model that no tools were withheld from was not cut short."""
    message = state.message
    free = state.final == "max_iterations" and not state.has_tools
    if free and message is not None and message.finish_reason in (None, "stop") and not _says_nothing(message):
        return "max_iterations" if message.malformed_tool_calls else "completed"
    return state.final or "completed"


def _says_nothing(message: AssistantMessage) -> bool:
    """Whether an answer has nothing but thoughts in it."""
    return not any(
        not isinstance(part, Reasoning | Opaque) and not (isinstance(part, Text) and not part.text.strip())
        for part in message.content
    )


def _recover(state: State, note: UserMessage, reason: str, *before: Command, error: Exception | None = None) -> Step:
    """Go on after a step that came to nothing, but not for ever."""
    if state.recoveries >= state.limits.recoveries or state.final is not None:
        return _finished(state, "failed", *before, error=error, reason=reason)
    state = structs.replace(state, recoveries=state.recoveries + 1, deferred=(*state.deferred, note))
    return _next(state, *before, Warn(reason))


def _model_failed(state: State, event: ModelFailed) -> Step:
    state = structs.replace(state, now=event.at)
    state, kept = keep_partial(state, event.partial)
    if event.broke and kept:
        seen = event.partial is not None and DISCARDED not in event.partial.tags
        note = notes.stream_broke(str(event.error), seen=seen)
        return _recover(state, note, str(event.error), *kept, error=event.error)
    return _finished(state, "failed", *kept, error=event.error, reason=str(event.error))


# -- the form of the answer ------------------------------------------------------------------------------------------


def _output_read(state: State, event: OutputRead) -> Step:
    return _finished(structs.replace(state, output=event.value), _outcome(state))


def _output_refused(state: State, event: OutputRefused) -> Step:
    attempts = state.output_attempts + 1
    if attempts >= state.limits.output_attempts or state.final is not None:
        return _finished(state, "invalid_output", reason=event.error)
    return _next(structs.replace(state, output_attempts=attempts, deferred=(notes.wrong_output(event.error),)))


# -- tools -----------------------------------------------------------------------------------------------------------


def _planned(state: State, event: Planned) -> Step:
    state, calls = _without_repeats(state, event.calls)
    if any(call.verdict == "ask" for call in calls):
        record = _append(event.pending) if event.pending is not None else ()
        return structs.replace(state, phase="approval", planned=calls), (*record, Ask(calls))
    return _begin_batch(state, calls)


def _without_repeats(state: State, calls: tuple[PlannedCall, ...]) -> tuple[State, tuple[PlannedCall, ...]]:
    """Answer the calls of a round that was run just now; the second time, the next answer is the last.

    Calls that poll are left out of account. What is left of a round that broke off is no round.
    """
    if len(calls) < len(state.results):
        return state, calls
    state, verdict = _repeated(state, calls)
    if not verdict:
        return state, calls
    if verdict == "final":
        state = structs.replace(state, final="no_progress")
    failed = state.repetition.failed
    told = [
        call
        if call.tool in state.polling
        else structs.replace(call, verdict="invalid", text=loops.told(call.call.name, failed=failed))
        for call in calls
    ]
    return state, tuple(told)


def _repeated(state: State, calls: tuple[PlannedCall, ...]) -> tuple[State, loops.Repeated]:
    """Take note of a round, with the calls in it that could not be read."""
    malformed = () if state.message is None else state.message.malformed_tool_calls
    if state.limits.repeats == "run":
        return state, ""
    counted = [call.call for call in calls if call.tool not in state.polling]
    following, verdict = loops.repeated(state.repetition, [*counted, *malformed])
    return structs.replace(state, repetition=following), verdict


def _decided(state: State, event: Decided) -> Step:
    record = _append(event.record) if event.record is not None else ()
    if any(call.verdict == "ask" for call in event.calls):
        unsaid = (*state.deferred, *state.steered)
        state = structs.replace(
            state, phase="done", outcome="waiting", planned=event.calls, steered=(), deferred=unsaid
        )
        end = Finish("waiting", event.error, "" if event.error is None else f"decide: {event.error}")
        return state, (*record, *(_append(deferred_record(unsaid)) if unsaid else ()), end)
    state, commands = _begin_batch(state, event.calls)
    return state, (*record, *commands)


def _begin_batch(state: State, calls: tuple[PlannedCall, ...]) -> Step:
    runs = [call for call in calls if call.verdict == "run"]
    reads = tuple([call for call in runs if call.effect == "read"])
    stages = (*([reads] if reads else []), *[(call,) for call in runs if call.effect == "write"])
    known = [(call.index, result_without_run(call)) for call in calls if call.verdict != "run"]
    state = structs.replace(state, phase="tools", planned=calls, stages=stages, results=filled(state, known))
    state, kept = keep_results(state)
    return _next_stage(state, *kept)


def _next_stage(state: State, *before: Command) -> Step:
    if not state.stages:
        return _next(_looked_at(state), *before)
    stage, *rest = state.stages
    return structs.replace(state, stages=tuple(rest), running=frozenset(call.index for call in stage)), (
        *before,
        Run(stage),
    )


def _looked_at(state: State) -> State:
    """A round is over: see whether the run goes round in circles."""
    failed = all(each is not None and each.is_error for each in state.results)
    calls = client_calls(state.message) if state.message is not None else ()
    watch, found = loops.seen(
        state.watch, calls, state.results, now=state.now, polling=state.polling, thresholds=_THRESHOLDS
    )
    return structs.replace(
        state,
        repetition=state.repetition if state.repetition.times else loops.ran(state.repetition, failed=failed),
        recoveries=0,
        watch=watch,
        deferred=state.deferred if found.text is None else (*state.deferred, notes.warning(found.text)),
        final=state.final or ("no_progress" if found.level == "stop" else None),
    )


def _ran(state: State, event: Ran) -> Step:
    if event.index not in state.running:
        return state, ()
    results = filled(state, [(event.index, event.message)])
    spent = state.spent.plus(event.tokens, event.cost, 0)
    state = structs.replace(state, results=results, running=state.running - {event.index}, spent=spent)
    state, kept = keep_results(state)
    kept = (*_append(*event.records), *kept)
    return (state, kept) if state.running else _next_stage(state, *kept)


# -- ending ----------------------------------------------------------------------------------------------------------


def _closed(state: State, text: str, outcome: Outcome) -> Step:
    """End with every call answered."""
    state, answers = answer_open(state, text)
    return _finished(state, outcome, *answers)


def _finished(
    state: State, outcome: Outcome, *before: Command, error: Exception | None = None, reason: str = ""
) -> Step:
    """End; what was to be said and was not is said now."""
    appended = _append(*state.deferred, *state.steered)
    state = structs.replace(state, phase="done", outcome=outcome, deferred=(), steered=(), stages=())
    return state, (*before, *appended, Finish(outcome, error, reason))


def _steered(state: State, event: Steered) -> Step:
    return structs.replace(state, steered=(*state.steered, *event.messages)), ()


def _blocked(state: State, event: Blocked) -> Step:
    kept: tuple[Command, ...] = ()
    if not event.asked:
        state = structs.replace(state, iteration=state.iteration - 1)
    if event.message is not None and state.phase == "review":  # the answer is in the thread already
        kept = (Append((RescueMarker(reason=event.reason, scope="turn"),)),)
    elif event.message is not None:
        kept = (Append((event.message.replace(tags=(*event.message.tags, DISCARDED)),)),)
    state, answers = answer_open(state, notes.NOT_RUN_SKIPPED)
    return _finished(state, "blocked", *answers, *kept, reason=event.reason)


def _interrupted(state: State, event: Interrupted) -> Step:
    state, answers = answer_open(state, notes.NOT_RUN_CANCELLED)
    state, kept = keep_partial(state, event.partial)
    deferred = (*state.deferred, *state.steered, notes.interrupted(event.reason))
    return _finished(
        structs.replace(state, deferred=deferred, steered=()), event.outcome, *answers, *kept, reason=event.reason
    )


def _crashed(state: State, event: Crashed) -> Step:
    state, answers = answer_open(state, notes.NOT_RUN_INTERRUPTED)
    state, kept = keep_partial(state, event.partial)
    return _finished(state, "failed", *answers, *kept, error=event.error, reason=str(event.error))


def _nothing(state: State, event: Event) -> Step:  # noqa: ARG001 (a row of the table)
    return state, ()


# -- the table -------------------------------------------------------------------------------------------------------

_MEANT: Final[Mapping[tuple[Phase, type[Event]], Callable[[State, Any], Step]]] = {
    ("idle", Begun): _begun,
    ("idle", Resumed): _resumed,
    ("prepare", Prepared): _prepared,
    ("model", Answered): _answered,
    ("model", ModelFailed): _model_failed,
    ("review", Reviewed): _reviewed,
    ("output", OutputRead): _output_read,
    ("output", OutputRefused): _output_refused,
    ("plan", Planned): _planned,
    ("approval", Decided): _decided,
    ("tools", Ran): _ran,
}
_ANYWHERE: Final[Mapping[type[Event], Callable[[State, Any], Step]]] = {
    Steered: _steered,
    Blocked: _blocked,
    Interrupted: _interrupted,
    Crashed: _crashed,
}


def _meaning(phase: Phase, event: type[Event]) -> Callable[[State, Any], Step]:
    if phase == "done":
        return _nothing
    return _ANYWHERE.get(event) or _MEANT.get((phase, event), _nothing)


TABLE: Final[Mapping[tuple[Phase, type[Event]], Callable[[State, Any], Step]]] = {
    (phase, event): _meaning(phase, event) for phase in PHASES for event in EVENTS
}
"""What every event means in every phase."""


def _append(*messages: Message) -> tuple[Command, ...]:
    return (Append(messages),) if messages else ()
