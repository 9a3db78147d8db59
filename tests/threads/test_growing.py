"""The first items of a list that only grows."""

import pytest

from palaver.threads.thread import ListPrefix


def test_the_beginning_of_a_list_is_a_sequence_that_stays():
    items = [1, 2, 3, 4]
    whole, part = ListPrefix(items), ListPrefix(items, 2)
    items.append(5)
    assert list(whole) == [1, 2, 3, 4]
    assert list(part) == [1, 2]
    assert (whole[-1], whole[1:], whole[::-2], part[-2:9]) == (4, [2, 3, 4], [4, 2], [1, 2])
    assert part == ListPrefix([1, 2])
    assert part != ListPrefix([1, 3])
    assert part != whole
    assert part != [1, 2]
    with pytest.raises(IndexError):
        part[2]
    with pytest.raises(IndexError):
        part[-3]
    assert repr(part) == "ListPrefix(2 items)"
