"""Tables at the end: of each program and each wire of a model, or form of a session, which case passed or failed."""

import pytest

SIGNS = {"passed": "ok", "failed": "FAILED", "error": "FAILED", "skipped": "skipped"}
TABLES = {"wire": "wires of the model", "source": "forms of the session"}


@pytest.fixture(autouse=True)
def _cell(request, record_property):
    """Note the table, the case, the program and the wire, or the form of the session, of a test."""
    given = request.node.callspec.params
    beside = "source" if "source" in given else "wire"
    record_property("cell", (beside, request.node.originalname, given["name"], given.get(beside, "")))


def pytest_terminal_summary(terminalreporter):
    """Print the tables: a row for each program and wire, a column for each case."""
    tables = {}
    for outcome, sign in SIGNS.items():
        for report in terminalreporter.stats.get(outcome, ()):
            for table, case, *row in [
                value for name, value in getattr(report, "user_properties", ()) if name == "cell"
            ]:
                tables.setdefault(table, {}).setdefault(tuple(row), {})[case] = sign
    for table, cells in tables.items():
        cases = list(dict.fromkeys(case for row in cells.values() for case in row))
        terminalreporter.section(f"programs, {TABLES[table]}, and cases")
        for number, case in enumerate(cases, 1):
            terminalreporter.line(f"({number}) {case.removeprefix('test_').replace('_', ' ')}")
        numbers = "".join(f"{f'({number})':<9}" for number in range(1, len(cases) + 1))
        terminalreporter.line(f"{'':<32}{numbers}")
        for (name, beside), found in sorted(cells.items()):
            signs = "".join(f"{found.get(case, '-'):<9}" for case in cases)
            terminalreporter.line(f"{name:<12}{beside:<20}{signs}")
