"""A run that is over: how it ended, what it said, what it cost, and the thread that it left behind.

Rules:

- A run never changes: it holds a window on its thread, which later runs may make longer. ``Agent.run(previous=run)``
  goes on behind it; when somebody else already has, on a branch of its own.
- However a run ended, its thread is one that every wire accepts, and can be continued.
- ``dump`` and ``load`` carry a run to another process; ``palaver.agent.saved`` says what of it.
- The thread is its own snapshot: cut behind any append, it can be gone on with (CBF-23).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from msgspec import Raw, Struct

from palaver.agent import saved
from palaver.agent.approvals import ApprovalRequest
from palaver.agent.journal import AnyThread
from palaver.agent.limits import Outcome
from palaver.agent.notes import TOOL_CALL_ERROR
from palaver.agent.waiting import pending_at
from palaver.core.errors import DecodeError, NotFoundError, RunError, StoreError, excerpt
from palaver.core.messages import AssistantMessage, Message, RescueMarker, ToolMessage
from palaver.core.usage import Usage
from palaver.store.stored import StoredThread
from palaver.threads.thread import Entry, Path, Thread
from palaver.threads.view import DISCARDED, RECORD

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from palaver.store.store import Store

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class Run(Struct, Generic[T], frozen=True, kw_only=True, weakref=True):
    """A run that is over.

    ``output`` is the value of the answer where a form was asked for, else its text. ``path`` is the conversation, and
    ``start`` how much of it was there before this run. ``cost`` is in USD, ``None`` where a price is not known.
    ``pending`` is what must be decided before a ``waiting`` run can go on; ``values`` is what tools and middleware
    shared, as it was at the end. ``unknown`` are fields of a saved run that a newer version wrote.
    """

    id: str
    agent: str
    thread: AnyThread
    branch: str
    path: Path
    start: int
    outcome: Outcome
    output: T = None  # type: ignore[assignment]
    reason: str = ""
    error: Exception | None = None
    usage: Usage = Usage()
    usage_by_model: Mapping[str, Usage] = {}
    cost: float | None = None
    iterations: int = 0
    seconds: float = 0.0
    pending: tuple[ApprovalRequest, ...] = ()
    values: Mapping[str, Any] = {}
    carry: Any = None
    """What the next run goes on with, so that it pays for what is new; of no meaning to anybody else."""
    unknown: Mapping[str, Raw] = {}

    @property
    def ok(self) -> bool:
        """Whether it completed."""
        return self.outcome == "completed"

    @property
    def leaf(self) -> str | None:
        """The id of the last entry."""
        return self.path.leaf

    @property
    def messages(self) -> Sequence[Message]:
        """What joined the thread in this run, its input included."""
        return [entry.message for entry in self.path[self.start :]]

    @property
    def answer(self) -> AssistantMessage | None:
        """The last answer of this run; ``None`` where it was blocked."""
        for entry in reversed(self.path[self.start :]):
            if isinstance(entry.message, AssistantMessage):
                return None if DISCARDED in entry.message.tags else entry.message
            if isinstance(entry.message, RescueMarker):  # the answer before it was blocked by a hook
                return None
        return None

    @property
    def text(self) -> str:
        """The text of the last answer."""
        answer = self.answer
        return "" if answer is None else answer.text

    @property
    def last_turn(self) -> Sequence[Message]:
        """The last answers that nobody spoke between, with the results of their calls (docs/spec/codebuff.md#4.4).

        Without records, blocked answers, and what is tagged as a failed call.
        """
        turn: list[Message] = []
        for entry in reversed(self.path[self.start :]):
            message = entry.message
            if not {RECORD, TOOL_CALL_ERROR, DISCARDED}.isdisjoint(message.tags):
                continue
            if isinstance(message, AssistantMessage | ToolMessage):
                turn.append(message)
            elif turn:
                break
        return turn[::-1]

    def check(self) -> Self:
        """Give the run back. Raises ``RunError``, from its cause, when it did not complete."""
        if not self.ok:
            told = f": {self.reason}" if self.reason else ""
            raise RunError(f"{self.agent}: the run ended as {self.outcome}{told}", self) from self.error
        return self

    def dump(self) -> bytes:
        """Write the run as JSON. Costs the length of the conversation."""
        return saved.dump(self)

    @staticmethod
    def load(data: bytes | str, store: Store | None = None) -> Run[Any]:
        """Read a run that ``dump`` wrote; ``Agent.run(previous=run)`` goes on behind it.

        With a ``store`` its thread is kept there; messages that are there already are passed over. ``output`` is
        plain JSON, where it could be said in it. Raises ``DecodeError``, and ``StoreError`` for a store whose thread of
        that id is another one.
        """
        read = saved.read(data)
        thread, leaf = _kept(read, store)
        try:
            path = (thread.tree if isinstance(thread, StoredThread) else thread).path(leaf) if leaf else Path([])
        except StoreError as error:
            raise DecodeError(str(error), path="entries", source="run") from None
        waits = pending_at(path) if read.fields["outcome"] == "waiting" else ()
        return Run[Any](thread=thread, path=path, pending=waits, **read.fields)

    def __repr__(self) -> str:
        """Show how it ended, its answer, shortened, and what went wrong."""
        shown = [repr(self.agent), repr(self.outcome), repr(excerpt(self.text))]
        if self.error is not None:
            shown.append(f"error={excerpt(repr(self.error), 200)}")
        elif self.reason:
            shown.append(f"reason={excerpt(self.reason, 200)!r}")
        return f"Run({', '.join(shown)})"


def own(value: Any) -> Any:
    """A copy of what can change: dicts, lists and sets, however deep. Everything else is shared."""
    copy = _COPIES.get(value.__class__)
    return value if copy is None else copy(value)


def _own_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    return {key: own(each) for key, each in value.items()}


def _own_list(value: list[Any]) -> list[Any]:
    return [own(each) for each in value]


_COPIES: Final[Mapping[type[Any], Callable[[Any], Any]]] = {dict: _own_dict, list: _own_list, set: set}


def _kept(read: saved.Saved, store: Store | None) -> tuple[AnyThread, str | None]:
    """The thread of a saved run, in memory or in a store, and the end of its conversation."""
    leaf = read.entries[-1].id if read.entries else None
    branch: str = read.fields["branch"]
    if store is None:
        thread = Thread(read.thread)
        _added(thread, read.entries, branch, leaf)
        return thread, leaf
    try:
        heads = {} if store.info(read.thread).branches.get(branch) is not None else {branch: leaf}
    except NotFoundError:
        heads = {branch: leaf}
    store.add(read.thread, read.entries, branches=heads)
    return store.open(read.thread, branch), leaf


def _added(thread: Thread, entries: Sequence[Entry], branch: str, leaf: str | None) -> None:
    try:
        thread.add(entries, {branch: leaf})
    except StoreError as error:
        raise DecodeError(str(error), path="entries", source="run") from None
