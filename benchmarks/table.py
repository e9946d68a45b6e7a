"""The table of what the defaults cost (`make bench`), compared with the committed one: results.json, results.md.

The comparison uses ratios to a reference of the same run, not seconds. `--quick` measures a part and fails if a ratio
exceeds three times the committed one twice in a row. Sessions alternate, so that a busy moment does not slow all rounds
of one of them, and the minimum over the rounds counts.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.defaults import ASKED, SESSIONS, Command, Sample, Task
from benchmarks.processes import run
from benchmarks.scenes import PARQUET

TABLE = Path(__file__).with_name("results.json")
#: Rounds of the full table, of a quick run, and of a second look at a failure.
ROUNDS, FEW_ROUNDS, AGAIN = 2, 1, 3
#: Memory-bound tasks take more than twice the ratio on some machines, with the same code.
TOLD, FAILS = 1.25, 3.0

Session = Task | Command
Row = dict[str, Any]


def measure(sessions: Sequence[Session], folder: Path, rounds: int) -> dict[str, Row]:
    """Return rows by figure: the minimum over the rounds, and its ratio to the minimum of the reference."""
    found: dict[str, list[Sample]] = {}
    for number in range(rounds):
        for session in sessions:
            for name, sample in session.measure(folder).items():
                found.setdefault(name, []).append(sample)
                print(f"{number + 1}/{rounds} {name:<60} {sample.own:9.3g} {sample.clock:9.3g}", flush=True)
    units = {name: unit for session in sessions for name, unit in session.units.items()}
    return {name: row(units[name], ASKED.get(name), samples) for name, samples in found.items()}


def row(unit: str, asked: float | None, samples: Iterable[Sample]) -> Row:
    """Return a row: the target, CPU time, wall-clock time, and the ratio of the CPU time to the reference's."""
    own, clock, reference, other = (min(each) for each in zip(*samples, strict=True))
    # Targets that are ratios refer to wall-clock time.
    measured = [own / reference, clock / other] if unit == "times" else [own, clock]
    own_measured, by_clock, ratio = (float(f"{each:.3g}") for each in (*measured, own / reference))
    return {"unit": unit, "asked": asked, "processor": own_measured, "clock": by_clock, "ratio": ratio}


def compare(measured: Mapping[str, float], committed: Mapping[str, float]) -> dict[str, float]:
    """Return the new ratio over the committed one where it is worse by more than a quarter.

    Raises
    ------
    LookupError
        If a figure has no committed ratio.
    """
    if new := sorted(measured.keys() - committed.keys()):
        raise LookupError(f"{TABLE.name} does not have {'; '.join(new)}: `make bench` writes the table anew")
    times = {name: ratio / committed[name] for name, ratio in measured.items()}
    return {name: value for name, value in times.items() if value > TOLD}


def write(table: Mapping[str, Row]) -> None:
    """Write the table for programs and for readers."""
    TABLE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    lines = [
        f"`make bench` on {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}: the least "
        f"of {ROUNDS} rounds. What stands beside a figure: [defaults.py](defaults.py).",
        "",
        "| figure | asked | of processors | by the clock | times the reference |",
        "|---|--:|--:|--:|--:|",
        *(
            f"| {name} | {'–' if each['asked'] is None else each['asked']} | {each['processor']} | {each['clock']} "
            f"{each['unit']} | {each['ratio']} |"
            for name, each in table.items()
        ),
    ]
    TABLE.with_suffix(".md").write_text("\n".join(lines) + "\n")


def prepare(folder: Path, quick: bool) -> None:
    """Write the input files in a separate process, so that its memory does not count for later ones."""
    tasks = ["write_city(folder)"]
    if not quick:
        tasks += [f"write_points(folder, {number})" for number in PARQUET.values()]
    imports = "from pathlib import Path; from benchmarks.scenes import *; folder = Path()"
    run("-c", "; ".join([imports, *tasks]), folder=folder)


def _ratios(table: Mapping[str, Row]) -> dict[str, float]:
    return {name: each["ratio"] for name, each in table.items()}


def look(folder: Path, committed: Mapping[str, float]) -> bool:
    """Measure the quick sessions. Return whether all take less than three times the committed time, measured twice."""
    sessions = [session for session in SESSIONS if session.quick]
    compare(dict.fromkeys((name for session in sessions for name in session.units), 0.0), committed)
    prepare(folder, quick=True)
    times = compare(_ratios(measure(sessions, folder, FEW_ROUNDS)), committed)
    failing = [session for session in sessions if any(times.get(name, 0) > FAILS for name in session.units)]
    for name, ratio in _ratios(measure(failing, folder, AGAIN)).items():
        times[name] = min(times.get(name, ratio / committed[name]), ratio / committed[name])
    _tell(times)
    return max(times.values(), default=0) <= FAILS


def _tell(times: Mapping[str, float]) -> None:
    for name, value in times.items():
        if value > TOLD:
            print(f"{name}: {value:.2f} times the committed ratio", flush=True)


def main(quick: bool = False) -> int:
    """Measure everything and write the table, or measure a part and check it against the table."""
    committed = _ratios(json.loads(TABLE.read_text())) if TABLE.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if quick:
            try:
                return int(not look(folder, committed))
            except LookupError as error:
                print(error.args[0], file=sys.stderr)
                return 1
        prepare(folder, quick=False)
        table = measure(SESSIONS, folder, ROUNDS)
    _tell(compare({n: ratio for n, ratio in _ratios(table).items() if n in committed}, committed))
    for name, each in table.items():
        if each["asked"] is not None and each["clock"] > each["asked"]:
            print(f"{name}: {each['clock']} {each['unit']} by the clock, asked for {each['asked']}")
    write(table)
    return 0
