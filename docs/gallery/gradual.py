"""Finer later, at no extra cost

One square of 4 km, published at ε = 0.1 and refined five times. Each release reuses the noise of the last. All six
together cost only ε = 3.2, as much as the last alone.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import deltahist as dh
from deltahist.sample import BOUNDS, sample_points

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="500m")
near = dh.Neighbourhood(domain, delta="500m")
counts = dh.count(sample_points(), domain, x="lon", y="lat", crs="EPSG:4326")
square = [[domain.edges(0)[12], domain.edges(1)[12], domain.edges(0)[20], domain.edges(1)[20]]]
truth = counts.array[12:20, 12:20].sum()

budgets, rng = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2], np.random.default_rng(1)
with tempfile.TemporaryDirectory() as folder:
    state = Path(folder, "city.state")  # keeps the noise secret
    releases = [dh.publish(counts, near, epsilon=budgets[0], state=state, rng=rng)]
    for epsilon in budgets[1:]:
        releases.append(dh.refine(releases[-1], state, epsilon=epsilon, rng=rng))
answers = pd.concat([dh.answer(release, square) for release in releases])

figure, ax = plt.subplots()
ax.axhline(truth, color="0.3", linewidth=1.2)
ax.annotate(f"truth: {truth:,}", (0.1, truth), xytext=(0, 4), textcoords="offset points")
ax.fill_between(budgets, answers.low, answers.high, alpha=0.25, linewidth=0)
ax.plot(budgets, answers.estimate, "o-")
ax.set(xscale="log", xlabel="ε spent so far", ylabel="visits in the square")
ax.set_xticks(budgets, labels=budgets)
ax.minorticks_off()
ax.yaxis.set_major_formatter("{x:,.0f}")
figure.suptitle("Release early, refine later", x=0.03, ha="left")
figure.savefig(sys.argv[1])
