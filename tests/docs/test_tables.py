"""Tables of the documentation say what the code does."""

import re
from pathlib import Path

from tools.format_table import lines as format_lines
from tools.model_table import lines as model_lines

from palaver.models.fallback import HOPS
from palaver.models.providers import PROVIDERS
from palaver.stream.assembler import STATES, Assembler

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_states_and_events_is_that_of_the_assembler():
    page = (ROOT / "docs/explanation/streams.md").read_text("utf-8")
    table = page.partition("<!-- Assembler.TABLE -->\n")[2].partition("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert rows[0] == ["event", *(f"`{state}`" for state in STATES)]
    said = {(row[0].strip("`"), state): cell for row in rows[2:] for state, cell in zip(STATES, row[1:], strict=True)}
    done = {
        (event.__name__, state): action.__name__.strip("_").replace("_", " ")
        for state, actions in Assembler.TABLE.items()
        for event, action in actions.items()
    }
    assert said == done


def provider_lines():
    """The table of providers, from their rows."""
    yield "| name | wires, the default first | key | another address | where it is asked |"
    yield "|---|---|---|---|---|"
    for row in PROVIDERS.values():
        seen = dict.fromkeys(endpoint.wire for endpoint in row.endpoints)
        places = [f"`{word}`: {_any_of(place.variables)}" for word, place in row.address_variables.items()]
        cells = (
            f"`{row.name}`",
            ", ".join(f"`{wire}`" for wire in seen),
            _any_of(row.keys) + ("" if row.needs_key or not row.keys else ", if it wants one"),
            "; ".join(filter(None, (_any_of(row.bases), *places))),
            f"`{row.base}` ([page]({row.page}))",
        )
        yield f"| {' | '.join(cells)} |"


def _any_of(names):
    return ", ".join(f"`{name}`" for name in names)


def test_the_table_of_providers_is_that_of_their_rows():
    page = (ROOT / "docs/reference/models.md").read_text("utf-8")
    table = page.partition("<!-- PROVIDERS -->\n")[2].partition("<!-- end -->")[0]
    assert table.strip().splitlines() == list(provider_lines())


def test_the_table_of_failures_of_a_chain_is_that_of_the_code():
    page = (ROOT / "docs/reference/models.md").read_text("utf-8")
    table = page.partition("<!-- HOPS -->\n")[2].partition("<!-- end -->")[0]
    said = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", table, re.MULTILINE))
    assert said == {kind.__name__: hop for kind, hop in HOPS.items()}


def test_every_place_where_tokens_are_counted_is_listed():
    page = (ROOT / "docs/reference/models.md").read_text("utf-8")
    table = page.partition("<!-- COUNTING -->\n")[2].partition("<!-- end -->")[0]
    assert table.splitlines()[2:] == [
        f"| `{row.name}` | `{endpoint.wire}` | `{endpoint.counting.url}` ([page]({endpoint.counting.page})) |"
        for row in PROVIDERS.values()
        for endpoint in row.endpoints
        if endpoint.counting is not None
    ]


def test_the_table_of_formats_is_that_of_their_modules():
    """``python tools/format_table.py`` writes it."""
    page = (ROOT / "docs/reference/transcripts.md").read_text("utf-8")
    table = page.partition("<!-- transcript formats -->\n")[2].partition("<!-- end -->")[0].splitlines()
    assert table == list(format_lines()), "run: python tools/format_table.py"


def test_the_table_of_models_is_that_of_the_catalogue():
    """``python tools/model_table.py`` writes it."""
    page = (ROOT / "docs/reference/models.md").read_text("utf-8")
    table = page.partition("<!-- CATALOGUE -->\n")[2].partition("<!-- end of the catalogue -->")[0].splitlines()
    assert table == list(model_lines()), "run: python tools/model_table.py"
