"""Swarms: many agents in one conversation.

Stability: experimental.
"""
