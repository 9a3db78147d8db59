"""A gateway: clients of any provider's API on one side, models of any provider on the other (extra ``gateway``).

``gateway_app(read_config("gateway.toml"))`` is an ASGI application; ``palaver gateway`` serves it.

Stability: experimental.
"""

from palaver.core.errors import MissingPackageError

try:
    from palaver.gateway.app import gateway_app
    from palaver.gateway.config import GatewayConfig, Listen, Target, read_config
except ImportError as error:
    raise MissingPackageError.of("gateways need starlette, uvicorn, prometheus-client", "gateway", error) from error

__all__ = ["GatewayConfig", "Listen", "Target", "gateway_app", "read_config"]
