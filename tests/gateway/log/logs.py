"""Exchanges, and where a log puts them."""

import contextlib
import time

from palaver import Response, Usage, assistant, wires
from palaver.core.parts import Text
from palaver.gateway import GatewayConfig
from palaver.gateway.database import open_database
from palaver.gateway.log import logged
from palaver.gateway.log.exchanges import Exchanges
from palaver.gateway.log.logged import LoggedExchange
from palaver.gateway.log.options import LogOptions
from palaver.store.location import open_store
from palaver.threads.ids import uuid7


class Places:
    """The files of a log in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.database, self.store, self.spool = str(folder / "gateway.db"), str(folder / "store.db"), folder / "spool"

    def config(self, models=None, **options):
        log = LogOptions(**{"store": self.store, "spool": str(self.spool)} | options)
        return GatewayConfig(models=models or {}, database=self.database, log=log)

    @contextlib.contextmanager
    def exchanges(self):
        database = open_database(self.database)
        try:
            yield Exchanges(database)
        finally:
            database.close()

    def opened_store(self):
        return open_store(self.store)


def until(condition):
    """Wait until something is true."""
    for _ in range(6000):
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("it does not happen")


def answered(text, *, model="model-1", usage=None):
    usage = usage or Usage(input=1000, output=20)
    return Response(assistant(Text(text), model=model, usage=usage, finish_reason="stop"))


def exchange(api, request, answer, **fields):
    """An exchange in which both sides speak one wire."""
    codec = wires.get(api)
    given = {
        "id": uuid7(),
        "at": 1_700_000_000_000,
        "seconds": 0.5,
        "api": api,
        "asked": "fast",
        "outcome": "answered",
        "status": 200,
        "model": "openai/gpt-5.5",
        "wire": api,
        "request": request if isinstance(request, bytes) else codec.encode_request(request).body,
        "received": b"" if answer is None else codec.encode_response(answer).body,
    }
    return LoggedExchange(**given | fields)


def write(sink, each):
    sink.write([logged.encode(each)])
    return sink.exchanges.find(each.id)
