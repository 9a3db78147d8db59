"""A writer that is killed at any moment, and the checks of its store afterwards; for any store.

``survive(location, times)`` runs this file as a process of its own: threads that append (with keys or without), fork
and rewind, and print each call that has returned. It is killed with SIGKILL meanwhile. Then, in a reopened store:
acknowledged data exist and are equal, each append is there whole or not at all, and ``verify`` finds nothing. The next
process continues with the same store.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import palaver as p
from palaver.store.location import open_store

WRITERS = 4
THREADS = ("one", "two")


def survive(location, times, seed=0, **options):
    """Kill the writers of one store repeatedly; return how many appends were acknowledged."""
    rng = random.Random(seed)
    acknowledged = []
    for run in range(times):
        acknowledged += killed(location, run, rng.uniform(0, 0.25), options)
        with open_store(location, **options) as store:
            check(store, acknowledged)
    assert acknowledged
    return len(acknowledged)


def killed(location, run, delay, options):
    """Let writers write for a while after their first line, kill them, and return what they acknowledged."""
    command = [sys.executable, __file__, location, str(run), json.dumps(options)]
    path = os.pathsep.join([str(Path(p.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as process:
        try:
            first = process.stdout.readline()
            assert first, "the writers did not begin"
            time.sleep(delay)
        finally:
            process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
    lines = (first + rest).split(b"\n")[:-1]  # an incomplete line does not count
    return [json.loads(line) for line in lines]


def check(store, acknowledged):
    """Compare a store with the acknowledged calls."""
    verified = store.verify()
    assert verified.ok, verified.damage
    entries = {name: list(store.read(name)) for name in THREADS}
    by_id = {entry.id: entry for each in entries.values() for entry in each}
    for each in acknowledged:
        match each:
            case {"thread": thread, "ids": ids, "texts": texts, "key": key}:
                assert [by_id[entry].message.text for entry in ids] == texts
                if key is not None:
                    again = store.append(thread, [p.user(text) for text in texts], key=key)
                    assert again.repeated
                    assert [entry.id for entry in again.entries] == ids
            case {"thread": thread, "branch": branch}:
                assert branch in store.info(thread).branches
    for each in entries.values():
        whole(each)


def whole(entries):
    """Check that each append is there with all of its messages, in sequence, or not at all."""
    left = 0
    for before, entry in zip([None, *entries], entries, strict=False):
        batch, index, size = entry.message.text.split(" ", 1)[0].rsplit(".", 2)
        if index == "0":
            assert left == 0, "an append was cut"
            left = int(size)
        else:
            assert before.message.text.startswith(f"{batch}.{int(index) - 1}.{size}"), "an append was parted"
            assert entry.parent == before.id
        left -= 1
    assert left == 0, "an append was cut"


def write(store, run, writer):
    """Write in one thread until it is killed."""
    rng = random.Random(f"{run} {writer}")
    for count in range(1_000_000):
        thread = rng.choice(THREADS)
        name = f"{run}.{writer}.{count}"
        branch = rng.choice(list(store.info(thread).branches)[:8])
        match rng.randrange(8):
            case 0:
                store.fork(thread, name, of=branch)
                tell({"thread": thread, "branch": name})
            case 1:
                path = store.path(thread, branch, last=3)
                store.rewind(thread, path[0].id if path else None, branch=branch)
            case _:
                size = rng.randint(1, 4)
                texts = [f"{name}.{each}.{size} " + "word " * rng.randrange(800) for each in range(size)]
                key = name if rng.random() < 0.5 else None
                made = store.append(thread, [p.user(text) for text in texts], branch=branch, key=key)
                tell({"thread": thread, "ids": [entry.id for entry in made.entries], "texts": texts, "key": key})


def tell(what):
    """Print one line, in one call, so that lines of several threads are not mixed."""
    data = json.dumps(what).encode() + b"\n"
    with TELLING:
        while data:
            data = data[os.write(1, data) :]


TELLING = threading.Lock()


def main(location, run, options):
    store = open_store(location, **json.loads(options))
    for name in THREADS:
        store.open(name)
    for writer in range(WRITERS):
        threading.Thread(target=write, args=(store, run, writer)).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
