"""The packages of the extra ``gateway``: only what serves and sends needs them, and is imported when that begins.

The commands that read a gateway's database, and the process that writes its log, do without: they start in a third of
the time.

Stability: experimental.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from palaver.core.errors import MissingPackageError

_PACKAGES: Final = ("aiohttp", "httptools", "prometheus_client", "starlette", "uvicorn")


def check_packages() -> None:
    """Raise ``MissingPackageError`` when one is missing."""
    try:
        for each in _PACKAGES:
            import_module(each)
    except ImportError as error:
        raise MissingPackageError.of("a gateway needs aiohttp, prometheus-client and more", "gateway", error) from error
