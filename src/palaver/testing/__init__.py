"""What a user of Palaver needs to test against it: rules, strategies, laws and doubles.

Stability: experimental.
"""
