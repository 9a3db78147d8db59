"""The page of the command line lists the commands and the options that there are."""

import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from palaver.cli import _COMMANDS
from palaver.cli.default_command import DefaultGroup

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/cli.md").read_text("utf-8")
FORMS = {"form"}
"""``--json`` and ``--csv`` are one parameter; each is looked for by its own name."""


def synopses():
    """Return the text of each command's synopses."""
    found = {}
    for block in re.findall(r"```(?:text|console)\n(palaver .*?)```", PAGE, re.DOTALL):
        for usage in re.split(r"^palaver ", block, flags=re.MULTILINE)[1:]:
            name, _, rest = usage.partition(" ")
            found[name.strip()] = found.get(name.strip(), "") + rest
    return found


def options(command):
    if isinstance(command, click.Group):
        default = [command.default] if isinstance(command, DefaultGroup) else []
        return [each for one in (*default, *command.commands.values()) for each in options(one)]
    return [each for each in command.params if isinstance(each, click.Option) and not each.hidden]


def test_every_command_has_a_synopsis():
    assert synopses().keys() == _COMMANDS.keys()


@pytest.mark.parametrize("name", _COMMANDS)
def test_the_synopsis_lists_the_options_of_the_command(name):
    command = import_module(_COMMANDS[name][0]).command
    listed = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", synopses()[name]))
    known = {opt: each.name for each in options(command) for opt in each.opts}
    assert {known.get(each, each) for each in listed} >= {each.name for each in options(command)} - FORMS
    assert listed <= known.keys()
    assert {opt for each in options(command) if each.name in FORMS for opt in each.opts} <= listed


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_option_has_a_help_text_that_names_its_variable(name):
    for each in options(import_module(_COMMANDS[name][0]).command):
        assert each.help, each.opts
        assert not each.envvar or each.envvar in each.help, each.opts
