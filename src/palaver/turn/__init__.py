"""One model call and one batch of tool calls, for agents and swarms alike.

``palaver.agent`` and ``palaver.swarm`` sequence the steps of this package, each in its own order. ``model_call`` calls
the model: middleware, streaming, receipts and spending. ``tool_calls`` and ``tool_call`` run tools: policy, approvals,
time limits, bounded output and idempotency keys. Applications import from ``palaver.agent`` and ``palaver.swarm``.

Stability: experimental.
"""
