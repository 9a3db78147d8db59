"""What a type checker sees of the package."""

from typing import assert_type

import palaver

assert_type(palaver.__name__, str)
