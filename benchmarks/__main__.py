"""Run every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import importlib

for name in ("noise", "sensitivity", "planning", "counting", "answers", "flows", "points", "allocation", "diffusion"):
    print(f"\n== {name} ==", flush=True)
    importlib.import_module(f"benchmarks.{name}").main()
