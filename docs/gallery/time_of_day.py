"""When people travel

Departure times of 2,500 trips, released as noisy sums of sorted times. Moves within 30 minutes are hidden at ε = 0.2.
One release answers every quantile, and the band holds for each with 95%.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import deltahist as dh

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

rng = np.random.default_rng(1)
peaks = [rng.normal(8, 0.9, 950), rng.normal(17.5, 1.4, 1050), rng.uniform(5, 24, 500)]
hours = np.concatenate(peaks).clip(0, 24)  # private

day = dh.Neighbourhood(dh.Domain(bounds=(0, 24), shape=(96,)), delta=0.5)
release = dh.publishers.publish_sorted(hours, day, epsilon=0.2, rng=rng)
levels = np.linspace(0.005, 0.995, 199)
found = release.quantiles(levels)

quarters = release.domain.edges(0)
truth = np.histogram(hours, quarters)[0]
middle = release.quantiles(0.5).loc[0]

figure, (top, bottom) = plt.subplots(2, sharex=True, figsize=(5.2, 5))
top.stairs(release.cells(), quarters, fill=True, color="C0", alpha=0.5)
top.stairs(truth, quarters, color="0.3", baseline=None, linewidth=1)
top.annotate("estimate", (9.2, 120), color="C0")
top.annotate("truth", (9.2, 100), color="0.3")
top.set_ylabel("trips per 15 min")
bottom.fill_betweenx(100 * levels, found.low, found.high, alpha=0.25, linewidth=0)
bottom.plot(found.estimate, 100 * levels)
bottom.plot(middle.estimate, 50, "o", color="C1")
bottom.annotate(f"median: {middle.low:.1f} to {middle.high:.1f} h", (middle.estimate, 38), color="C1")
bottom.set(xlabel="hour of the day", ylabel="% departed", xlim=(4, 24), ylim=(0, 100), xticks=range(4, 25, 4))
figure.suptitle("Every quantile from one release", x=0.03, ha="left")
figure.savefig(sys.argv[1])
