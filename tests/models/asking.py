"""A model at an address, and a clock that does not wait."""

from palaver import user
from palaver.models import Model, Prompt, Retry, Timeouts
from palaver.models.endpoint import Endpoint
from palaver.models.failures import Clock

HI = Prompt(messages=(user("hi"),))


class Waits(list):
    """The waits, in seconds."""

    async def sleep(self, seconds):
        self.append(seconds)


def at(url, waits=None, *, wire="openai_chat", provider=None, **more):
    """Return a model at an address; its waits go into `waits`."""
    waits = Waits() if waits is None else waits
    endpoint = Endpoint(provider_name="test", wire=wire, url=f"{url}/v1/{{model}}", **(provider or {}))
    settings = {
        "timeouts": Timeouts(connect=5, write=5, first_token=5, idle=5, whole=5),
        "retry": Retry(jitter=0.0),
        "clock": Clock(sleep=waits.sleep, chance=lambda: 0.5, date=lambda: 1_760_000_000.0),
    }
    return Model(**{"name": "test/m", "id": "m", "endpoint": endpoint, **settings, **more})


async def told(model, prompt=HI, *, stream=True, session=None):
    """Return all events, and the reply."""
    async with (session or model.session()).ask(prompt, stream=stream) as answer:
        events = [event async for event in answer]
        return events, await answer.finish()
