"""Palaver: an agent message that every component speaks, kept without loss.

Stability: experimental.
"""
