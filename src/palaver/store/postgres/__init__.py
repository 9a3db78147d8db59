"""A store in PostgreSQL, by psycopg 3: ``pip install 'palaver[postgres]'``.

Stability: experimental.
"""

from palaver.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
