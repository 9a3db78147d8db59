"""Docstrings that users see say what they say without the numbers of our own specifications."""

import importlib
import inspect
import pkgutil
import re

import palaver
from palaver.wires._engine.wire import Wire

CODES = re.compile(r"\b(?:ASK|KAI|CBF|DAS|MSG)-\d+\b|\([RCF]\d\d\b|\b[RCF]\d\d[,)]")


def public():
    """Name and object of all that a facade exports, and of the members of the classes among them."""
    packages = [name for _, name, is_package in pkgutil.iter_modules(palaver.__path__, "palaver.") if is_package]
    for name in ["palaver", *packages]:
        module = importlib.import_module(name)
        for each in getattr(module, "__all__", ()):
            yield f"{name}.{each}", getattr(module, each)
    yield "palaver.wires.Wire", Wire


def docstrings():
    """Name and docstring; what a class inherits from outside of Palaver is left out."""
    for name, found in public():
        if inspect.ismodule(found) or not (inspect.isclass(found) or callable(found)):
            continue
        yield name, found.__doc__ or ""
        if inspect.isclass(found):
            for key, member in inspect.getmembers(found):
                if key == "__init__" or not key.startswith("_"):
                    yield f"{name}.{key}", getattr(member, "__doc__", None) or ""


def test_no_docstring_of_a_public_name_cites_a_row():
    named = {name: CODES.findall(text) for name, text in docstrings()}
    assert len(named) > 1000
    assert {name: codes for name, codes in named.items() if codes} == {}


def test_function_tool_says_what_each_option_does():
    from palaver.agent import function_tool

    options = [name for name in inspect.signature(function_tool).parameters if name != "function"]
    assert [name for name in options if f"``{name}" not in function_tool.__doc__] == []
