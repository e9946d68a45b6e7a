"""Answers over maps in tiles: the file of sums, a box cold and warm, and 100,000 boxes, in seconds and memory."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

import deltahist as dh
from benchmarks.processes import run

SIDES, POINTS, BOXES, TURNS = (16384, 32768), 1_000_000, 100_000, 50


def main() -> None:
    print("| cells | sums, s | GiB | file, GiB | a box cold, ms | warm | 10⁵ whole boxes, s (processor) | cut | GiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for side in SIDES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "map.parquet")
            rng, domain = np.random.default_rng(1), dh.Domain((0, 0, side, side), (side, side))
            counts, near = dh.count(rng.random((POINTS, 2)) * side, domain), dh.Neighbourhood(domain, 5)
            dh.publish(counts, near, "identity", 1.0, out=path, rng=rng)
            made = run("-c", f"import deltahist; deltahist.load({str(path)!r}).sums")
            sums = path.with_suffix(".sums")
            release = dh.load(path)
            release.answerer().prepare()

            def ask(number: int, whole: bool = False) -> tuple[float, float]:
                """Return seconds by the clock, and of processors, of random boxes."""
                ends = rng.random((number, 2, 2)) * (side - 1)  # noqa: B023
                ends = np.floor(ends) if whole else ends
                work = dh.workloads.boxes(np.column_stack([ends.min(axis=1), ends.max(axis=1) + 1]))
                start = time.perf_counter(), time.process_time()
                release.answers(work, level=0.95, nonnegative=False)  # noqa: B023
                return time.perf_counter() - start[0], time.process_time() - start[1]

            ask(1)
            cold = _typical(lambda: (_forget(sums), ask(1)[0])[1])  # noqa: B023
            _read(sums)
            warm = _typical(lambda: ask(1)[0])
            (whole, of_whole), (cut, of_cut) = ask(BOXES, True), ask(BOXES)
            memory = psutil.Process().memory_full_info().pss / 2**30
            print(
                f"| {side:,}² | {made.clock:.0f} | {made.peak:.2f} | {sums.stat().st_size / 2**30:.2f} "
                f"| {1000 * cold:.1f} | {1000 * warm:.2f} | {whole:.2f} ({of_whole:.2f}) | {cut:.2f} ({of_cut:.2f}) "
                f"| {memory:.2f} |",
                flush=True,
            )


def _typical(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(TURNS))


def _read(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def _forget(path: Path) -> None:
    """Let go of what the system keeps of a file, where nobody maps it."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
