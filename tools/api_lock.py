"""The API lock: what users may build on, one line for each object, compared with the source.

Public is what a facade exports: the names in `__all__` of `palaver` and of each package directly
inside it, and the members of the classes among them. A docstring marks stability with a line
`Stability: stable.` or `Stability: experimental.`, once; an object without one has that of the
class, module or package it is defined in, the nearest first.

- `python tools/api_lock.py` prints the public API.
- `--check` compares it with `docs/reference/api.lock` and fails when a stable object changed or
  disappeared, or a public one has no mark, or two. Additions, and changes to experimental objects,
  are printed and pass.
- `--update` writes the lock. A diff of it is the review of an API change.

What breaks those who build on an object is a change: another parameter, type, default, base or
value of a constant, another place among positional fields or the members of an enum, `async` or
not. What does not is an addition: an optional parameter that nobody passes yet, a value at the end
of a `Literal`, a new name; but a new member that implementations must have (`abstract`), or a
new field that constructors must be given (`required`), breaks.

The source is read, not imported.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from itertools import zip_longest
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
MARKS = re.compile(r"^(.*?)((?: \[(?:async|abstract|classmethod|property|required|staticmethod|\d+)\])*)$")
OVERLOADS = " ; "
BREAKS = (" [abstract]", " [required]")

Member = griffe.Object | griffe.Alias


def stability(member: Member) -> str:
    """The nearest marking: its own, or that of what it is defined in; `none`, or `two` for a docstring with two."""
    scope: Member | None = member
    while scope is not None:
        if scope.docstring and (found := STABILITY.findall(scope.docstring.value)):
            return found[0] if len(found) == 1 else "two"
        scope = scope.parent
    return "none"


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


def method_named(member: griffe.Attribute) -> griffe.Function | None:
    """The function of its module that a class has as a method: `ask = ask_model`."""
    names = None if member.module is None or member.annotation is not None else member.module.members
    found = None if names is None or member.value is None else names.get(str(member.value))
    return found if isinstance(found, griffe.Function) and isinstance(member.parent, griffe.Class) else None


def describe(member: griffe.Object) -> str:
    """What follows the name of an object in the lock."""
    if isinstance(member, griffe.Function):
        shapes = [signature(overload) for overload in member.overloads or []] or [signature(member)]
        kinds = (k for k in ("async", "classmethod", "staticmethod") if k in member.labels)
        return OVERLOADS.join(shapes) + "".join(f" [{kind}]" for kind in kinds)
    if isinstance(member, griffe.Class):
        return f" class({', '.join(map(str, member.bases))})"
    if isinstance(member, griffe.Module):
        return " module"
    if isinstance(member, griffe.TypeAlias):
        return f" = {member.value}"
    if "property" in member.labels:
        return f" -> {member.annotation} [property]"
    assert isinstance(member, griffe.Attribute)
    if (named := method_named(member)) is not None:
        return describe(named)
    text = "" if member.annotation is None else f": {member.annotation}"
    # The value matters where it is a default (of a field) or the thing itself (of a constant, of a type alias).
    default = "class-attribute" in member.labels
    itself = member.annotation is None or re.search(r"\b(TypeAlias|Final)\b", str(member.annotation))
    if member.value is not None and (default or (itself and "module-attribute" in member.labels)):
        text += f" = {member.value}"
    return text


def lines_of(path: str, member: Member, marks: str = "") -> Iterator[tuple[str, str]]:
    """The lock lines of one public object and of the members that come with it."""
    target = member.final_target if isinstance(member, griffe.Alias) else member
    shape = " ".join(describe(target).splitlines())
    yield path, f"{stability(target):<13} {path}{shape}{marks}"
    if isinstance(target, griffe.Class):
        marks_of = marks_in(target)
        for name, child in sorted(target.all_members.items()):
            if not name.startswith("_") or name in SPECIAL:
                yield from lines_of(f"{path}.{name}", child, marks_of.get(name, ""))


# -- what a class asks of those who build on it --------------------------------------------------


def marks_in(target: griffe.Class) -> dict[str, str]:
    """What stands behind members: their place where it counts, and whether they must be given or implemented."""
    classes = [*reversed(target.mro()), target]
    bases = {re.split(r"[\[.]", str(base).removeprefix("msgspec."))[0] for cls in classes for base in cls.bases}
    marks: dict[str, str] = {}
    place = 0
    for cls in classes:
        protocol = any(str(base).startswith("Protocol") for base in cls.bases)
        enum = any(base.endswith("Enum") for base in bases)
        fields = "Struct" in bases or "dataclass" in cls.labels
        by_name = cls.keywords.get("kw_only") == "True" or "kw_only=True" in "".join(
            str(decorator.value) for decorator in cls.decorators
        )
        for name, member in cls.members.items():
            mark = ""
            if isinstance(member, griffe.Attribute) and method_named(member) is not None:
                marks[name] = ""
            elif isinstance(member, griffe.Attribute) and "property" not in member.labels:
                named = enum and "class-attribute" in member.labels and member.annotation is None
                by_name = by_name or "KW_ONLY" in str(member.annotation)  # what stands behind `_: KW_ONLY`
                field = fields and "instance-attribute" in member.labels
                if (named or (field and not by_name)) and name not in marks:
                    place += 1
                    mark += f" [{place}]"
                if field and not re.match(r"(?!field\()|field\(.*\bdefault", str(member.value or "field()")):
                    mark += " [required]"
                if not (named or field):
                    mark += " [abstract]" if protocol else ""
                marks.setdefault(name, mark)
            elif protocol or "abstractmethod" in member.labels:
                marks[name] = " [abstract]"
            else:
                marks[name] = ""  # what implements it takes the demand away
    return marks


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
    """Whether a name that a facade exports is defined in this package, and there."""
    if not isinstance(member, griffe.Alias):
        return True
    try:
        return member.target_path.startswith("palaver.") and bool(member.final_target)
    except griffe.AliasResolutionError:
        return False


# -- comparing -----------------------------------------------------------------------------------


def compare(locked: dict[str, str], current: dict[str, str]) -> tuple[list[str], list[str]]:
    """What breaks a promise, and what is merely different."""
    broken: list[str] = []
    notes: list[str] = []
    for path, line in locked.items():
        now = current.get(path)
        if now == line:
            continue
        promised = line.startswith("stable") and (now is None or not extends(path, line, now))
        report = broken if promised else notes
        report.append(f"- {line}" + (f"\n+ {now}" if now else ""))
    for path, line in current.items():
        if path not in locked:
            of = locked.get(path.rpartition(".")[0], "")
            demanded = of.startswith("stable") and line.startswith("stable") and line.endswith(BREAKS)
            (broken if demanded else notes).append(f"+ {line}")
    return broken, notes


def parted(line: str) -> tuple[str, str]:
    """A line without the marks at its end, and those."""
    found = MARKS.fullmatch(line)
    assert found is not None
    return found[1], found[2]


def extends(path: str, old: str, new: str) -> bool:
    """Whether whoever builds on the old line can build on the new one: it only allows more than before."""
    (was, marks), (now, now_marks) = parted(old), parted(new)
    if marks != now_marks or " [abstract]" in marks or was.split()[0] != now.split()[0]:
        return False
    was, now = (line.split(path, 1)[1] for line in (was, now))
    if was.startswith("("):
        pairs = list(zip_longest(was.split(OVERLOADS), now.split(OVERLOADS)))
        return all(a is None or (b is not None and _takes_more(a, b)) for a, b in pairs)
    return _allows_more(was, now)


def _takes_more(old: str, new: str) -> bool:
    try:
        was, now = (_function(f"def _{shape}: ...") for shape in (old, new))
    except SyntaxError:
        return False
    placed, now_placed = (_placed(each.args) for each in (was, now))
    more = now_placed[len(placed) :]
    named, now_named = (_named(each.args) for each in (was, now))
    same = ast.unparse(was.returns or ast.Constant(None)) == ast.unparse(now.returns or ast.Constant(None))
    return (
        same
        and now_placed[: len(placed)] == placed
        and all(default is not None for _, _, default in more)
        and not (more and was.args.vararg)
        and _text(was.args.vararg) in {"", _text(now.args.vararg)}
        and _text(was.args.kwarg) in {"", _text(now.args.kwarg)}
        and all(now_named.get(name) == shape for name, shape in named.items())
        and all(default is not None for name, (_, default) in now_named.items() if name not in named)
    )


def _function(source: str) -> ast.FunctionDef:
    found = ast.parse(source).body[0]
    assert isinstance(found, ast.FunctionDef)
    return found


def _placed(given: ast.arguments) -> list[tuple[str, str, str | None]]:
    """Name and annotation, kind, and default of each parameter that can be given by its place."""
    both = [*((each, "/") for each in given.posonlyargs), *((each, "") for each in given.args)]
    defaults = [None] * (len(both) - len(given.defaults)) + [ast.unparse(each) for each in given.defaults]
    return [(ast.unparse(each), kind, default) for (each, kind), default in zip(both, defaults, strict=True)]


def _named(given: ast.arguments) -> dict[str, tuple[str, str | None]]:
    """Annotation and default of each parameter that is given by its name alone."""
    return {
        each.arg: (ast.unparse(each), None if default is None else ast.unparse(default))
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    }


def _text(given: ast.arg | None) -> str:
    return "" if given is None else ast.unparse(given)


def _allows_more(old: str, new: str) -> bool:
    """Whether a `Literal` has more values, behind those that it had."""
    (head, was), (now_head, now) = (shape.rpartition("Literal[")[::2] for shape in (old, new))
    return bool(head) and head == now_head and was.endswith("]") and now.startswith(f"{was[:-1]}, ")


def read_lock(file: Path) -> dict[str, str]:
    """The lock file, by public path."""
    lines = [line for line in file.read_text("utf-8").splitlines() if line[:1] not in {"", "#"}]
    return {re.split(r"[^\w.]", line.split(maxsplit=1)[1], maxsplit=1)[0]: line for line in lines}


def check(source: Path, lock: Path) -> int:
    """Compare and report; the exit code."""
    if not lock.exists():
        print(f"{lock} is missing; write it with: python tools/api_lock.py --update")
        return 1
    current = public_api(source)
    broken, notes = compare(read_lock(lock), current)
    if notes:
        print("Different, and allowed (--update records it):", *notes, sep="\n")
    unmarked = [line for line in current.values() if line.startswith(("none", "two"))]
    if unmarked:
        print("Public, with no mark of stability, or two:", *unmarked, sep="\n")
    if broken:
        print("Stable API changed or gone:", *broken, sep="\n")
    if broken:
        print("If the change is meant: python tools/api_lock.py --update, and read the diff.")
    return 1 if broken or unmarked else 0


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
