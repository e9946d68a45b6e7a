"""Plant each bug of the catalogue in a copy of the project and see which quick test catches it.

    python -m tests.mutants [--jobs N] [words of a name ...]

A mutant is run against the tests that the catalogue names, and if they let it pass, against all quick tests. The exit
status is 1 if one is missed for which the catalogue gives no reason.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue

from tests.mutants.catalogue import MUTANTS, Mutant, planted

ROOT = Path(__file__).resolve().parent.parent.parent
#: Seconds after which a mutant that makes tests hang counts as caught.
_PATIENCE = 1800
_FAILED = re.compile(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", re.MULTILINE)


def copy_of_the_project(folder: Path) -> Path:
    """What the tests need, in a folder of its own."""
    for path in ROOT.iterdir():
        if path.name.startswith(".") or path.name in ("build", "dist"):
            continue
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__", "out"))
        else:
            shutil.copy(path, folder / path.name)
    return folder


def caught_by(project: Path, tests: list[str]) -> str | None:
    """The first of some tests that fails in a copy, or None if all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    # A tier of its own: its tests run where a mutant names them.
    if not all(test.startswith("tests/spark/") for test in tests):
        command += ["-m", "not slow"]
    # A planted bug takes its passage away, which the catalogue's own test would notice.
    command += ["--ignore=tests/mutants", *tests]
    environment = {
        **os.environ, "PYTHONPATH": str(project),
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    try:
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return f"the clock: no end after {_PATIENCE} s"
    if done.returncode == 0:
        return None
    found = _FAILED.search(done.stdout)
    if found is None:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return found[1]


def plant(mutant: Mutant, project: Path) -> str | None:
    """Plant one mutant in a copy, run the tests, and mend the copy again."""
    below, changed = planted(mutant, ROOT / "deltahist")
    file = project / "deltahist" / below
    sound = file.read_text(encoding="utf-8")
    file.write_text(changed, encoding="utf-8")
    try:
        named = [f"tests/{test}" for test in dict.fromkeys(mutant.tests)]
        return caught_by(project, named) or caught_by(project, ["tests"])
    finally:
        file.write_text(sound, encoding="utf-8")


def main() -> int:
    """Run the mutants that were asked for and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only mutants whose topic, place and name hold these words")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="copies that run at a time")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if all(w in f"{m.topic} {m.at} {m.name}" for w in options.words)]
    if not chosen:
        parser.error(f"no mutant has {' '.join(options.words)!r} in its topic, place and name")
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copies: Queue[Path] = Queue()
        for number in range(min(options.jobs, len(chosen))):
            place = Path(folder) / str(number)
            place.mkdir()
            copies.put(copy_of_the_project(place))

        def run(mutant: Mutant) -> tuple[Mutant, str | None, float]:
            project, start = copies.get(), time.monotonic()
            try:
                return mutant, plant(mutant, project), time.monotonic() - start
            finally:
                copies.put(project)

        with ThreadPoolExecutor(options.jobs) as pool:
            runs = as_completed([pool.submit(run, mutant) for mutant in chosen])
            for number, (mutant, test, seconds) in enumerate((r.result() for r in runs), start=1):
                verdict = "caught" if test else "missed"
                print(f"{number:4}/{len(chosen)}  {verdict}  {mutant.topic}: {mutant.name}", flush=True)
                why = f"by {test}" if test else mutant.harmless or "NOT CAUGHT, and no reason why that is harmless"
                print(f"{'':19}{why}  ({seconds:.0f} s)", flush=True)
                missed += [mutant] if test is None else []
    bad = [m for m in missed if not m.harmless]
    print(
        f"\n{len(chosen)} mutants: {len(chosen) - len(missed)} caught, {len(missed)} missed, {len(bad)} of them harmful"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
