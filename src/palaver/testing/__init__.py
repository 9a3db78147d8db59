"""Test tools for users of Palaver: provider rules, strategies, laws, and conformance suites.

Stability: experimental.
"""
