"""Fixtures for tests of tools: both event loops, and the context of a call."""

import pytest

from palaver.core.parts import ToolCall
from palaver.turn.tool import ToolContext


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def context():
    """Make the context of a call; emitted values go to `emitted`."""

    def make(name="tool", arguments="", *, emitted=None, deps=None):
        return ToolContext(
            call=ToolCall("c1", name, arguments),
            agent="agent",
            run="run",
            thread="thread",
            path=(),
            values={},
            emit=(emitted if emitted is not None else []).append,
            show=lambda _: None,
            idempotency_key="key",
            deps=deps,
        )

    return make
