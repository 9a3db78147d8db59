"""The log of a gateway: every exchange once, as threads of a store and as rows of the gateway's database.

An exchange goes through three places:

1. ``spool``: before the client sees the end of its answer, the exchange is appended to a file.
2. ``writer``: a thread reads that file, and writes what is in it (``sink``).
3. The messages become a conversation of the store (``conversations``), which other commands show and search; the bytes
   of both sides, the receipt and the figures become a row of the table of exchanges (``exchanges``).

Stability: experimental.
"""
