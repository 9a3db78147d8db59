"""Bytes and events in, messages out; no I/O.

Stability: experimental.
"""
