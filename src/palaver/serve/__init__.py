"""Servers over swarms: HTTP, A2A, and workers that share clients over NATS and PostgreSQL.

Stability: experimental.
"""
