"""Readers of streams: they take bytes and events, and return messages. No I/O.

Stability: experimental.
"""
