"""Feeding a reader of frames in chunks, and every way to cut its input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from palaver.core.errors import DecodeError
from palaver.stream.frames import Frame, Reader


def read(reader: Reader, chunks: Iterable[bytes]) -> tuple[list[Frame], str | None]:
    """Return everything a reader gives, and its error. Continues after an error, which must be raised again."""
    frames: list[Frame] = []
    met: list[DecodeError] = []
    for chunk in chunks:
        known = reader.error
        try:
            frames += reader.feed(chunk)
            assert known is None, "a feed after an error did not raise it"
        except DecodeError as error:
            met += [error, error if known is None else known]
    try:
        frames += reader.finish()
        assert reader.error is None
    except DecodeError as error:
        met.append(error)
    assert {id(error) for error in met} <= {id(reader.error)}, "not the error that was kept"
    return frames, str(met[-1]) if met else None


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Return the chunks between these places; a repeated place makes an empty chunk."""
    marks = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(marks)]


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def places() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(min_value=0, max_value=10_000), max_size=12)


def joined(words: Sequence[bytes], **size: Any) -> st.SearchStrategy[bytes]:
    """Return words one after another."""
    return st.lists(st.sampled_from(words), **size).map(b"".join)
