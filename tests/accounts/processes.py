"""Processes that start with everything imported: one server imports it and forks.

A worker has one server for all its tests, and whoever starts it decides what it imports: so there is one list.
"""

import multiprocessing

import benchmarks.ledger  # noqa: F401 (it has a list of its own, for its clients alone: this one takes its place)

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        *(f"tests.accounts.test_{name}" for name in ("ledger", "stress", "window")),
        # What a publication imports when it needs it.
        "deltahist.publishers",
        "deltahist.releases",
        "cryptography.hazmat.primitives.ciphers",
        "deltahist.accounts.databases",
        "pandas",
        "psycopg",
        "pyarrow.parquet",
        "pyarrow.pandas_compat",
    ]
)
