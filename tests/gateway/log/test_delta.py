"""Bytes as their difference from other bytes."""

import pytest
from hypothesis import given, strategies as st

from palaver.core.errors import DamageError
from palaver.gateway.log.delta import Delta, apply, pack
from palaver.gateway.recent_bodies import common_prefix

PIECES = st.lists(st.sampled_from([b"", b"a", b"ab", b"\x00" * 40, b"the same text again " * 9, bytes(range(256))]))
TEXTS = PIECES.map(b"".join)


@pytest.mark.row("GW-33")
@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_the_very_bytes_come_back(start, end, one, other):
    data, base = start + one + end, start + other + end
    assert apply(pack(data, base), base) == data
    assert apply(pack(data)) == data


@given(TEXTS, TEXTS, TEXTS)
def test_the_common_beginning_is_as_long_as_it_can_be(start, one, other):
    length = common_prefix(start + one, start + other)
    assert length >= len(start)
    assert (start + one)[:length] == (start + other)[:length]
    assert (start + one)[length : length + 1] != (start + other)[length : length + 1] or length in {
        len(start + one),
        len(start + other),
    }


def test_what_was_added_in_the_middle_is_all_that_is_kept():
    base = bytes(range(256)) * 4000
    data = base[:500_000] + b"one new message" + base[500_000:]
    assert len(pack(data, base).data) < 100


@pytest.mark.parametrize(
    "broken", [Delta(0, 0, 1, "r", b"x"), Delta(0, 0, 1, "z", b"no zstd"), Delta(9, 9, 1, "d", b"")]
)
def test_bytes_that_were_altered_are_damage(broken):
    with pytest.raises(DamageError):
        apply(broken, b"base")
