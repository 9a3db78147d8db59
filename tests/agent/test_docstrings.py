"""What a docstring says of a function and of its parameters."""

import pytest
from hypothesis import given, strategies as st

from palaver.agent.docstrings import described

GOOGLE = """Tell the weather.

    Of several places: more than one.

    Args:
        cities (list[str]): The places,
            many of them.
        *rest: More: of them.
        unit: The scale.

    Returns:
        dict: the weather
    """
NUMPY = """Tell the weather.

    Of several places: more than one.

    Parameters
    ----------
    cities : list of str
        The places,
        many of them.
    rest, unit
        The scale.

    Returns
    -------
    weather : dict
        What it is.
    """
SPHINX = """Tell the weather.

    Of several places: more than one.

    :param cities: The places,
        many of them.
    :param str unit: The scale.
    :returns: The weather.
    :rtype: dict
    """
TEXT = "Tell the weather.\n\nOf several places: more than one."


@pytest.mark.parametrize(
    ("docstring", "parameters"),
    [
        (GOOGLE, {"cities": "The places, many of them.", "rest": "More: of them.", "unit": "The scale."}),
        (NUMPY, {"cities": "The places, many of them.", "rest": "The scale.", "unit": "The scale."}),
        (SPHINX, {"cities": "The places, many of them.", "unit": "The scale."}),
    ],
    ids=["Google", "NumPy", "Sphinx"],
)
def test_three_manners_are_read(docstring, parameters):
    assert described(docstring) == (TEXT, parameters)


@pytest.mark.parametrize(("docstring", "text"), [(None, None), ("", None), ("Args:\n    a: b", None), ("One.", "One.")])
def test_a_docstring_may_say_little(docstring, text):
    assert described(docstring).description == text


@pytest.mark.parametrize(
    "section",
    [
        "Args:\n    city: The place.",
        "Parameters\n----------\ncity : str\n    The place.",
        ":param city: The place.",
    ],
    ids=["Google", "NumPy", "Sphinx"],
)
def test_a_section_needs_no_blank_line_above_it(section):
    assert described(f"Tell the weather.\n{section}") == ("Tell the weather.", {"city": "The place."})
    assert described(section) == (None, {"city": "The place."})


@given(st.text() | st.text(alphabet="Args:param -\n a*()"))
def test_any_docstring_is_read(docstring):
    description, parameters = described(docstring)
    assert description is None or description.strip() == description
    assert all(parameters.values())
