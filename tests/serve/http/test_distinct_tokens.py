"""A token reads one client."""

import click
import pytest

from palaver.cli import serve
from palaver.core.errors import SwarmError
from palaver.serve.http.access import Access

pytestmark = pytest.mark.finding("S-25")


@pytest.mark.parametrize(
    "given", [{"tokens": {"ann": "same", "bob": "same"}}, {"token": "same", "tokens": {"ann": "same"}}]
)
def test_a_token_that_reads_more_than_its_client_is_refused(given):
    with pytest.raises(SwarmError) as caught:
        Access(**given)
    assert "same'" not in str(caught.value)


def test_a_file_with_one_token_for_two_clients_is_refused(tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text('ann = "s3cret"\nbob = "s3cret"\n')
    with pytest.raises(click.ClickException) as caught:
        serve.read_tokens(str(file))
    assert "ann and bob have the same token" in caught.value.message
    assert "s3cret" not in caught.value.message
