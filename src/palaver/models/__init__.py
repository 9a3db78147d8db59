"""Models: what answers a prompt, over HTTP, from a script, or from a recording.

Stability: experimental.
"""

from palaver.models.capabilities import Capabilities
from palaver.models.http import Http, Timeouts
from palaver.models.language_model import Answer, LanguageModel, Notice, Prompt, Reply, Session, complete
from palaver.models.model import Model
from palaver.models.retry import Retry
from palaver.models.scripted import Broken, ScriptedModel

__all__ = [
    "Answer",
    "Broken",
    "Capabilities",
    "Http",
    "LanguageModel",
    "Model",
    "Notice",
    "Prompt",
    "Reply",
    "Retry",
    "ScriptedModel",
    "Session",
    "Timeouts",
    "complete",
]
