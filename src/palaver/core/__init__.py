"""Values only: messages, parts, tools, usage, requests, errors and their JSON. No I/O, no provider.

Stability: experimental.
"""
