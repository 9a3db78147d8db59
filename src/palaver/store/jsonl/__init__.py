"""JSON Lines: ``JsonlLog`` writes messages, ``read_log`` reads them, ``JsonlStore`` is a store in a folder.

``lines`` is the form of a line, with a checksum that detects damage; ``log``, ``log_file``, ``log_line`` and
``log_reader`` are the log; ``journal``, ``folder`` and ``store`` are the store.

Stability: experimental.
"""

from palaver.store.jsonl.log import JsonlLog, LogFailure, LogSink, default_directory
from palaver.store.jsonl.log_line import LogContext, LogLine
from palaver.store.jsonl.log_reader import LogReader, Rebuilt, read_log, threads_of
from palaver.store.jsonl.store import JsonlStore

__all__ = [
    "JsonlLog",
    "JsonlStore",
    "LogContext",
    "LogFailure",
    "LogLine",
    "LogReader",
    "LogSink",
    "Rebuilt",
    "default_directory",
    "read_log",
    "threads_of",
]
