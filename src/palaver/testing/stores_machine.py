"""Random calls on several handles of one store, compared with a model (law 8).

- The model consists of dictionaries and lists, and does not know how a store works. After each step every handle must
  show the model's state.
- Handles are closed and opened again, or abandoned as by a process that dies.
- A step may be a race of several appends, from threads, over all handles. The store chooses their order; the model
  adopts it after checking that each batch is complete and that exactly one append with ``expect`` won.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import UNSET

from palaver.core.errors import ConflictError, NotFoundError
from palaver.core.factories import user
from palaver.core.messages import Message
from palaver.store.store import Query, Store
from palaver.testing import strategies
from palaver.testing.stores import OpenHandle
from palaver.threads.thread import MAIN, Entry

_THREADS = st.sampled_from(["a", "b", "c/../d"])
_BRANCHES = st.sampled_from([MAIN, "side", "näch"])
_KEYS = st.one_of(st.none(), st.sampled_from(["k1", "k2"]))
_SOME_MESSAGES = st.lists(strategies.any_messages(newer=True), max_size=3)
_HANDLES = 2
_MOST_ABANDONED = 4  # each holds what it opened, and a server has only so many connections


@st.composite
def _batches(draw: st.DrawFn) -> list[Message]:
    """Messages for one append; a function, because what hypothesis prints of such a strategy is long."""
    return draw(_SOME_MESSAGES)


class _Model:
    """A thread as the model knows it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.branches: dict[str, str | None] = {MAIN: None}
        self.keys: dict[str, list[Entry]] = {}
        self.given: dict[str, list[Message]] = {}
        self.tags: tuple[str, ...] = ()

    def path(self, leaf: str | None) -> list[Entry]:
        known = {entry.id: entry for entry in self.entries}
        path: list[Entry] = []
        while leaf is not None:
            path.insert(0, known[leaf])
            leaf = known[leaf].parent
        return path


