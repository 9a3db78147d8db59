from __future__ import annotations

import pytest

from palaver.agent.idempotency import idempotency_key


@pytest.mark.row("KAI-27")
def test_the_key_equals_the_golden():
    assert idempotency_key("exec-1", 3, 2) == "49cd3eced985109f35ca499edcbd9cc1"
