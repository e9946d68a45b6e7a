"""Which strategy for which question

Expected error of rectangles by their size, at ε = 1 for moves within 250 m. Counting each cell wins for the smallest
squares only. The planner picks a strategy for the questions you expect.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import deltahist as dh

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain(bounds=(0, 0, 16_000, 16_000), shape=(64, 64))
near = dh.Neighbourhood(domain, delta=250, limits=[("any", 4)])
sides = np.array([1, 2, 4, 8, 16, 32]) * 250

figure, ax = plt.subplots()
for name in ("identity", "hierarchical", "wavelet", "tents", "flow"):
    strategy = dh.strategies.parse_strategy(name, near)
    errors = []
    for side in sides:
        corner = np.random.default_rng(1).integers(0, (16_000 - side) // 250 + 1, (200, 2)) * 250
        squares = dh.workloads.boxes(np.hstack([corner, corner + side]))
        errors.append(dh.expected_error(strategy, near, squares, epsilon=1).mean() ** 0.5)
    (line,) = ax.plot(sides / 1000, errors, "o-", markersize=4)
    ax.annotate(f" {name}", (sides[-1] / 1000, errors[-1]), color=line.get_color(), va="center")
ax.set(xscale="log", yscale="log", xlabel="side of the square (km)", ylabel="standard error (visits)")
ax.set_xticks(sides / 1000, labels=["0.25", "0.5", "1", "2", "4", "8"])
ax.set_yticks([3, 10, 30, 100], labels=["3", "10", "30", "100"])
ax.minorticks_off()
ax.set_xlim(right=21)
ax.grid(axis="y")
figure.suptitle("The best strategy depends on the question", x=0.03, ha="left")
figure.savefig(sys.argv[1])
