"""Runs of LangSmith: lines, lists, or a page of the API (``runs``). Only read.

Read: the runs of models (``run_type`` ``llm``), by their times, since exports begin with the newest. A thread
(``thread_id``, ``session_id`` or ``conversation_id`` in the metadata), else a trace, is a conversation; each run
repeats the messages before it, so its new ones follow the longest known beginning. ``inputs`` and ``outputs`` are
messages of LangChain or of a wire. A trace without such a run has the messages of its outermost chain. Runs of tools
and of chains keep their place as records: their results are in the next run of a model. A run with an error is noted.

Not written: runs come from the program that they trace.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.transcripts.calls import Call, Note, calls_reading, first_record
from palaver.transcripts.conversation import Session
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import as_object, inner, read_time, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.langchain.reader import usage_of as langchain_usage
from palaver.transcripts.logged_messages import answers, asked, usage_of, with_data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.usage import Usage

NAME: Final = "langsmith"

_THREADS: Final = ("thread_id", "session_id", "conversation_id")
_LINKS: Final = ("trace_id", "parent_run_id", "dotted_order", "session_id", "child_runs")
_MODELS: Final = frozenset(("llm", "chat_model"))


def detect(head: Head) -> Detection | None:
    """Return a run: its type, its inputs, and its place in a trace."""
    return Detection(0.95) if _is_run(first_record(head, "runs")) else None


def _is_run(record: Mapping[str, Any]) -> bool:
    return "run_type" in record and "inputs" in record and any(key in record for key in _LINKS)


def _calls(fields: Fields, note: Note) -> Sequence[Call]:
    """Return the call of a model, or the messages of a root."""
    kind = string(fields, "run_type")
    if kind is None:
        note("unread", "no run")
        return []
    if kind not in _MODELS and kind != "chain" and string(fields, "parent_run_id") is not None:
        return []
    extra = inner(fields, "extra")
    metadata = inner(extra, "metadata")
    trace = string(fields, "trace_id") or string(fields, "id")
    thread = next((found for key in _THREADS if (found := string(metadata, key)) is not None), None)
    model = string(metadata, "ls_model_name") or string(inner(extra, "invocation_params"), "model")
    error = string(fields, "error")
    if error is not None and kind in _MODELS:
        note("unread", error.strip().partition("\n")[0])
    messages = asked(fields, "inputs", note)
    said = answers(fields, "outputs", note)
    usage = _usage(fields) if kind in _MODELS else None
    started = read_time(value(fields, "start_time"))
    call = Call(
        asked=messages,
        answers=with_data(said, model=model, usage=usage),
        key=thread or trace,
        session=Session(file_format=NAME, id=thread or trace, model=model, started_at=started),
        started=started,
        ended=read_time(value(fields, "end_time")),
        outer=kind not in _MODELS,
        id=string(fields, "id"),
        parent=string(fields, "parent_run_id"),
    )
    return [call] if messages or said else []


def _usage(fields: Fields) -> Usage | None:
    """Return the usage of a run: that of its answer, else its own counters."""
    counted = fields.get("outputs")
    told = langchain_usage(as_object(counted)) if counted is not None else None
    return told or usage_of(fields, ("prompt_tokens",), ("completion_tokens",))


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="LangSmith runs",
    fidelity="read",
    layout="either",
    detector=detect,
    record_reader=calls_reading(NAME, _calls, "runs", ordered=False),
    record_writer=None,
    many=True,
    keeps=("threads and traces", "calls and results", "branches", "usage and model of each answer", "times"),
    loses=("runs of tools and chains (as records)", "settings and tools of requests", "feedback"),
)
