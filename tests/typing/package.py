"""The types of the package, for a type checker."""

from typing import assert_type

import palaver

assert_type(palaver.__name__, str)
