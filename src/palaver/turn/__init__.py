"""What a turn is made of: one call of a model and one batch of tool calls, for agents and swarms alike.

Rules:

- ``palaver.agent`` and ``palaver.swarm`` sequence what stands here, each in its own order.
- A model is asked through ``model_call``: middleware, streaming, receipts and spending. Tool calls run through
  ``tool_calls`` and ``tool_call``: policy, approvals, time limits, bounded output and idempotency keys.
- Applications import from ``palaver.agent`` and ``palaver.swarm``.

Stability: experimental.
"""
