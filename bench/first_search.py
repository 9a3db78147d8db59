"""What an import leaves to the first search, and how large the store is.

    python bench/first_search.py [--messages 40000] [--store LOCATION]

Imports generated conversations with ``palaver import`` and then asks twice, each time in a process of its own. The
search itself is timed inside of that process, from the opened store to the hits; the last column is the whole process.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_LENGTH = 40
_ASK = """
import sys, time
from palaver.store import Query, open_store
with open_store(sys.argv[1]) as store:
    begun = time.perf_counter()
    hits = store.search(Query(text=sys.argv[2]))
    print(f"{(time.perf_counter() - begun) * 1000:.0f} ms, {len(hits)} hits")
"""


def _conversation(chance: random.Random, words: list[str], number: int) -> list[dict[str, object]]:
    turns: list[dict[str, object]] = []
    for turn in range(_LENGTH):
        length = chance.choice((10, 30, 100, 1000))
        text = f"conversation {number} turn {turn} " + " ".join(chance.choices(words, k=length))
        turns.append({"role": "assistant" if turn % 2 else "user", "content": text})
    return turns


def main() -> None:
    """Generate, import, ask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--store")
    given = parser.parse_args()
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(20_000)]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        for number in range(given.messages // _LENGTH):
            text = json.dumps(_conversation(chance, words, number))
            (source / f"{number:05}.json").write_text(text)
        size = sum(each.stat().st_size for each in source.iterdir())
        store = given.store or str(Path(folder) / "palaver.db")
        begun = time.perf_counter()
        command = [sys.executable, "-m", "palaver", "import", str(source), "--into", store]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"import of {given.messages:,} messages, {size / 1e6:.0f} MB: {time.perf_counter() - begun:.1f} s")
        if Path(store).is_file():
            print(f"the store has {Path(store).stat().st_size / 1e6:.0f} MB")
        for which in ("first", "second"):
            begun = time.perf_counter()
            asked = [sys.executable, "-c", _ASK, store, '"turn 3"']
            found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
            print(f"{which} search: {found}; the process {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
