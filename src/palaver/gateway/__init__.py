"""A gateway: clients of any provider's API on one side, models of any provider on the other (extra ``gateway``).

``gateway_app(read_config("gateway.toml"))`` is an ASGI application; ``palaver gateway`` serves it.

Stability: experimental.
"""

from typing import TYPE_CHECKING

from palaver.gateway.config import Breaker, GatewayConfig, Listen, Target, TargetTimeout, Telemetry, read_config
from palaver.gateway.database import open_database
from palaver.gateway.keys import GatewayKeys, KeySettings
from palaver.gateway.limits import LimitRule, parse_limit
from palaver.gateway.log.options import LogOptions
from palaver.gateway.packages import check_packages
from palaver.gateway.stored_responses import ResponseOptions
from palaver.gateway.translation import Translation

if TYPE_CHECKING:
    from palaver.gateway.app import gateway_app

__all__ = [
    "Breaker",
    "GatewayConfig",
    "GatewayKeys",
    "KeySettings",
    "LimitRule",
    "Listen",
    "LogOptions",
    "ResponseOptions",
    "Target",
    "TargetTimeout",
    "Telemetry",
    "Translation",
    "gateway_app",
    "open_database",
    "parse_limit",
    "read_config",
]


def __getattr__(name: str) -> object:
    """Import ``gateway_app``, which needs the extra, when it is first used."""
    if name != "gateway_app":
        raise AttributeError(f"module 'palaver.gateway' has no attribute {name!r}")
    check_packages()
    from palaver.gateway.app import gateway_app  # noqa: PLC0415 (as above)

    return gateway_app
