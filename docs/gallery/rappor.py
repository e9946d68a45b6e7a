"""Reports from phones

30,000 phones report a place in noisy bits, at ε = 4 for everything a phone ever reports. Together they show the
popular places. Bars are 95% intervals, and places without a bar are too rare to tell.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import deltahist as dh

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

places = ["station", "market", "harbour", "museum", "stadium", "library", "zoo", "cinema", "theatre", "old mill"]
shares = np.array([30, 20, 14, 10, 8, 6, 5, 4, 2, 1]) / 100
rng = np.random.default_rng(1)
visited = rng.choice(places, 30_000, p=shares)

mechanism = dh.network.Rappor.costing(4, bits=128, hashes=2, cohorts=8, p=0.25, q=0.75)
clients = dh.network.Clients(visited, mechanism, rng=rng)
found = clients.report(rng=rng).decode(places)
truth = [(visited == place).sum() for place in places]

figure, ax = plt.subplots()
reach = 1.96 * found.std_error
ax.hlines(found.candidate, found.estimate - reach, found.estimate + reach, linewidth=5, alpha=0.35)
ax.plot(found.estimate, found.candidate, "o")
ax.plot(truth, places, "D", markersize=5, markerfacecolor="none", markeredgewidth=1.4)
ax.invert_yaxis()
ax.set_xlabel("phones")
ax.xaxis.set_major_formatter("{x:,.0f}")
ax.tick_params(axis="y", length=0)
ax.grid(axis="x")
ax.annotate("estimate, 95% interval", (4700, 4), color="C0")
ax.annotate("truth", (4700, 5), color="C1")
figure.suptitle("Noisy reports reveal popular places", x=0.03, ha="left")
figure.savefig(sys.argv[1])
