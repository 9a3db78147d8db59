"""What the machine of a run and its driver say to each other: events go in, commands come out.

Rules:

- Commands are carried out in order by the driver, each with at most the events that its docstring names.
- Both are values; no event knows what it will mean, and no command how it is carried out.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from palaver.agent.calls import PlannedCall
from palaver.agent.limits import Outcome
from palaver.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage

Jump: TypeAlias = Literal["end", "model", "tools"]


# -- events ----------------------------------------------------------------------------------------------------------


class _Event(Struct, frozen=True, gc=False):
    """Base of what happens."""


class Begun(_Event, frozen=True):
    """A run begins. ``closing`` answers calls that an earlier run left open; ``messages`` are the input."""

    at: float
    messages: tuple[Message, ...] = ()
    closing: tuple[ToolMessage, ...] = ()


class Resumed(_Event, frozen=True):
    """A run goes on where another stopped.

    ``message`` is the one whose calls are open, where there is one; ``answered`` its results so far, by place.
    ``begun`` says that calls may have been run already; ``last`` is the answer that the thread ends in, where nothing
    is open. ``held`` was said while calls were open, and waits for its place behind their results.
    """

    at: float
    message: AssistantMessage | None = None
    answered: tuple[ToolMessage | None, ...] = ()
    begun: bool = False
    last: AssistantMessage | None = None
    held: tuple[Message, ...] = ()


class Prepared(_Event, frozen=True):
    """Middleware had its say before the model is called."""

    inject: tuple[Message, ...] = ()
    jump: Jump | None = None


class Answered(_Event, frozen=True):
    """The model answered. ``tokens`` and ``cost`` (USD) are of this call alone; ``context`` is what it read."""

    message: AssistantMessage
    at: float
    tokens: int = 0
    cost: float = 0.0
    context: int = 0


class ModelFailed(_Event, frozen=True):
    """The model did not answer, or not to the end. ``partial`` is what came; ``broke`` that the stream broke off."""

    error: Exception
    at: float
    partial: AssistantMessage | None = None
    broke: bool = False


class Reviewed(_Event, frozen=True):
    """Middleware had its say after the model was called."""

    inject: tuple[Message, ...] = ()
    jump: Jump | None = None


class OutputRead(_Event, frozen=True):
    """The answer has the form that was asked for."""

    value: Any = None


class OutputRefused(_Event, frozen=True):
    """The answer has not the form that was asked for; ``error`` is for the model."""

    error: str


class Planned(_Event, frozen=True):
    """What is to become of each open call. ``pending`` is the record to keep when some must be asked."""

    calls: tuple[PlannedCall, ...]
    pending: SystemMessage | None = None


class Decided(_Event, frozen=True):
    """What was decided of the calls that were asked; those that nobody decided still ask.

    ``error`` is why ``decide`` gave no decision.
    """

    calls: tuple[PlannedCall, ...]
    record: SystemMessage | None = None
    error: Exception | None = None


class Ran(_Event, frozen=True):
    """A tool gave a result, good or bad. ``records`` are kept beside it, for no model.

    ``tokens`` and ``cost`` (USD) are what tools asked of models since the last event that says what was spent.
    """

    index: int
    message: ToolMessage
    records: tuple[SystemMessage, ...] = ()
    tokens: int = 0
    cost: float = 0.0


class Steered(_Event, frozen=True):
    """Somebody said something while the run was under way."""

    messages: tuple[Message, ...]


class Blocked(_Event, frozen=True):
    """A guardrail stopped the run. ``message`` is the answer that nobody may see.

    ``asked`` is false where the model was about to be asked, and was not.
    """

    reason: str
    message: AssistantMessage | None = None
    asked: bool = True


class Interrupted(_Event, frozen=True):
    """The run was cancelled, or its time is over. ``partial`` is what came of the answer under way."""

    outcome: Literal["cancelled", "timed_out"] = "cancelled"
    reason: str = ""
    partial: AssistantMessage | None = None


class Crashed(_Event, frozen=True):
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
    begun: bool = False


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
