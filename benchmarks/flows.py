"""Flow and spectral releases from 256 × 256 to 4096 × 4096 cells: seconds and peak memory, one process for each.

Flows are without a limit, and with hubs, so that any move costs at most 4 ε.
Targets: a 4096 × 4096 flow release with decoding under 60 s and 4 GB; time and memory linear in cells up to logarithms.
`--plot FILE.png` draws both against cells.
"""

from __future__ import annotations

import json
import subprocess
import sys

SIDES = (256, 512, 1024, 2048, 4096)
MECHANISMS = {"flow": "epsilon=1.0", "hubs": "epsilon=1.0", "spectral": "rho=0.03"}

RELEASE = """
import json, resource, sys, time
import numpy as np
import deltahist as dh
from deltahist.strategies import Flow, Spectral
n, kind = int(sys.argv[1]), sys.argv[2]
domain = dh.Domain((0, 0, 1, 1), (n, n))
near = dh.Neighbourhood(domain, 1 / n, limits=[(float("inf"), 4)] if kind == "hubs" else ())
counts = np.random.default_rng(1).poisson(0.5, (n, n))
start = time.perf_counter()
strategy = Spectral(near) if kind == "spectral" else Flow.tuned(near)
release = dh.publish(counts, near, strategy, {budget})
middle = time.perf_counter()
release.cells()
end = time.perf_counter()
work = dh.workloads.all_ranges(domain).sample(1000)
table = dh.answer(release, work)
last = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([middle - start, end - middle, last - end, peak]))
"""


def measure() -> list[tuple[str, int, float, float, float, float]]:
    """Mechanism, side, seconds to publish, to decode and for the first 1,000 answers, GiB."""
    rows = []
    for kind, budget in MECHANISMS.items():
        for n in SIDES:
            code = RELEASE.replace("{budget}", budget)
            done = subprocess.run(
                [sys.executable, "-c", code, str(n), kind], check=True, capture_output=True, text=True
            )
            rows.append((kind, n, *json.loads(done.stdout.splitlines()[-1])))
            print(
                f"{kind:<9} {n:5} {rows[-1][2]:9.2f} {rows[-1][3]:8.2f} {rows[-1][4]:9.2f} {rows[-1][5]:7.2f}",
                flush=True,
            )
    return rows


def main() -> None:
    """Print the table; draw it if asked."""
    print(f"{'mechanism':<9} {'side':>5} {'publish s':>9} {'decode s':>8} {'answers s':>9} {'GiB':>7}")
    rows = measure()
    if "--plot" in sys.argv:
        draw(rows, sys.argv[sys.argv.index("--plot") + 1])


def draw(rows: list[tuple[str, int, float, float, float, float]], file: str) -> None:
    """Time and memory against cells, with a line of slope one."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    times, memory = figure.subplots(1, 2)
    for kind, colour in zip(MECHANISMS, ("#1f5fa8", "#3a9a3a", "#e07b00"), strict=True):
        own = [r for r in rows if r[0] == kind]
        cells = [r[1] ** 2 for r in own]
        times.loglog(cells, [r[2] + r[3] for r in own], "o-", color=colour, label=kind)
        memory.loglog(cells, [r[5] for r in own], "o-", color=colour, label=kind)
    for axes, name in ((times, "publish and decode (s)"), (memory, "peak memory (GiB)")):
        low, high = axes.get_xlim()
        top = axes.get_ylim()[1]
        axes.loglog([low, high], [top * low / high, top], ":", color="#6f6f6f", label="linear in cells")
        axes.set(xlabel="cells", ylabel=name)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(file, dpi=130)


if __name__ == "__main__":
    main()
