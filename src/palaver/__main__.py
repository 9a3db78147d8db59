"""``python -m palaver`` is the command ``palaver``."""

from palaver.cli import run

if __name__ == "__main__":
    run()
