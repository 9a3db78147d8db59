"""``palaver schema``: the canonical form in JSON Schema.

Stability: experimental.
"""

from __future__ import annotations

import click

from palaver.cli import files
from palaver.core import canonical


@click.command(name="schema")
def command() -> None:
    """Print the JSON Schema of Palaver's own form."""
    files.write(files.STANDARD, canonical.schema_json())
