"""Many cases in one test: each runs, and each that failed is named.

A case costs pytest and its workers several milliseconds, in every process that collects it. A law over a thousand
recordings is one test that runs over them, and fails with a group of their exceptions.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis.errors import UnsatisfiedAssumption


def run_each(cases: Iterable[tuple[str, Callable[[], object]]]) -> None:
    """Call every case, even after exceptions.

    Raises:
        UnsatisfiedAssumption: A case refused a generated value, for them all.
        BaseExceptionGroup: Some failed. Its text names them all, and each error has a note with its case.
        pytest.skip.Exception: Every case was skipped.
    """
    failed: dict[str, BaseException] = {}
    skipped: pytest.skip.Exception | None = None
    ran = 0
    for name, case in cases:
        try:
            case()
        except pytest.skip.Exception as error:
            skipped = error
            continue
        except UnsatisfiedAssumption:
            raise
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (raised below, with the others)
            error.add_note(f"case: {name}")
            failed[name] = error
        ran += 1
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {ran} cases failed: {', '.join(failed)}", list(failed.values()))
    if skipped is not None and not ran:
        raise skipped


def run_over(test: Callable[..., object], name: str, values: Iterable[tuple[str, Any]], others: dict[str, Any]) -> None:
    """Call `test` with each value as its argument `name`, beside the other arguments."""
    run_each((label, lambda value=value: test(**others, **{name: value})) for label, value in values)


def over(names: str, cases: Iterable[Any], ids: Iterable[str] | None = None) -> Callable[[Any], Any]:
    """Run the decorated test over all cases, as one test: `pytest.mark.parametrize` for many small cases.

    Fixtures are made once for all cases, and so is a generated value if `over` is below `given`. `names` are separated
    by commas; a case of several names is a tuple.
    """
    arguments = [name.strip() for name in names.split(",")]
    values = [dict(zip(arguments, case if len(arguments) > 1 else (case,), strict=True)) for case in cases]
    labels = list(ids) if ids is not None else ["-".join(map(repr, each.values())) for each in values]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def together(*given: Any, **others: Any) -> None:
            others = left.bind(*given, **others).arguments
            run_each(
                (label, lambda value=value: test(**others, **value))
                for label, value in zip(labels, values, strict=True)
            )

        signature = inspect.signature(test)
        left = signature.replace(
            parameters=[each for name, each in signature.parameters.items() if name not in arguments]
        )
        together.__signature__ = left  # type: ignore[attr-defined]
        return together

    return decorate
