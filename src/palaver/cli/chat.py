"""``palaver chat``: a conversation with an agent at the terminal.

Rules:

- A line is a turn; one that ends in a backslash goes on in the next. A line that begins with a slash is a command.
- Ctrl-C stops a turn and keeps what was said; at the prompt it leaves, as Ctrl-D does. What is typed while the agent
  works is told to it at its next step.
- Everything is in the thread: what ``/undo`` takes back stays there, on no branch.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from palaver.cli import agent_options
from palaver.cli.chatting import Chat
from palaver.cli.conversation import images, opened


@click.command(name="chat")
@agent_options.options
def command(**given: Any) -> int:
    """Talk with an agent; /help says what can be typed.

    The conversation is a thread of the store; --thread goes on with one.
    """
    asked = agent_options.asked(given)
    first = images(asked.images)
    with opened(asked) as talk:
        return Chat(asked, talk, first, typed=sys.stdin.isatty()).go()
