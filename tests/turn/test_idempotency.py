from __future__ import annotations

import pytest

import palaver
from palaver.turn.tool import idempotency_key


@pytest.mark.row("KAI-27")
def test_the_key_equals_the_golden():
    assert idempotency_key("exec-1", 3, 2) == "49cd3eced985109f35ca499edcbd9cc1"


@pytest.mark.row("KAI-27")
@pytest.mark.finding("F-05")
def test_the_chain_of_hashes_equals_the_golden():
    assert palaver.hash_chain(['{"iteration":0}', b'{"iteration":1}']) == (
        "b9477caad02fba6b9f1d7f8c40403813bb95110917f6095785cfca7fbd933b28",
        "9133229c7ead3adc14fb04faeb092a6bb4a8d67850c469d6b527f95e7a87612c",
    )


def test_a_chain_goes_on_behind_its_last_hash():
    payloads = ["a", "\ud800", b"\xff", ""]
    whole = palaver.hash_chain(payloads)
    for cut in range(1, len(payloads)):
        assert palaver.hash_chain(payloads[cut:], previous=whole[cut - 1]) == whole[cut:]
    assert palaver.hash_chain([]) == ()


@pytest.mark.parametrize("place", range(3))
def test_every_hash_behind_a_changed_payload_is_another(place: int) -> None:
    payloads = ["a", "b", "c"]
    changed = [*payloads[:place], "x", *payloads[place + 1 :]]
    same = [
        one == other
        for one, other in zip(map(str, palaver.hash_chain(payloads)), palaver.hash_chain(changed), strict=True)
    ]
    assert same == [index < place for index in range(3)]
