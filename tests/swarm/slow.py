"""Delays in tests of swarms: a model that answers on a signal, and callers who wait for their answers."""

import anyio

from palaver.models.scripted import ScriptedModel
from tests.swarm.scripts import answers


class Slow:
    """A scripted model whose answers wait for ``go``; ``began`` is set when it is asked."""

    def __init__(self, script=answers):
        self._inner = script if isinstance(script, ScriptedModel) else ScriptedModel([], then=script)
        self.began, self.go = anyio.Event(), anyio.Event()

    @property
    def name(self):
        return self._inner.name

    @property
    def capabilities(self):
        return self._inner.capabilities

    @property
    def asked(self):
        return self._inner.asked

    def session(self):
        return _Session(self, self._inner.session())


class _Session:
    def __init__(self, slow, inner):
        self._slow, self._inner = slow, inner

    def ask(self, prompt, **how):
        return _Held(self._slow, self._inner.ask(prompt, **how))


class _Held:
    def __init__(self, slow, inner):
        self._slow, self._inner = slow, inner

    async def __aenter__(self):
        self._slow.began.set()
        await self._slow.go.wait()
        return await self._inner.__aenter__()

    async def __aexit__(self, *error):
        return await self._inner.__aexit__(*error)


class Callers:
    """Callers that send messages without waiting for each other; ``got`` are the answers, in order of arrival."""

    def __init__(self, group):
        self._group, self.got = group, []

    async def says(self, function, *arguments, **named):
        """Let one caller send a message, and run everything that can run."""
        self._group.start_soon(self._say, function, arguments, named)
        await anyio.wait_all_tasks_blocked()

    async def _say(self, function, arguments, named):
        try:
            self.got.append(await function(*arguments, **named))
        except Exception as error:  # noqa: BLE001 (it is what came back)
            self.got.append(error)

    async def settled(self):
        """Return the answers, when nothing moves any more."""
        await anyio.wait_all_tasks_blocked()
        return self.got
