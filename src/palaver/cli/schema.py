"""``palaver schema``: the JSON Schema of the canonical form.

Stability: experimental.
"""

from __future__ import annotations

import click

from palaver.cli import files
from palaver.core import canonical


@click.command(name="schema")
def command() -> None:
    """Print the JSON Schema of the canonical form."""
    files.write(files.STDIO, canonical.schema_json())
