"""What to do with a finding: stop at it, or keep the shortest input for each place that fails, and go on."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = os.environ.get("PALAVER_FINDINGS", "")


def watch(name: str, data: bytes, work: Callable[[], None]) -> None:
    """Do work on an input of the target ``name``."""
    try:
        work()
    except Exception as error:
        if not KEPT:
            raise
        at = traceback.extract_tb(error.__traceback__)[-1]
        path = Path(KEPT) / f"{name}-{type(error).__name__}-{Path(at.filename).stem}-{at.lineno}"
        if not path.exists() or path.stat().st_size > len(data):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
