"""Context: what fills a model's window, and how it is compacted when it is full. Plans only, no I/O.

Stability: experimental.
"""

from palaver.context.compaction import (
    DEFAULT,
    SUMMARY_ONLY,
    Breaker,
    Compacted,
    Failure,
    compaction_flow,
    due,
    pipeline,
    without_model,
)
from palaver.context.contents import Contents, contents
from palaver.context.ledger import Ledger, Measure
from palaver.context.plan import Change, Item, Plan, Stage, SummaryRequest, capacity, plan_of, prompt_budget
from palaver.context.summary_stage import summarizer, summary_of

__all__ = [
    "DEFAULT",
    "SUMMARY_ONLY",
    "Breaker",
    "Change",
    "Compacted",
    "Contents",
    "Failure",
    "Item",
    "Ledger",
    "Measure",
    "Plan",
    "Stage",
    "SummaryRequest",
    "capacity",
    "compaction_flow",
    "contents",
    "due",
    "pipeline",
    "plan_of",
    "prompt_budget",
    "summarizer",
    "summary_of",
    "without_model",
]
