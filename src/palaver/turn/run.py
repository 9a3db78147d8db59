"""The result of a run: outcome, output, usage, cost, and the thread; and its JSON form.

Rules:

- A run is immutable. It has a view of its thread, which later runs may extend. ``Agent.run(previous=run)`` continues
  it, on a new branch if the thread has grown since.
- Every wire accepts the thread of a run, whatever its outcome, and it can be continued.
- The thread is its own snapshot: it can be continued from any entry (CBF-23).

``dump`` and ``load`` carry a run to another process. The form, version 1, is one object:
``{"palaver_run":1,"id":…,"agent":…,"thread":…,"branch":…,"start":…,"outcome":…,"output":…,"reason":…,"error":…,
"usage":…,"usage_by_model":…,"cost":…,"iterations":…,"seconds":…,"values":…,
"entries":[{"id":…,"parent":…,"message":…},…]}``:

- ``entries`` are the conversation at the end of the run, so the size is that of its messages, each once. Other
  branches of the thread, and media that a store keeps, are not in it.
- Values that JSON cannot express are left out: an output or a shared value of another type, and attributes of errors.
  Errors of a provider keep status, code and request id (CBF-21).
- Keys of a newer version are kept and written again. A newer version number is refused.
- Any bytes return a run or raise ``DecodeError`` (law 6). Nothing that the data names is imported or executed.

Source: docs/spec/codebuff.md#7, CBF-22.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Self

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from palaver.core import canonical, jsontext, notebook
from palaver.core.errors import (
    AuthenticationError,
    ContextOverflowError,
    DecodeError,
    NotFoundError,
    OverloadedError,
    PalaverError,
    ProviderError,
    RateLimitError,
    RunError,
    StoreError,
    excerpt,
)
from palaver.core.messages import AssistantMessage, Message, RescueMarker, ToolMessage
from palaver.core.usage import Usage
from palaver.store.stored_thread import StoredThread
from palaver.threads.thread import Entry, Path, Thread
from palaver.threads.view import DISCARDED, RECORD
from palaver.turn.approvals import ApprovalRequest
from palaver.turn.journal import AnyThread
from palaver.turn.limits import Outcome
from palaver.turn.notes import TOOL_CALL_ERROR
from palaver.turn.open_calls import pending_at

# --- saved ------------------------------------------------------------------------------------------------------------


VERSION: Final = 1
_SOURCE: Final = "run"
_NUMBER: Final = "palaver_run"


class _Error(Struct, omit_defaults=True):
    type: str
    text: str
    wire: str | None = None
    message: str = ""
    code: str | None = None
    status: int | None = None
    request_id: str | None = None


class _Head(Struct, kw_only=True):
    """The fields that are neither messages nor usage."""

    id: str
    agent: str
    thread: str
    branch: str
    start: int
    outcome: Outcome
    output: Any = None
    reason: str = ""
    error: _Error | None = None
    cost: float | None = None
    iterations: int = 0
    seconds: float = 0.0
    values: dict[str, Any] = {}


class Saved(Struct, frozen=True, kw_only=True):
    """A loaded run: its thread as entries, and its other fields."""

    thread: str
    entries: tuple[Entry, ...]
    fields: dict[str, Any]


_HEAD: Final = _Head.__struct_fields__
_FLOATS: Final = ("cost", "seconds")
"""Read as plain numbers, also where a small one is written as ``5e-05``."""
_KNOWN: Final = frozenset((*_HEAD, _NUMBER, "entries", "usage", "usage_by_model"))
_PROVIDER: Final[Mapping[str, type[ProviderError]]] = {
    each.error_code: each
    for each in (ProviderError, AuthenticationError, RateLimitError, OverloadedError, ContextOverflowError)
}


# -- writing ---------------------------------------------------------------------------------------------------------


def dump_run(run: Run[Any]) -> bytes:
    """Write a run."""
    head: dict[str, Any] = {_NUMBER: VERSION}
    for name in _HEAD:
        head[name] = getattr(run, name)
    head["thread"] = run.thread.id
    head["error"] = None if run.error is None else msgspec.to_builtins(_dumped_error(run.error))
    head["values"] = {name: value for name, each in run.values.items() if (value := _json(each)) is not UNSET}
    output = _json(run.output)
    head["output"] = output
    if output is UNSET:
        del head["output"]
    head["usage"] = _usage(run.usage)
    head["usage_by_model"] = {name: _usage(each) for name, each in run.usage_by_model.items()}
    entries = [
        {"id": each.id, "parent": each.parent, "message": Raw(canonical.encode(each.message))} for each in run.path
    ]
    return jsontext.encode({**head, "entries": entries, **run.unknown})


def _usage(usage: Usage) -> Raw:
    return Raw(canonical.encode(usage))


def _json(value: Any) -> Any:
    """Return a value as JSON, or ``UNSET`` if JSON cannot express it."""
    try:
        return jsontext.checked(msgspec.to_builtins(value, enc_hook=_modelled), "value")
    except (PalaverError, TypeError, ValueError, RecursionError):
        return UNSET


def _modelled(value: Any) -> Any:
    dumped: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if dumped is None:
        raise TypeError(type(value).__name__)
    return dumped(mode="json")


def _dumped_error(error: Exception) -> _Error:
    kind = error.error_code if isinstance(error, PalaverError) else type(error).__name__
    dumped = _Error(kind, str(error))
    if not isinstance(error, ProviderError):
        return dumped
    return structs.replace(
        dumped,
        wire=error.wire,
        message=error.message,
        code=error.code,
        status=error.status,
        request_id=error.request_id,
    )


# -- reading ---------------------------------------------------------------------------------------------------------


def load_run(data: bytes | str) -> Saved:
    """Read the output of ``dump``. Raises ``DecodeError`` with the place."""
    try:
        return _read(jsontext.fields(jsontext.source(data)))
    except DecodeError as error:
        error.source = _SOURCE
        raise


def _read(raw: jsontext.Fields) -> Saved:
    if bytes(raw.get(_NUMBER, jsontext.NULL)) != str(VERSION).encode():
        raise DecodeError(f"expected version {VERSION}", path=_NUMBER)
    given = {name: jsontext.value(raw[name]) for name in _HEAD if name in raw}
    given |= {name: float(given[name]) for name in _FLOATS if isinstance(given.get(name), float)}
    try:
        head = msgspec.convert(given, _Head)
    except msgspec.ValidationError as error:
        raise DecodeError(str(error)) from None
    fields = structs.asdict(head)
    del fields["thread"]
    by_model = jsontext.fields(raw.get("usage_by_model", jsontext.EMPTY_OBJECT))
    fields["usage"] = _read_usage(raw.get("usage", jsontext.EMPTY_OBJECT), "usage")
    fields["usage_by_model"] = {name: _read_usage(each, f"usage_by_model.{name}") for name, each in by_model.items()}
    fields["error"] = None if head.error is None else _error(head.error)
    fields["unknown"] = {name: jsontext.own(each) for name, each in raw.items() if name not in _KNOWN}
    rows = jsontext.rows(raw.get("entries", Raw(b"[]")))
    return Saved(
        thread=head.thread,
        entries=tuple([_entry(row, f"entries[{place}]") for place, row in enumerate(rows)]),
        fields=fields,
    )


def _entry(row: jsontext.Fields, where: str) -> Entry:
    try:
        parent = row.get("parent", jsontext.NULL)
        return Entry(
            jsontext.text(row["id"]),
            None if jsontext.is_null(parent) else jsontext.text(parent),
            canonical.decode(bytes(row["message"])),
        )
    except KeyError as error:
        raise DecodeError(f"{error.args[0]!r} is missing", path=where) from None
    except DecodeError as error:
        raise error.within(where) from None


def _read_usage(raw: Raw, where: str) -> Usage:
    try:
        return canonical.decode(bytes(raw), Usage)
    except DecodeError as error:
        raise error.within(where) from None


def _error(stored: _Error) -> PalaverError:
    cls = _PROVIDER.get(stored.type)
    if cls is None or stored.wire is None:
        return PalaverError(stored.text)
    return cls(stored.wire, stored.message, code=stored.code, status=stored.status, request_id=stored.request_id)


# --- run --------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from palaver.store.store import Store

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class Run(Struct, Generic[T], frozen=True, kw_only=True, weakref=True):
    """A finished run.

    ``output`` is the parsed answer where an output type was set, else its text. ``path`` is the conversation, and
    ``start`` its length before this run. ``cost`` is in USD, ``None`` where a price is not known. ``pending`` are the
    requests that a ``waiting`` run needs decisions about; ``values`` is what tools and middleware shared, at the end.
    ``unknown`` are fields of a saved run that a newer version wrote.
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
    """State for the next run, so that it costs only what is new. Opaque."""
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
        """The messages that this run appended, its input included."""
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
        """The last answers without user messages between them, with the results of their calls.

        Records, blocked answers and messages tagged as a failed call are left out (docs/spec/codebuff.md#4.4).
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
        """Return the run. Raises ``RunError``, from its cause, if the run did not complete."""
        if not self.ok:
            reason = f": {self.reason}" if self.reason else ""
            raise RunError(f"{self.agent}: the run ended as {self.outcome}{reason}", self) from self.error
        return self

    def dump(self) -> bytes:
        """Write the run as JSON. Costs the length of the conversation."""
        return dump_run(self)

    @staticmethod
    def load(data: bytes | str, store: Store | None = None) -> Run[Any]:
        """Read a run from ``data``, JSON that ``dump`` wrote; ``Agent.run(previous=run)`` continues it.

        With a ``store`` its thread is stored there, without duplicating messages. ``output`` is plain JSON, where JSON
        could express it. Raises ``DecodeError``, and ``StoreError`` if the store has a different thread with that id.
        """
        read = load_run(data)
        thread, leaf = _restored_thread(read, store)
        try:
            path = (thread.tree if isinstance(thread, StoredThread) else thread).path(leaf) if leaf else Path([])
        except StoreError as error:
            raise DecodeError(str(error), path="entries", source="run") from None
        waits = pending_at(path) if read.fields["outcome"] == "waiting" else ()
        return Run[Any](thread=thread, path=path, pending=waits, **read.fields)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show the run in a notebook: outcome, cost, error, and messages."""
        spent = f"{self.usage.total:,} tokens" + ("" if self.cost is None else f", ${self.cost:.4f}")
        waits = ", ".join(each.tool for each in self.pending)
        head = [("agent", self.agent), ("outcome", self.outcome), ("steps", str(self.iterations)), ("used", spent)]
        head += [("waits for", waits)] if waits else [("reason", self.reason)] if self.reason else []
        error = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return notebook.bundle(self, notebook.run_html(head, error, self.text, self.messages))

    def __repr__(self) -> str:
        """Show the outcome, a shortened answer, and the error."""
        shown = [repr(self.agent), repr(self.outcome), repr(excerpt(self.text))]
        if self.error is not None:
            shown.append(f"error={excerpt(repr(self.error), 200)}")
        elif self.reason:
            shown.append(f"reason={excerpt(self.reason, 200)!r}")
        return f"Run({', '.join(shown)})"


def own(value: Any) -> Any:
    """Copy dicts, lists and sets. Everything else is shared, and so is a value that holds itself or is too deep."""
    try:
        return _own(value)
    except RecursionError:
        return value


def _own(value: Any) -> Any:
    copy = _COPIES.get(value.__class__)
    return value if copy is None else copy(value)


def _own_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    return {key: _own(each) for key, each in value.items()}


def _own_list(value: list[Any]) -> list[Any]:
    return [_own(each) for each in value]


_COPIES: Final[Mapping[type[Any], Callable[[Any], Any]]] = {dict: _own_dict, list: _own_list, set: set}


def _restored_thread(read: Saved, store: Store | None) -> tuple[AnyThread, str | None]:
    """Return the thread of a saved run, in memory or in a store, and the last entry of its conversation."""
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
