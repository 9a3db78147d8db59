"""Fixtures: a provider's server, and a gateway that knows a model of each wire there."""

from functools import cache

import pytest
from httpx._transports import default

from palaver.gateway import GatewayConfig
from tests.gateway.running import running, targets, upstream


@pytest.fixture(scope="session", autouse=True)
def _one_tls_context():
    """Each ``httpx.post`` reads the certificates of the machine anew, for 40 ms; nothing here speaks TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "create_ssl_context", cache(default.create_ssl_context))
        yield


@pytest.fixture(scope="module")
def provider():
    with upstream() as held, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALAVER_TEST_KEY", "secret-1")
        patch.setenv("AWS_REGION", "eu-central-1")
        yield held


@pytest.fixture(scope="module")
def gateway(provider):
    with running(GatewayConfig(models=targets(provider.url))) as url:
        yield url


@pytest.fixture(autouse=True)
def _fresh(request):
    """Forget what the provider was asked by the test before."""
    if "provider" in request.fixturenames:
        held = request.getfixturevalue("provider")
        held.asked.clear()
        held.status, held.headers, held.body, held.pieces, held.respond = 200, {}, b"", None, None
        held.gone.clear()
