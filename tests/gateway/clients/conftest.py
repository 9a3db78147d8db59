"""A table at the end: of each program and each wire of a model, or form of a session, which case passed or failed."""

import pytest

SIGNS = {"passed": "ok", "failed": "FAILED", "error": "FAILED", "skipped": "skipped"}


@pytest.fixture(autouse=True)
def _cell(request, record_property):
    """Note the case, the program and the wire, or the form of the session, of a test."""
    given = request.node.callspec.params
    beside = given.get("source") or given.get("wire", "anthropic_messages")
    record_property("cell", (request.node.originalname, given["name"], beside))


def pytest_terminal_summary(terminalreporter):
    """Print the table: a row for each program and wire, a column for each case."""
    cells = {}
    for outcome, sign in SIGNS.items():
        for report in terminalreporter.stats.get(outcome, ()):
            for case, *row in [value for name, value in getattr(report, "user_properties", ()) if name == "cell"]:
                cells.setdefault(tuple(row), {})[case] = sign
    cases = list(dict.fromkeys(case for row in cells.values() for case in row))
    if not cases:
        return
    terminalreporter.section("programs, wires of the model, and cases")
    for number, case in enumerate(cases, 1):
        terminalreporter.line(f"({number}) {case.removeprefix('test_').replace('_', ' ')}")
    numbers = "".join(f"{f'({number})':<9}" for number in range(1, len(cases) + 1))
    terminalreporter.line(f"{'':<32}{numbers}")
    for (name, wire), found in sorted(cells.items()):
        signs = "".join(f"{found.get(case, '-'):<9}" for case in cases)
        terminalreporter.line(f"{name:<12}{wire:<20}{signs}")
