"""What 95% means

One district, published 100 times with fresh noise at ε = 0.5. Each bar is the 95% interval of one release. About five
in a hundred miss the truth, and nobody can tell which.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import deltahist as dh
from deltahist.sample import BOUNDS, sample_points

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="1km")
near = dh.Neighbourhood(domain, delta="1km")
counts = dh.count(sample_points(), domain, x="lon", y="lat", crs="EPSG:4326")
west, south, east, north = domain.edges(0)[6], domain.edges(1)[6], domain.edges(0)[10], domain.edges(1)[9]
truth = counts.array[6:10, 6:9].sum()

rng = np.random.default_rng(1)
releases = [dh.publish(counts, near, "tents", epsilon=0.5, rng=rng) for _ in range(100)]
answers = pd.concat([dh.answer(release, [[west, south, east, north]]) for release in releases], ignore_index=True)
hit = (answers.low <= truth) & (truth <= answers.high)

figure, ax = plt.subplots(figsize=(5.2, 4.2))
for some, colour, dot in ((answers[hit], "#9ec9e2", "C0"), (answers[~hit], "C1", "C1")):
    ax.vlines(some.index + 1, some.low, some.high, color=colour, linewidth=2.4)
    ax.plot(some.index + 1, some.estimate, "o", color=dot, markersize=2.5)
ax.axhline(truth, color="0.2", linewidth=1.2)
ax.text(102, truth, f"truth: {truth:,}", va="center")
ax.set(xlabel="release", ylabel="visits in 4 km × 3 km", xlim=(0, 101))
ax.yaxis.set_major_formatter("{x:,.0f}")
figure.suptitle(f"{hit.sum()} of 100 intervals contain the truth", x=0.03, ha="left")
figure.savefig(sys.argv[1])
