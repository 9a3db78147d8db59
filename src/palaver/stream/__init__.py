"""Streams, sans I/O: bytes and events in, frames and messages out. No socket, no thread, no clock.

Stability: experimental.
"""
