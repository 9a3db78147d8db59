"""Of the cases of a large matrix, a share by default, and the others under `long`.

`@pytest.mark.share(3)` takes every third case along the diagonals of what a test is parametrized by: with two
parameters, each value of one meets every third of the other, and none is left out. Parameters of fixtures count too,
so a test that runs on both event loops meets each of its cases on one of them. Two tests begin at different places;
a test has one case at least.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any
from zlib import crc32

import pytest


def share_out(items: Iterable[pytest.Item]) -> None:
    """Mark as `long` what is not of the share that a test asks for."""
    parametrized = (item for item in items if hasattr(item, "callspec") and item.get_closest_marker("share"))
    for name, cases in groupby(parametrized, key=lambda item: item.nodeid.partition("[")[0]):
        every = list(cases)
        [share] = every[0].get_closest_marker("share").args
        first = crc32(name.encode()) % share
        places = [(place - first) % share for place in _diagonals(every)]
        for item, place in zip(every, places, strict=True):
            if place != min(places):
                item.add_marker(pytest.mark.long)


def _diagonals(cases: list[Any]) -> list[int]:
    """The sum of the places of a case in each dimension; parameters that are given together are one dimension."""
    sums = [0] * len(cases)
    for ids in zip(*(case.callspec._idlist for case in cases), strict=True):
        places = {each: place for place, each in enumerate(dict.fromkeys(ids))}
        sums = [total + places[each] for total, each in zip(sums, ids, strict=True)]
    return sums
