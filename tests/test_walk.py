"""The walks that `tools/walk.py` counts still run."""

import pytest
from tools.walk import WALKS


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_ends_as_it_should(name):
    WALKS[name]()
