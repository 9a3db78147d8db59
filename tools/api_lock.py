"""The API lock: what users may build on, one line for each object, compared with the source.

Public is what a facade exports: the names in `__all__` of `palaver` and of each package directly
inside it, and the members of the classes among them. A docstring marks stability with a line
`Stability: stable.` or `Stability: experimental.`; an object without one has that of the class,
module or package it is defined in, the nearest first.

- `python tools/api_lock.py` prints the public API.
- `--check` compares it with `docs/reference/api.lock` and fails when a stable object changed or
  disappeared. Additions, and changes to experimental objects, are printed and pass.
- `--update` writes the lock. A diff of it is the review of an API change.

The source is read, not imported.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
STABILITY = re.compile(r"^\s*Stability:\s*(stable|experimental)\b", re.MULTILINE)
# Special methods that are part of how an object is used; what the others do, Python says.
SPECIAL = {
    "__add__",
    "__call__",
    "__enter__",
    "__exit__",
    "__getitem__",
    "__init__",
    "__iter__",
    "__len__",
}

Member = griffe.Object | griffe.Alias


def stability(member: Member) -> str:
    """The nearest marking: its own, or that of what it is defined in."""
    scope: Member | None = member
    while scope is not None:
        if scope.docstring and (found := STABILITY.search(scope.docstring.value)):
            return found[1]
        scope = scope.parent
    return "experimental"


def signature(function: griffe.Function) -> str:
    """Parameters and return type, in the order of a `def` line."""
    parts: list[str] = []
    previous: griffe.ParameterKind | None = None
    kinds = griffe.ParameterKind
    for parameter in function.parameters:
        if previous is kinds.positional_only and parameter.kind is not kinds.positional_only:
            parts.append("/")
        if parameter.kind is kinds.keyword_only and previous not in {
            kinds.keyword_only,
            kinds.var_positional,
        }:
            parts.append("*")
        stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(parameter.kind, "")
        text = f"{stars}{parameter.name}"
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not stars:
            text += f" = {parameter.default}"
        parts.append(text)
        previous = parameter.kind
    if previous is kinds.positional_only:
        parts.append("/")
    returns = "" if function.returns is None else f" -> {function.returns}"
    return f"({', '.join(parts)}){returns}"


def describe(member: griffe.Object) -> str:
    """What follows the name of an object in the lock."""
    if isinstance(member, griffe.Function):
        shapes = [signature(overload) for overload in member.overloads or []] or [signature(member)]
        kind = next((k for k in ("classmethod", "staticmethod") if k in member.labels), None)
        return " | ".join(shapes) + (f" [{kind}]" if kind else "")
    if isinstance(member, griffe.Class):
        return f" class({', '.join(map(str, member.bases))})"
    if isinstance(member, griffe.Module):
        return " module"
    if isinstance(member, griffe.TypeAlias):
        return f" = {member.value}"
    if "property" in member.labels:
        return f" -> {member.annotation} [property]"
    assert isinstance(member, griffe.Attribute)
    text = "" if member.annotation is None else f": {member.annotation}"
    # The value matters where it is a default (of a field) or the thing itself (of a type alias).
    default = "class-attribute" in member.labels
    alias = member.annotation is None or str(member.annotation).endswith("TypeAlias")
    if member.value is not None and (default or (alias and "module-attribute" in member.labels)):
        text += f" = {member.value}"
    return text


def lines_of(path: str, member: Member) -> Iterator[tuple[str, str]]:
    """The lock lines of one public object and of the members that come with it."""
    target = member.final_target if isinstance(member, griffe.Alias) else member
    shape = " ".join(describe(target).splitlines())
    yield path, f"{stability(target):<13} {path}{shape}"
    if isinstance(target, griffe.Class):
        for name, child in sorted(target.all_members.items()):
            if not name.startswith("_") or name in SPECIAL:
                yield from lines_of(f"{path}.{name}", child)


def public_api(source: Path) -> dict[str, str]:
    """Every public object of the package under `source`, by its public path."""
    package = griffe.load("palaver", search_paths=[source], allow_inspection=False)
    facades = [package, *(m for m in package.modules.values() if m.is_init_module)]
    api: dict[str, str] = {}
    for facade in facades:
        for name in sorted(str(export) for export in facade.exports or ()):
            member = facade.members[name]
            if inside(member):
                api.update(lines_of(f"{facade.path}.{name}", member))
    return dict(sorted(api.items()))


def inside(member: Member) -> bool:
    """Whether a name that a facade exports is defined in this package."""
    return not member.is_alias or member.target_path.startswith("palaver.")


def compare(locked: dict[str, str], current: dict[str, str]) -> tuple[list[str], list[str]]:
    """What breaks a promise, and what is merely different."""
    broken: list[str] = []
    notes: list[str] = []
    for path, line in locked.items():
        now = current.get(path)
        if now == line:
            continue
        report = broken if line.startswith("stable") else notes
        report.append(f"- {line}" + (f"\n+ {now}" if now else ""))
    notes.extend(f"+ {line}" for path, line in current.items() if path not in locked)
    return broken, notes


def read_lock(file: Path) -> dict[str, str]:
    """The lock file, by public path."""
    lines = [line for line in file.read_text("utf-8").splitlines() if line[:1] not in {"", "#"}]
    return {re.split(r"[^\w.]", line.split(maxsplit=1)[1], maxsplit=1)[0]: line for line in lines}


def check(source: Path, lock: Path) -> int:
    """Compare and report; the exit code."""
    if not lock.exists():
        print(f"{lock} is missing; write it with: python tools/api_lock.py --update")
        return 1
    broken, notes = compare(read_lock(lock), public_api(source))
    if notes:
        print("Different, and allowed (--update records it):", *notes, sep="\n")
    if broken:
        print("Stable API changed or gone:", *broken, sep="\n")
    return 1 if broken else 0


def main(arguments: list[str] | None = None) -> int:
    """Print, check or update."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail when the stable API changed")
    parser.add_argument("--update", action="store_true", help="write the lock")
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    parser.add_argument("--lock", type=Path, default=ROOT / "docs" / "reference" / "api.lock")
    options = parser.parse_args(arguments)
    if options.check:
        return check(options.source, options.lock)
    header = "# The public API. Written by: python tools/api_lock.py --update\n"
    text = header + "".join(f"{line}\n" for line in public_api(options.source).values())
    if options.update:
        options.lock.parent.mkdir(parents=True, exist_ok=True)
        options.lock.write_text(text, "utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
