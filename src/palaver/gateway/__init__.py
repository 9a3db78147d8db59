"""A gateway: clients of any provider's API on one side, models of any provider on the other (extra ``gateway``).

``gateway_app(read_config("gateway.toml"))`` is an ASGI application; ``palaver gateway`` serves it.

Stability: experimental.
"""

from palaver.core.errors import MissingPackageError

try:
    from palaver.gateway.app import gateway_app
    from palaver.gateway.config import Breaker, GatewayConfig, Listen, Target, TargetTimeout, Telemetry, read_config
    from palaver.gateway.database import open_database
    from palaver.gateway.keys import GatewayKeys, KeySettings
    from palaver.gateway.limits import LimitRule, parse_limit
    from palaver.gateway.log.options import LogOptions
    from palaver.gateway.stored_responses import ResponseOptions
    from palaver.gateway.translation import Translation
except ImportError as error:
    raise MissingPackageError.of("a gateway needs aiohttp, prometheus-client and more", "gateway", error) from error

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
