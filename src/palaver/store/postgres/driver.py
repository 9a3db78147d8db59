"""The PostgreSQL driver, or word of what to install. Nothing else in Palaver imports it.

Stability: experimental.
"""

from __future__ import annotations

from palaver.core.errors import StoreError

try:
    import psycopg
    import psycopg_pool
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as error:
    raise StoreError(
        f"PostgreSQL is spoken by psycopg, which is not installed: pip install 'palaver[postgres]' ({error})"
    ) from None

__all__ = ["conninfo_to_dict", "make_conninfo", "psycopg", "psycopg_pool", "sql"]
