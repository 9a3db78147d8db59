"""What a retention rule lets go, and what it never does."""

import math

import pytest
from hypothesis import given, strategies as st

from palaver import user
from palaver.core.errors import StoreError
from palaver.store.memory import MemoryStore
from palaver.store.store import Retention, expired, retain

DAY = 24 * 60 * 60 * 1000
NOW = 1_000 * DAY


class Clock:
    now = 0

    def __call__(self):
        return self.now


def aged(*ages, tags=()):
    """A store with one thread of each age in days, named by its age; the tags are those of the oldest."""
    clock = Clock()
    store = MemoryStore(clock=clock)
    for age in sorted(ages, reverse=True):
        clock.now = int(NOW - age * DAY)
        store.create(str(age), tags=tags if age == max(ages) else ())
    clock.now = NOW
    return store


def ids(infos):
    return [info.id for info in infos]


def test_nothing_expires_without_an_age():
    store = aged(1, 10_000)
    for rule in (Retention(), Retention(keep_newest=0), Retention(keep_newest=1), Retention(spare_tags=("x",))):
        assert expired(store, rule, NOW) == []
        assert retain(store, rule, NOW) == []
    assert len(list(store.threads())) == 2


def test_threads_expire_by_their_last_change():
    store = aged(1, 29, 30, 31, 90)
    rule = Retention(max_age_days=30)
    assert ids(expired(store, rule, NOW)) == ["31", "90"]
    store.append("90", [user("still here")])
    assert ids(expired(store, rule, NOW)) == ["31"]
    assert ids(expired(store, Retention(max_age_days=0.5), NOW)) == ["1", "29", "30", "31"]


def test_the_newest_are_spared_whatever_their_age():
    store = aged(40, 50, 60)
    assert ids(expired(store, Retention(max_age_days=30, keep_newest=2), NOW)) == ["60"]
    assert expired(store, Retention(max_age_days=30, keep_newest=3), NOW) == []


def test_tags_spare_a_thread():
    store = aged(40, 50, 60, tags=("keep", "other"))
    assert ids(expired(store, Retention(max_age_days=30, spare_tags=("keep",)), NOW)) == ["40", "50"]
    assert ids(expired(store, Retention(max_age_days=30, spare_tags=("kee",)), NOW)) == ["40", "50", "60"]


def test_without_a_time_it_is_now():
    store = aged(0)
    assert expired(store, Retention(max_age_days=10_000)) != []
    assert expired(store, Retention(max_age_days=10_000_000)) == []


@given(
    st.lists(st.integers(0, 100), unique=True),
    st.integers(0, 100),
    st.integers(0, 5),
)
def test_what_is_listed_is_deleted_and_nothing_else(ages, limit, newest):
    store = aged(*ages)
    rule = Retention(max_age_days=limit, keep_newest=newest)
    before = ids(store.threads())
    listed = ids(expired(store, rule, NOW))
    assert ids(store.threads()) == before
    assert sorted(listed) == sorted(str(age) for age in sorted(ages)[newest:] if age > limit)
    assert retain(store, rule, NOW) == listed
    assert ids(store.threads()) == [each for each in before if each not in listed]
    assert retain(store, rule, NOW) == []


@pytest.mark.parametrize("change", ["append", "delete"])
def test_what_changed_since_it_was_listed_is_left_alone(change):
    store = aged(40, 50)

    class Busy(MemoryStore):
        def threads(self, **options):
            yield from list(super().threads(**options))
            if change == "append":
                self.append("50", [user("back again")])
            else:
                self.delete("50")

    store.__class__ = Busy
    assert retain(store, Retention(max_age_days=30), NOW) == ["40"]
    if change == "append":
        assert store.info("50").length == 1


@pytest.mark.parametrize("options", [{"max_age_days": -1}, {"max_age_days": math.nan}, {"keep_newest": -1}])
def test_a_rule_below_zero_is_refused(options):
    with pytest.raises(StoreError, match=r"^(max_age_days|keep_newest) is (-1|nan); it cannot be below zero$"):
        Retention(**options)
