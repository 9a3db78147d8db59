"""Serve a gateway by several processes, which share one import: ``serve_processes.py CONFIG COUNT``.

Prints a line for each process, its id and its port, and ends them when standard input ends.
"""

import asyncio
import os
import signal
import socket
import sys

from palaver.gateway import read_config
from palaver.gateway.live import LiveGateway
from palaver.gateway.server import serve

children = []
for _ in range(int(sys.argv[2])):
    bound = socket.create_server(("127.0.0.1", 0), backlog=1024)
    child = os.fork()
    if not child:
        asyncio.run(serve(LiveGateway(read_config(sys.argv[1]), lambda _: None), bound))
        os._exit(0)
    children.append(child)
    sys.stdout.write(f"{child} {bound.getsockname()[1]}\n")
    bound.close()
sys.stdout.flush()
sys.stdin.read()
for child in children:
    os.kill(child, signal.SIGTERM)
for child in children:
    os.waitpid(child, 0)
