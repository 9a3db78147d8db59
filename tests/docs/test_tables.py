"""Tables of the documentation say what the code does."""

from pathlib import Path

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
