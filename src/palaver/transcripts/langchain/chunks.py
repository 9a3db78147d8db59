"""The pieces of a streamed message, put together as LangChain does.

Rules (docs/spec/dialects.md#15): texts are joined, items of lists that share an ``index`` are one, counters are added,
and what can be said only once is what was said last.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final, cast

_ONCE: Final = frozenset(("type", "id", "index", "name", "model_name", "model_provider", "output_version", "status"))


def merged(one: dict[str, Any], other: dict[str, Any], *, add: bool = False) -> dict[str, Any]:
    """Two pieces as one; neither is changed. ``add`` adds numbers instead of taking the later one."""
    result = dict(one)
    for key, value in other.items():
        held = result.get(key)
        if held is None or value is None:
            result[key] = held if value is None else value
        elif key in _ONCE:
            result[key] = held if value == "" else value
        else:
            result[key] = _joined(held, value, add=add or key == "usage_metadata")
    return result


def _joined(held: Any, value: Any, *, add: bool) -> Any:
    match held, value:
        case str(), str():
            return held + value
        case dict(), dict():
            return merged(cast("dict[str, Any]", held), cast("dict[str, Any]", value), add=add)
        case list(), list():
            return _lists(cast("list[object]", held), cast("list[object]", value))
        case str(), list():
            return [*([held] if held else ()), *cast("list[object]", value)]
        case list(), str():
            return [*cast("list[object]", held), value] if value else cast("list[object]", held)
        case int(), int() if add and not isinstance(held, bool):
            return held + value
        case _:
            return value


def _lists(held: list[object], new: list[object]) -> list[Any]:
    result: list[Any] = list(held)
    for item in new:
        place = _place(result, item)
        if place is None:
            result.append(item)
        else:
            result[place] = merged(result[place], cast("dict[str, Any]", item))
    return result


def _place(items: list[Any], new: object) -> int | None:
    """Where the piece stands that a new piece goes on."""
    index = cast("dict[str, Any]", new).get("index") if isinstance(new, dict) else None
    if index is None:
        return None
    for place, item in enumerate(items):
        if isinstance(item, dict) and cast("dict[str, Any]", item).get("index") == index:
            return place
    return None
