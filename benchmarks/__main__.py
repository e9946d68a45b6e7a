"""Run every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import importlib

NAMES = (
    "noise sensitivity planning publishing counting answers flows profiles points projection allocation gradual paths "
    "diffusion ledger personal hub_prices regions"
)
for name in NAMES.split():
    print(f"\n== {name} ==", flush=True)
    importlib.import_module(f"benchmarks.{name}").main()
