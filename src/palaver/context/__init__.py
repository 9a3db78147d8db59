"""Context: what fills a model's window, and what leaves it when it is full. Plans, no I/O.

Stability: experimental.
"""

from palaver.context.breaker import Breaker
from palaver.context.compaction import DEFAULT, SUMMARISE, Compacted, Failure, compacting, due, pipeline, without_model
from palaver.context.contents import Contents, contents
from palaver.context.ledger import Ledger, Measure
from palaver.context.plan import Change, Item, Plan, Stage, Summarise, capacity, effective, plan_of
from palaver.context.summary_stage import summarising, summary_of

__all__ = [
    "DEFAULT",
    "SUMMARISE",
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
    "Summarise",
    "capacity",
    "compacting",
    "contents",
    "due",
    "effective",
    "pipeline",
    "plan_of",
    "summarising",
    "summary_of",
    "without_model",
]
