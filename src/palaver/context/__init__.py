"""Context: what fills a model's window, and what leaves it when it is full. Plans, no I/O.

Stability: experimental.
"""

from palaver.context.budget import capacity, effective
from palaver.context.compaction import Compacted, Failure, compacting, due, without_model
from palaver.context.ledger import Ledger, Measure
from palaver.context.plan import Change, Item, Plan, plan_of
from palaver.context.stages import Stage, Summarise

__all__ = [
    "Change",
    "Compacted",
    "Failure",
    "Item",
    "Ledger",
    "Measure",
    "Plan",
    "Stage",
    "Summarise",
    "capacity",
    "compacting",
    "due",
    "effective",
    "plan_of",
    "without_model",
]
