"""Conversations as JSON Lines: messages of the chat wire, and the shapes of training data (docs/spec/dialects.md#4).

Read: each line, or each object of a JSON array, is a conversation of its own; a file whose lines or items are messages
is one. Known shapes: ``messages``; ``prompt`` with ``completion``, or with ``chosen`` and ``rejected``, and those two
alone (the rejected one is a branch); preferences with ``input``; lines of a batch of OpenAI or vLLM, requests and
responses (further choices are branches); ShareGPT's ``conversations`` of ``from`` and ``value``, with two answers
beside them if it has any; Alpaca's ``instruction``, ``input`` and ``output`` or two answers. Messages are those of
``openai_chat``, in a batch of ``/v1/responses`` those of ``openai_responses``. A call of ShareGPT has no id: it gets
one by its place, which is marked and never written back. ``<think>`` stays in the text. Other columns stay in their
record, and are on the receipt of another format.

Written: a conversation that was read keeps its shape when it is edited or continued. Any other is a line of
``messages``, the model's view. Nothing is carried: another column would be training data.

Not represented: usage, model, times and ids of messages, branches but for a rejected answer, markers, reasoning of
other providers; ShareGPT's turns are text only.

``arrow_nulls.without_padding`` removes the nulls that Arrow adds when rows have different keys; readers never do.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.openai_messages.arrow_nulls import without_padding
from palaver.transcripts.openai_messages.reader import RecordReader
from palaver.transcripts.openai_messages.shapes import NAME, detect
from palaver.transcripts.openai_messages.writer import Writer

__all__ = ["FORMAT", "without_padding"]

FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="chat messages, ShareGPT, TRL and batch files",
    fidelity="bytes",
    layout="either",
    detector=detect,
    record_reader=RecordReader,
    record_writer=Writer,
    many=True,
    keeps=("messages of the chat wire", "arguments as they were written", "images", "rejected answers as branches"),
    loses=("usage, models, times, ids", "branches", "markers", "other providers' reasoning"),
)
