"""Context: what fills a model's window, and what leaves it when it is full. Plans, no I/O.

Stability: experimental.
"""

from palaver.context.breaker import Breaker
from palaver.context.budget import capacity, effective
from palaver.context.compaction import Compacted, Failure, compacting, due, without_model
from palaver.context.contents import Contents, contents
from palaver.context.ledger import Ledger, Measure
from palaver.context.pipelines import DEFAULT, SUMMARISE, pipeline
from palaver.context.plan import Change, Item, Plan, plan_of
from palaver.context.stages import Stage, Summarise
from palaver.context.summary import summarising, summary_of

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
