"""UUID version 7: the layout of RFC 9562, and order within a process."""

import multiprocessing
import os
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from palaver.threads import ids


def test_an_id_is_a_uuid_of_version_7_with_its_time():
    made = uuid.UUID(ids.uuid7(1_700_000_000_123))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == 1_700_000_000_123
    assert ids.is_uuid(str(made))


def test_ids_grow_also_when_the_clock_steps_back(monkeypatch):
    first = ids.uuid7()
    monkeypatch.setattr(ids, "now_ms", lambda: 5)
    made = [ids.uuid7() for _ in range(10_000)]
    assert made == sorted({*made})
    assert first < made[0]


def test_ids_of_many_os_threads_are_all_different():
    with ThreadPoolExecutor(8) as pool:
        made = [each for part in pool.map(lambda _: [ids.uuid7() for _ in range(2_000)], range(8)) for each in part]
    assert len(set(made)) == 16_000


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_makes_an_id_leaves_a_child_that_can():
    child = multiprocessing.get_context("fork").Process(target=ids.uuid7)
    with ids._lock:
        child.start()
    child.join(20)
    child.kill()
    child.join()
    assert child.exitcode == 0


def test_a_string_that_is_no_uuid_is_refused():
    good = ids.uuid7()
    for bad in ("", good[:-1], good.upper(), good.replace("-", ""), "g" + good[1:], good.replace("-", "0")):
        assert not ids.is_uuid(bad) or bad == good
