"""Arguments of the wrong type raise one error that names the argument, whatever the annotation."""

# What is wrong is given on purpose.
# pyright: basic, reportArgumentType=false, reportMissingImports=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import pytest

from palaver.core.errors import MessageError, StoreError
from palaver.core.type_checks import check_arguments

if TYPE_CHECKING:
    from palaver.nowhere import Unseen

pytestmark = pytest.mark.finding("F-01")

T = TypeVar("T")
Alias = "str | Callable[..., Any]"


class Asks(Protocol):
    def ask(self) -> str: ...


class Known:
    pass


class Asking:
    def ask(self) -> str:
        return ""


def door(
    *,
    text: str = "",
    flag: bool = False,
    count: int = 0,
    seconds: float = 0.0,
    maybe: str | None = None,
    word: Literal["a", "b"] = "a",
    texts: Iterable[str] = (),
    fixed: tuple[str, ...] = (),
    names: frozenset[str] = frozenset(),
    functions: Sequence[Callable[..., Any]] = (),
    by_name: Mapping[str, Mapping[str, int]] | None = None,
    known: Known | None = None,
    asks: Asks | None = None,
    unseen: Unseen | Sequence[Unseen] | None = None,
    alias: Alias = "",
    anything: Any = None,
) -> None:
    check_arguments("door", door, locals())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": b"x"}, "door: text: expected a text, got bytes b'x'"),
        ({"flag": 1}, "door: flag: expected True or False, got int 1"),
        ({"count": True}, "door: count: expected a whole number, got bool True"),
        ({"count": 1.0}, "door: count: expected a whole number, got float 1.0"),
        ({"seconds": "1"}, "door: seconds: expected a number, got str '1'"),
        ({"maybe": 5}, "door: maybe: expected a text or None, got int 5"),
        ({"word": "c"}, "door: word: expected one of 'a', 'b', got str 'c'"),
        ({"texts": "abc"}, "door: texts: expected a list, each a text, got str 'abc'"),
        ({"texts": ["a", 5]}, r"door: texts\[1\]: expected a text, got int 5"),
        ({"fixed": ["a", 5]}, r"door: fixed\[1\]: expected a text, got int 5"),
        ({"fixed": {"a"}}, "door: fixed: expected a list, each a text, got set {'a'}"),
        ({"texts": 5}, "door: texts: expected a list, each a text, got int 5"),
        ({"functions": ("no",)}, r"door: functions\[0\]: expected a function, got str 'no'"),
        ({"by_name": {"a": {"b": "c"}}}, r"door: by_name\['a'\]\['b'\]: expected a whole number, got str 'c'"),
        ({"by_name": []}, r"door: by_name: expected a mapping or None, got list \[\]"),
        ({"known": Known}, "door: known: expected Known or None, got type"),
        ({"asks": "a name"}, "door: asks: expected Asks or None, got str 'a name'"),
        ({"asks": Known()}, "door: asks: expected Asks or None, got Known"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_its_name(given, said):
    with pytest.raises(MessageError, match=f"^{said}$"):
        door(**given)


def test_a_value_of_the_right_type_is_taken():
    door(
        text="a",
        flag=True,
        count=2**70,
        seconds=1,
        maybe="b",
        word="b",
        texts=iter(["a"]),
        fixed=["a"],
        names={"a"},
        functions=[len],
        by_name={"a": {"b": 1}},
        known=Known(),
        asks=Asking(),
        unseen=5,
        alias=5,
        anything=object(),
    )


def test_a_long_value_is_shown_short():
    with pytest.raises(MessageError) as error:
        door(count="x" * 10_000)
    assert len(str(error.value)) < 200


def test_a_dataclass_is_checked_by_its_fields_and_the_error_is_chosen():
    @dataclass
    class Box(Generic[T]):
        item: T
        size: int = 0

    check_arguments("box", Box, {"item": object(), "size": 1}, StoreError)
    with pytest.raises(StoreError, match="box: size"):
        check_arguments("box", Box, {"item": object(), "size": "1"}, StoreError)


@pytest.mark.parametrize("value", [10**5000, [10**5000]], ids=["number", "list"])
def test_a_number_that_python_does_not_write_is_shown_by_its_type(value):
    with pytest.raises(MessageError, match=f"got {type(value).__name__}"):
        door(maybe=value)
