"""The figures of results.md: the cost of the defaults, and of every strategy that "auto" may choose.

Each of our processes measures its tasks, and a fixed piece of Python and NumPy work before and after them. A command is
measured as a whole, next to Python with NumPy and Arrow alone, or next to a DuckDB count.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import deltahist as dh
from benchmarks import scenes
from benchmarks.processes import run
from deltahist import sweeping

SIDES = (256, 1000, 4096)
#: Targets by figure: seconds, milliseconds, GiB, or multiples of the reference.
ASKED = {
    "publish, default, 4096²": 8,
    "memory to publish, default, 4096²": 1,
    "publish, default, 8192²": 25,
    "memory to publish, default, 8192²": 3,
    "load and first answer, default, 1000²": 0.3,
    "load and first answer, default, 4096²": 1.5,
    "load and first 10⁵ boxes that cut cells, default, 4096²": 2,
    "a box that cuts cells, default, 1000²": 3,
    "a box that cuts cells, default, 4096²": 3,
    "a box of whole cells, default, 1000²": 0.5,
    "10⁶ boxes of whole cells, default, 1000²": 0.5,
    "10⁶ boxes that cut cells, default, 1000²": 2.5,
    "10⁵ boxes of whole cells, default, 4096²": 0.3,
    "10⁵ boxes that cut cells, default, 4096²": 0.3,
    "plan, 32²": 0.3,
    "plan, 128²": 0.3,
    "plan, 1000²": 0.5,
    "plan, 4096²": 2,
    "sweep, 100 settings, 128²": 10,
    "allocation, 10,000 steps": 4,
    "cells not negative, 128²": 0.7,
    "cells not negative, 256²": 3,
    "cells not negative, 512²": 15,
    "deltahist statement": 0.7,
    "deltahist query --box": 0.7,
    "deltahist query, 10,000 boxes in degrees": 2,
    "deltahist query, 10,000 boxes in metres": 1,
    "deltahist plan, 50 regions": 3,
    "deltahist publish --regions": 1.5,
    "deltahist publish, 10⁷ points, over DuckDB": 1.5,
    "deltahist publish, 10⁸ points, over DuckDB": 1.1,
}
RELEASE, BOX = "release.parquet", "583000,4505000,588000,4512000"
PLAIN = ("-c", "import numpy, pyarrow.parquet")
DUCKDB = (
    "import duckdb, sys\n"
    "cells = 'floor((x - 0) / 0.001) AS i, floor((y - 0) / 0.001) AS j'\n"
    "duckdb.sql(f\"SELECT {cells}, count(*) AS n FROM '{sys.argv[1]}' GROUP BY ALL\").fetchnumpy()"
)
UNIT_SQUARE = ["--x", "x", "--y", "y", "--bounds", "0,0,1,1", "--cell", "0.001", "--delta", "0.001", "--epsilon", "1"]
PLACE = [*("--bounds", ",".join(map(str, scenes.BOUNDS))), *("--regions", "zones.gpkg", "--points", str(scenes.POINTS))]
#: Number of boxes that are answered one after another.
TIMES = 200


class Sample(NamedTuple):
    """One measurement: CPU seconds (or GiB) and wall-clock seconds, and the same for the reference."""

    own: float
    clock: float
    reference: float
    reference_clock: float


class Setting(NamedTuple):
    """A promise, a workload, and the strategy that "auto" chooses for them.

    Parameters
    ----------
    strategy : its class.
    limits : limits on moves beyond δ. how : further arguments of `publish`. cells : whether queries are single cells.
    line, sides : whether cells form a line instead of a square, and their number per side. delta : δ in cells.
    """

    strategy: str
    limits: Any = None
    how: Mapping[str, Any] = {"epsilon": 1}
    cells: bool = False
    line: bool = False
    sides: tuple[int, ...] = SIDES
    delta: int = 1

    def publish(self, side: int) -> Callable[[], dh.Release]:
        """Make counts, and return a function that publishes them.

        Raises
        ------
        RuntimeError
            If "auto" chooses another strategy.
        """
        counts = np.random.default_rng(1).poisson(0.5, (side,) * (1 if self.line else 2))
        asked = {"workload": dh.workloads.boxes(self.boxes(500, side, True, 1))} if self.cells else {}

        def task() -> dh.Release:
            release = dh.publish(counts, near(side, self.limits, self.line, self.delta), **self.how, **asked)
            if release.strategy.name != self.strategy:
                raise RuntimeError(f"auto takes {release.strategy.name} where {self.strategy} is measured")
            return release

        return task

    def boxes(self, number: int, side: int, whole: bool, most: int | None = None) -> NDArray[np.float64]:
        """Return corners (number, 4 or 2) of boxes whose sides have at most `most` cells, or a tenth of all."""
        rng, most = np.random.default_rng(2), max(1, side // 10) if most is None else most
        low = (rng.integers if whole else rng.uniform)(0, side - most, (number, 2))
        size = rng.integers(1, most, (number, 2), endpoint=True) if whole else rng.uniform(0.1, most, (number, 2))
        return np.hstack([low, low + size]).astype(float)[:, :: 2 if self.line else 1]


@dataclass(frozen=True)
class Task:
    """Figures measured in one of our processes: their units by name, in the order in which a function yields them."""

    units: Mapping[str, str]
    function: Callable[..., Iterator[tuple[float, ...]]]
    arguments: tuple[Any, ...]
    quick: bool = False

    def measure(self, folder: Path) -> dict[str, Sample]:
        """Run it once in a folder."""
        told = json.loads(run("-m", "benchmarks.defaults", next(iter(self.units)), folder=folder).printed)
        return {name: Sample(*each) for name, each in zip(self.units, told, strict=True)}

    def tell(self) -> None:
        """Print the samples. Without a reference, compare with a fixed piece of work in the same process."""
        before = _kernel()
        found = list(self.function(Path.cwd(), *self.arguments))
        kernel = min(before, _kernel())
        scale = {"ms": 1000}
        samples = [
            Sample(*(scale.get(unit, 1) * figure for figure in each[:2]), *(each[2:] or (kernel, kernel)))
            for unit, each in zip(self.units.values(), found, strict=True)
        ]
        print(json.dumps(samples))


@dataclass(frozen=True)
class Command:
    """A figure of a whole command, next to another process."""

    name: str
    words: Sequence[str]
    beside: Sequence[str] = PLAIN
    unit: str = "s"
    quick: bool = False

    @property
    def units(self) -> Mapping[str, str]:
        """The unit, by the name of the figure."""
        return {self.name: self.unit}

    def measure(self, folder: Path) -> dict[str, Sample]:
        """Run both processes once in a folder."""
        if "--out" in self.words:
            (folder / self.words[-1]).unlink(missing_ok=True)
        own, other = run("-m", "deltahist", *self.words, folder=folder), run(*self.beside, folder=folder)
        return {self.name: Sample(own.processor, own.clock, other.processor, other.clock)}


def near(side: int, limits: Any = None, line: bool = False, delta: int = 1) -> dh.Neighbourhood:
    """Return a neighbourhood on a square or a line of cells."""
    axes = 1 if line else 2
    return dh.Neighbourhood(dh.Domain((0,) * axes + (side,) * axes, (side,) * axes), delta, limits=limits)


def publish(folder: Path, setting: str, side: int) -> Iterator[tuple[float, ...]]:
    """Publish cells, imports included: seconds, and additional GiB of memory."""
    before, made = _peak(), []
    task = SETTINGS[setting].publish(side)
    yield _spent(lambda: made.append(task()))
    yield _peak(), _peak(), before, before
    made[0].save(folder / f"{setting} {side}.parquet")


def ask(folder: Path, setting: str, side: int, number: int) -> Iterator[tuple[float, ...]]:
    """Load a release and answer a box, imports included; then one box and many, cutting cells or not."""
    boxes, loaded = SETTINGS[setting].boxes, []

    def first() -> None:
        loaded.append(dh.load(folder / f"{setting} {side}.parquet"))
        dh.answer(loaded[0], boxes(1, side, False))

    yield _spent(first)
    (release,) = loaded
    for whole in (False, True):
        single = [dh.workloads.boxes(box[None]) for box in boxes(TIMES, side, whole)]
        many = dh.workloads.boxes(boxes(number, side, whole))
        dh.answer(release, single[0])
        spent = _least(lambda works=single: [dh.answer(release, work) for work in works])
        yield tuple(each / TIMES for each in spent)
        yield _least(lambda work=many: dh.answer(release, work))


def ask_at_once(folder: Path, setting: str, side: int, number: int) -> Iterator[tuple[float, ...]]:
    """Load a release and answer many boxes that cut cells, imports included."""
    work = dh.workloads.boxes(SETTINGS[setting].boxes(number, side, False))
    yield _spent(lambda: dh.answer(dh.load(folder / f"{setting} {side}.parquet"), work))


def plan(folder: Path, side: int) -> Iterator[tuple[float, ...]]:
    """Rank mechanisms for all ranges, without the imports."""
    dh.plan(near(2))
    yield _spent(lambda: dh.plan(near(side), epsilon=1))


def sweep(folder: Path, side: int) -> Iterator[tuple[float, ...]]:
    """Compute expected errors in two neighbourhoods, for two workloads, five ε and five strategies."""
    domain = dh.Domain((0, 0, side, side), (side, side))
    nears = {f"{delta}": dh.Neighbourhood(domain, delta, limits=[(math.inf, 2 * delta)]) for delta in (1, 2)}
    ranges = dh.workloads.all_ranges(domain)
    names = ("auto", "flow", "tents", "identity", "wavelet")
    setting = nears, {"all": ranges, "some": ranges.sample(1000, 1)}, (1, 0.5, 0.1, 0.05, 0.01)
    yield _spent(lambda: sweeping.sweep(*setting, {name: name for name in names}))


def allocation(folder: Path, steps: int) -> Iterator[tuple[float, ...]]:
    """Share a budget among steps of uniform weights, δ = 30."""
    from deltahist.accounts.allocation import allocate_offline

    weights = np.random.default_rng(1).random(steps)
    yield _spent(lambda: allocate_offline(weights, length=30, epsilon=1.0))


def nonnegative(folder: Path, side: int) -> Iterator[tuple[float, ...]]:
    """Compute non-negative estimates, and answer from them."""
    points = np.random.default_rng(1).beta(4, 4, (12 * side**2, 2)) * side
    asked = near(side)
    release = dh.publish(dh.count(points, asked.domain), asked, epsilon=1)
    work = dh.workloads.boxes(SETTINGS["default"].boxes(TIMES, side, True))
    yield _spent(lambda: dh.answer(release, work, nonnegative=True))


def _spent(task: Callable[[], Any]) -> tuple[float, float]:
    """Return CPU seconds and wall-clock seconds."""
    clock, start = time.perf_counter(), time.process_time()
    task()
    return time.process_time() - start, time.perf_counter() - clock


def _least(task: Callable[[], Any], times: int = 2) -> tuple[float, ...]:
    return tuple(map(min, zip(*(_spent(task) for _ in range(times)), strict=True)))


def _kernel() -> float:
    """Return the seconds of a fixed piece of Python and NumPy work that no processor vectorises differently."""

    def task() -> None:
        rng = np.random.default_rng(1)
        np.cumsum(rng.random(10**6)).take(rng.integers(10**6, size=10**6))
        sum(i * i for i in range(100_000))

    return _least(task, 5)[0]


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


#: The strategies that "auto" may choose: all except ShiftedGrids and Wavelet.
ALIKE = [(math.inf, 1)]
SETTINGS = {
    "default": Setting("Flow"),
    "no limit": Setting("Flow", ()),
    "any move alike": Setting("Tents", ALIKE, sides=(256, 1000), delta=2),
    "Gaussian": Setting("Spectral", how={"rho": 0.03}),
    "single cells": Setting("Identity", cells=True),
    "small and Gaussian": Setting("Optimal", how={"rho": 0.03}, sides=(16,)),
    "line, any move alike": Setting("CutAugmented", ALIKE, line=True, sides=(64,)),
    "line, no limit": Setting("Cumulative", (), line=True, sides=(4096,)),
    "line, number not known": Setting(
        "Hierarchical", ALIKE, {"epsilon": 1, "dropped": ["bad rows"]}, line=True, sides=(1024,)
    ),
}


def _sessions() -> Iterator[Task | Command]:
    """Return all sessions. A session that reads a release comes after the one that publishes it."""
    for setting, chosen in SETTINGS.items():
        for side in chosen.sides:
            at = f"{setting}, {side}{'' if chosen.line else '²'}"
            quick = side < 1000 or at == "default, 1000²"
            units = {f"publish, {at}": "s", f"memory to publish, {at}": "GiB"}
            yield Task(units, publish, (setting, side), quick)
            many, number = ("10⁶", 10**6) if at == "default, 1000²" else ("10⁵", 10**5)
            units = {f"load and first answer, {at}": "s"}
            for one, more in (("that cuts cells", "that cut cells"), ("of whole cells", "of whole cells")):
                units |= {f"a box {one}, {at}": "ms", f"{many} boxes {more}, {at}": "s"}
            yield Task(units, ask, (setting, side, number), quick)
            if at == "default, 4096²":
                units = {f"load and first 10⁵ boxes that cut cells, {at}": "s"}
                yield Task(units, ask_at_once, (setting, side, 10**5))
    units = {"publish, default, 8192²": "s", "memory to publish, default, 8192²": "GiB"}
    yield Task(units, publish, ("default", 8192))
    for side in (32, 128, 1000, 4096):
        yield Task({f"plan, {side}²": "s"}, plan, (side,), side <= 128)
    yield Task({"sweep, 100 settings, 128²": "s"}, sweep, (128,), True)
    for name, steps in (("2,000", 2_000), ("10,000", 10_000)):
        yield Task({f"allocation, {name} steps": "s"}, allocation, (steps,), steps == 2_000)
    for side in (128, 256, 512):
        yield Task({f"cells not negative, {side}²": "s"}, nonnegative, (side,), side == 128)
    query = ["query", RELEASE]
    yield Command("deltahist statement", ["statement", RELEASE], quick=True)
    yield Command("deltahist query --box", [*query, "--box", BOX], quick=True)
    for name, file in (("1,000", "few"), ("10,000", "degrees")):
        asked = f"deltahist query, {name} boxes in degrees"
        yield Command(asked, [*query, "--boxes", f"{file}.csv"], quick=file == "few")
    yield Command("deltahist query, 10,000 boxes in metres", [*query, "--boxes", "metres.csv"])
    plan_regions = ["plan", "--project", scenes.CRS, *PLACE, "--delta", "500m", "--epsilon", "1"]
    yield Command("deltahist plan, 50 regions", plan_regions, quick=True)
    city = ["publish", "points.csv", "--x", "x", "--y", "y", "--delta", "500m", "--epsilon", "1", "--crs"]
    yield Command("deltahist publish --regions", [*city, scenes.CRS, *PLACE, "--out", "out.parquet"], quick=True)
    for name, number in scenes.PARQUET.items():
        yield Command(
            f"deltahist publish, {name} points, over DuckDB",
            ["publish", f"{number}.parquet", *UNIT_SQUARE, "--out", "out.parquet"],
            ["-c", DUCKDB, f"{number}.parquet"],
            "times",
        )


SESSIONS = tuple(_sessions())


if __name__ == "__main__":
    (chosen,) = (each for each in SESSIONS if isinstance(each, Task) and sys.argv[1] in each.units)
    chosen.tell()
