"""A gateway: clients of any provider's API on one side, models of any provider on the other.

    uvicorn --factory palaver.gateway:gateway_app

Stability: experimental.
"""

from palaver.gateway.app import gateway_app
from palaver.gateway.config import GatewayConfig, Listen, Target, read_config

__all__ = ["GatewayConfig", "Listen", "Target", "gateway_app", "read_config"]
