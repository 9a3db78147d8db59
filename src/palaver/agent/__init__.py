"""Agents: a loop of model calls and tool calls that keeps every message in a thread.

Stability: experimental.
"""
