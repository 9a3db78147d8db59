"""How a command ends early.

Stability: experimental.
"""

from __future__ import annotations

from typing import Never

import click


def bad_input(place: str, cause: object) -> Never:
    """End the command with exit code 1, and one line that names the place and the cause."""
    raise click.ClickException(f"{place}: {cause}")
