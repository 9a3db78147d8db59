"""``python -m palaver`` is the command ``palaver``."""

import sys

from palaver.cli import main

if __name__ == "__main__":
    sys.exit(main())
