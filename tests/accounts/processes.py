"""Processes that start with everything imported: one server imports it and forks."""

import multiprocessing

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        *(f"tests.accounts.test_{name}" for name in ("ledger", "kills")),
        "deltahist.publishers",
        "deltahist.releases",
        "cryptography.hazmat.primitives.ciphers",
        "pandas",
        "psycopg",
        "pyarrow.parquet",
        "pyarrow.pandas_compat",
    ]
)
