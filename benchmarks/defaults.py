"""What everybody gets: processor time of the defaults, over that of plain NumPy, beside a committed table.

`python -m benchmarks.defaults` measures all figures, tells what is slower than the table by more than a quarter, and
writes the table anew (results.json, results.md). With `--quick` it measures a part, writes nothing, and fails where a
ratio is more than twice the committed one, twice in a row. Not seconds are compared but ratios to a reference of the
same run: NumPy's sums, order and choice of 10⁶ numbers, and for commands a process that imports NumPy and Arrow.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import deltahist as dh
from benchmarks import regions
from deltahist.budgets.allocation import allocate_offline

TABLE = Path(__file__).with_name("results.json")
ROUNDS = 3
BOX = "583000,4505000,588000,4512000"
TOLD, FAILS = 1.25, 2.0


class Figure(NamedTuple):
    """A figure: the seconds that are asked for, if any, whether it is quick, and what is measured.

    Either what `make` prepares for `size`, in a process of its own, or a whole command of `words`.
    """

    asked: float | None
    quick: bool
    make: Callable[..., Callable[[], Any]] | None
    size: tuple[int, ...] = ()
    words: tuple[str, ...] = ()


def _near(side: int) -> dh.Neighbourhood:
    return dh.Neighbourhood(dh.Domain((0, 0, side, side), (side, side)), 1)


def publish(folder: Path, side: int) -> Callable[[], Any]:
    """Publish cells; what that imports is there already."""
    dh.publish(np.ones((2, 2), int), _near(2), epsilon=1)
    counts = np.random.default_rng(1).poisson(0.5, (side, side))
    return lambda: dh.publish(counts, _near(side), epsilon=1)


def plan(folder: Path, side: int) -> Callable[[], Any]:
    """Rank mechanisms for all ranges; what that imports is there already."""
    dh.plan(_near(2))
    return lambda: dh.plan(_near(side), epsilon=1)


def boxes(folder: Path, number: int, whole: bool) -> Callable[[], Any]:
    """Ask for many boxes at once, or for one a thousand times when it was asked for as often before."""
    release = dh.Release.load(folder / "release.parquet")
    rng = np.random.default_rng(2)
    draw = rng.integers if whole else rng.uniform
    low = draw(0, 900, (number, 2))
    corners = np.hstack([low, low + draw(1, 100, (number, 2))]) * release.domain.cell[0]
    work = dh.workloads.boxes(corners + np.tile(regions.BOUNDS[:2], 2))
    if number > 1:
        return lambda: dh.answer(release, work)
    return lambda: [dh.answer(release, work) for _ in range(1000)]


def first_answer(folder: Path) -> Callable[[], Any]:
    """Load a release and ask for a box, imports included."""
    work = dh.workloads.boxes([[float(side) for side in BOX.split(",")]])
    return lambda: dh.answer(dh.Release.load(folder / "release.parquet"), work)


def allocation(folder: Path, steps: int) -> Callable[[], Any]:
    """Share a budget among steps of uniform weights, δ = 30."""
    weights = np.random.default_rng(1).random(steps)
    return lambda: allocate_offline(weights, length=30, epsilon=1.0)


def nonnegative(folder: Path, side: int) -> Callable[[], Any]:
    """Find what counts may be, which must not be given up."""
    near = _near(side)
    points = np.random.default_rng(1).beta(4, 4, (12 * side**2, 2)) * side
    release = dh.publish(dh.count(points, near.domain), near, epsilon=1)

    def task() -> None:
        if release.posterior is None:
            raise ValueError("there is no posterior to measure")

    return task


FIGURES = {
    "publish, 256²": Figure(None, True, publish, (256,)),
    "publish, 1000²": Figure(None, True, publish, (1000,)),
    "publish, 4096²": Figure(8, False, publish, (4096,)),
    "1,000 times a box of whole cells, warm": Figure(None, True, boxes, (1, True)),
    "1,000 times a box that cuts cells, warm": Figure(None, True, boxes, (1, False)),
    "10⁵ boxes of whole cells": Figure(None, True, boxes, (10**5, True)),
    "10⁵ boxes that cut cells": Figure(None, True, boxes, (10**5, False)),
    "10⁶ boxes of whole cells": Figure(2, False, boxes, (10**6, True)),
    "10⁶ boxes that cut cells": Figure(None, False, boxes, (10**6, False)),
    "load and first answer": Figure(None, True, first_answer),
    "deltahist inspect": Figure(None, True, None, words=("inspect", "release.parquet")),
    "deltahist query --box": Figure(None, True, None, words=("query", "release.parquet", "--box", BOX)),
    "plan, 32²": Figure(0.3, True, plan, (32,)),
    "plan, 128²": Figure(0.3, True, plan, (128,)),
    "allocation, 10⁵ steps": Figure(None, True, allocation, (10**5,)),
    "allocation, 10⁶ steps": Figure(10, False, allocation, (10**6,)),
    "cells not negative, 128²": Figure(3, True, nonnegative, (128,)),
    "cells not negative, 256²": Figure(None, False, nonnegative, (256,)),
    "1,000 boxes in degrees": Figure(
        None, True, None, words=("query", "release.parquet", "--boxes", "few.csv")
    ),
    "10,000 boxes in degrees": Figure(
        2, False, None, words=("query", "release.parquet", "--boxes", "degrees.csv")
    ),
}


def _spent(task: Callable[[], Any]) -> float:
    start = time.process_time()
    task()
    return time.process_time() - start


def _kernel() -> float:
    values = np.random.default_rng(1).random(10**6)
    return min(_spent(lambda: np.cumsum(values).take(np.argsort(values))) for _ in range(5))


def _in_process(name: str, folder: Path) -> list[float]:
    """Seconds of a figure and of the kernel in this process; boxes are asked for once before."""
    figure, before = FIGURES[name], _kernel()
    assert figure.make is not None, f"{name} is a command"
    task = figure.make(folder, *figure.size)
    if figure.make is boxes:
        task()
    own = min(_spent(task) for _ in range(2 if figure.make is boxes else 1))
    return [own, min(before, _kernel())]


def _child(folder: Path, *words: str) -> tuple[float, str]:
    """Processor time of a Python process in the folder, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    path = os.pathsep.join(filter(None, [str(TABLE.parents[1]), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def measure(name: str, folder: Path, rounds: int = ROUNDS) -> tuple[float, float]:
    """Least seconds of a few rounds, and their ratio to those of the reference."""
    found, words = [], FIGURES[name].words
    for _ in range(rounds):
        if words:
            own = _child(folder, "-m", "deltahist.cli", *words)[0]
            found.append([own, _child(folder, "-c", "import numpy, pyarrow.parquet")[0]])
        else:
            found.append(json.loads(_child(folder, "-m", "benchmarks.defaults", "--one", name)[1]))
    own, reference = np.min(found, axis=0)
    return float(own), float(own / reference)


def compare(measured: dict[str, float], committed: dict[str, float]) -> dict[str, float]:
    """How many times the committed ratio it is, where that is worse by more than a quarter.

    Raises
    ------
    LookupError
        If a figure stands in one of the two alone.
    """
    if alone := sorted(measured.keys() ^ committed.keys()):
        raise LookupError(
            f"in {TABLE.name} or in this run, but not in both: {'; '.join(alone)}. "
            "`python -m benchmarks.defaults` writes the table anew"
        )
    times = {name: ratio / committed[name] for name, ratio in measured.items()}
    return {name: value for name, value in times.items() if value > TOLD}


def write(rows: dict[str, tuple[float, float]]) -> None:
    """Write the table, for programs and for people."""
    table = {
        name: {"asked": FIGURES[name].asked, "seconds": float(f"{own:.3g}"), "ratio": float(f"{ratio:.3g}")}
        for name, (own, ratio) in rows.items()
    }
    TABLE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    lines = [
        f"Processor time on {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}.",
        "",
        "| figure | asked, s | measured, s | times the reference |",
        "|---|--:|--:|--:|",
        *(
            f"| {name} | {row['asked'] or '–'} | {row['seconds']} | {row['ratio']} |"
            for name, row in table.items()
        ),
    ]
    TABLE.with_suffix(".md").write_text("\n".join(lines) + "\n")


def main(words: list[str] | None = None) -> int:
    """Measure, compare, and write the table or say whether it holds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults")
    parser.add_argument("--quick", action="store_true", help="a part; fails where it is twice as slow")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args(words)
    if chosen.one:
        print(json.dumps(_in_process(chosen.one, Path.cwd())))
        return 0
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    names = [name for name, figure in FIGURES.items() if figure.quick or not chosen.quick]
    # A whole run may have new figures; a quick one must find its own in the table.
    known = {name: table[name]["ratio"] for name in names if name in table}
    if chosen.quick:
        try:
            compare(dict.fromkeys(names, 0.0), known)
        except LookupError as error:
            print(error.args[0], file=sys.stderr)
            return 1
    rows, slow = {}, False
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        regions.prepare(folder)
        few = (folder / "degrees.csv").read_text().splitlines(keepends=True)[:1001]
        (folder / "few.csv").write_text("".join(few))
        for name in names:
            rows[name] = measure(name, folder, 2 if chosen.quick else ROUNDS)
            print(f"{name:<40} {rows[name][0]:8.3f} s, {rows[name][1]:6.3g} times the reference", flush=True)
        for name, times in compare({name: rows[name][1] for name in known}, known).items():
            if chosen.quick and times > FAILS:
                times = min(times, measure(name, folder)[1] / known[name])
            slow |= times > FAILS
            print(f"{name}: {times:.2f} times the committed ratio", flush=True)
    if chosen.quick:
        return int(slow)
    write(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
