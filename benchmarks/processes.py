"""Measure separate processes: wall-clock time, CPU time and peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

#: One thread for linear algebra, so that CPU time contains no waiting threads. Compiled files are kept, as in an
#: installed package.
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
HERE = str(Path(__file__).parents[1])


class Spent(NamedTuple):
    """Wall-clock seconds, CPU seconds and peak GiB of a process, and its output."""

    clock: float
    processor: float
    peak: float
    printed: str


def run(*words: str, folder: Path | None = None) -> Spent:
    """Run Python with arguments in a folder, and measure the process.

    Raises
    ------
    RuntimeError
        If the process fails. The message contains its error output.
    """
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
    env = os.environ | ALONE | {"PYTHONPATH": path}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, *words], cwd=folder, env=env, stdout=out, stderr=errors)
        # `subprocess` does not report the memory of this child alone.
        _, status, used = os.wait4(process.pid, 0)
        clock = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, errors):
            file.seek(0)
        if status:
            raise RuntimeError(f"python {' '.join(words)[:120]} ended with {process.returncode}: {errors.read()}")
        return Spent(clock, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20, out.read())


def figures(code: str, *words: str) -> list[float]:
    """Parse the figures that a script prints as JSON in its last line."""
    return json.loads(run("-c", code, *words).printed.splitlines()[-1])
