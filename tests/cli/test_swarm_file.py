"""A swarm is loaded from a Python file; what is wrong with the file is told in one line."""

import click
import pytest

from palaver.cli import swarm_file

ONE = """
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Swarm, SwarmAgent

{names} = Swarm("first", [SwarmAgent("a", ScriptedModel([]))])
"""
TWO = ONE.format(names="one = same") + '\ntwo = one.replace(name="second")\nthree = 3\n'


@pytest.fixture
def file(tmp_path):
    def file_(text, name="desk.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return file_


def test_the_only_swarm_of_a_file_needs_no_name(file):
    assert swarm_file.swarm(file(ONE.format(names="one = same"))).name == "first"


def test_one_of_several_is_named(file):
    path = file(TWO)
    assert swarm_file.swarm(f"{path}:two").name == "second"
    with pytest.raises(click.ClickException, match=r"several swarms in it; name one: .*desk\.py:one, .*desk\.py:two"):
        swarm_file.swarm(path)


def test_a_private_name_is_found_when_it_is_named(file):
    path = file(ONE.format(names="_hidden"))
    assert swarm_file.swarm(f"{path}:_hidden").name == "first"
    with pytest.raises(click.ClickException, match="there is neither a Swarm nor an Agent in it"):
        swarm_file.swarm(path)


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("1 / 0", "", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "", "SystemExit: 3"),
        ("def broken(", "", "SyntaxError"),
        ("import nothing_by_that_name", "", "ModuleNotFoundError"),
        ("x = 1", "", "there is neither a Swarm nor an Agent in it"),
        ("x = 1", ":x", "'x' is not a Swarm"),
        (TWO, ":four", "there is no 'four' in it; its swarms: one, same, two"),
    ],
)
def test_an_error_in_a_file_names_it(file, text, name, said):
    path = file(text)
    with pytest.raises(click.ClickException) as failed:
        swarm_file.swarm(path + name)
    assert failed.value.format_message().startswith(f"{path}: ")
    assert said in failed.value.format_message()


def test_a_file_that_is_not_there():
    with pytest.raises(click.ClickException, match=r"nowhere\.py: no such file"):
        swarm_file.swarm("nowhere.py")


TOML = """
name = "shop"
[agents.triage]
model = "openai/gpt-5.2"
hand_over = ["sales"]
[agents.sales]
model = "anthropic/claude-opus-4-8"
"""
PRICE = '''
def price(item: str) -> str:
    """Say what something costs."""
    return f"the {item} costs nothing"
'''


def test_a_configuration_is_a_swarm(file):
    swarm = swarm_file.swarm(file(TOML, "shop.toml"))
    assert (swarm.name, list(swarm.agents)) == ("shop", ["triage", "sales"])


def test_the_tools_of_a_configuration_are_those_of_the_python_file_beside_it(file):
    path = file(f'{TOML}tools = ["price"]\n', "shop.toml")
    with pytest.raises(click.ClickException, match=r"shop\.toml: agents\.sales: no tool was passed for 'price'"):
        swarm_file.swarm(path)
    file(PRICE, "shop.py")
    assert [each.name for each in swarm_file.swarm(path).agents["sales"].tools] == ["price"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("name = ", "Invalid value"), ('name = "x"\nagents = 3', "agents"), ("\udcff", "utf-8")],
)
def test_an_error_in_a_configuration_names_it(tmp_path, text, said):
    path = tmp_path / "shop.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(click.ClickException) as failed:
        swarm_file.swarm(str(path))
    assert failed.value.format_message().startswith(f"{path}: ")
    assert said in failed.value.format_message()


def test_a_configuration_that_is_not_there():
    with pytest.raises(click.ClickException, match=r"nowhere\.toml: no such file"):
        swarm_file.swarm("nowhere.toml")


@pytest.mark.parametrize("named", ["desk", "desk:swarm", "desk.txt"])
def test_what_names_no_such_file_is_wrong_usage(named):
    with pytest.raises(click.UsageError, match=r"neither FILE\.py, FILE\.py:name, nor FILE\.toml"):
        swarm_file.swarm(named)
