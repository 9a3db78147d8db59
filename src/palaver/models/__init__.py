"""Models: what answers a prompt, over HTTP, from a script, or from a recording.

Stability: experimental.
"""

from palaver.models.capabilities import Capabilities
from palaver.models.language_model import Answer, LanguageModel, Notice, Prompt, Reply, Session, complete
from palaver.models.scripted import Broken, ScriptedModel

__all__ = [
    "Answer",
    "Broken",
    "Capabilities",
    "LanguageModel",
    "Notice",
    "Prompt",
    "Reply",
    "ScriptedModel",
    "Session",
    "complete",
]
