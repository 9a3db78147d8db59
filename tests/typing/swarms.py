"""The types of swarms, stores and formats, for type checkers. Never run: pyright and mypy read it in strict mode."""

from typing import assert_type

from palaver.agent.agent import Agent
from palaver.models.language_model import LanguageModel
from palaver.serve.a2a import a2a_agent
from palaver.store.location import open_store
from palaver.store.store import Store
from palaver.swarm.agent import SwarmAgent
from palaver.swarm.extras.outline import Outline
from palaver.swarm.session import Session
from palaver.swarm.state import State
from palaver.swarm.swarm import Swarm
from palaver.swarm.tool import SwarmTool, result_tool, tool
from palaver.transcripts.conversation import Transcript
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.writer import Written


def weather(city: str) -> str:
    """Give the weather."""
    return city


def described(model: LanguageModel) -> None:
    agent = SwarmAgent("a", model, keep=3, states=[State("s", 1), "t"])
    assert_type(agent.replace(keep=None, instructions="Be brief."), SwarmAgent)
    assert_type(Swarm("s", [agent]).replace(default="a"), Swarm)
    assert_type(result_tool(weather, available=lambda place: place.client == "ann"), SwarmTool)
    assert_type(tool(weather, name="w"), SwarmTool)
    assert_type(a2a_agent("https://example.org", name="b", keep=3), SwarmAgent)
    assert_type(Outline("o", model, str).replace(attempts=2), Outline)


def opened(file_format: TranscriptFormat, transcript: Transcript) -> None:
    assert_type(open_store("palaver.db", sync="normal", timeout=1.0), Store)
    assert_type(file_format.write(transcript, history="user", branch="main", carry=False), Written)
    assert_type(file_format.write_many([transcript], losses="raise"), Written)


# Each line below is an error for both checkers, and an unneeded ignore is one too. So the ignores are the tests; the
# reason follows each.


def refused(
    model: LanguageModel, agent: SwarmAgent, session: Session, file_format: TranscriptFormat, said: Transcript
) -> None:
    SwarmAgent("a", model, kep=3)  # type: ignore[call-arg]  # misspelt
    SwarmAgent("a", model, system=[5])  # type: ignore[list-item]  # no text
    agent.replace(kep=3)  # type: ignore[call-arg]  # misspelt
    agent.replace(keep="3")  # type: ignore[arg-type]  # no number
    Swarm("s", [agent], policies=["p"])  # type: ignore[list-item]  # no policy
    result_tool(weather, avaliable=None)  # type: ignore[call-arg]  # misspelt
    result_tool(weather, kind="x")  # type: ignore[arg-type]  # no such kind
    a2a_agent("https://example.org", name="b", model=model)  # type: ignore[call-arg]  # it has an operator
    session.publish("agent", "x", outptu={})  # type: ignore[call-arg]  # misspelt
    open_store("palaver.db", syn="full")  # type: ignore[call-arg]  # misspelt
    open_store("palaver.db", timeout="1")  # type: ignore[arg-type]  # no number
    file_format.write(said, cary=True)  # type: ignore[call-arg]  # misspelt
    file_format.write(said, history="some")  # type: ignore[arg-type]  # no such history
    Agent(model, instrutions="x")  # type: ignore[call-arg]  # misspelt