class StoreMachine(RuleBasedStateMachine):
    """See the module. Run it by ``hypothesis.stateful.run_state_machine_as_test(machine(open_handle))``."""

    def __init__(self, open_handle: OpenHandle, clear: Callable[[], None]) -> None:
        super().__init__()
        clear()
        self.open_handle = open_handle
        self.handles: list[Store] = [open_handle() for _ in range(_HANDLES)]
        self.abandoned: list[Store] = []
        self.turn = 0
        self.model: dict[str, _Model] = {}

    def store(self) -> Store:
        self.turn += 1
        return self.handles[self.turn % _HANDLES]

    @initialize()
    def begin(self) -> None:
        for info in list(self.store().threads()):  # a store in memory is the same in every example
            self.store().delete(info.id)

    @rule(thread=_THREADS)
    def create(self, thread: str) -> None:
        if thread in self.model:
            _expect(ConflictError, lambda: self.store().create(thread))
        else:
            self.store().create(thread)
            self.model[thread] = _Model()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), branch=_BRANCHES, messages=_batches(), key=_KEYS)
    def append(self, data: st.DataObject, branch: str, messages: list[Message], key: str | None) -> None:
        thread = data.draw(st.sampled_from(sorted(self.model)))
        model, options = self.model[thread], dict[str, Any](branch=branch, key=key)
        head = model.branches.get(branch)
        options["expect"] = data.draw(st.sampled_from([UNSET, head, "another"]))

        def call() -> Any:
            return self.store().append(thread, messages, **options)

        if key is not None and key in model.keys:
            if model.given[key] == messages:
                again = call()
                assert again.repeated
                assert list(again.entries) == model.keys[key]
            else:
                _expect(ConflictError, call)
        elif branch not in model.branches:
            _expect(NotFoundError, call)
        elif options["expect"] not in (UNSET, head):
            _expect(ConflictError, call)
        else:
            appended = call()
            assert not appended.repeated
            self._joined(model, branch, list(appended.entries))
            if key is not None:
                model.keys[key], model.given[key] = list(appended.entries), messages

    def _joined(self, model: _Model, branch: str, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry.parent == model.branches[branch]
            model.entries.append(entry)
            model.branches[branch] = entry.id

    @precondition(lambda self: self.model)
    @rule(data=st.data(), batches=st.lists(st.integers(1, 3), min_size=2, max_size=4), expecting=st.booleans())
    def race(self, data: st.DataObject, batches: list[int], expecting: bool) -> None:  # noqa: FBT001 (drawn)
        thread = data.draw(st.sampled_from(sorted(self.model)))
        model = self.model[thread]
        head = model.branches[MAIN]

        def write(writer: int) -> list[Entry] | None:  # whoever wins, as many messages join in every run
            store = self.handles[writer % _HANDLES]
            batch = [user(f"{writer}.{each}") for each in range(batches[0] if expecting else batches[writer])]
            try:
                return list(store.append(thread, batch, expect=head if expecting else UNSET).entries)
            except ConflictError:
                return None

        with ThreadPoolExecutor(len(batches)) as pool:
            made = [each for each in pool.map(write, range(len(batches))) if each]
        assert len(made) == (1 if expecting else len(batches))
        new = list(self.store().read(thread, start=len(model.entries)))
        for entries in sorted(made, key=lambda each: new.index(each[0])):
            self._joined(model, MAIN, entries)
        assert model.entries[-len(new) :] == new

    @precondition(lambda self: self.model)
    @rule(data=st.data(), name=_BRANCHES)
    def fork(self, data: st.DataObject, name: str) -> None:
        thread = data.draw(st.sampled_from(sorted(self.model)))
        model = self.model[thread]
        at = data.draw(st.sampled_from([None, *[entry.id for entry in model.entries]]))
        if name in model.branches:
            _expect(ConflictError, lambda: self.store().fork(thread, name, at=at))
        else:
            assert self.store().fork(thread, name, at=at) == at
            model.branches[name] = at

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        thread = data.draw(st.sampled_from(sorted(self.model)))
        model = self.model[thread]
        branch = data.draw(st.sampled_from(sorted(model.branches)))
        to = data.draw(st.sampled_from([None, *[entry.id for entry in model.entries]]))
        self.store().rewind(thread, to, branch=branch, expect=model.branches[branch])
        model.branches[branch] = to

    @precondition(lambda self: self.model)
    @rule(data=st.data(), tags=st.lists(st.sampled_from(["x", "y"]), max_size=2))
    def update(self, data: st.DataObject, tags: list[str]) -> None:
        thread = data.draw(st.sampled_from(sorted(self.model)))
        self.store().update(thread, tags=tags)
        self.model[thread].tags = tuple(tags)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        thread = data.draw(st.sampled_from(sorted(self.model)))
        self.store().delete(thread)
        del self.model[thread]

    @rule(index=st.integers(0, _HANDLES - 1))
    def close_and_open(self, index: int) -> None:
        self.handles[index].close()
        self.handles[index] = self.open_handle()

    @precondition(lambda self: len(self.abandoned) < _MOST_ABANDONED)
    @rule(index=st.integers(0, _HANDLES - 1))
    def abandon(self, index: int) -> None:
        self.abandoned.append(self.handles[index])
        self.handles[index] = self.open_handle()

    @rule()
    def gc(self) -> None:
        self.store().gc()

    @rule()
    def verify(self) -> None:
        verified = self.store().verify()
        assert verified.ok, verified.damage
        assert verified.threads == len(self.model)
        assert verified.entries == sum(len(model.entries) for model in self.model.values())

    @invariant()
    def shows_what_the_model_says(self) -> None:
        store = self.store()
        assert {info.id for info in store.threads()} == set(self.model)
        for thread, model in self.model.items():
            info = store.info(thread)
            assert (info.length, dict(info.branches), info.tags) == (
                len(model.entries),
                model.branches,
                model.tags,
            )
            assert list(store.read(thread)) == model.entries
            for branch, head in model.branches.items():
                assert list(store.path(thread, branch)) == model.path(head)

    @precondition(lambda self: self.model)
    @rule(role=st.sampled_from(["user", "assistant", "tool", "flush"]))
    def search(self, role: Any) -> None:
        found = {(hit.thread, hit.entry.id) for hit in self.store().search(Query(role=role, limit=1000))}
        assert found == {
            (thread, entry.id)
            for thread, model in self.model.items()
            for entry in model.entries
            if entry.message.role == role
        }

    def teardown(self) -> None:
        for store in (*self.handles, *self.abandoned):
            store.close()


def machine(open_handle: OpenHandle, *, clear: Callable[[], None] = lambda: None) -> Callable[[], StoreMachine]:
    """What makes the state machine for a store. ``clear`` empties what ``open_handle`` opens, between two examples."""
    return lambda: StoreMachine(open_handle, clear)


def _expect(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")
