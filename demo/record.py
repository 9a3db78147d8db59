"""Makes the recording that the demo plays: ``python demo/record.py``. No key, no network.

It runs the agent of the demo on the model ``demo``, and keeps each request and its answer.
"""

import sys

import anyio
from demo import RECORDING, sailor

from palaver.agent import approve
from palaver.cli import demo_model
from palaver.models.replay import Recorder


async def main() -> None:
    with Recorder(RECORDING) as recorder:
        agent = sailor(recorder.model(demo_model.demo_model(pause=0)))
        run = await agent.run(demo_model.PROMPT)
        await agent.run(previous=run, decisions={each.call.id: approve() for each in run.pending})


if __name__ == "__main__":
    sys.exit(anyio.run(main))
