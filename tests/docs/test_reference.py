"""Each public name is on a page of the reference, and each parameter is described.

A parameter is described where the docstring of its function, of its class or of a base class names it as
``parameter``, or says whose parameters they are.
"""

import importlib
import inspect
import re
from pathlib import Path
from typing import get_origin

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
LOCK = (REFERENCE / "api.lock").read_text("utf-8")
OBVIOUS = {"self", "cls", "kind", "error", "trace", "exc_type", "exc", "tb", "_"}
NAME = re.compile(r"^(?:stable|experimental) +(palaver[\w.]*)", re.MULTILINE)


def rendered():
    """The modules whose members are rendered, and the names that are rendered alone."""
    found = set()
    for page in REFERENCE.glob("*.md"):
        found |= set(re.findall(r"auto(?:module|class|function|data|exception):: ([\w.]+)", page.read_text("utf-8")))
    return found


def objects():
    """Each locked name, with what it is."""
    for name in dict.fromkeys(NAME.findall(LOCK)):
        module, _, rest = name.rpartition(".")
        parts = []
        while module:
            try:
                value = importlib.import_module(module)
                break
            except ImportError:
                module, _, before = module.rpartition(".")
                parts.insert(0, before)
        try:
            for part in (*parts, rest):
                value = inspect.getattr_static(value, part) if isinstance(value, type) else getattr(value, part)
        except AttributeError:
            continue
        yield name, value


def undescribed():
    classes = dict(objects())
    for name, value in classes.items():
        function = getattr(value, "__func__", value)
        if isinstance(value, type) or get_origin(value) is not None or not callable(function):
            continue  # an alias of a type has no parameters of its own
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError, NameError):
            continue
        owner = classes.get(name.rpartition(".")[0])
        bases = [each for each in getattr(owner, "__mro__", ()) if each.__module__.startswith("palaver")]
        own = [vars(each).get(function.__name__) for each in bases]
        text = "\n".join(inspect.getdoc(each) or "" for each in (function, *bases, *(each for each in own if each)))
        if re.search(r"(parameters|keywords) are (those|the fields) of ``|Keywords as in ``", text):
            continue
        literals = "\n".join(re.findall(r"``([^`]+)``", text))
        method = owner is not None and inspect.isfunction(value)
        for parameter in list(parameters)[method:]:
            if parameter not in OBVIOUS and not re.search(rf"\b{parameter}\b", literals):
                yield f"{name}: {parameter}"


def test_every_parameter_is_described():
    assert not set(undescribed()), "describe these parameters in their docstrings"


@pytest.mark.parametrize(
    "package", sorted({name.rpartition(".")[0] for name in re.findall(r" (palaver[a-z_.]*\.[A-Za-z_]+)", LOCK)})
)
def test_every_public_package_is_rendered(package):
    modules = rendered()
    assert any(package == each or each.startswith(f"{package}.") or package.startswith(f"{each}.") for each in modules)


def test_the_docstrings_of_public_names_have_no_numbers_of_rows():
    row = re.compile(r"\b(MSG|ASK|KAI|CBF|DAS|GW)-\d\d\b")
    assert [name for name, value in objects() if row.search(inspect.getdoc(value) or "")] == []
