"""Measure results.md, a part of it (`--quick`), other benchmarks by name, or `all` of them."""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks import table

OTHERS = (
    *("noise", "sensitivity", "answers", "profiles", "points", "projection", "allocation", "gradual", "paths"),
    *("diffusion", "ledger", "charges", "asking", "personal", "hub_prices", "hub_levels", "growth", "service", "scale"),
    *("cells", "growth_points"),
)
parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
parser.add_argument("--quick", action="store_true", help="fail if a figure exceeds three times the committed one")
parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(OTHERS))
chosen = parser.parse_args()
if unknown := set(chosen.names) - {*OTHERS, "all"}:
    parser.error(f"no benchmark is called {', '.join(sorted(unknown))}: they are {', '.join(OTHERS)}, all")
if not chosen.names:
    sys.exit(table.main(chosen.quick))
sys.argv = sys.argv[:1]
for name in OTHERS if "all" in chosen.names else chosen.names:
    print(f"\n== {name} ==", flush=True)
    importlib.import_module(f"benchmarks.{name}").main()
