"""Processes of their own that are measured: time by the clock and of processors, and memory at most."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

#: Linear algebra gets one thread, so that processor time does not hold what threads wait; compiled files are kept, as
#: those of an installed package are.
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
HERE = str(Path(__file__).parents[1])


class Spent(NamedTuple):
    """Seconds by the clock, seconds of all processors, and GiB at most, of a process; and what it printed."""

    clock: float
    processor: float
    peak: float
    printed: str


def run(*words: str, folder: Path | None = None) -> Spent:
    """Run Python with some words in a folder, and return what the process took.

    Raises
    ------
    RuntimeError
        If it ends with an error, which the message holds.
    """
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
    env = os.environ | ALONE | {"PYTHONPATH": path}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, *words], cwd=folder, env=env, stdout=out, stderr=errors)
        # The memory of this child alone, which subprocess does not tell.
        _, status, used = os.wait4(process.pid, 0)
        clock = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, errors):
            file.seek(0)
        if status:
            raise RuntimeError(f"python {' '.join(words)[:120]} ended with {process.returncode}: {errors.read()}")
        return Spent(clock, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20, out.read())


def figures(code: str, *words: str) -> list[float]:
    """Figures that a script prints as its last line, in JSON."""
    return json.loads(run("-c", code, *words).printed.splitlines()[-1])
