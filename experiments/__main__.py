"""Run every experiment: the tables and figures of the 2014 paper, and the experiments that go beyond them.

`python -m experiments [--small] [--out DIR]` runs every script and ends with a table of the main figures.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence

from experiments import SCRIPTS
from experiments._common import parser_of, print_table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all scripts and print their main figures."""
    chosen = parser_of(__doc__).parse_args(arguments)
    rows = []
    for name in SCRIPTS:
        print(f"\n== {name} ==", flush=True)
        start = time.perf_counter()
        found = importlib.import_module(f"experiments.{name}").run(chosen.out, chosen.small)
        seconds = f"{time.perf_counter() - start:.1f}"
        rows += [{"script": name, "main figure": what, "value": value} for what, value in found.items()]
        rows.append({"script": name, "main figure": "seconds", "value": seconds})
    print(f"\n== main figures; CSV and PNG files are in {chosen.out} ==")
    print_table(rows)


if __name__ == "__main__":
    main()
